//! Configuration of a client.

use alloc::string::ToString;
use alloc::sync::Arc;
use core::time::Duration;

use crate::hlc::NodeId;
use crate::limits::ClientLimits;
use crate::time::round_up;
use crate::topic::{self, NotificationFilter, ResponseTopic, TopicError};

/// The default time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A value of a [`ClientConfig`] that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The client id cannot be part of a topic.
    #[error("invalid client id: {0}")]
    ClientId(TopicError),
    /// Stores refuse the response topic.
    #[error("invalid response topic: {0}")]
    ResponseTopic(TopicError),
    /// The time limit of requests is zero.
    #[error("the time limit of requests is zero")]
    ZeroTimeout,
    /// The interval of renewals is zero.
    #[error("the interval at which watches are renewed is zero")]
    ZeroRenewal,
}

/// Configuration of a [`Client`](super::Client).
///
/// Setters store what they are given; [`Client::new`](super::Client::new) reports invalid values.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::client::{Client, ClientConfig};
///
/// let config = ClientConfig::new("thermostat-7", *b"8 random").timeout(Duration::from_secs(3));
/// let client = Client::new(config)?;
/// # let _ = client;
/// # Ok::<(), statestore_proto::client::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClientConfig {
    client_id: Arc<str>,
    nonce: [u8; 8],
    node_id: Option<NodeId>,
    response_topic: Option<Arc<str>>,
    timeout: Duration,
    keeps_session: bool,
    renewal: Option<Duration>,
    limits: ClientLimits,
}

/// A valid configuration, with its defaults filled in.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) client_id: Arc<str>,
    pub(super) node_id: NodeId,
    pub(super) nonce: [u8; 8],
    pub(super) response_topic: Arc<str>,
    pub(super) notification_filter: Arc<str>,
    pub(super) timeout: Duration,
    pub(super) keeps_session: bool,
    pub(super) renewal: Option<Duration>,
    pub(super) limits: ClientLimits,
}

impl ClientConfig {
    /// The defaults for the client with this MQTT client id: the recommended response topic, a [node
    /// id](NodeId::from_client_id) from the client id, ten seconds per request, a session that ends
    /// with its connection.
    ///
    /// `nonce` is eight random bytes, drawn for each run, so that replies to an earlier run of the
    /// same client do not match requests of this one.
    #[must_use]
    pub fn new(client_id: &str, nonce: [u8; 8]) -> Self {
        Self {
            client_id: client_id.into(),
            nonce,
            node_id: None,
            response_topic: None,
            timeout: TIMEOUT,
            keeps_session: false,
            renewal: None,
            limits: ClientLimits::default(),
        }
    }

    /// The MQTT client id.
    #[must_use]
    pub const fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// Sets the node id of the client's clock.
    #[must_use]
    pub fn node_id(mut self, node_id: NodeId) -> Self {
        self.node_id = Some(node_id);
        self
    }

    /// Sets the response topic, which no other client may use.
    #[must_use]
    pub fn response_topic(mut self, topic: &str) -> Self {
        self.response_topic = Some(topic.into());
        self
    }

    /// Sets the default time limit of requests, and that of the requests of watches.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Declares whether the transport keeps the MQTT session when the connection is lost, and sends
    /// unacknowledged packets again. Requests in flight then stay pending until the next connection
    /// shows whether the session was present.
    #[must_use]
    pub const fn keeps_session(mut self, keeps_session: bool) -> Self {
        self.keeps_session = keeps_session;
        self
    }

    /// Renews the registration of each watch in this interval and reads its key; zero is
    /// invalid. Each renewal is up to a quarter earlier, so that watches do not all renew at
    /// once. `None`, the default, disables renewals.
    ///
    /// With an external broker, a client is not notified when the store restarts and loses its
    /// registrations; without renewals its watches could then miss all changes. The result of a
    /// renewal depends on the store:
    ///
    /// - A store with an [incarnation](crate::message::Incarnation) is recognized as a new one by
    ///   its first message. Every watch then reports a gap and reads again. While the incarnation
    ///   stays the same, registrations have held, and a renewal only detects that a store ended
    ///   them by mistake: the watch reports a gap if the key differs from the last report. If such
    ///   a store applied two changes and the second notification arrives first, the first change is
    ///   missed without a gap.
    /// - A store without an incarnation, such as the deployed one, may have lost the registration
    ///   between any two renewals. A watch reports a gap at each renewal unless no change can have
    ///   been missed: the key still has the version that was reported last, and no notification
    ///   arrived during the renewal. So a watch of an absent key reports a gap, and that it is live
    ///   again, at each interval. Between renewals, missed changes go unnoticed. If the clock of a
    ///   restarted store is behind, its deletion of a key looks like a late duplicate until the
    ///   next renewal.
    #[must_use]
    pub const fn renew_watches(mut self, interval: Option<Duration>) -> Self {
        self.renewal = interval;
        self
    }

    /// Sets the limits.
    #[must_use]
    pub const fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = limits;
        self
    }

    pub(super) fn into_settings(self) -> Result<Settings, ConfigError> {
        let filter = NotificationFilter::new(&self.client_id).map_err(ConfigError::ClientId)?;
        let response_topic = match self.response_topic {
            Some(topic) => {
                topic::check_response(&topic).map_err(ConfigError::ResponseTopic)?;
                topic
            }
            None => {
                let topic = ResponseTopic::new(&self.client_id).map_err(ConfigError::ClientId)?;
                topic.to_string().into()
            }
        };
        if self.timeout.is_zero() {
            return Err(ConfigError::ZeroTimeout);
        }
        if self.renewal.is_some_and(|interval| interval.is_zero()) {
            return Err(ConfigError::ZeroRenewal);
        }
        Ok(Settings {
            node_id: self.node_id.unwrap_or_else(|| NodeId::from_client_id(&self.client_id)),
            notification_filter: filter.to_string().into(),
            response_topic,
            client_id: self.client_id,
            nonce: self.nonce,
            timeout: round_up(self.timeout),
            keeps_session: self.keeps_session,
            renewal: self.renewal.map(round_up),
            limits: self.limits,
        })
    }
}
