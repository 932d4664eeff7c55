//! Where to connect, and how.

use std::fmt;
use std::time::Duration;

use paho_mqtt::{
    ConnectOptions, ConnectOptionsBuilder, CreateOptions, CreateOptionsBuilder, MQTT_VERSION_5,
    Properties, PropertyCode,
};

/// Keys and values are a megabyte at most on deployed stores; the rest is for topics and properties.
const PACKET_BYTES_MAX: u32 = (1 << 20) + (64 << 10);

/// Publishes without an acknowledgement, each way.
const IN_FLIGHT_MAX: u16 = 1_024;

/// Paho clears a session that ends with its connection, and frees twice what it could not write when it does.
const SESSION_MIN: Duration = Duration::from_secs(1);

/// Long enough for a store to be restarted: requests wait that long, unless they expire.
const STORE_SESSION: Duration = Duration::from_secs(300);

/// Where to connect, and how.
///
/// ```
/// use std::time::Duration;
/// use statestore_paho::Options;
///
/// let options = Options::new("thermostat-7", "broker.example", 1883)
///     .credentials("thermostat-7", "secret")
///     .keep_alive(Duration::from_secs(30));
/// # assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct Options {
    client_id: String,
    scheme: &'static str,
    host: String,
    port: u16,
    credentials: Option<(String, String)>,
    keep_alive: Duration,
    connect_timeout: Duration,
    session: Option<Duration>,
    max_packet_size: u32,
    in_flight: u16,
    receive_maximum: u16,
    queue: usize,
    pub(crate) inbox: usize,
    pub(crate) presence: bool,
    pub(crate) retry_after_takeover: bool,
    #[cfg(feature = "tls")]
    tls: Option<paho_mqtt::SslOptions>,
}

impl Options {
    /// A plain TCP connection to `host`, without Nagle's delay.
    #[must_use]
    pub fn new(client_id: impl Into<String>, host: impl Into<String>, port: u16) -> Self {
        Self {
            client_id: client_id.into(),
            scheme: "mqtt",
            host: host.into(),
            port,
            credentials: None,
            keep_alive: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
            session: None,
            max_packet_size: PACKET_BYTES_MAX,
            in_flight: IN_FLIGHT_MAX,
            receive_maximum: IN_FLIGHT_MAX,
            queue: 256,
            inbox: 4_096,
            presence: false,
            retry_after_takeover: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The MQTT client id.
    #[must_use]
    pub fn client_id(&self) -> String {
        self.client_id.clone()
    }

    /// User name and password.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// How often to ping a broker that says nothing, from 5 seconds to 18 hours; a minute by default.
    #[must_use]
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        let range = Duration::from_secs(5)..=Duration::from_secs(u16::MAX.into());
        self.keep_alive = keep_alive.clamp(*range.start(), *range.end());
        self
    }

    /// How long making a connection may take, in whole seconds up to a day; 5 by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Duration::from_secs(timeout.as_secs().clamp(1, 86_400));
        self
    }

    /// How long the broker keeps the session after the connection has ended; zero for a clean session each time, which the
    /// broker still keeps for a second.
    ///
    /// By default clients have none: what they subscribe they subscribe again, and what they were told meanwhile they
    /// read again. Stores have five minutes, so that requests are not lost while a store restarts.
    #[must_use]
    pub const fn session_expiry(mut self, expiry: Duration) -> Self {
        self.session = Some(expiry);
        self
    }

    /// The largest packet that the broker may send, in bytes; a little more than a megabyte by default. The broker drops
    /// what is larger.
    #[must_use]
    pub fn max_packet_size(mut self, bytes: u32) -> Self {
        self.max_packet_size = bytes.max(1);
        self
    }

    /// Publishes sent without an acknowledgement, at most; 1,024 by default. The broker may allow less.
    #[must_use]
    pub fn in_flight(mut self, publishes: u16) -> Self {
        self.in_flight = publishes.max(1);
        self
    }

    /// Messages that the broker may send before one is acknowledged; 1,024 by default. Paho acknowledges when it reads.
    #[must_use]
    pub fn receive_maximum(mut self, messages: u16) -> Self {
        self.receive_maximum = messages.max(1);
        self
    }

