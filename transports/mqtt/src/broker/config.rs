//! What a broker is made with.

use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use crate::reason::Reason;

/// Bytes and numbers that a [`Broker`](super::Broker) never goes beyond, whoever sends what.
///
/// Bytes count what is kept for somebody: packets that have not come to their end, messages that wait or are not
/// acknowledged, subscriptions, wills, retained messages, and what each connection and session takes by itself. A message
/// that many wait for counts once for the whole, and for each of them in full.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of everything together. Beyond it the session that holds most is ended, with *quota exceeded*.
    pub memory: usize,
    /// Bytes for one session; one that needs more is ended, with *quota exceeded*. At QoS 0 messages are left out once
    /// half of it is taken.
    pub share: usize,
    /// Bytes of messages for the host that one sender may have waiting; until they are taken nothing more is read from it.
    pub waiting: usize,
    /// Bytes of the largest packet that is taken.
    pub packet_bytes: usize,
    /// Bytes that are read before there is a CONNECT.
    pub connect_bytes: usize,
    /// Time for a CONNECT to come.
    pub connect_time: Duration,
    /// How long what a connection sends waits for its [turn](super::Broker::rests), however little it is: from its beginning on, and
    /// from when it was last given more than one turn takes. Zero is never.
    pub probation: Duration,
    /// Connections at a time, those without a CONNECT included.
    pub connections: usize,
    /// Connections at a time from one address; loopback addresses are not counted.
    pub connections_per_address: usize,
    /// Connections beyond these two limits that are accepted to be told so: each may send a CONNECT, and is closed when it has the
    /// answer. Others are closed without a word.
    pub turned_away: usize,
    /// Sessions at a time, those of clients that are away included, the host's not. For one more that of a client gives way
    /// that is away: one without subscriptions, messages and will if there is one, and of these the one that has been away for
    /// longest. If none is away the new client is refused with *quota exceeded*.
    pub sessions: usize,
    /// Messages at QoS 2 that one client may leave half done.
    pub receive_maximum: u16,
    /// Messages to one client without an acknowledgement.
    pub in_flight: u16,
    /// Topic aliases that one client may set.
    pub topic_aliases: u16,
    /// Topic aliases that one connection is given, of as many as its client offers to keep; the first topics have them.
    pub topic_aliases_given: u16,
    /// Messages that one client may publish in a second; what is beyond is refused with *quota exceeded*.
    pub messages_per_second: Option<u32>,
    /// Subscriptions of one client.
    pub subscriptions: usize,
    /// Filters of one SUBSCRIBE or UNSUBSCRIBE; who sends more is disconnected with *quota exceeded*.
    pub filters: usize,
    /// Levels of a topic name or filter.
    pub levels: usize,
    /// Bytes of all retained messages together.
    pub retained: usize,
    /// The longest that a session outlives its connection.
    pub session_expiry: Duration,
}

impl Default for Limits {
    /// For a broker beside other things on a small machine: 64 MiB.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            // Several can be held up at a time, and none of them can hold up the rest.
            share: 8 << 20,
            // A request of the greatest size, or hundreds of ordinary ones.
            waiting: 256 << 10,
            // Keys and values are a megabyte at most on deployed stores; the rest is for topics and properties.
            packet_bytes: (1 << 20) + (64 << 10),
            connect_bytes: 4 << 10,
            connect_time: Duration::from_secs(10),
            // Whoever comes and goes, or asks for what takes long, does not go before those who do neither.
            probation: Duration::from_secs(1),
            connections: 1_000,
            connections_per_address: 500,
            // Each takes milliseconds, so this is a hundred and more in a second; whoever says nothing keeps a place for long.
            turned_away: 16,
            sessions: 10_000,
            receive_maximum: 1_024,
            in_flight: 1_024,
            topic_aliases: 16,
            topic_aliases_given: 16,
            messages_per_second: None,
            subscriptions: 1_000,
            filters: 1_000,
            // About as many as deployed brokers allow.
            levels: 200,
            retained: 16 << 20,
            session_expiry: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Who may do what. The [host](super::Broker::attach_host) may do everything.
///
/// What is not overridden is allowed.
pub trait Rules: Send + Sync {
    /// Whether a client may connect with this id; the reason if not.
    #[expect(unused_variables, reason = "it is allowed")]
    fn may_connect(&self, client_id: &str) -> Result<(), Reason> {
        Ok(())
    }

    /// Whether a client may publish to a topic, and ask for answers to another; the reason if not.
    #[expect(unused_variables, reason = "it is allowed")]
    fn may_publish(
        &self,
        client_id: &str,
        topic: &str,
        response_topic: Option<&str>,
    ) -> Result<(), Reason> {
        Ok(())
    }

    /// Whether a client may subscribe to a filter, without its share; the reason if not.
    #[expect(unused_variables, reason = "it is allowed")]
    fn may_subscribe(&self, client_id: &str, filter: &str) -> Result<(), Reason> {
        Ok(())
    }

    /// Whether a message to this topic reaches a client that subscribes to it, by a wildcard perhaps.
    #[expect(unused_variables, reason = "it is allowed")]
    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        true
    }

    /// Whether these are still the rules for a client; asked by [`recheck`](super::Broker::recheck).
    #[expect(unused_variables, reason = "they never change")]
    fn still_hold(&self, client_id: &str) -> bool {
        true
    }
}

/// What is known of a client that may connect.
#[derive(Clone, Default)]
pub struct Admission {
    /// Whose client it is. Nobody takes over the session of another's client.
    pub user: Option<Arc<str>>,
    /// What it may do; the rules of the [`Config`] if this says nothing.
    pub rules: Option<Arc<dyn Rules>>,
    /// When what it has proved to be is true no longer: it is disconnected then, with *not authorized*.
    pub expires_at: Option<Duration>,
}

impl core::fmt::Debug for Admission {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Admission").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Everybody may do everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Rules for AllowAll {}

/// What a broker is made with.
pub struct Config {
    /// What it never goes beyond.
    pub limits: Limits,
    /// Who may do what, if [`Admission`] says nothing else.
    pub rules: Arc<dyn Rules>,
    /// Whether each CONNECT waits for [`handle_login`](super::Broker::handle_login).
    pub asks_who: bool,
    /// The one method of enhanced authentication, which takes one packet of the client: what it has as authentication data
    /// is in the question. Others are refused, and all of them without this or `asks_who`.
    pub authentication_method: Option<String>,
    /// Begins the client ids of those that come without one; a number follows. No two brokers should have the same.
    pub assigned_prefix: String,
}

impl Default for Config {
    /// Default limits, and everybody may do everything.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            rules: Arc::new(AllowAll),
            asks_who: false,
            authentication_method: None,
            assigned_prefix: "assigned-".into(),
        }
    }
}

impl core::fmt::Debug for Config {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Config").field("limits", &self.limits).finish_non_exhaustive()
    }
}
