//! Counters of a broker.

/// Current contents of a broker, and counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Connections, including [pending](crate::Limits::pending_connections) and closing ones.
    pub connections: usize,
    /// Sessions, including those of disconnected clients and of clients in the process.
    pub sessions: usize,
    /// Retained messages.
    pub retained: usize,
    /// Bytes of everything that [`Limits::memory`](crate::Limits::memory) limits.
    pub bytes: usize,
    /// Messages that clients and the host published, including rejected and duplicate ones, and
    /// those that failed with [`Busy`](crate::Busy). Wills are not counted.
    pub published: u64,
    /// Dropped messages: at QoS 0 because the client reads too slowly, expired, larger than the
    /// client's Maximum Packet Size, from a disconnected sender when the memory was full, or
    /// retained ones that were removed for another message.
    pub dropped: u64,
    /// Sessions and connections that were ended because a memory limit or the session limit was
    /// reached.
    pub evicted: u64,
    /// Connections that were ended because of a protocol violation, or because no CONNECT or no
    /// login decision arrived in time.
    pub violations: u64,
    /// Logins that [`handle_login`](crate::Broker::handle_login) or
    /// [`handle_reauthentication`](crate::Broker::handle_reauthentication) refused, including those
    /// whose connection was closed by then.
    pub refused_logins: u64,
    /// Messages, subscriptions and wills that the [`Acl`](crate::Acl) denied.
    pub denied: u64,
}
