//! Configuration of a session: what its CONNECT contains, and its limits.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use super::will::Will;
use crate::error::{Malformed, Unwritable};

/// Error of options that cannot be written as a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOptions {
    /// A field is longer than MQTT allows.
    #[error("invalid connect options: {0}")]
    Unwritable(#[source] Unwritable),
    /// A field has a value that MQTT forbids, such as NUL in a text or a zero Receive Maximum.
    #[error("invalid connect options: {0}")]
    Malformed(#[source] Malformed),
}

/// Configuration of a [`Session`](super::Session).
///
/// ```
/// use statestore_mqtt::session::{Options, Will};
///
/// let options = Options::new("lamp-7")
///     .session_expiry(3_600)
///     .user("lamps")
///     .password("secret")
///     .will(Will::new("lamps/7/state", "offline").delay(10));
/// assert!(options.check().is_ok());
/// ```
#[derive(Clone)]
pub struct Options {
    pub(super) client_id: Box<str>,
    pub(super) clean_start: bool,
    pub(super) keep_alive: u16,
    pub(super) session_expiry: u32,
    pub(super) receive_maximum: u16,
    pub(super) receive_excess: u16,
    pub(super) maximum_packet_size: u32,
    pub(super) topic_alias_maximum: u16,
    pub(super) problem_information: bool,
    pub(super) response_information: bool,
    pub(super) user: Option<Box<str>>,
    pub(super) password: Option<Bytes>,
    pub(super) will: Option<Will>,
    pub(super) user_properties: Vec<(Box<str>, Box<str>)>,
    pub(super) authentication: Option<(Box<str>, Bytes)>,
    pub(super) unknown_session: bool,
    pub(super) manual_acknowledgement: bool,
    pub(super) in_flight: u16,
    pub(super) publishes: usize,
    pub(super) publish_bytes: usize,
    pub(super) output_bytes: usize,
    pub(super) events: usize,
    pub(super) event_bytes: usize,
    pub(super) requests: u16,
    pub(super) topic_aliases: u16,
    pub(super) connect_timeout: Duration,
    pub(super) ping_timeout: Option<Duration>,
}

impl Options {
    /// Options with this client id. With an empty one the server assigns a client id.
    pub fn new(client_id: impl Into<Box<str>>) -> Self {
        Self {
            client_id: client_id.into(),
            clean_start: true,
            keep_alive: 60,
            session_expiry: 0,
            receive_maximum: 1_024,
            receive_excess: 0,
            maximum_packet_size: (1 << 20) + (64 << 10),
            topic_alias_maximum: 16,
            problem_information: true,
            response_information: false,
            user: None,
            password: None,
            will: None,
            user_properties: Vec::new(),
            authentication: None,
            unknown_session: false,
            manual_acknowledgement: false,
            in_flight: 1_024,
            publishes: 65_536,
            publish_bytes: 16 << 20,
            output_bytes: 256 << 10,
            events: 4_096,
            event_bytes: 4 << 20,
            requests: 64,
            topic_aliases: 16,
            connect_timeout: Duration::from_secs(10),
            ping_timeout: None,
        }
    }

    /// Client id.
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<Box<str>>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// Clean Start of the first CONNECT [default: true]. Later ones resume the session, unless the
    /// session expiry in force is 0.
    #[must_use]
    pub const fn clean_start(mut self, clean_start: bool) -> Self {
        self.clean_start = clean_start;
        self
    }

    /// Keep alive in seconds, 0 for none [default: 60]. The server may replace it.
    #[must_use]
    pub const fn keep_alive(mut self, seconds: u16) -> Self {
        self.keep_alive = seconds;
        self
    }

    /// Seconds that the server retains the session after a connection; `u32::MAX` for no end
    /// [default: 0].
    #[must_use]
    pub const fn session_expiry(mut self, seconds: u32) -> Self {
        self.session_expiry = seconds;
        self
    }

    /// Number of received messages at QoS 1 and 2 that may be unacknowledged [default: 1,024].
    #[must_use]
    pub const fn receive_maximum(mut self, messages: u16) -> Self {
        self.receive_maximum = messages;
        self
    }

    /// Number of messages beyond the [receive maximum](Self::receive_maximum) that are accepted
    /// [default: 0].
    ///
    /// A server that exceeds the sum is disconnected. mosquitto 2.0 exceeds the receive maximum
    /// when it resumes a session with queued messages.
    #[must_use]
    pub const fn receive_excess(mut self, messages: u16) -> Self {
        self.receive_excess = messages;
        self
    }

    /// Size of the largest received packet, in bytes [default: 1 MiB and 64 KiB].
    #[must_use]
    pub const fn maximum_packet_size(mut self, bytes: u32) -> Self {
        self.maximum_packet_size = bytes;
        self
    }

    /// Number of topic aliases that the server may set [default: 16]. The session retains the topic
    /// of each, 64 KiB at most.
    #[must_use]
    pub const fn topic_alias_maximum(mut self, aliases: u16) -> Self {
        self.topic_alias_maximum = aliases;
        self
    }

    /// Sets whether the server may send reason strings and user properties with any packet
    /// [default: true].
    #[must_use]
    pub const fn request_problem_information(mut self, is_requested: bool) -> Self {
        self.problem_information = is_requested;
        self
    }

    /// Sets whether the server should send Response Information with the CONNACK [default: false].
    #[must_use]
    pub const fn request_response_information(mut self, is_requested: bool) -> Self {
        self.response_information = is_requested;
        self
    }

    /// User name [default: none].
    #[must_use]
    pub fn user(mut self, name: impl Into<Box<str>>) -> Self {
        self.user = Some(name.into());
        self
    }

    /// Password [default: none].
    #[must_use]
    pub fn password(mut self, password: impl Into<Bytes>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Will [default: none].
    #[must_use]
    pub fn will(mut self, will: Will) -> Self {
        self.will = Some(will);
        self
    }

    /// Adds a user property to the CONNECT.
    #[must_use]
    pub fn user_property(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.user_properties.push((name.into(), value.into()));
        self
    }

    /// Enhanced authentication: its method and the data of the CONNECT [default: none].
    #[must_use]
    pub fn authentication(mut self, method: impl Into<Box<str>>, data: impl Into<Bytes>) -> Self {
        self.authentication = Some((method.into(), data.into()));
        self
    }

    /// Sets whether to accept a session that this machine did not create [default: false].
    ///
    /// Without it, the first CONNECT without clean start fails when the server has a session, since
    /// MQTT forbids a client to resume a session whose state it lost (MQTT-3.2.2-4). The connection
    /// after that one starts a new session. Set the option if the former process left no publish at
    /// QoS 2 unfinished.
    #[must_use]
    pub const fn accept_unknown_session(mut self, is_accepted: bool) -> Self {
        self.unknown_session = is_accepted;
        self
    }

    /// Sets whether the caller acknowledges each message with
    /// [`acknowledge`](super::Session::acknowledge) [default: false]. Otherwise the session
    /// acknowledges a message when [`poll_event`](super::Session::poll_event) returns it.
    #[must_use]
    pub const fn manual_acknowledgement(mut self, is_manual: bool) -> Self {
        self.manual_acknowledgement = is_manual;
        self
    }

    /// Publishes at QoS 1 and 2 that are sent and not acknowledged [default: 1,024]. The server's
    /// Receive Maximum is a limit too.
    #[must_use]
    pub const fn in_flight(mut self, publishes: u16) -> Self {
        self.in_flight = publishes;
        self
    }

    /// Publishes at QoS 1 and 2 without an outcome, sent or waiting [default: 65,536].
    #[must_use]
    pub const fn publishes(mut self, publishes: usize) -> Self {
        self.publishes = publishes;
        self
    }

    /// Bytes of topics, properties and payloads of these publishes [default: 16 MiB].
    #[must_use]
    pub const fn publish_bytes(mut self, bytes: usize) -> Self {
        self.publish_bytes = bytes;
        self
    }

    /// Bytes of output after which publishes wait [default: 256 KiB]. One packet may exceed it; at
    /// twice the limit the session does not take input until output is written.
    #[must_use]
    pub const fn output_bytes(mut self, bytes: usize) -> Self {
        self.output_bytes = bytes;
        self
    }

    /// Events that may wait for [`poll_event`](super::Session::poll_event) before the session stops
    /// taking input [default: 4,096].
    #[must_use]
    pub const fn events(mut self, events: usize) -> Self {
        self.events = events;
        self
    }

    /// Bytes of messages among these events [default: 4 MiB]. One message may exceed it.
    #[must_use]
    pub const fn event_bytes(mut self, bytes: usize) -> Self {
        self.event_bytes = bytes;
        self
    }

    /// SUBSCRIBE and UNSUBSCRIBE packets without an acknowledgement [default: 64].
    #[must_use]
    pub const fn requests(mut self, requests: u16) -> Self {
        self.requests = requests;
        self
    }

    /// Topic aliases that the session sets [default: 16]. The first topics of a connection get
    /// them; the server's Topic Alias Maximum is a limit too.
    #[must_use]
    pub const fn topic_aliases(mut self, aliases: u16) -> Self {
        self.topic_aliases = aliases;
        self
    }

    /// Time for the CONNACK to arrive [default: 10 s].
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Time for the response to a PINGREQ [default: half the keep alive]. Any received byte extends
    /// it.
    #[must_use]
    pub const fn ping_timeout(mut self, timeout: Duration) -> Self {
        self.ping_timeout = Some(timeout);
        self
    }

    /// Checks that a CONNECT can be written from the options.
    ///
    /// # Errors
    /// [`InvalidOptions`]; a connection with such options would end with
    /// [`Error::Options`](super::Error::Options).
    pub fn check(&self) -> Result<(), InvalidOptions> {
        self.connect(self.clean_start, &self.client_id).map(drop)
    }
}

/// User name, password, will and authentication data are omitted.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("client_id", &self.client_id)
            .field("clean_start", &self.clean_start)
            .field("keep_alive", &self.keep_alive)
            .field("session_expiry", &self.session_expiry)
            .field("receive_maximum", &self.receive_maximum)
            .field("maximum_packet_size", &self.maximum_packet_size)
            .finish_non_exhaustive()
    }
}
