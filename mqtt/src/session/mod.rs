//! An MQTT 5 client session as a state machine: bytes in, bytes out, and the time as an argument.
//!
//! The session writes CONNECT with all its options, observes the server's limits, keeps the
//! connection alive, sends and receives messages at QoS 0 to 2, and resumes after a connection was
//! lost. It opens no socket, reads no clock, and needs neither `std` nor a runtime.
//!
//! # Driving a session
//!
//! | When | Call |
//! |---|---|
//! | a byte stream is open | [`handle_connected`](Session::handle_connected) |
//! | bytes arrived, and [`wants_input`](Session::wants_input) | [`handle_bytes`][bytes] |
//! | the stream is writable | write [`chunks`](Session::chunks), call [`written`][written] |
//! | after each of these | [`poll_event`](Session::poll_event) until it returns `None` |
//! | the [deadline](Session::poll_timeout) passed | [`handle_timeout`](Session::handle_timeout) |
//! | [`is_closing`](Session::is_closing), and the output is written | close the stream |
//! | the stream is closed | [`handle_disconnected`](Session::handle_disconnected) |
//!
//! [bytes]: Session::handle_bytes
//! [written]: Session::written
//!
//! Calls may come in any order; none of them panics. Instants are durations since an origin that
//! the caller chooses.
//!
//! # The poll contract
//!
//! 1. Any order of calls is accepted.
//! 2. Idle is free: without input, polling changes neither output nor deadline.
//! 3. Deadlines advance: after [`handle_timeout`](Session::handle_timeout) at a deadline, the next
//!    one is later, or no deadline is left. An early call has no effect.
//! 4. Each accepted token, publishes at QoS 0 apart, is returned in exactly one event, unless the
//!    session is dropped. Each connection ends with exactly one
//!    [`Disconnected`](Event::Disconnected).
//! 5. The same bytes cause the same events, however they are divided.
//!
//! # Memory
//!
//! Each queue has a limit in [`Options`]. The session retains at most
//!
//! - [`publish_bytes`](Options::publish_bytes) of publishes that are not acknowledged, and some 100
//!   bytes for each;
//! - [`event_bytes`](Options::event_bytes) and one packet of received messages, and some 200 bytes
//!   for each of [`events`](Options::events);
//! - twice [`output_bytes`](Options::output_bytes) and one packet of output;
//! - 64 KiB for each topic alias of either direction; and some 64 bytes for each message of the
//!   [`receive_maximum`](Options::receive_maximum).
//!
//! When a queue for input is full, the session stops taking input, so the server's flow control
//! and that of the byte stream hold back the server. When a queue for output is full, requests fail
//! with [`SendError::Full`]. A received message keeps the buffer in memory that it was received
//! in, until it is dropped or [detached](Message::detach).
//!
//! # Example
//!
//! ```
//! use core::time::Duration;
//! use bytes::{Bytes, BytesMut};
//! use statestore_mqtt::{Qos, Reason};
//! use statestore_mqtt::packet::{Ack, ConnAck, Packet};
//! use statestore_mqtt::session::{Event, Options, Publish, Session};
//!
//! let mut session = Session::new(Options::new("lamp-7").session_expiry(3_600));
//! let now = Duration::ZERO;
//!
//! // A stream is open: the session has a CONNECT to send.
//! session.handle_connected(now);
//! let connect: Vec<u8> = session.chunks().flatten().copied().collect();
//! session.written(now, connect.len());
//! assert!(matches!(Packet::decode(&connect)?, Packet::Connect(_)));
//!
//! // The server accepts it.
//! let mut input = BytesMut::new();
//! let accepted = ConnAck { session_present: false, reason: Reason::SUCCESS, properties: () };
//! Packet::ConnAck(accepted).encode(&mut input)?;
//! session.handle_bytes(now, &mut input);
//! assert!(matches!(session.poll_event(), Some(Event::Connected(_))));
//!
//! // A publish is acknowledged under its token.
//! session.publish(Publish {
//!     topic: "lamps/7/state",
//!     payload: Bytes::from_static(b"on"),
//!     qos: Qos::AtLeastOnce,
//!     retain: false,
//!     properties: (),
//!     token: 42,
//! })?;
//! let publish: Vec<u8> = session.chunks().flatten().copied().collect();
//! session.written(now, publish.len());
//! let Packet::Publish(publish) = Packet::decode(&publish)? else { panic!("a PUBLISH") };
//! let id = publish.id.expect("a packet identifier at QoS 1");
//! Packet::PubAck(Ack { id, reason: Reason::SUCCESS, properties: () }).encode(&mut input)?;
//! session.handle_bytes(now, &mut input);
//! assert!(matches!(session.poll_event(), Some(Event::Published { token: 42, .. })));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use bytes::BytesMut;

