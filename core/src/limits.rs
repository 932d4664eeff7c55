//! The protocol's numbers, each with its reason.

use core::time::Duration;

/// Bytes in an MQTT topic name or any other MQTT string: its length is sent in 16 bits.
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// How far a timestamp may be ahead of the local clock: one minute, and exactly one minute is still accepted.
///
/// The protocol asks clients to keep their clock within this of the store's. It bounds what a wrong clock can do to
/// everybody else's versions.
pub const CLOCK_DRIFT_MAX: Duration = Duration::from_secs(60);

/// How far ahead of its clock a write may set the versions of a store before that is counted and told, as
/// [`Ahead`](crate::store::Ahead): more than clocks are apart that somebody looks after (our choice).
pub const AHEAD_NOTED: Duration = Duration::from_secs(5);

/// How far ahead of its wall clock a store that keeps only what was asked for notes down the versions it may issue: one
/// record in this time is what values that are not kept cost. A store that crashed goes on from there, so its versions
/// are ahead by as much until the wall clock has caught up (our choice).
pub const CLOCK_RESERVE: Duration = Duration::from_secs(10);

/// How many counts a `__ts` or `__ft` may be past the last version that a store issued, where that version is itself
/// further ahead of the store's wall clock than [`CLOCK_DRIFT_MAX`].
///
/// A client that follows the store's versions counts on from them, once a request. It would take
/// [`COUNTER_MAX`] / 65,536 = 32,768 requests of somebody hostile to move the store's clock on by a millisecond, which
/// passes sooner by itself.
pub const STAMP_LEAD_MAX: u64 = 65_536;

/// Bytes of the longest node id: what a `__ts` or `__ft` can make a store keep for each key.
///
/// Deployed clients use their MQTT client id, which brokers limit to far less than the 65,535 bytes of an MQTT string;
/// the protocol names no limit (our choice).
pub const NODE_ID_BYTES_MAX: usize = 256;

/// Levels of the longest response topic. Mosquitto, for one, closes the connection of whoever publishes to a topic of
/// more, so a requester could shut a store out by naming one (our choice).
pub const RESPONSE_TOPIC_LEVELS_MAX: usize = 200;

/// The greatest counter that a clock of ours issues: one deployed parser reads it into a signed 32-bit integer.
///
/// A clock that gets there moves its wall part on by one millisecond instead.
pub const COUNTER_MAX: u64 = i32::MAX as u64;

/// Elements in the longest request: `SET key value NEX operand PX milliseconds`.
pub const COMMAND_ELEMENTS_MAX: usize = 7;

