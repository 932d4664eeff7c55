//! Options of a connection, the same for every MQTT stack.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::link::address::Address;
use crate::link::file;
use crate::link::proxy::Proxy;

/// A megabyte, which deployed stores allow for keys and values, and 64 KiB for topics and
/// properties.
const PACKET_BYTES_MAX: u32 = (1 << 20) + (64 << 10);

/// Default limit of unacknowledged publishes in each direction.
const IN_FLIGHT_MAX: u16 = 1_024;

/// Default session expiry of a store. Requests wait that long for a store to restart, unless they
/// expire.
const STORE_SESSION: Duration = Duration::from_secs(300);

/// Options of a connection. The adapters read the fields; an application uses the methods.
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
    /// Further addresses of the broker, in the order of attempts. Only the first 15 are used.
    pub alternatives: Vec<Address>,
    /// User name and password.
    pub credentials: Option<(String, String)>,
    /// Keep-alive interval.
    pub keep_alive: Duration,
    /// Timeout of an attempt to connect.
    pub connect_timeout: Duration,
    /// Session expiry: how long the broker keeps the session after the connection; `None` if unset.
    pub session_expiry: Option<Duration>,
    /// The largest packet that the broker may send, in bytes.
    pub max_packet_size: u32,
    /// Maximum number of unacknowledged publishes to the broker.
    pub max_in_flight: u16,
    /// Maximum number of unacknowledged messages from the broker.
    pub receive_maximum: u16,
    /// Maximum number of packets that wait for the MQTT stack.
    pub max_queued_packets: usize,
    /// Set to read mosquitto's log for clients that have gone.
    pub read_mosquitto_log: bool,
    /// Set to reconnect after another client has connected with this client id.
    pub retry_after_takeover: bool,
    /// TLS settings; `None` without TLS.
    pub tls: Option<Tls>,
    /// The protocol between TCP or TLS and MQTT.
    pub transport: Transport,
    /// File with a Kubernetes service account token to authenticate with.
    pub service_account_token: Option<PathBuf>,
    /// HTTP proxy between the client and the broker.
    pub proxy: Option<Proxy>,
}

impl Options {
    /// Maximum number of addresses.
    pub const ADDRESSES_MAX: usize = 16;

