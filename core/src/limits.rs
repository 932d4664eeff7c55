//! Limits and constants of the protocol and of this implementation, each with its reason.

use core::time::Duration;

/// Bytes in an MQTT topic name or any other MQTT string, whose length is sent in 16 bits.
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// The greatest lead of a timestamp over the local clock: one minute. Exactly one minute is
/// accepted.
///
/// The protocol asks clients to keep their clock within a minute of the store's. The bound limits
/// the damage of a wrong clock to the versions of other clients.
pub const CLOCK_DRIFT_MAX: Duration = Duration::from_secs(60);

/// The lead of the store's clock over the wall clock from which a write is counted and reported as
/// a [`ClockAdvance`](crate::store::ClockAdvance): more than the skew of synchronized clocks (our
/// choice).
pub const CLOCK_ADVANCE_REPORTED: Duration = Duration::from_secs(5);

/// The versions that one record reserves, as a lead over the wall clock, for a store that does not
/// record every write.
///
/// Writes that are not recorded cost at most one record in this time, unless timestamps of clients
/// are further ahead: see [`VERSION_RESERVATION_MIN`]. After a crash the store continues from the
/// reservation, so its versions are ahead by as much until the wall clock has caught up (our
/// choice).
pub const VERSION_RESERVATION: Duration = Duration::from_secs(10);

/// Minimum lead of a reservation over the version of the write that causes it, which may be ahead of
/// the wall clock. While the storage is full, the minimum is [`VERSION_RESERVATION`].
///
/// A store that crashes again and again moves its clock ahead by as much each time, so it is short
/// (our choice).
pub const VERSION_RESERVATION_MIN: Duration = Duration::from_secs(1);

/// The number of counts that a `__ts` or `__ft` may be past the last version that a store issued,
/// if that version is itself more than [`CLOCK_DRIFT_MAX`] ahead of the store's wall clock.
///
/// A client that follows the store's versions counts on from them, once for each request. An
/// attacker needs [`COUNTER_MAX`] / 65,536 = 32,768 requests to move the store's clock by one
/// millisecond, which is slower than real time.
pub const COUNTER_LEAD_MAX: u64 = 65_536;

/// Bytes of the longest node id. It bounds the memory that a `__ts` or `__ft` takes for each key.
///
/// Deployed clients use their MQTT client id, which brokers limit to far fewer than the 65,535
/// bytes of an MQTT string. The protocol names no limit (our choice).
pub const NODE_ID_BYTES_MAX: usize = 256;

/// Levels of the longest response topic. Mosquitto closes the connection of a client that publishes
/// to a topic with more levels, so a requester could disconnect the store with one (our choice).
pub const RESPONSE_TOPIC_LEVELS_MAX: usize = 200;

/// The greatest counter that a clock of this crate issues: one deployed parser reads the counter
/// into a signed 32-bit integer. At this counter a clock advances its wall part by one millisecond.
pub const COUNTER_MAX: u64 = i32::MAX as u64;

/// Elements in the longest request: `SET key value NEX operand PX milliseconds`.
pub const REQUEST_ELEMENTS_MAX: usize = 7;