/// What a store keeps at most. Every table and queue of a store has its limit here.
///
/// ```
/// use statestore_proto::limits::StoreLimits;
///
/// let small = StoreLimits { keys_max: 1_000, bytes_max: 1 << 20, ..StoreLimits::default() };
/// # assert_eq!(small.watches_max, StoreLimits::default().watches_max);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Keys stored. A million of 16 bytes with values of 64 take some 170 MB.
    pub keys_max: usize,
    /// Bytes of all keys and values together: what a machine at the edge can spare. Each key takes some 90 bytes beside
    /// them, 50 more where each was written by another verified client, and a fenced one up to 400 for its token.
    pub bytes_max: usize,
    /// Bytes of one key. A key must fit, twice as long, into a notification topic beside a client id.
    pub key_bytes_max: usize,
    /// Bytes of one value. An engine that keeps them may take less than a packet does; a SET of more is refused as one for
    /// which there is no room.
    pub value_bytes_max: usize,
    /// Registrations for notifications, all clients and keys together: each takes some 400 bytes beside those of
    /// [`watch_bytes_max`](Self::watch_bytes_max).
    pub watches_max: usize,
    /// Bytes of keys and client ids of all registrations: 65,536 of the longest keys would take two gigabytes.
    pub watch_bytes_max: usize,
    /// Registrations for one key, which is the number of notifications that one write causes.
    pub watches_per_key_max: usize,
    /// For how long a client whose name is only claimed keeps its registrations without a sign of life, once there is no
    /// room for another's; before that it keeps them. A sign of life is a KEYNOTIFY, or a PUBACK that says that a
    /// notification reached somebody. Where a table is full, the claimed name with the oldest sign loses all of its
    /// registrations, if that sign is as old as this.
    ///
    /// Beside a broker a store seldom learns that a client is gone, and without an end those of past clients fill the
    /// table for ever. One day: clients of this project register again every 30 seconds, but deployed ones once for a
    /// connection, and one that only listens, to keys that seldom change, shows no other sign. So without need nobody
    /// loses any, and where there is need, only who has heard nothing for a day (our choice).
    pub claimed_watches_kept: Duration,
    /// What one verified client may hold of [`keys_max`](Self::keys_max), [`bytes_max`](Self::bytes_max),
    /// [`watches_max`](Self::watches_max) and [`watch_bytes_max`](Self::watch_bytes_max), in percent, rounded up; 100 and
    /// more is all. What would take it past that is answered like what would take the store past its own limits.
    ///
    /// A key counts, with its value, for the verified client that wrote it last, also where it took it over from another.
    /// What others wrote, whose names are only claimed, counts for nobody: anybody could use up the share of a name, or
    /// have as many names as it likes. Nor does what was restored, since records do not say who wrote it; whoever writes
    /// that anew may pass its share, as long as it takes no more room.
    ///
    /// One half, so that a client which never stops writing leaves the other half to everybody else, and one that is the
    /// only one to write can still use much of the store (our choice). Whoever may connect under several names has as
    /// many shares.
    pub client_percent: u8,
    /// Packets waiting to be sent. At least three fan-outs of one key must fit; a smaller number is raised to that. As many
    /// notifications are kept beside them that were sent and are not acknowledged, and as many bytes.
    pub outgoing_max: usize,
    /// Bytes of payloads, topics and records waiting to be sent. The answer that passes it is the last: with it, no more
    /// than the longest value, or what one write tells its watchers, comes on top.
    pub outgoing_bytes_max: usize,
    /// Answers remembered to answer a redelivered request with. Past that the client that has most of them loses its
    /// oldest, and a duplicate of its request would be taken for a new one.
    pub replies_max: usize,
    /// Bytes of those answers and of what names their requests.
    pub reply_bytes_max: usize,
    /// Bytes of the keys in one page of a listing, as they are sent. A longer key has a page to itself, and the token that
    /// ends a page is 24 bytes longer than a key.
    pub page_bytes_max: usize,
    /// Work for one page of a listing: bytes of pattern and keys looked at, and 64 for each key, twice that where it must
    /// be asked whether it may be read. A page for which more is needed ends there, without keys if none was found; each gets
    /// further, also with a limit of zero. One unit takes some nanoseconds (our choice).
    pub page_work_max: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            keys_max: 1_000_000,
            bytes_max: 1 << 30,
            key_bytes_max: 32 * 1024,
            value_bytes_max: 1 << 30,
            watches_max: 65_536,
            watch_bytes_max: 64 << 20,
            watches_per_key_max: 1_024,
            claimed_watches_kept: Duration::from_secs(24 * 60 * 60),
            client_percent: 50,
            outgoing_max: 8_192,
            outgoing_bytes_max: 64 << 20,
            replies_max: 16_384,
            reply_bytes_max: 16 << 20,
            page_bytes_max: 8 * 1024,
            page_work_max: 100_000,
        }
    }
}

impl StoreLimits {
    /// What one verified client may hold of a limit.
    #[cfg(feature = "alloc")]
    pub(crate) const fn share_of(&self, limit: usize) -> usize {
        let percent = if self.client_percent > 100 { 100 } else { self.client_percent as usize };
        // In two parts, since a hundred times the greatest number is none.
        limit / 100 * percent + (limit % 100 * percent).div_ceil(100)
    }

    /// Packets that one request can cause: its reply, its acknowledgement, a disconnect order, and two notifications to
    /// each watcher when the value that it replaces had expired.
    #[cfg(feature = "alloc")]
    pub(crate) const fn burst(&self) -> usize {
        self.watches_per_key_max.saturating_mul(2).saturating_add(3)
    }
}

/// What a client keeps at most. Every table and queue of a client has its limit here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Requests accepted and not yet completed, or completed and not yet polled.
    pub pending_max: usize,
    /// Keys watched.
    pub watches_max: usize,
    /// Events of watches, and reports of stale messages and clock drift, waiting to be polled, beside one for each
    /// request of `pending_max`. A watch whose change finds no room loses it, says so by a gap, and reads the key again.
    pub events_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { pending_max: 1_024, watches_max: 1_024, events_max: 4_096 }
    }
}

/// Events of a lock waiting to be polled, past which it accepts no further try; each try adds four at most. An
/// application that polls has one or two.
#[cfg(feature = "alloc")]
pub(crate) const LOCK_EVENTS_MAX: usize = 16;
