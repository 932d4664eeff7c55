//! Configuration, limits and access control.

use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::time::Duration;

use statestore_mqtt::Reason;

/// Limits that a [`Broker`](crate::Broker) never exceeds, whatever its clients send.
///
/// Memory limits are in bytes. They cover incomplete packets, messages that wait or are not
/// acknowledged, subscriptions, wills, retained messages, and a fixed amount for each connection
/// and session. A message that waits for several clients counts once for the broker and in full for
/// each of these clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes for everything together. When it is exceeded, sessions are ended with *quota
    /// exceeded* until 95 % are used: those that use the most memory, of the
    /// [owner](crate::Message::owner) that uses the most in total.
    pub memory: usize,
    /// Bytes for one session. A session that exceeds it is ended with *quota exceeded*. Messages at
    /// QoS 0 are dropped once half of it is used.
    pub session_memory: usize,
    /// Bytes of messages from one sender that may wait for the host. At the limit, the
    /// broker reads nothing more from this sender.
    pub host_queue_bytes: usize,
    /// Bytes of the largest packet that the broker accepts.
    pub packet_bytes: usize,
    /// Bytes of the largest CONNECT.
    pub connect_bytes: usize,
    /// Maximum time from the start of a connection to its CONNECT and to the login decision.
    pub connect_time: Duration,
    /// Time during which a connection is throttled: its packets wait for its
    /// [turn](crate::Broker::has_yielded), however small they are. It starts with the connection,
    /// and again whenever the connection exceeded the work of one turn. Zero disables throttling.
    pub slow_start: Duration,
    /// Simultaneous connections of accepted clients. At the limit, a client takes the place of the
    /// newest one of the [owner](crate::Message::owner) with the most connections, which is
    /// disconnected with *quota exceeded*. A client of this owner is rejected with *server busy*.
    pub connections: usize,
    /// Simultaneous connections of accepted clients from one [network](crate::network()): an IPv4
    /// address or an IPv6 /64 prefix. At the limit, a client is rejected with *quota exceeded*.
    /// Loopback addresses are not limited.
    pub connections_per_address: usize,
    /// Simultaneous connections whose client is not accepted yet. At the limit, a new connection
    /// takes the place of the oldest one from the [network](crate::network()) with most of them,
    /// preferably of one without a CONNECT. As many again may be closing.
    pub pending_connections: usize,
    /// Simultaneous sessions, including those of disconnected clients, without the host's. At the
    /// limit, a new session evicts the session of a disconnected client, of the
    /// [owner](crate::Message::owner) with the most sessions: preferably one without
    /// subscriptions, messages and will, and of these the one that has been disconnected for
    /// longest. If all clients are connected, the new client is rejected with *quota exceeded*.
    pub sessions: usize,
    /// QoS 2 messages from one client whose PUBREL is outstanding (Receive Maximum).
    pub receive_maximum: u16,
    /// Unacknowledged messages to one client.
    pub in_flight: u16,
    /// Topic aliases that one client may set.
    pub topic_aliases: u16,
    /// Topic aliases that the broker sets on one connection, if its client accepts as many. They go
    /// to the first topics.
    pub outbound_topic_aliases: u16,
    /// Messages that one client may publish per second. Further messages are rejected with *quota
    /// exceeded*. `None` disables the limit.
    pub messages_per_second: Option<u32>,
    /// Subscriptions of one client.
    pub subscriptions: usize,
    /// Filters of one SUBSCRIBE or UNSUBSCRIBE. A client that sends more is disconnected with
    /// *quota exceeded*.
    pub filters: usize,
    /// Levels of a topic name or filter.
    pub levels: usize,
    /// Bytes of all retained messages together. When they are used up, a message replaces the
    /// oldest ones of the [owner](crate::Message::owner) with the most bytes. A message of this
    /// owner is rejected with *quota exceeded*.
    pub retained_memory: usize,
    /// Maximum time that a session outlives its connection.
    pub session_expiry: Duration,
}

impl Limits {
    /// Returns the default limits, but without limits on memory, messages for the host, sessions,
    /// subscriptions, levels and retained messages. For a broker whose clients are trusted.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            memory: usize::MAX,
            session_memory: usize::MAX,
            host_queue_bytes: usize::MAX,
            sessions: usize::MAX,
            subscriptions: usize::MAX,
            levels: usize::MAX,
            retained_memory: usize::MAX,
            ..Self::default()
        }
    }
}