    /// A plain TCP connection to `host`, with `TCP_NODELAY`. If `host` begins with `/`, it is the
    /// path of a Unix socket, which `statestore-client` supports.
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
            max_in_flight: IN_FLIGHT_MAX,
            receive_maximum: IN_FLIGHT_MAX,
            max_queued_packets: 256,
            read_mosquitto_log: false,
            retry_after_takeover: false,
            tls: None,
            transport: Transport::Tcp,
            service_account_token: None,
            proxy: None,
        }
    }

    /// Adds an address of the broker, for failover between several machines. At most [16
    /// addresses](Self::ADDRESSES_MAX) are used, including the first one. Further addresses and
    /// duplicates are ignored.
    ///
    /// Addresses are tried in order, each with its own [timeout](Self::connect_timeout). Pauses
    /// between attempts follow only a whole round. After a lost connection, the same address is
    /// tried first.
    ///
    /// A broker is skipped if it is unreachable, does not respond, or sends this client elsewhere
    /// (*use another server*, *server moved*, *server unavailable*, *server busy*). Wrong
    /// credentials, or a client id that is taken over, are final at any address. With TLS, the
    /// certificate must contain the host of the address in use.
    ///
    /// A Server Reference in such a refusal is followed if the MQTT stack reports it, and only to
    /// one of these addresses. So a forged packet cannot redirect the password.
    ///
    /// ```
    /// use statestore_tokio::Options;
    ///
    /// let options = Options::new("thermostat-7", "store-1.example", 1883)
    ///     .add_address("store-2.example", 1883)
    ///     .add_address("store-3.example", 1883);
    /// assert_eq!(options.addresses().count(), 3);
    /// ```
    #[must_use]
    pub fn add_address(mut self, host: impl Into<String>, port: u16) -> Self {
        let address = Address::new(host, port);
        let is_there = self.addresses().any(|other| other == address);
        if !is_there && self.addresses().count() < Self::ADDRESSES_MAX {
            self.alternatives.push(address);
        }
        self
    }

    /// The addresses, in the order of attempts: 1 to 16.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        let first = Address::new(&*self.host, self.port);
        std::iter::once(first).chain(self.alternatives.iter().cloned()).take(Self::ADDRESSES_MAX)
    }

    /// Sets user name and password.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// Sets the keep-alive interval, from 5 seconds to 18 hours; a minute by default.
    #[must_use]
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        let range = Duration::from_secs(5)..=Duration::from_secs(u16::MAX.into());
        self.keep_alive = keep_alive.clamp(*range.start(), *range.end());
        self
    }

    /// Sets the timeout of an attempt to connect to one host, over all its IP addresses, in whole
    /// seconds up to a day; 5 by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Duration::from_secs(timeout.as_secs().clamp(1, 86_400));
        self
    }

    /// Sets the session expiry: how long the broker keeps the session after the connection. Zero
    /// requests a clean session each time.
    ///
    /// By default, clients have a clean session: they subscribe again, and read the keys that they
    /// watch again. Stores have five minutes, so that requests are not lost while a store restarts.
    #[must_use]
    pub const fn session_expiry(mut self, expiry: Duration) -> Self {
        self.session_expiry = Some(expiry);
        self
    }

    /// Sets the largest packet that the broker may send, in bytes; 1 MiB and 64 KiB by default. The
    /// broker drops larger messages.
    #[must_use]
    pub fn max_packet_size(mut self, bytes: u32) -> Self {
        self.max_packet_size = bytes.max(1);
        self
    }

    /// Sets the maximum number of unacknowledged publishes to the broker; 1,024 by default. The
    /// broker may allow fewer.
    #[must_use]
    pub fn max_in_flight(mut self, publishes: u16) -> Self {
        self.max_in_flight = publishes.max(1);
        self
    }

    /// Sets the maximum number of unacknowledged messages from the broker; 1,024 by default. With
    /// manual acknowledgements, it also bounds the messages that wait here for a busy machine.
    #[must_use]
    pub fn receive_maximum(mut self, messages: u16) -> Self {
        self.receive_maximum = messages.max(1);
        self
    }

    /// Sets the maximum number of packets that wait for the MQTT stack: 1 to 65,535, 256 by
    /// default. Further packets stay in the machine.
    #[must_use]
    pub fn max_queued_packets(mut self, packets: usize) -> Self {
        self.max_queued_packets = packets.clamp(1, usize::from(u16::MAX));
        self
    }

    /// Sets whether to read mosquitto's log for clients that have gone, so that a store drops their
    /// registrations.
    ///
    /// The broker's configuration needs `log_dest topic`, `log_type notice` and `log_type error`.
    /// Its access rules must let this client read `$SYS/broker/log/N` and `$SYS/broker/log/E`. With
    /// other brokers the option has no effect.
    #[must_use]
    pub const fn read_mosquitto_log(mut self, read: bool) -> Self {
        self.read_mosquitto_log = read;
        self
    }

    /// Sets whether to reconnect after another client has connected with this client id.
    ///
    /// By default the link ends; otherwise the two clients would disconnect each other repeatedly.
    /// Not every broker reports a takeover: mosquitto 2.0 only closes the connection.
    #[must_use]
    pub const fn retry_after_takeover(mut self, retry: bool) -> Self {
        self.retry_after_takeover = retry;
        self
    }

    /// Encrypts the connection. The certificate of the broker must contain the host of the address
    /// in use.
    ///
    /// An adapter built without its feature `tls` does not connect: its [status](crate::Status) is
    /// failed, and requests fail as closed.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Selects the protocol between TCP or TLS and MQTT. An adapter that does not support it fails
    /// to connect with [`LinkErrorKind::Unsupported`](crate::LinkErrorKind::Unsupported).
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Authenticates with the service account token in this file, by the method `K8S-SAT` of Azure
    /// IoT Operations. Only `statestore-client` supports it.
    ///
    /// The file is read for each connection. In a pod, the path is that of the projected volume, by
    /// default `/var/run/secrets/tokens/broker-sat`. A file that cannot be read, is empty, or has
    /// more than 65,535 bytes is an error of the attempt to connect, which is retried.
    ///
    /// # Renewal
    /// While connected, the client checks the file every ten seconds and sends a new token to the
    /// broker on the same connection (AUTH, reason 0x19). So a token must be replaced more than ten
    /// seconds before it expires, as Kubernetes does. Other programs must replace the file
    /// atomically, by renaming a new file or a symbolic link.
    ///
    /// - If the file cannot be read, the connection continues with the earlier token, and a warning
    ///   is logged.
    /// - A broker that rejects the new token ends the connection. The next connection uses the
    ///   token that the file has then.
    /// - Before the first connection, a rejected token is final, like a wrong password. After it,
    ///   connecting is retried, since the file may get a valid token again.
    ///
    /// ```
    /// use statestore_tokio::{Options, Tls};
    ///
    /// let options = Options::new("home.lamp", "aio-broker", 18883)
    ///     .service_account_token("/var/run/secrets/tokens/broker-sat")
    ///     .tls(Tls::default().ca_file("/var/run/certs/ca.crt"));
    /// ```
    #[must_use]
    pub fn service_account_token(mut self, file: impl AsRef<Path>) -> Self {
        self.service_account_token = Some(file.as_ref().to_owned());
        self
    }

    /// Connects through an HTTP proxy, with the method CONNECT. TCP, TLS and WebSocket connections
    /// go through it; Unix sockets cannot. Only `statestore-client` supports it.
    ///
    /// The proxy resolves the host names of the broker. Each address is tried through the proxy.
    /// TLS and MQTT are between the client and the broker, so the proxy sees neither the messages
    /// nor the login if [TLS](Self::tls) is set. The connection to the proxy itself is not
    /// encrypted.
    ///
    /// No environment variable is read, neither `HTTPS_PROXY` nor `NO_PROXY`.
    ///
    /// # Limits and errors
    /// The proxy has nine tenths of the [time limit](Self::connect_timeout) of the attempt to
    /// connect. The head of its response has at most 8 KiB. A refusal and a missing response are
    /// errors of kind [`Proxy`](crate::LinkErrorKind::Proxy), which are retried. The error of a
    /// refusal contains the status code. Status 407, *proxy authentication required*, is final.
    ///
    /// ```
    /// use statestore_tokio::{Options, Proxy};
    ///
    /// let proxy = Proxy::from_url("http://lamp:secret@proxy.example:3128")?;
    /// let options = Options::from_url("mqtts://broker.example")?.proxy(proxy);
    /// # assert!(!format!("{options:?}").contains("secret"));
    /// # Ok::<(), statestore_tokio::UrlError>(())
    /// ```
    #[must_use]
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Returns whether a password or a token would be sent to another machine without encryption.
    /// The password of a proxy does not count.
    ///
    /// ```
    /// use statestore_tokio::Options;
    ///
    /// let exposes = |url| Options::from_url(url).map(|options| options.exposes_credentials());
    /// assert_eq!(exposes("mqtt://lamp:secret@hub.example")?, true);
    /// assert_eq!(exposes("mqtts://lamp:secret@hub.example")?, false);
    /// assert_eq!(exposes("mqtt://lamp:secret@[::1]")?, false);
    /// assert_eq!(exposes("mqtt://hub.example")?, false);
    /// # Ok::<(), statestore_tokio::UrlError>(())
    /// ```
    #[must_use]
    pub fn exposes_credentials(&self) -> bool {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.address.clone());
        let has_password =
            self.credentials.as_ref().is_some_and(|(_, password)| !password.is_empty());
        (has_password || self.service_account_token.is_some())
            && self.tls.is_none()
            && self.addresses().chain(proxy).any(|address| !address.is_local())
    }

    /// Sets the defaults of a store: a session that outlives a restart.
    #[must_use]
    pub fn or_store_defaults(mut self) -> Self {
        self.session_expiry = self.session_expiry.or(Some(STORE_SESSION));
        self
    }

    /// The session expiry to request; `None` for a clean session.
    #[must_use]
    pub fn session(&self) -> Option<Duration> {
        self.session_expiry.filter(|expiry| !expiry.is_zero())
    }

    /// The [session](Self::session) in whole seconds, for the Session Expiry Interval: at least
    /// one.
    #[must_use]
    pub fn session_seconds(&self) -> Option<u32> {
        let seconds = |session: Duration| u32::try_from(session.as_secs().max(1));
        self.session().map(|session| seconds(session).unwrap_or(u32::MAX))
    }
}

