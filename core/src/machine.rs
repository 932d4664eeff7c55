//! One shape for both ends of the protocol: what a transport tells a machine, and what it asks of it.
//!
//! A driver written against [`Machine`] serves a [`Client`](crate::client::Client) and a [`Store`](crate::store::Store)
//! alike. The methods of the two types themselves do the same; use those where you know which one it is.
//!
//! # The loop that a driver owes
//!
//! The examples `blocking_client` and `blocking_store` of this package run this loop as it stands here, over a plain TCP
//! socket: `examples/mqtt5/drive.rs`, with a small MQTT 5 session beside it.
//!
//! ```
//! use std::ops::ControlFlow;
//! use statestore_proto::machine::{Input, Machine};
//! use statestore_proto::mqtt::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};
//! use statestore_proto::time::Now;
//! # use std::collections::VecDeque;
//! # use bytes::Bytes;
//! # use statestore_proto::client::{Client, ClientConfig};
//! # use statestore_proto::time::Instant;
//!
//! /// What your MQTT stack tells.
//! enum Packet {
//!     ConnAck { session_present: bool },
//!     SubAck(SubscribeToken, ReasonCode),
//!     PubAck(PublishToken, ReasonCode),
//!     Publish { topic: String, payload: Bytes, user_properties: Vec<(String, String)> },
//!     Closed,
//! }
//! # struct Connection(VecDeque<Packet>);
//! # impl Connection {
//! #     fn has_room(&self) -> bool { true }
//! #     fn send(&mut self, _: Transmit) {}
//! #     fn receive_before(&mut self, _: Option<Instant>, _messages: bool) -> Option<Packet> { self.0.pop_front() }
//! # }
//! # fn clocks() -> Now { Now::default() }
//! # fn application(_: &mut impl Machine) -> ControlFlow<(), Option<Instant>> { ControlFlow::Continue(None) }
//!
//! fn drive(machine: &mut impl Machine, connection: &mut Connection) {
//!     loop {
//!         // 1. The application: submit requests, take events, and say when it wants to be called again, if it does; a
//!         //    lock that runs on the client has deadlines of its own. A store has nothing to do here.
//!         let step = application(machine);
//!         // 2. Send what there is, in order, while there is room for it.
//!         while connection.has_room() {
//!             let Some(transmit) = machine.poll_transmit() else { break };
//!             connection.send(transmit);
//!         }
//!         let ControlFlow::Continue(wake) = step else { return };
//!         // 3. Wait for a packet, but no longer than machine and application allow, and for a message only if there is
//!         //    room for one. A time that has come is told before a packet that waits: a busy connection holds up nothing.
//!         let until = [machine.poll_timeout(), wake].into_iter().flatten().min();
//!         let packet = connection.receive_before(until, machine.wants_messages());
//!         // 4. Tell the machine what happened and what time it is.
//!         let now = clocks();
//!         match packet {
//!             None => machine.handle(now, Input::Timeout),
//!             Some(Packet::ConnAck { session_present }) => machine.handle(now, Input::Connected { session_present }),
//!             Some(Packet::SubAck(token, reason)) => machine.handle(now, Input::Subscribed(token, reason)),
//!             Some(Packet::PubAck(token, reason)) => machine.handle(now, Input::Published(token, reason)),
//!             Some(Packet::Publish { topic, payload, user_properties }) => {
//!                 let mut message = Incoming::new(&topic, &payload);
//!                 // ... and response topic, correlation data, message expiry, retain flag, QoS, delivery token.
//!                 user_properties.iter().for_each(|(name, value)| message.user_property(name, value));
//!                 machine.handle(now, Input::Message(&message));
//!             }
//!             Some(Packet::Closed) => return machine.handle(now, Input::Disconnected),
//!         }
//!     }
//! }
//! # let mut client = Client::new(ClientConfig::new("c", [0; 8]).unwrap());
//! # drive(&mut client, &mut Connection(VecDeque::from([Packet::ConnAck { session_present: false }, Packet::Closed])));
//! ```
//!
//! What MQTT needs to know beside that:
//!
//! | Matter | What the driver does |
//! |---|---|
//! | CONNECT | MQTT 5. The client id is that of the machine's configuration. *Clean Start* set, for a client; a store clears it and asks for a Session Expiry Interval, so that requests without an answer come again |
//! | Receive Maximum | bounds what the broker sends ahead: for a store no more than it may hold, since messages that it has no [room](Machine::wants_messages) for wait in the driver. Go on reading meanwhile: the PUBACKs that make room come behind them |
//! | Maximum Packet Size | the broker's, from its CONNACK, bounds what may be sent: report a PUBLISH that is larger as [`Published`](Input::Published) with [`PACKET_TOO_LARGE`](crate::mqtt::ReasonCode::PACKET_TOO_LARGE), and do not send it. A reply has no token: its requester waits in vain, so say that too |
//! | Room | a connection that had no room and has some again ends the wait, or what the machine has to send waits on; most PUBACKs of a store make room and are told to nobody |
//! | Lost connection | packets that were polled and not written are dropped with it: [`Disconnected`](Input::Disconnected) and the next [`Connected`](Input::Connected) settle what was on its way. Nothing of the old connection is told after that: no SUBACK, no PUBACK, no message |
//! | SUBACK | each [`Subscribe`](crate::mqtt::Transmit::Subscribe) is answered with its token. A client tells a refusal as an [event](crate::client::Event::SubscribeFailed); a store has no events, it only does not become [ready](Machine::is_ready), so whoever reads the SUBACK says why |
//! | PUBACK | matters for a PUBLISH that has a [token](crate::mqtt::Publish::token); others need not be told |
//! | Received QoS 1 | a client's are acknowledged at once. A store's carry a [`Delivery`](crate::mqtt::Delivery) and are acknowledged when [`Acknowledge`](crate::mqtt::Transmit::Acknowledge) says so; one of an earlier connection is dropped |
//! | Time | `now` is read after waiting, right before the call |
//!
//! Nothing polled is an answer to what was told just before: poll until there is nothing more, whatever was told.

use crate::mqtt::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};
use crate::time::{Instant, Now};

/// What a transport tells a machine.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// A connection was made.
    Connected {
        /// The flag of the CONNACK.
        session_present: bool,
    },
    /// The connection is lost.
    Disconnected,
    /// A SUBACK.
    Subscribed(SubscribeToken, ReasonCode),
    /// A PUBACK, or what the transport says in its place when it cannot send the packet.
    Published(PublishToken, ReasonCode),
    /// A received PUBLISH.
    Message(&'a Incoming<'a>),
    /// Another client has disconnected, where the transport can tell. Only a store uses this.
    ClientGone(&'a str),
    /// Time has passed.
    Timeout,
}

/// One end of the protocol, as a transport drives it. See the [module documentation](self) for the loop.
pub trait Machine {
    /// Handles an input.
    fn handle(&mut self, now: Now, input: Input<'_>);

    /// The next packet to send, in order.
    #[must_use]
    fn poll_transmit(&mut self) -> Option<Transmit>;

    /// When to tell [`Input::Timeout`]; `None` when nothing is due.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether it is connected and what it needs is subscribed.
    #[must_use]
    fn is_ready(&self) -> bool;

    /// Whether there is room for a message; otherwise leave it with the broker, or wherever it is.
    #[must_use]
    fn wants_messages(&self) -> bool;
}