mod aliases;
mod authenticate;
mod connect;
mod deliveries;
mod error;
mod event;
mod lifecycle;
mod message;
mod options;
mod output;
mod packet_ids;
mod properties;
mod publish_packet;
mod receive;
mod requests;
mod send;
mod server;
mod will;

pub use error::{Error, Notice, SendError, Stale, Violation};
pub use event::{Event, Lost};
pub use message::{Delivery, Message};
pub use options::{InvalidOptions, Options};
pub use output::Chunks;
pub use properties::PropertyBytes;
pub use send::Publish;
pub use server::Server;
pub use will::Will;

use aliases::Incoming;
use authenticate::Exchange;
use connect::Requested;
use deliveries::Deliveries;
use lifecycle::Timers;
use output::Out;
use requests::Requests;

use crate::property::{Encode, Place, Properties};
use crate::qos::Qos;
use crate::reason::Reason;

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No stream is open.
    Disconnected,
    /// CONNECT was written, CONNACK has not arrived.
    Connecting,
    Connected,
    /// The connection is over, the stream is still open.
    Closing,
}

/// A client session. See the [module documentation](self).
pub struct Session {
    options: Options,
    phase: Phase,
    /// Clean Start of the next CONNECT.
    clean_start: bool,
    /// Set if this machine has the state of a session that the server may have too.
    has_state: bool,
    assigned_client_id: Option<Box<str>>,
    /// Content of the CONNECT of this connection.
    requested: Requested,
    /// Content of the CONNACK of this connection.
    server: Option<Server>,
    exchange: Exchange,
    out: Out,
    requests: Requests,
    deliveries: Deliveries,
    incoming_aliases: Incoming,
    timers: Timers,
    /// Bytes that the last call of `handle_bytes` left.
    unread: usize,
    /// Encoded properties, between two steps of one call.
    scratch: BytesMut,
}