/// The limits of every table and queue of a store.
///
/// ```
/// use statestore_proto::limits::StoreLimits;
///
/// let default = StoreLimits::default();
/// let small = StoreLimits { keys_max: 1_000, bytes_max: 1 << 20, ..default };
/// # assert_eq!(small.registrations_max, default.registrations_max);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Keys. A million keys of 16 bytes with values of 64 bytes take some 230 MB.
    pub keys_max: usize,
    /// Bytes of all keys and values together; the default is what a machine at the edge can spare.
    /// Each key takes some 150 to 200 bytes in addition, 35 more if it expires, 50 more if each was
    /// written by another verified client, and up to 400 for the token of a fenced key. The memory
    /// of the tables is not freed when keys are removed, but used for later keys.
    pub bytes_max: usize,
    /// Bytes of one key. A notification topic contains the key in hexadecimal digits, so twice the
    /// key and a client id must fit into [`TOPIC_BYTES_MAX`].
    pub key_bytes_max: usize,
    /// Bytes of one value. A storage engine may accept fewer bytes than an MQTT packet has; a SET
    /// with more bytes gets the quota error.
    pub value_bytes_max: usize,
    /// Registrations of all clients for all keys, silenced ones included. Each takes some 400 bytes
    /// in addition to those of [`registration_bytes_max`](Self::registration_bytes_max), or some
    /// 900 bytes if it is the only one of its client, and up to 240 more for a part of its topics.
    pub registrations_max: usize,
    /// Bytes of the keys and client ids of all registrations. Without it, 65,536 registrations of
    /// the longest keys would take two gigabytes.
    pub registration_bytes_max: usize,
    /// Registrations for one key, which is the number of notifications that one write causes.
    pub registrations_per_key_max: usize,
    /// The time after which registrations of an unverified client id may be evicted, from the
    /// client's last KEYNOTIFY or delivered notification. If a notification had no subscriber since
    /// then, they may be evicted at once.
    ///
    /// Registrations are evicted only if a limit is reached. First are the
    /// [silenced](crate::store::Store::silenced_registrations) ones, of verified client ids too:
    /// the one with the oldest KEYNOTIFY. Then follow all those of the unverified client id for
    /// which this time was over first. One attacker can use many unverified client ids, which can
    /// fill the table for verified clients too, for up to this time. With an external broker a
    /// store rarely learns that a client is gone, so the registrations of past clients would fill
    /// the table. The default is one day: clients of this project register again every 30 seconds,
    /// but deployed clients do so once for each connection, and one that watches keys that rarely
    /// change shows no other sign of life (our choice).
    pub unverified_registrations_kept: Duration,
    /// The share of one verified client in [`keys_max`](Self::keys_max),
    /// [`bytes_max`](Self::bytes_max), [`registrations_max`](Self::registrations_max) and
    /// [`registration_bytes_max`](Self::registration_bytes_max), in percent, rounded up. 100 and
    /// more mean everything. A request that would exceed the share gets the quota error.
    ///
    /// A key counts for the verified client that wrote it last. Values of unverified clients count
    /// for no client, since any client could use up the share of such an id, and could use any
    /// number of ids. Restored values count for no client, since records do not contain the writer;
    /// a client that writes such a value again may exceed its share if it needs no more bytes.
    ///
    /// The default is one half: a client that never stops writing leaves the other half to all
    /// others, and a client that is alone can still use much of the store (our choice). If the
    /// transport knows the [owner](crate::transport::Incoming::owner) of a client, all clients of
    /// this owner have one share together; otherwise a client that may connect under several ids
    /// has as many.
    pub client_percent: u8,
    /// Packets that wait to be sent. The effective limit is at least three fan-outs of one key. As
    /// many notifications, and as many bytes of their payloads and keys, are retained in addition
    /// until they are acknowledged.
    pub outgoing_max: usize,
    /// Bytes of payloads, topics and records that wait to be sent; a payload and its key, in
    /// hexadecimal digits, count once for all clients that are notified of it. The store stops
    /// receiving when they exceed this limit, so the excess is what one request can cause: at most
    /// three times the longest value (a record, and a notification in each dialect), and twice the
    /// texts of a response. After a reconnect, the notifications that were not acknowledged wait
    /// again in addition.
    pub outgoing_bytes_max: usize,
    /// Bytes of the keys, values and texts in the records of one [batch]; the records of one request
    /// may exceed it. When the records that were not handed out exceed it, the store stops
    /// receiving, and expired values wait. So a storage engine needs space for one such transaction
    /// (our choice).
    ///
    /// [batch]: crate::store::Batch
    pub record_bytes_max: usize,
    /// Responses in the deduplication cache. A duplicate of a request whose response was evicted is
    /// executed again. See the [store](crate::store) for the order of eviction.
    pub dedup_entries_max: usize,
    /// Bytes of those responses, and of the client ids, owners, topics and correlation data of their
    /// requests.
    pub dedup_bytes_max: usize,
    /// Bytes of the keys in one page of a SCAN, as they are sent. A longer key gets a page of its
    /// own. The token at the end of a page is 24 bytes longer than a key.
    pub page_bytes_max: usize,
    /// Work for one page of a SCAN, in bytes of pattern and keys compared, with 64 more for each
    /// key and 64 more for each key that must be authorized. One unit takes some nanoseconds.
    ///
    /// A page ends when its work is done, even without any key. Each page makes progress, even with
    /// a limit of zero (our choice).
    pub page_work_max: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            keys_max: 1_000_000,
            bytes_max: 1 << 30,
            key_bytes_max: 32 * 1024,
            value_bytes_max: 1 << 30,
            registrations_max: 65_536,
            registration_bytes_max: 64 << 20,
            registrations_per_key_max: 1_024,
            unverified_registrations_kept: Duration::from_secs(24 * 60 * 60),
            client_percent: 50,
            outgoing_max: 8_192,
            outgoing_bytes_max: 64 << 20,
            record_bytes_max: 4 << 20,
            dedup_entries_max: 16_384,
            dedup_bytes_max: 16 << 20,
            page_bytes_max: 8 * 1024,
            page_work_max: 100_000,
        }
    }
}

impl StoreLimits {
    /// The share of one verified client in a limit.
    #[cfg(feature = "machines")]
    pub(crate) const fn share_of(&self, limit: usize) -> usize {
        let percent = if self.client_percent > 100 { 100 } else { self.client_percent as usize };
        // In two parts, since `limit * 100` could overflow.
        limit / 100 * percent + (limit % 100 * percent).div_ceil(100)
    }

    /// Packets that one request can cause: its response, its acknowledgement, a disconnect order,
    /// and two notifications for each registration if the value that it replaces had expired.
    #[cfg(feature = "machines")]
    pub(crate) const fn burst(&self) -> usize {
        self.registrations_per_key_max.saturating_mul(2).saturating_add(3)
    }
}

/// The limits of every table and queue of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Requests that are not completed, or whose completion was not polled.
    pub pending_max: usize,
    /// Watches.
    pub watches_max: usize,
    /// Events of watches, and reports of unmatched messages and clock drift, that wait to be
    /// polled, in addition to one event for each request of `pending_max`. A watch whose event does
    /// not fit drops it, reports a gap, and reads the key again.
    pub events_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { pending_max: 1_024, watches_max: 1_024, events_max: 4_096 }
    }
}

/// Events of a lock that wait to be polled. At this number the lock accepts no further attempt.
/// Each attempt adds four events at most; an application that polls has one or two waiting.
#[cfg(feature = "machines")]
pub(crate) const LOCK_EVENTS_MAX: usize = 16;