/// Omits the password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("client_id", &self.client_id)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("alternatives", &self.alternatives)
            .field("session_expiry", &self.session_expiry)
            .field("tls", &self.tls)
            .field("proxy", &self.proxy)
            .finish_non_exhaustive()
    }
}

/// The protocol between TCP or TLS and MQTT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// MQTT directly over TCP, TLS or a Unix socket.
    #[default]
    Tcp,
    /// WebSocket.
    WebSocket {
        /// Path of the HTTP request, which begins with a slash.
        path: String,
    },
}

impl Transport {
    /// WebSocket at this path.
    #[must_use]
    pub fn websocket(path: impl Into<String>) -> Self {
        Self::WebSocket { path: path.into() }
    }
}

/// TLS settings: trusted CAs and the client certificate. By default, the CAs of the system are
/// trusted, and the client does not send a certificate. All files are PEM, and are read when the
/// link is created or connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// CA certificates to trust instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate chain and the key of this client.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The password of an encrypted key.
    pub key_password_file: Option<PathBuf>,
}

impl Tls {
    /// Trusts only the CA certificates in this file.
    #[must_use]
    pub fn ca_file(mut self, file: impl AsRef<Path>) -> Self {
        self.ca_file = Some(file.as_ref().to_owned());
        self
    }