impl Session {
    /// A session without a connection. Invalid options end the first connection with
    /// [`Error::Options`]; [`Options::check`] finds them earlier.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            clean_start: options.clean_start,
            options,
            phase: Phase::Disconnected,
            has_state: false,
            assigned_client_id: None,
            requested: Requested::default(),
            server: None,
            exchange: Exchange::None,
            out: Out::default(),
            requests: Requests::default(),
            deliveries: Deliveries::default(),
            incoming_aliases: Incoming::default(),
            timers: Timers::default(),
            unread: 0,
            scratch: BytesMut::new(),
        }
    }

    /// Options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Options, to be changed. What a CONNECT contains applies from the next CONNECT on, limits of
    /// queues at once.
    pub const fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Sets Clean Start of the next CONNECT. With it, unacknowledged publishes will be
    /// [lost](Lost::SessionLost).
    pub const fn set_clean_start(&mut self, clean_start: bool) {
        self.clean_start = clean_start;
    }

    /// Returns whether the connection is established.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.phase == Phase::Connected
    }

    /// Returns whether the connection is over, so that the stream is to be closed when the output
    /// is written.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.phase == Phase::Closing
    }

    /// Limits and features of the server, while the connection is established.
    #[must_use]
    pub const fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// Client id: that of the options, or the one that the server assigned.
    #[must_use]
    pub fn client_id(&self) -> &str {
        let id = &*self.options.client_id;
        let assigned = self.assigned_client_id.as_deref().filter(|_| id.is_empty());
        assigned.unwrap_or(id)
    }

    /// Returns whether the session takes input. It does not while too many events wait for
    /// [`poll_event`](Self::poll_event), or too much output waits to be written.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.out.events.len() < self.options.events.max(1)
            && self.out.events.bytes() < self.options.event_bytes.max(1)
            && self.out.output.len() < self.options.output_bytes.max(1).saturating_mul(2)
    }

    /// Returns whether a publish at QoS 1 would be sent at once, if topic, properties and payload
    /// together have at most `size` bytes.
    #[must_use]
    pub fn can_publish(&self, size: usize) -> bool {
        self.out.output.len() < self.options.output_bytes
            && self.server.as_ref().is_some_and(|server| {
                server.maximum_qos > Qos::AtMostOnce
                    && self.requests.can_publish(size, server, &self.options)
            })
    }

    /// Publishes at QoS 1 and 2 without an outcome.
    #[must_use]
    pub const fn publishes(&self) -> usize {
        self.requests.publishes()
    }

    /// Bytes of topics, properties and payloads of these publishes. Those that the server received
    /// at QoS 2 are no longer counted.
    #[must_use]
    pub const fn publish_bytes(&self) -> usize {
        self.requests.publish_bytes()
    }

    /// Received messages that count for the Receive Maximum: they are not acknowledged, or not
    /// released at QoS 2.
    #[must_use]
    pub const fn unacknowledged(&self) -> usize {
        self.deliveries.unacknowledged()
    }

    /// The next event. A message is acknowledged here, unless
    /// [`manual_acknowledgement`](Options::manual_acknowledgement) is on.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.out.events.pop()?;
        if let Event::Message(message) = &event {
            if let Some(delivery) =
                message.delivery.filter(|_| !self.options.manual_acknowledgement)
            {
                // A message of a former connection is acknowledged when the server sends it again.
                let _ = self.acknowledge(delivery, Reason::SUCCESS);
            }
        }
        self.fill();
        Some(event)
    }

    /// Output, as slices for a vectored write.
    #[must_use]
    pub fn chunks(&self) -> Chunks<'_> {
        self.out.output.chunks()
    }

    /// Bytes of output.
    #[must_use]
    pub const fn output_len(&self) -> usize {
        self.out.output.len()
    }

    /// The first `len` bytes of the output were written to the stream.
    pub fn written(&mut self, now: Duration, len: usize) {
        if len == 0 {
            return;
        }
        self.timers.last_sent = self.timers.last_sent.max(now);
        self.out.output.consume(len);
        self.fill();
    }

    /// Bytes that the session retains, approximately.
    #[must_use]
    pub fn usage(&self) -> usize {
        size_of::<Self>()
            + self.out.output.len()
            + self.out.events.len() * size_of::<Event>()
            + self.out.events.bytes()
            + self.requests.usage()
            + self.deliveries.len() * 64
            + self.incoming_aliases.bytes()
    }
}

/// Encodes properties into an empty buffer and checks them.
fn encode<'a, P: Encode>(
    scratch: &'a mut BytesMut,
    properties: &P,
    place: Place,
) -> Result<Properties<'a>, SendError> {
    scratch.clear();
    properties.put(scratch).map_err(SendError::Unwritable)?;
    Properties::from_bytes(scratch, place).map_err(SendError::InvalidProperties)
}

/// Queued payloads and credentials are omitted.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("client_id", &self.client_id())
            .field("phase", &self.phase)
            .field("publishes", &self.requests.publishes())
            .field("events", &self.out.events.len())
            .field("output", &self.out.output.len())
            .finish_non_exhaustive()
    }
}
