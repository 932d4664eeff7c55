//! Where to connect, and how: the same for every MQTT stack.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::address::Address;

/// Keys and values are a megabyte at most on deployed stores; the rest is for topics and properties.
const PACKET_BYTES_MAX: u32 = (1 << 20) + (64 << 10);

/// Publishes without an acknowledgement, each way.
const IN_FLIGHT_MAX: u16 = 1_024;

/// Long enough for a store to be restarted: requests wait that long, unless they expire.
const STORE_SESSION: Duration = Duration::from_secs(300);

/// Where to connect, and how. The adapters read the fields; an application uses the methods.
///
/// ```
/// use std::time::Duration;
/// use statestore_tokio::{Options, Tls};
///
/// let options = Options::new("thermostat-7", "broker.example", 8883)
///     .credentials("thermostat-7", "secret")
///     .keep_alive(Duration::from_secs(30))
///     .tls(Tls::default());
/// # assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// The MQTT client id.
    pub client_id: String,
    /// Name or address of the broker.
    pub host: String,
    /// TCP port of the broker.
    pub port: u16,
    /// Where else the broker may be, in the order of trying; of more than 15 the rest is left out.
    pub alternatives: Vec<Address>,
    /// User name and password.
    pub credentials: Option<(String, String)>,
    /// How often to ping a broker that says nothing.
    pub keep_alive: Duration,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long the broker keeps the session after the connection has ended; `None` when nothing was said.
    pub session_expiry: Option<Duration>,
    /// The largest packet that the broker may send, in bytes.
    pub max_packet_size: u32,
    /// Publishes sent without an acknowledgement, at most.
    pub in_flight: u16,
    /// Messages that the broker may send before one is acknowledged.
    pub receive_maximum: u16,
    /// Packets that wait for the MQTT stack, at most.
    pub queue: usize,
    /// Whether to learn from mosquitto's log which clients have gone.
    pub presence: bool,
    /// Whether to connect again when another client has connected with this client id.
    pub retry_after_takeover: bool,
    /// How the connection is encrypted, if it is.
    pub tls: Option<Tls>,
}

impl Options {
    /// Addresses of one broker: more than anybody has machines for it, and so few that a round over all of them ends.
    pub const ADDRESSES_MAX: usize = 16;

    /// A plain TCP connection to `host`, without Nagle's delay.
    #[must_use]
    pub fn new(client_id: impl Into<String>, host: impl Into<String>, port: u16) -> Self {
        Self {
            client_id: client_id.into(),
            host: host.into(),
            port,
            alternatives: Vec::new(),
            credentials: None,
            keep_alive: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
            session_expiry: None,
            max_packet_size: PACKET_BYTES_MAX,
            in_flight: IN_FLIGHT_MAX,
            receive_maximum: IN_FLIGHT_MAX,
            queue: 256,
            presence: false,
            retry_after_takeover: false,
            tls: None,
        }
    }

    /// Another address of the broker: where several machines stand by for one another, name each of them. There can be
    /// [16 addresses](Self::ADDRESSES_MAX), the first one included; one more, or one that is there already, is left out.
    ///
    /// They are tried in this order, each with a [time-out](Self::connect_timeout) of its own, and the pauses between tries
    /// come after a whole round. A lost connection is made again at the same address first. A broker that is not there,
    /// does not answer or sends this client elsewhere (*use another server*, *server moved*, *server unavailable*, *server
    /// busy*) is passed over; wrong credentials and a client id that is taken over are the end at any of them. With TLS the
    /// name in the certificate must be the host of the address in use.
    ///
    /// A Server Reference in such a refusal is followed where the MQTT stack tells it, and only to one of these addresses:
    /// whoever can send a packet must not say where the password goes next.
    ///
    /// ```
    /// use statestore_tokio::Options;
    ///
    /// let options = Options::new("thermostat-7", "store-1.example", 1883)
    ///     .or_at("store-2.example", 1883)
    ///     .or_at("store-3.example", 1883);
    /// assert_eq!(options.addresses().count(), 3);
    /// ```
    #[must_use]
    pub fn or_at(mut self, host: impl Into<String>, port: u16) -> Self {
        let address = Address::new(host, port);
        let is_there = self.addresses().any(|other| other == address);
        if !is_there && self.addresses().count() < Self::ADDRESSES_MAX {
            self.alternatives.push(address);
        }
        self
    }

    /// Where to connect, in the order of trying: 1 to 16 addresses.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        let first = Address::new(&*self.host, self.port);
        std::iter::once(first).chain(self.alternatives.iter().cloned()).take(Self::ADDRESSES_MAX)
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

    /// How long making a connection to one address may take, in whole seconds up to a day; 5 by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Duration::from_secs(timeout.as_secs().clamp(1, 86_400));
        self
    }

    /// How long the broker keeps the session after the connection has ended; zero for a clean session each time.
    ///
    /// By default clients have none: what they subscribe they subscribe again, and what they were told meanwhile they
    /// read again. Stores have five minutes, so that requests are not lost while a store restarts.
    #[must_use]
    pub const fn session_expiry(mut self, expiry: Duration) -> Self {
        self.session_expiry = Some(expiry);
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

    /// Messages that the broker may send before one is acknowledged; 1,024 by default. Where they are acknowledged only
    /// after they were dealt with, it is also what waits here at most for a machine that is busy.
    #[must_use]
    pub fn receive_maximum(mut self, messages: u16) -> Self {
        self.receive_maximum = messages.max(1);
        self
    }

    /// Packets that wait for the MQTT stack, at most: 1 to 65,535, 256 by default. What comes beyond that stays with the machine.
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

    /// Encrypts the connection. The host must be a name in the broker's certificate, that of the address in use. An adapter that was built without
    /// its feature `tls` does not connect: its [status](crate::Status) is then failed, and requests end as closed.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// What a store has unless something else was said: a session that outlives a restart.
    #[must_use]
    pub fn or_store_defaults(mut self) -> Self {
        self.session_expiry = self.session_expiry.or(Some(STORE_SESSION));
        self
    }

    /// The session to ask for; `None` for a clean one each time.
    #[must_use]
    pub fn session(&self) -> Option<Duration> {
        self.session_expiry.filter(|expiry| !expiry.is_zero())
    }
}

/// Without the password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("client_id", &self.client_id)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("alternatives", &self.alternatives)
            .field("session_expiry", &self.session_expiry)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// How a connection is encrypted: whom to trust, and who this client is. The default trusts whom this machine trusts, and
/// has no certificate of its own. All files are PEM; they are read when the link is made or connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// Certificates to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// The certificate chain and the key of this client.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Trusts the certificates in this file and nobody else.
    #[must_use]
    pub fn ca_file(mut self, file: impl AsRef<Path>) -> Self {
        self.ca_file = Some(file.as_ref().to_owned());
        self
    }

    /// The certificate chain and the key of this client, for a broker that asks for them.
    #[must_use]
    pub fn identity(mut self, chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.identity = Some((chain.as_ref().to_owned(), key.as_ref().to_owned()));
        self
    }
}
