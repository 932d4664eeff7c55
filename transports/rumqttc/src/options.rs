//! Where to connect, and how.

use std::fmt;
use std::time::Duration;

use rumqttc::v5::MqttOptions;

/// Keys and values are a megabyte at most on deployed stores; the rest is for topics and properties.
const PACKET_BYTES_MAX: u32 = (1 << 20) + (64 << 10);

/// Publishes without an acknowledgement, each way. rumqttc keeps a slot for each.
const IN_FLIGHT_MAX: u16 = 1_024;

/// Long enough for a store to be restarted: requests wait that long, unless they expire.
const STORE_SESSION: Duration = Duration::from_secs(300);

/// Where to connect, and how.
///
/// ```
/// use std::time::Duration;
/// use statestore_rumqttc::Options;
///
/// let options = Options::new("thermostat-7", "broker.example", 1883)
///     .credentials("thermostat-7", "secret")
///     .keep_alive(Duration::from_secs(30));
/// # assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct Options {
    mqtt: MqttOptions,
    receive_maximum: u16,
    manual_acks: Option<bool>,
    session: Option<Duration>,
    pub(crate) requests_max: usize,
    pub(crate) presence: bool,
    pub(crate) retry_after_takeover: bool,
    pub(crate) claim: bool,
}

impl Options {
    /// A plain TCP connection to `host`, without Nagle's delay.
    #[must_use]
    pub fn new(client_id: impl Into<String>, host: impl Into<String>, port: u16) -> Self {
        let mut mqtt = MqttOptions::new(client_id, host, port);
        let mut network = mqtt.network_options();
        network.set_tcp_nodelay(true);
        mqtt.set_network_options(network)
            .set_max_packet_size(Some(PACKET_BYTES_MAX))
            .set_outgoing_inflight_upper_limit(IN_FLIGHT_MAX);
        Self {
            mqtt,
            receive_maximum: IN_FLIGHT_MAX,
            manual_acks: None,
            session: None,
            requests_max: 256,
            presence: false,
            retry_after_takeover: false,
            claim: true,
        }
    }

    /// The MQTT client id.
    #[must_use]
    pub fn client_id(&self) -> String {
        self.mqtt.client_id()
    }

    /// User name and password.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.mqtt.set_credentials(user, password);
        self
    }

    /// How often to ping a broker that says nothing, from 5 seconds to 18 hours; a minute by default.
    #[must_use]
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        let range = Duration::from_secs(5)..=Duration::from_secs(u16::MAX.into());
        self.mqtt.set_keep_alive(keep_alive.clamp(*range.start(), *range.end()));
        self
    }

    /// How long making a connection may take, in whole seconds; 5 by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        let seconds = timeout.as_secs().max(1);
        let mut network = self.mqtt.network_options();
        network.set_connection_timeout(seconds);
        self.mqtt.set_network_options(network).set_connection_timeout(seconds);
        self
    }

    /// How long the broker keeps the session after the connection has ended; zero for a clean session each time.
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
        self.mqtt.set_max_packet_size(Some(bytes.max(1)));
        self
    }

    /// Publishes sent without an acknowledgement, at most; 1,024 by default. The broker may allow less.
    #[must_use]
    pub fn in_flight(mut self, publishes: u16) -> Self {
        self.mqtt.set_outgoing_inflight_upper_limit(publishes.max(1));
        self
    }

    /// Messages that the broker may send before one is acknowledged; 1,024 by default. It is also what waits here at
    /// most for a machine that is busy.
    #[must_use]
    pub fn receive_maximum(mut self, messages: u16) -> Self {
        self.receive_maximum = messages.max(1);
        self
    }

    /// Packets that wait for rumqttc, at most; 256 by default. What is offered beyond that stays with the machine.
    #[must_use]
    pub fn queue(mut self, packets: usize) -> Self {
        self.requests_max = packets.max(1);
        self
    }

    /// Whether messages are acknowledged when the machine has dealt with them, in order of arrival, rather than when
    /// they arrive. By default stores do and clients do not.
    ///
    /// One that the broker sends again first of all on two connections in a row is acknowledged when it arrives: its
    /// answer may be what the broker closes the connection for, and then it would come again for ever.
    ///
    /// With it the broker holds back what exceeds the [receive maximum](Self::receive_maximum). Without it this side
    /// stops reading from the network until the machine has caught up, and a store that is too busy for that loses its
    /// connection and the requests that waited.
    #[must_use]
    pub const fn manual_acks(mut self, manual_acks: bool) -> Self {
        self.manual_acks = Some(manual_acks);
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
    /// A store finds out by its [claim](Self::claim), which it does not make when it is to connect again.
    #[must_use]
    pub const fn retry_after_takeover(mut self, retry: bool) -> Self {
        self.retry_after_takeover = retry;
        self
    }

    /// Whether a store leaves a claim, so that of two with one client id the one that was started last serves and the
    /// other ends, on every broker. By default it does. Clients never do.
    ///
    /// The claim is a retained message on `clients/{client id}/services/statestore/instance`, which this client must be
    /// allowed to write and to read. Each connection reads it first, and each store takes a number greater than the one
    /// it finds; clocks count only when the broker has lost the claim. A store that ends by itself removes it; one that
    /// is left behind does no harm.
    ///
    /// Without permission, or with a broker that retains nothing, a store serves all the same, half a second later or,
    /// where the broker closes the connection for it, at the third try.
    #[must_use]
    pub const fn claim(mut self, claim: bool) -> Self {
        self.claim = claim;
        self
    }

    /// Whatever else rumqttc has to offer: a will, socket buffers. What this type has a method for is set by that.
    #[must_use]
    pub fn mqtt_options(mut self, change: impl FnOnce(&mut MqttOptions)) -> Self {
        change(&mut self.mqtt);
        self
    }

    /// Encrypts the connection. The host must be the name in the broker's certificate.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, config: std::sync::Arc<rustls::ClientConfig>) -> Self {
        let config = rumqttc::TlsConfiguration::Rustls(config);
        self.mqtt.set_transport(rumqttc::Transport::Tls(config));
        self
    }

    pub(crate) fn or_store_defaults(mut self) -> Self {
        self.manual_acks = self.manual_acks.or(Some(true));
        self.session = self.session.or(Some(STORE_SESSION));
        self
    }

    pub(crate) const fn uses_manual_acks(&self) -> bool {
        matches!(self.manual_acks, Some(true))
    }

    pub(crate) fn messages_max(&self) -> usize {
        self.receive_maximum.into()
    }

    /// For a new event loop.
    pub(crate) fn mqtt(&self) -> MqttOptions {
        let mut mqtt = self.mqtt.clone();
        let session = self.session.filter(|session| !session.is_zero());
        let seconds =
            session.map(|session| u32::try_from(session.as_secs().max(1)).unwrap_or(u32::MAX));
        mqtt.set_clean_start(session.is_none())
            .set_session_expiry_interval(seconds)
            .set_receive_maximum(Some(self.receive_maximum))
            .set_manual_acks(self.uses_manual_acks());
        mqtt
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = self.mqtt.broker_address();
        f.debug_struct("Options")
            .field("client_id", &self.mqtt.client_id())
            .field("host", &host)
            .field("port", &port)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
