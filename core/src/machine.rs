//! The interface between a machine and its transport, the same for both ends of the protocol.
//!
//! A driver of [`Machine`] works with a [`Client`](crate::client::Client) and with a
//! [`Store`](crate::store::Store). Both types also have methods of their own for each input and
//! output, such as `handle_publish`; a driver of one machine can call these.
//!
//! # The loop that a driver owes
//!
//! The examples `blocking_client` and `blocking_store` of this package run this loop over a plain
//! TCP socket: see `examples/mqtt5/drive.rs`, with the MQTT session of `statestore-mqtt`.
//!
//! ```
//! use std::ops::ControlFlow;
//! use statestore_proto::machine::{Input, Machine};
//! use statestore_proto::transport::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};
//! use statestore_proto::time::{Instant, Now};
//! # use std::collections::VecDeque;
//! # use bytes::Bytes;
//! # use statestore_proto::client::{Client, ClientConfig};
//!
//! /// An event of your MQTT stack.
//! enum Packet {
//!     ConnAck { session_present: bool },
//!     SubAck(SubscribeToken, ReasonCode),
//!     PubAck(PublishToken, ReasonCode),
//!     Publish { topic: String, payload: Bytes, user_properties: Vec<(String, String)> },
//!     Closed,
//! }
//! # struct Connection(VecDeque<Packet>);
//! # impl Connection {
//! #     fn has_capacity(&self) -> bool { true }
//! #     fn send(&mut self, _: Transmit) {}
//! #     fn receive_before(&mut self, _: Option<Instant>, _messages: bool) -> Option<Packet> { self.0.pop_front() }
//! # }
//! # fn clocks() -> Now { Now::default() }
//!
//! fn drive<M: Machine>(
//!     machine: &mut M,
//!     connection: &mut Connection,
//!     mut application: impl FnMut(Now, &mut M) -> ControlFlow<(), Option<Instant>>,
//! ) {
//!     loop {
//!         // 1. The application submits requests, takes events, and returns its own deadline: a lock
//!         //    that runs on the client has some. A store without durability does nothing here; a
//!         //    durable store persists its records (below).
//!         let step = application(clocks(), machine);
//!         // 2. Send packets in order, while the connection has capacity.
//!         while connection.has_capacity() {
//!             let Some(transmit) = machine.poll_transmit() else { break };
//!             connection.send(transmit);
//!         }
//!         let ControlFlow::Continue(wake) = step else { return };
//!         // 3. Wait for a packet until the next deadline, and for a message only if the machine can
//!         //    receive one. A deadline that has passed comes before a packet, so a busy connection
//!         //    delays no timer.
//!         let until = [machine.poll_timeout(), wake].into_iter().flatten().min();
//!         let packet = connection.receive_before(until, machine.can_receive());
//!         // 4. Pass the packet and the time to the machine.
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
//! # let mut client = Client::new(ClientConfig::new("c", [0; 8])).unwrap();
//! # let mut connection = Connection(VecDeque::from([Packet::ConnAck { session_present: false }, Packet::Closed]));
//!
//! drive(&mut client, &mut connection, |now, client| {
//!     while let Some(event) = client.poll_event() {
//!         // ...
//! #       let _ = (now, event);
//!     }
//!     ControlFlow::Continue(None)
//! });
//! ```
//!
//! The driver also does this:
//!
//! - **CONNECT**: MQTT 5. A client uses the [client id](crate::client::Client::client_id) of its
//!   configuration; a store uses any id that is stable across restarts. A client sets *Clean
//!   Start*, unless it is configured with
//!   [`keeps_session`](crate::client::ClientConfig::keeps_session): then it clears it on reconnects
//!   and asks for a Session Expiry Interval. A store clears it and asks for a Session Expiry
//!   Interval, so that unacknowledged requests are redelivered.
//! - **Receive Maximum** bounds the messages that the broker sends ahead. For a store it is at most
//!   what the driver can queue, since messages wait in the driver while the store
//!   [cannot receive](Machine::can_receive). Go on reading in that time: the PUBACKs that free
//!   capacity arrive after those messages.
//! - **Maximum Packet Size** of the broker, from its CONNACK, bounds what may be sent. Do not send
//!   a larger PUBLISH, and report it as [`Published`](Input::Published) with
//!   [`PACKET_TOO_LARGE`](crate::transport::ReasonCode::PACKET_TOO_LARGE). A response is
//!   without a token, so its requester waits until its time limit: log it.
//! - **Capacity**: a connection whose send queue was full and has capacity again must end the wait,
//!   or packets of the machine wait on. Most PUBACKs of a store free capacity and are not reported.
//! - **Lost connection**: drop packets that were polled and not written. Exception: with
//!   `keeps_session` a PUBLISH that was polled belongs to the session. Send it, or send it again,
//!   on the next connection if the session is present. [`Disconnected`](Input::Disconnected) and
//!   the next [`Connected`](Input::Connected) settle what was in flight. Report nothing of the old
//!   connection after that: no SUBACK, no PUBACK, no message.
//! - **SUBACK**: report it with the token of its
//!   [`Subscribe`](crate::transport::Transmit::Subscribe). A client emits an
//!   [event](crate::client::Event::SubscribeFailed) for a failure. A store does not emit
//!   events: it only does not become [ready](Machine::is_ready), so the driver must log the reason.
//! - **PUBACK**: report it if the PUBLISH has a [token](crate::transport::Publish::token).
//! - **Received QoS 1**: acknowledge the messages of a client at once. Messages of a store carry a
//!   [`Delivery`](crate::transport::Delivery); acknowledge them on
//!   [`Acknowledge`](crate::transport::Transmit::Acknowledge), and ignore one of an earlier
//!   connection.
//! - **Records**: with [`StoreConfig::durability`](crate::store::StoreConfig::durability), write
//!   what [`Store::poll_records`](crate::store::Store::poll_records) returns after each input, then
//!   call [`Store::handle_persisted`](crate::store::Store::handle_persisted) with the id of the
//!   batch. Responses wait for it, and no deadline reminds you.
//! - **Time**: read `now` after waiting, right before the call.
//!
//! Outputs do not pair with inputs: after any input, poll until nothing is left.

use crate::time::{Instant, Now};
use crate::transport::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};

/// An input of a machine.
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
    /// A PUBACK, or the transport's own reason code when it cannot send the packet.
    Published(PublishToken, ReasonCode),
    /// A received PUBLISH.
    Message(&'a Incoming<'a>),
    /// Another client has disconnected, if the transport knows. Only a store uses this.
    ClientGone(&'a str),
    /// Time has passed.
    Timeout,
}

/// A machine that a transport drives. See the [module documentation](self) for the loop.
pub trait Machine {
    /// Handles an input.
    fn handle(&mut self, now: Now, input: Input<'_>);

    /// The next packet to send, in order.
    #[must_use]
    fn poll_transmit(&mut self) -> Option<Transmit>;

    /// The time of the next [`Input::Timeout`]; `None` when nothing is due.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// Returns whether the machine is connected and has its subscriptions.
    #[must_use]
    fn is_ready(&self) -> bool;

    /// Returns whether the machine can receive a message. If not, hold messages in the driver, and
    /// go on reading.
    #[must_use]
    fn can_receive(&self) -> bool;
}
