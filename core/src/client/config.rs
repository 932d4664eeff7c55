//! What a client is told at the start.

use alloc::string::ToString;
use alloc::sync::Arc;
use core::time::Duration;

use crate::hlc::{NodeId, NodeIdError};
use crate::limits::ClientLimits;
use crate::topic::{self, NotificationFilter, ResponseTopic, TopicError};

/// How long a request may take when nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a client cannot be configured so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The client id cannot stand in its topics, or the response topic is one that stores refuse.
    #[error("the client id cannot stand in a topic, or the response topic is refused: {0}")]
    Topic(TopicError),
    /// The client id cannot be the node id of a clock: give another with [`ClientConfig::with_node_id`].
    #[error("the client id cannot be the node id of a clock: {0}")]
    NodeId(NodeIdError),
}

/// Configuration of a [`Client`](super::Client).
#[derive(Clone, Debug)]
pub struct ClientConfig {
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
    /// The default configuration of the client with this MQTT client id: the recommended response topic, the client id as
    /// node id, ten seconds for each request, a session that ends with its connection.
    ///
    /// `nonce` is eight random bytes, drawn anew for each run: replies to an earlier run of the same client must not be
    /// taken for replies to this one.
    ///
    /// # Errors
    /// [`ConfigError`] when the client id cannot stand in a topic or in a version.
    ///
    /// ```
    /// use statestore_proto::client::ClientConfig;
    ///
    /// let config = ClientConfig::new("thermostat-7", *b"8 random")?;
    /// # let _ = config;
    /// # Ok::<(), statestore_proto::client::ConfigError>(())
    /// ```
    pub fn new(client_id: &str, nonce: [u8; 8]) -> Result<Self, ConfigError> {
        let node_id = NodeId::new(client_id).map_err(ConfigError::NodeId)?;
        Self::with_node_id(client_id, node_id, nonce)
    }

    /// As [`new`](Self::new), with a node id of its own for a client id that cannot be one.
    ///
    /// # Errors
    /// [`ConfigError::Topic`] when the client id cannot stand in a topic.
    pub fn with_node_id(
        client_id: &str,
        node_id: NodeId,
        nonce: [u8; 8],
    ) -> Result<Self, ConfigError> {
        let response_topic = ResponseTopic::new(client_id).map_err(ConfigError::Topic)?;
        let filter = NotificationFilter::new(client_id).map_err(ConfigError::Topic)?;
        Ok(Self {
            client_id: client_id.into(),
            node_id,
            nonce,
            response_topic: response_topic.to_string().into(),
            notification_filter: filter.to_string().into(),
            timeout: TIMEOUT,
            keeps_session: false,
            renewal: None,
            limits: ClientLimits::default(),
        })
    }

    /// The MQTT client id.
    #[must_use]
    pub const fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// Has replies sent to another topic, which must be this client's alone.
    ///
    /// # Errors
    /// [`ConfigError::Topic`] for a topic that stores refuse.
    pub fn response_topic(mut self, topic: &str) -> Result<Self, ConfigError> {
        topic::check_response(topic).map_err(ConfigError::Topic)?;
        self.response_topic = topic.into();
        Ok(self)
    }

    /// How long a request may take unless it says otherwise; at least a millisecond. Watches wait as long for theirs.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Says that the transport keeps the MQTT session over a lost connection and sends again what was not acknowledged.
    /// Requests in flight then stay pending until the next connection shows whether the session was there.
    #[must_use]
    pub const fn keeps_session(mut self, keeps_session: bool) -> Self {
        self.keeps_session = keeps_session;
        self
    }

    /// Registers each watch again after this time and compares what the store has with what was told; at least a
    /// millisecond, and up to a quarter earlier so that watches do not all renew at once. `None`, the default, never does.
    ///
    /// Nobody tells a client that a store behind another party's broker was started anew and has forgotten it: without
    /// this its watches may hear nothing more. What a renewal finds depends on the store.
    ///
    /// * One that says its [incarnation](crate::message::Incarnation), as the stores of this crate do when they are given
    ///   one, is known to be another at its first message, to whatever request. Every watch then tells a gap at once and
    ///   reads again. While it stays the same, registrations have held, and the comparison only finds what was missed when
    ///   a store was told in error that this client is gone: a gap is told where the key is not as it was told last. Such a
    ///   store may have had two changes meanwhile; if the second is heard first, the first is missed without a gap.
    /// * One that does not, as the deployed ones, may have forgotten this client between any two renewals. A gap is told at
    ///   each renewal unless nothing can have been missed: the key has a value, still in the version told last, and no
    ///   change was heard while it was asked. So a watch of an absent key tells a gap, and that it is live again, at each
    ///   interval, as does one whose key changes during a renewal. Between renewals nothing tells that changes are
    ///   missing. And when the store that was started anew has a clock behind that of the one before, what it says of a key
    ///   that was deleted is taken for a late duplicate until the next renewal.
    #[must_use]
    pub fn renew_watches(mut self, interval: Option<Duration>) -> Self {
        self.renewal = interval.map(|interval| interval.max(Duration::from_millis(1)));
        self
    }

    /// Other limits.
    #[must_use]
    pub const fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = limits;
        self
    }
}