    /// Messages that wait here for a machine that is busy, at most, before the link leaves the rest to the broker and
    /// connects again; 4,096 by default.
    #[must_use]
    pub fn inbox(mut self, messages: usize) -> Self {
        self.inbox = messages.max(1);
        self
    }

    /// Packets that wait for Paho beyond those [in flight](Self::in_flight), at most; 256 by default. What is offered
    /// beyond that stays with the machine.
    #[must_use]
    pub fn queue(mut self, packets: usize) -> Self {
        self.queue = packets.clamp(1, usize::from(u16::MAX));
        self
    }

    /// Whether to learn from mosquitto's log which clients have gone, so that a store drops their registrations.
    ///
    /// The broker's file needs `log_dest topic`, `log_type notice` and `log_type error`, and its access rules must let
    /// this client read `$SYS/broker/log/N` and `$SYS/broker/log/E`. Elsewhere it does no harm.
    #[must_use]
    pub const fn presence(mut self, presence: bool) -> Self {
        self.presence = presence;
        self
    }

    /// Whether to connect again when another client has connected with this client id. By default that is the end, or
    /// the two would throw each other out for ever. Not every broker says so: mosquitto 2.0 just closes the connection.
    #[must_use]
    pub const fn retry_after_takeover(mut self, retry: bool) -> Self {
        self.retry_after_takeover = retry;
        self
    }

    /// Encrypts the connection; see [`tls_config`](crate::tls_config).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, config: paho_mqtt::SslOptions) -> Self {
        self.scheme = "mqtts";
        self.tls = Some(config);
        self
    }

    pub(crate) fn or_store_defaults(mut self) -> Self {
        self.session = self.session.or(Some(STORE_SESSION));
        self
    }

    /// Packets that Paho may have at a time.
    pub(crate) fn requests_max(&self) -> usize {
        usize::from(self.in_flight) + self.queue
    }

    /// For a new client. Nothing is persisted: the machines know what is to be sent again.
    pub(crate) fn create(&self) -> CreateOptions {
        let (scheme, host, port) = (self.scheme, &self.host, self.port);
        let is_bare_v6 = host.contains(':') && !host.starts_with('[');
        let (open, close) = if is_bare_v6 { ("[", "]") } else { ("", "") };
        CreateOptionsBuilder::new()
            .server_uri(format!("{scheme}://{open}{host}{close}:{port}"))
            .client_id(&*self.client_id)
            .mqtt_version(MQTT_VERSION_5)
            .persistence(None)
            .max_buffered_messages(i32::try_from(self.requests_max()).unwrap_or(i32::MAX))
            .finalize()
    }

    /// For its one connection; `None` when the user name is none that MQTT can express, with a NUL in it.
    pub(crate) fn connect(&self) -> Option<ConnectOptions> {
        let session = self.session.filter(|session| !session.is_zero());
        let mut builder = ConnectOptionsBuilder::new_v5();
        builder
            .clean_start(session.is_none())
            .keep_alive_interval(self.keep_alive)
            .connect_timeout(self.connect_timeout)
            .max_inflight(self.in_flight.into())
            .properties(self.properties(session.unwrap_or(SESSION_MIN))?);
        if let Some((user, password)) = &self.credentials {
            let user = Some(&**user).filter(|user| !user.contains('\0'))?;
            builder.user_name(user).password(&**password);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            builder.ssl_options(tls.clone());
        }
        Some(builder.finalize())
    }

    fn properties(&self, session: Duration) -> Option<Properties> {
        let mut properties = Properties::new();
        properties.push_u16(PropertyCode::ReceiveMaximum, self.receive_maximum).ok()?;
        properties.push_u32(PropertyCode::MaximumPacketSize, self.max_packet_size).ok()?;
        let seconds = u32::try_from(session.max(SESSION_MIN).as_secs()).unwrap_or(u32::MAX);
        properties.push_u32(PropertyCode::SessionExpiryInterval, seconds).ok()?;
        Some(properties)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("client_id", &self.client_id)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