impl Default for Limits {
    /// Limits for a broker on a small machine that runs other programs too: 64 MiB.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            // Several clients can reach it at a time without filling the memory of the broker.
            session_memory: 8 << 20,
            // One request of maximum size, or hundreds of ordinary ones.
            host_queue_bytes: 256 << 10,
            // Keys and values have at most 1 MiB on deployed stores. The rest is for topic and
            // properties.
            packet_bytes: (1 << 20) + (64 << 10),
            connect_bytes: 4 << 10,
            connect_time: Duration::from_secs(10),
            // A client that reconnects often or causes much work must not delay the other clients.
            slow_start: Duration::from_secs(1),
            connections: 1_000,
            connections_per_address: 500,
            // A client needs its place for a few round trips and a password check.
            pending_connections: 256,
            sessions: 10_000,
            receive_maximum: 1_024,
            in_flight: 1_024,
            topic_aliases: 16,
            outbound_topic_aliases: 16,
            messages_per_second: None,
            subscriptions: 1_000,
            filters: 1_000,
            // About as many as deployed brokers allow.
            levels: 200,
            retained_memory: 16 << 20,
            session_expiry: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// What an embedder knows about the sender of a message; see [`Acl::details`].
pub type SenderDetails = Arc<dyn Any + Send + Sync>;

/// Access control list. The [host](crate::Broker::attach_host) is not subject to it.
///
/// The default implementations allow everything.
pub trait Acl: Send + Sync {
    /// Checks whether a client may connect with this client id, or returns the reason code to
    /// reject it with.
    #[expect(unused_variables, reason = "the default allows everything")]
    fn may_connect(&self, client_id: &str) -> Result<(), Reason> {
        Ok(())
    }

    /// Checks whether a client may publish to `topic` and request responses on `response_topic`, or
    /// returns the reason code to reject the message with.
    #[expect(unused_variables, reason = "the default allows everything")]
    fn may_publish(
        &self,
        client_id: &str,
        topic: &str,
        response_topic: Option<&str>,
    ) -> Result<(), Reason> {
        Ok(())
    }

    /// Checks whether a client may subscribe to a filter, or returns the reason code to reject the
    /// subscription with. For a shared subscription, `filter` does not include the share name.
    #[expect(unused_variables, reason = "the default allows everything")]
    fn may_subscribe(&self, client_id: &str, filter: &str) -> Result<(), Reason> {
        Ok(())
    }

    /// Returns whether a message to this topic may be delivered to a client whose subscriptions
    /// match it.
    #[expect(unused_variables, reason = "the default allows everything")]
    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        true
    }

    /// Returns whether this list is still in force for a client.
    /// [`recheck`](crate::Broker::recheck) ends the session of a client whose list is outdated.
    #[expect(unused_variables, reason = "the default stays in force")]
    fn is_current(&self, client_id: &str) -> bool {
        true
    }

    /// Returns what the embedder wants to know about the sender of a message for the host, such as
    /// its rights there. The host receives it with [each message](crate::LocalEvent::Message) of the
    /// client, as it was when the broker accepted the message.
    fn details(&self) -> Option<SenderDetails> {
        None
    }
}

/// Result of a successful login.
#[derive(Clone, Default)]
pub struct Admission {
    /// User that the client belongs to. A client cannot take over the session of another user. With
    /// Clean Start, it ends that session if the other client has been disconnected for 30 seconds, and
    /// the session has no subscriptions, messages and will.
    pub user: Option<Arc<str>>,
    /// Access control list of the client. `None` selects the list of the [`Config`].
    pub acl: Option<Arc<dyn Acl>>,
    /// Time at which the credentials expire, on the broker's clock. The client is then disconnected
    /// with *not authorized*.
    pub expires_at: Option<Duration>,
}

impl core::fmt::Debug for Admission {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Admission").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Access control list that allows everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Acl for AllowAll {}

/// Configuration of a broker.
pub struct Config {
    /// Limits.
    pub limits: Limits,
    /// Access control list of clients whose [`Admission`] does not contain one.
    pub acl: Arc<dyn Acl>,
    /// Set if each CONNECT waits for [`handle_login`](crate::Broker::handle_login).
    pub requires_login: bool,
    /// Method of enhanced authentication. It must need only one packet from the client: its
    /// authentication data is part of the [`Event`](crate::Event). Other methods are rejected.
    /// Without a method, or without `requires_login`, all methods are rejected.
    pub authentication_method: Option<String>,
    /// Prefix of assigned client ids. A number follows. Each broker should have its own prefix.
    pub assigned_prefix: String,
    /// Secret key of the tables by client id and by topic: a random number. A client that knows it
    /// can choose client ids and topics that take long to find. Default: 0.
    pub hash_seed: u64,
}

impl Default for Config {
    /// Default limits, and every client may do everything.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            acl: Arc::new(AllowAll),
            requires_login: false,
            authentication_method: None,
            assigned_prefix: "assigned-".into(),
            hash_seed: 0,
        }
    }
}

impl core::fmt::Debug for Config {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Config").field("limits", &self.limits).finish_non_exhaustive()
    }
}
