//! The interface between a machine and its transport, the same for both ends of the protocol.
//!
//! A driver of [`Machine`] works with a [`Client`](crate::client::Client) and with a
//! [`Store`](crate::store::Store). The driver is your code: it owns the socket and the clocks.
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
//! # Duties of a driver
//!
//! - **Clocks**: read both after waiting, right before the call: a monotonic clock for deadlines and
//!   the wall clock for versions. All calls on a machine use the same origin. Without a wall clock a
//!   client cannot write, since each request has a timestamp.
//! - **Deadlines**: pass [`Timeout`](Input::Timeout) at [`poll_timeout`](Machine::poll_timeout), at
//!   the latest. The MQTT session has deadlines too: the CONNACK and the keep alive.
//! - **CONNECT**: MQTT 5. A client uses the [client id](crate::client::Client::client_id) of its
//!   configuration; a store uses any id that is stable across restarts. A client sets *Clean
//!   Start*, unless it is configured with
//!   [`keeps_session`](crate::client::ClientConfig::keeps_session): then it clears it on reconnects
//!   and asks for a Session Expiry Interval. A store clears it and asks for a Session Expiry
//!   Interval, so that unacknowledged requests are redelivered.
//! - **Capacity**: poll packets only while the connection is accepted (CONNACK), its send queue has
//!   space, a packet identifier is free, and the Receive Maximum of the broker permits another
//!   PUBLISH. A machine keeps packets that are not polled. When capacity returns, poll again without
//!   waiting for a packet: most PUBACKs of a store free capacity and are not reported.
//! - **Back-pressure**: while a store [cannot receive](Machine::can_receive), hold its messages and
//!   continue to read, since the PUBACKs that free capacity arrive after them. Set
//!   [`Incoming::arrived`] of such messages. The Receive Maximum of the CONNECT bounds those at QoS
//!   1; drop messages at QoS 0 above a limit of your own. When mosquitto 2.0 resumes a session, it
//!   exceeds the Receive Maximum: tolerate about 200 messages more.
//! - **Maximum Packet Size** of the broker, from its CONNACK: do not send a larger PUBLISH, and
//!   report it as [`Published`](Input::Published) with
//!   [`PACKET_TOO_LARGE`](crate::transport::ReasonCode::PACKET_TOO_LARGE). Set it in each message
//!   for a store ([`Incoming::packet_bytes_max`]): then a response that does not fit becomes a
//!   smaller page or an error.
//! - **SUBACK**: report it with the token of its
//!   [`Subscribe`](crate::transport::Transmit::Subscribe). A client emits an
//!   [event](crate::client::Event::SubscribeFailed) for a failure. A store emits none: log the
//!   reason, and connect again if [`is_ready`](Machine::is_ready) stays false.
//! - **PUBACK**: report it if the PUBLISH has a [token](crate::transport::Publish::token). A response
//!   has none, so its requester waits until its time limit: log the reason of a failure.
//! - **Received QoS 1**: acknowledge the messages of a client when you pass them to it. Messages of a
//!   store carry a [`Delivery`](crate::transport::Delivery); acknowledge them on
//!   [`Acknowledge`](crate::transport::Transmit::Acknowledge), and ignore one of an earlier
//!   connection. MQTT requires PUBACKs in the order of arrival: the session of `statestore-mqtt`
//!   ensures it; with another library keep a queue of packet identifiers.
//! - **Lost connection**: pass [`Disconnected`](Input::Disconnected), drop packets that were polled
//!   and not written, and report nothing of that connection later. Connect again after a pause that
//!   grows, without packet identifiers and unacknowledged packets of the old connection, also if the
//!   CONNACK has *Session Present*. Exception: with `keeps_session` a PUBLISH that was polled belongs
//!   to the session. Send it, or send it again, on the next connection if the session is present.
//! - **Records**: with [`StoreConfig::durability`](crate::store::StoreConfig::durability), write
//!   what [`Store::poll_records`](crate::store::Store::poll_records) returns after each input, then
//!   call [`Store::handle_persisted`](crate::store::Store::handle_persisted) with the id of the
//!   batch. Responses wait for it, and no deadline reminds you. If the storage may become full,
//!   report its space with [`Store::set_storage_full`](crate::store::Store::set_storage_full).
//! - **Random numbers** of a store: give each start a random
//!   [`hash_seed`](crate::store::StoreConfig::new) and a random
//!   [`incarnation`](crate::store::StoreConfig::incarnation), independent of each other. A store that
//!   restores registrations keeps its incarnation. Clients detect a restart only by the incarnation.
//!
//! Outputs do not pair with inputs: after any input, poll until nothing is left.

use crate::time::{Instant, Now};
use crate::transport::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};

/// An input of a machine.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// A connection was made. The machine sends its subscriptions again.
    ///
    /// A store then repeats notifications that were sent and not acknowledged, since they may be
    /// lost with the previous connection. A store in an embedded broker gets requests without this.
    Connected {
        /// The flag of the CONNACK.
        session_present: bool,
    },
    /// The connection is lost. Packets that were not polled wait for the next one. Requests of a
    /// client that were sent complete as
    /// [`ConnectionLost`](crate::client::Outcome::ConnectionLost), unless it
    /// [keeps the session](crate::client::ClientConfig::keeps_session).
    Disconnected,
    /// A SUBACK. One of an earlier connection is ignored.
    Subscribed(SubscribeToken, ReasonCode),
    /// A PUBACK, or the transport's own reason code when it cannot send the packet.
    ///
    /// A request of a client that the broker rejected, or that reached no store, completes as
    /// [`Undelivered`](crate::client::Outcome::Undelivered). If it was also sent on an earlier
    /// connection it completes as [`ConnectionLost`](crate::client::Outcome::ConnectionLost), since
    /// the store may have received it there.
    ///
    /// For a notification of a store, [`ReasonCode::NO_MATCHING_SUBSCRIBERS`]
    /// [silences](crate::store::Store::silenced_registrations) the registration, unless the client
    /// has renewed it since. Success protects the registrations of an unverified client id from
    /// [eviction](crate::limits::StoreLimits::unverified_registrations_kept) for that time.
    Published(PublishToken, ReasonCode),
    /// A received PUBLISH. A malformed one has no effect on other requests.
    ///
    /// [`Store::handle_publish`](crate::store::Store::handle_publish) does the same and returns what
    /// became of the request.
    Message(&'a Incoming<'a>),
    /// The connection of another client has ended, if the transport knows: a store ends the
    /// registrations of this client id, whether or not its MQTT session continues. A client ignores
    /// it.
    ClientGone(&'a str),
    /// Time has passed: requests of a client whose time limit has passed complete, and a store
    /// removes expired values and notifies their watchers. Early or repeated inputs change nothing.
    ///
    /// One call removes at most 4,096 values, so that it takes a few milliseconds; the rest is due
    /// a millisecond later. It ends earlier when the output queue is full;
    /// [`poll_timeout`](Machine::poll_timeout) returns a time again when the queue has capacity.
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