    /// Sets the certificate chain and the key of this client, for a broker that requests a client
    /// certificate.
    #[must_use]
    pub fn identity(mut self, chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.identity = Some((chain.as_ref().to_owned(), key.as_ref().to_owned()));
        self
    }

    /// Sets the file with the password of the key, which must be encrypted PKCS #8: the PEM label
    /// is `ENCRYPTED PRIVATE KEY`. A line end after the password is ignored. The file has at most
    /// 64 KiB.
    ///
    /// Links that use rustls need the feature `encrypted-keys`. They decrypt keys of PBES2 with
    /// AES, and with PBKDF2 of at most 2,000,000 iterations (1,000,000 with SHA-384 and SHA-512) or
    /// scrypt of at most 128 MiB. `openssl pkcs8 -topk8` writes such keys. A key that is not
    /// encrypted is an error there.
    ///
    /// ```
    /// use statestore_tokio::Tls;
    ///
    /// let tls = Tls::default()
    ///     .ca_file("ca.pem")
    ///     .identity("client.pem", "client.key")
    ///     .key_password_file("client.password");
    /// ```
    #[must_use]
    pub fn key_password_file(mut self, file: impl AsRef<Path>) -> Self {
        self.key_password_file = Some(file.as_ref().to_owned());
        self
    }

    /// Reads the password of the key, if a file is set. For adapters.
    ///
    /// # Errors
    /// If the file cannot be read or is not UTF-8; the text names the file.
    pub fn read_key_password(&self) -> io::Result<Option<String>> {
        let Some(file) = &self.key_password_file else { return Ok(None) };
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        read_secret(file).map(Some).map_err(named)
    }
}

/// Largest file with a password, in bytes. A path such as `/dev/zero` must not fill the memory.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Reads a password from a file, without a line end after it.
pub(super) fn read_secret(file: &Path) -> io::Result<String> {
    let text = String::from_utf8(file::read(file, SECRET_BYTES_MAX)?);
    let mut text =
        text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
