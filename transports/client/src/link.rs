//! The link: a [`ManagedLink`] over the MQTT session.

use std::fmt;
use std::path::Path;

use statestore_mqtt::session::{Options as SessionOptions, Server, Session};
use statestore_tokio::adapter::{self, Negotiated, Opening};
use statestore_tokio::{Address, LinkError, LinkErrorKind, ManagedLink, Options};
use tokio::time::timeout;

use crate::connection::Connection;
use crate::socket::SessionSocket;
use crate::stream::Stream;
#[cfg(feature = "tls")]
use crate::stream::TlsSettings;
use crate::token_file::{METHOD, TokenFile};

/// Events that wait in the session. A small one can keep a read buffer of 64 KiB in memory.
const EVENTS_MAX: usize = 256;

/// A [`Link`](statestore_tokio::Link) with its own MQTT connection.
///
/// Use it for settings for which [`connect`](crate::connect) and [`serve`](crate::serve) have no
/// argument:
///
/// ```no_run
/// use statestore_client::{ClientLink, Options, StateStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = Options::new("thermostat-7", "localhost", 1883);
/// let link = ClientLink::for_client(options).configure(|connector| {
///     connector.session_options(|options| options.user_property("site", "west"))
/// });
/// let store = StateStore::builder().spawn(link)?;
/// # Ok(())
/// # }
/// ```
pub type ClientLink = ManagedLink<Connector>;

type Change = Box<dyn Fn(SessionOptions) -> SessionOptions + Send + Sync>;

/// Opens a socket and an MQTT session on it.
///
/// The [cause](LinkError::get_ref) of its errors is a [`std::io::Error`] of the socket or of TLS, a
/// `TlsError`, the error of the WebSocket handshake, or a
/// [`session::Error`](statestore_mqtt::session::Error).
#[derive(Default)]
pub struct Connector {
    change: Option<Change>,
    /// Set after the first successful login.
    has_logged_in: bool,
    #[cfg(feature = "tls")]
    tls: TlsSettings,
}

impl Connector {
    /// Changes the options of the MQTT session for each connection, for example the will. Settings
    /// for which [`Options`] has a method must be set there.
    #[must_use]
    pub fn session_options(
        mut self,
        change: impl Fn(SessionOptions) -> SessionOptions + Send + Sync + 'static,
    ) -> Self {
        self.change = Some(Box::new(change));
        self
    }

    /// Encrypts the connection with this configuration in place of [`Options::tls`].
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn rustls(mut self, config: std::sync::Arc<crate::rustls::ClientConfig>) -> Self {
        self.tls.config = Some(config);
        self
    }

    /// Connects to the first address of the options that accepts, for other uses of MQTT than the
    /// state store. It waits for the CONNACK, at each address for [`Options::connect_timeout`].
    ///
    /// ```no_run
    /// use statestore_client::{Connector, Options};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = Options::from_url("mqtt://localhost")?;
    /// let connector = Connector::default()
    ///     .session_options(|options| options.user_property("site", "west"));
    /// let (socket, server) = connector.connect(&options).await?;
    /// println!("at most {} bytes a packet", server.maximum_packet_size);
    /// socket.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The [`LinkError`] of the last address.
    pub async fn connect(&self, options: &Options) -> Result<(SessionSocket, Server), LinkError> {
        let mut last = LinkError::new(LinkErrorKind::Unreachable, "no address");
        for address in options.addresses() {
            let opening = async {
                let mut socket = self.open_socket(options, &address, false).await?;
                let server = socket.wait_connected().await?;
                Ok((socket, *server))
            };
            let opened = timeout(options.connect_timeout, opening).await.unwrap_or_else(|_| {
                Err(LinkError::new(LinkErrorKind::TimedOut, "the broker did not respond in time"))
            });
            match opened {
                Ok(opened) => return Ok(opened),
                Err(error) => last = error.explained().with_address(&address),
            }
        }
        Err(last)
    }

    async fn open_socket(
        &self,
        options: &Options,
        address: &Address,
        manual_acks: bool,
    ) -> Result<SessionSocket, LinkError> {
        let token_file = options.service_account_token.as_deref().map(Path::to_owned);
        let token_file = token_file.map(TokenFile::open).transpose()?;
        let stream = Stream::open(
            options,
            address,
            #[cfg(feature = "tls")]
            &self.tls,
        )
        .await?;
        let mut session = session_options(options, manual_acks);
        if let Some(file) = &token_file {
            session = session.authentication(METHOD, file.token());
        }
        if let Some(change) = &self.change {
            session = change(session);
        }
        Ok(SessionSocket::new(stream, Session::new(session), token_file))
    }
}

impl SessionSocket {
    /// Does the same as [`Connector::connect`], with the defaults of the connector.
    ///
    /// # Errors
    /// The [`LinkError`] of the last address.
    pub async fn connect(options: &Options) -> Result<(Self, Server), LinkError> {
        Connector::default().connect(options).await
    }
}

impl adapter::Connector for Connector {
    type Connection = Connection;

    async fn open(&mut self, opening: Opening<'_>) -> Result<(Connection, Negotiated), LinkError> {
        let Opening { options, address, manual_acks, .. } = opening;
        let mut socket = self.open_socket(options, address, manual_acks).await?;
        let server = socket.wait_connected().await.map_err(|error| {
            // The file may get a token that is valid again, for example after the machine was
            // suspended until its token had expired. A first login that fails is a wrong setting.
            let can_be_renewed = options.service_account_token.is_some() && self.has_logged_in;
            match error.kind() {
                LinkErrorKind::Credentials | LinkErrorKind::NotAuthorized if can_be_renewed => {
                    error.retriable()
                }
                _ => error,
            }
        })?;
        self.has_logged_in = true;
        let mut negotiated = Negotiated::default();
        negotiated.session_present = server.session_present;
        negotiated.maximum_packet_size = Some(server.maximum_packet_size);
        negotiated.retain_available = server.retain_available;
        let held_max = options.receive_maximum.into();
        Ok((Connection::new(socket, held_max, manual_acks), negotiated))
    }
}

/// Options of the session. Each connection has a new session, since the machine sends lost packets
/// again.
fn session_options(options: &Options, manual_acks: bool) -> SessionOptions {
    let keep_alive = u16::try_from(options.keep_alive.as_secs()).unwrap_or(u16::MAX);
    let converted = SessionOptions::new(&*options.client_id)
        .clean_start(options.session().is_none())
        .accept_unknown_session(true)
        .session_expiry(options.session_seconds().unwrap_or(0))
        .keep_alive(keep_alive)
        .receive_maximum(options.receive_maximum)
        // mosquitto 2.0 exceeds the maximum when it resumes a session with queued requests.
        .receive_excess(options.receive_maximum.saturating_mul(3))
        .maximum_packet_size(options.max_packet_size)
        // A tool that captures only a part of the traffic cannot resolve topic aliases.
        .topic_alias_maximum(0)
        .topic_aliases(0)
        .events(EVENTS_MAX)
        .in_flight(options.max_in_flight)
        .publishes(options.max_in_flight.into())
        .manual_acknowledgement(manual_acks)
        .connect_timeout(options.connect_timeout);
    match &options.credentials {
        Some((user, password)) => converted.user(&**user).password(password.clone()),
        None => converted,
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}
