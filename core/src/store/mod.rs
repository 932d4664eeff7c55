//! The store as a state machine: requests in, responses and notifications out.
//!
//! A [`Store`] holds keys, values, versions, fences, expiries and registrations. It performs no
//! I/O: pass each PUBLISH on [`topic::REQUEST`] to [`Store::handle_publish`], send what
//! [`Store::poll_transmit`] returns, and pass [`Input::Timeout`] at the time that
//! [`Store::poll_timeout`] returns.
//!
//! [`topic::REQUEST`]: crate::topic::REQUEST
//!
//! ```
//! use bytes::Bytes;
//! use statestore_proto::store::{Store, StoreConfig};
//! use statestore_proto::time::{Instant, Now, UnixTime};
//! use statestore_proto::topic;
//! use statestore_proto::transport::{Incoming, Transmit};
//!
//! let mut store = Store::new(StoreConfig::new(7));
//! let now = Now::new(Instant::from_millis(0), UnixTime::from_millis(1_696_374_425_000));
//!
//! let payload = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
//! let mut request = Incoming::new(topic::REQUEST, &payload);
//! request.response_topic =
//!     Some("clients/CLIENT/services/statestore/_any_/command/invoke/response");
//! request.correlation_data = Some(b"0123456789abcdef");
//! request.user_property("__ts", "1696374425000:0:CLIENT");
//! store.handle_publish(now, &request);
//!
//! let Some(Transmit::Publish(response)) = store.poll_transmit() else {
//!     panic!("every request gets a response")
//! };
//! assert_eq!(&response.payload[..], b"+OK\r\n");
//! let properties = response.user_properties().map(|(name, value)| format!("{name}={value}"));
//! let properties: Vec<_> = properties.collect();
//! assert_eq!(properties, ["__ts=1696374425000:1:StateStore", "__stat=200"]);
//! assert_eq!(store.get(now, b"k").unwrap().value, b"v");
//! ```
//!
//! # Stages
//!
//! A request passes the stages that [`rules`](crate::rules) lists:
//!
//! ```text
//! address -> decode -> authorize -> look up -> timestamps
//!         -> gather -> decide -> apply -> remember -> respond
//! ```
//!
//! No stage calls the next one. A stage that can refuse the request returns [`Refused`]. A change
//! of a table returns its effects: its record, and its notifications.
//!
//! # Time
//!
//! A value with an expiry is absent from the millisecond of its expiry on, by the monotonic clock,
//! whether [`Input::Timeout`] was passed or not. The timer only decides when its watchers
//! get the notification.
//!
//! # Delivery
//!
//! Each request with a delivery token causes one [`Transmit::Acknowledge`], after its response and
//! in order of arrival. A redelivered request with the same payload, timestamps and owner gets its
//! first response from a bounded cache, unless the rights of its client were revoked since. GET and
//! SCAN only read, so they are executed again; so is KEYNOTIFY, since a client that gets `+OK` must
//! be registered.
//!
//! If the cache is full, the [owner](Principal::owner) whose responses take the most space loses
//! its oldest one. An unverified client id is its own owner, but all of them together count as one
//! owner against verified ones. So an owner loses no response before its retention has passed while
//! its responses take at most an equal part of the cache. Each takes its bytes, and the bytes per
//! entry at both limits. This holds for restored responses too, and whether or not clients are
//! connected. A response is cached for one hour at most.
//!
//! The store keeps a notification until its PUBACK is [reported](Input::Published), up to
//! the [limit](crate::limits::StoreLimits::outgoing_max) of its queue, and sends it again on
//! [`Input::Connected`]. So watchers may get a notification twice. If the store loses its
//! connection to an external broker, they miss none unless that limit was exceeded.
//!
//! # Incarnation
//!
//! A new store starts without registrations, and one in memory without values, fences and locks.
//! Its incarnation is a random id of one run of a store. With [`StoreConfig::incarnation`] the
//! store reports it to clients that ask for it, on every reply and notification
//! ([`property::INCARNATION`](crate::message::property::INCARNATION)), so that they notice when a
//! new store has replaced it.
//!
//! # Durability
//!
//! With [`StoreConfig::durability`], [`Store::poll_records`] returns records of what must survive:
//! values, responses, and with [`StoreConfig::durable_registrations`] registrations. A packet about
//! a key is held until [`Store::handle_persisted`] reports that the last record of that key is
//! durable; a page of SCAN and an acknowledgement are held until all earlier records are.
//! [`Store::restore`] gives the records to a new store.
//!
//! After a restart:
//!
//! - A durable value is there with its version and fence. With an expiry it has the time that is
//!   left by the wall clock ([`RecordedExpiry::rest`]), and a lease has all of its time again.
//! - A value that is not durable ([`Durability::Requested`]) is lost with its fence.
//! - A redelivered request whose response was recorded gets that response, an error included, and
//!   changes nothing. One without a recorded response is executed again; with
//!   [`Durability::Requested`] that includes requests about keys that are not durable, whose
//!   clients may already have the first response.
//! - Versions continue after the greatest one that was issued, whatever the wall clock is.
//! - Registrations are there with [`StoreConfig::durable_registrations`], and lost without.
//!
//! A paused leader notices its replacement only when it persists. With
//! [`StoreConfig::linearizable_reads`] its reads wait for that too, so they are never stale.
//!
//! Only the last record about a key matters. To compact the log, write a snapshot to a new log,
//! whole with [`Store::snapshot`] or in parts between requests with [`Store::snapshot_part`], and
//! write later records to both logs. When the whole snapshot is durable, replace the old log with
//! the new one in one step. Batches that are not persisted yet need no care: a record that is in
//! the snapshot and in a batch restores the same state. An embedder with other rules of durability
//! makes its records from [`Store::iter`] with [`StoredEntry::to_record`], and adds the first
//! record of the snapshot.

mod config;
mod counters;
mod dedup;
mod effects;
mod keyed_hash;
mod keyspace;
mod notifications;
mod outbox;
mod outcome;
mod persist;
mod principal;
mod process;
mod refused;
mod registrations;
mod request;
mod scan;
mod scan_token;
mod storage;
mod tables;
mod unpersisted;
mod usage;

use core::fmt;
use core::time::Duration;

pub use crate::transport::Access;
pub use config::{
    DialectPolicy, Durability, ExpiryPolicy, KeyPredicate, StoreConfig, StoreSettings,
};
pub use counters::{Counters, OutcomeCounts};
pub use keyspace::StoredEntry;
pub use outcome::{ClockAdvance, DropReason, Handled, RequestOutcome};
pub use persist::{
    Batch, BatchId, RECORDS_FORMAT, Record, RecordedExpiry, RecordedResponse, RecordsError,
    SnapshotPosition, decode_records, encode_records,
};
pub use principal::{Authorizer, Principal};
pub use refused::Refused;
pub use usage::ClientUsage;

use crate::hlc::{HybridClock, VersionRef};
use crate::machine::{Input, Machine};
use crate::time::{Instant, Now, UnixTime};
use crate::transport::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};
use dedup::Dedup;
use keyspace::Keyspace;
use outbox::{DependsOn, Outbox};
use registrations::Registrations;
use scan_token::ScanTokens;
use tables::Tables;

/// The number of expired values that one [`Input::Timeout`], or one request,
/// removes.
const EXPIRIES_MAX: usize = 4_096;

/// The pause before the next call removes more of them, in which a driver can handle requests.
const EXPIRY_PAUSE: Duration = Duration::from_millis(1);

/// A state store. See the [module documentation](self).
pub struct Store {
    config: StoreConfig,
    tables: Tables,
    dedup: Dedup,
    outbox: Outbox,
    scan_tokens: ScanTokens,
    /// The number of connections so far.
    connections: u64,
    /// True if the store is subscribed to requests on this connection.
    is_subscribed: bool,
    /// Expired values that [`Input::Timeout`] left are not due before this.
    expiry_resumes: Instant,
    counters: Counters,
    /// The number of messages: calls of [`handle_publish`](Store::handle_publish).
    messages: u64,
}

impl Store {
    /// Creates an empty store.
    ///
    /// [`outgoing_max`](crate::limits::StoreLimits::outgoing_max) is at least what three fan-outs
    /// of one key need, whatever the configuration says.
    #[must_use]
    pub fn new(mut config: StoreConfig) -> Self {
        let limits = &mut config.settings.limits;
        let fan_outs = limits.burst().saturating_add(limits.registrations_per_key_max);
        limits.outgoing_max = limits.outgoing_max.max(fan_outs);
        let seed = config.hash_seed;
        // The timestamps of requests are bounded when they are verified. The clock itself is
        // unbounded, so no request is refused because of the versions that the store has issued.
        let clock = HybridClock::new(config.node_id.clone()).with_drift_max(Duration::MAX);
        Self {
            tables: Tables {
                keyspace: Keyspace::new(seed, config.node_id.clone(), config.durability),
                registrations: Registrations::new(),
                clock,
                reserved: UnixTime::default(),
                is_storage_full: false,
            },
            dedup: Dedup::new(seed, &config.limits, config.is_durable()),
            outbox: Outbox::new(seed, config.holds_reads(), &config.limits),
            scan_tokens: ScanTokens::new(config.effective_scan_secret()),
            connections: 0,
            is_subscribed: false,
            expiry_resumes: Instant::default(),
            counters: Counters::default(),
            messages: 0,
            config,
        }
    }

    /// Handles a new connection of a store that is a client of an external broker: the store
    /// subscribes to requests. A store in an embedded broker gets requests without a subscription.
    ///
    /// The SUBSCRIBE comes before all waiting packets. Notifications that were sent and not
    /// [acknowledged](Input::Published) come next, since they may be lost with the previous
    /// connection.
    fn handle_connected(&mut self) {
        self.connections += 1;
        self.is_subscribed = false;
        let token = SubscribeToken(self.connections);
        self.outbox.requeue_unacknowledged();
        self.outbox.subscribe(token);
    }

    /// Handles a SUBACK. One that belongs to an earlier connection is ignored.
    const fn handle_subscribed(&mut self, token: SubscribeToken, reason: ReasonCode) {
        if token.0 == self.connections {
            self.is_subscribed = !reason.is_error();
        }
    }

    /// Handles a received PUBLISH from its [principal](Principal::of).
    ///
    /// An invalid message has no effect on other requests: it gets an error, or is counted and
    /// dropped. Call this only while [`can_receive`](Self::can_receive) returns true; otherwise the
    /// message is counted and ignored, without an acknowledgement.
    pub fn handle_publish<'a>(&mut self, now: Now, incoming: &Incoming<'a>) -> Handled<'a> {
        self.messages += 1;
        let handled = if self.can_receive() {
            self.dedup.expire(now.instant);
            let handled = self.process(now, incoming);
            if let Some(delivery) = incoming.delivery {
                // Acknowledgements stay in the order of arrival.
                self.outbox.push(DependsOn::Everything, Transmit::Acknowledge(delivery));
            }
            self.outbox.close_unit();
            handled
        } else {
            self.dropped(DropReason::Overloaded)
        };
        self.counters.count(&handled);
        handled
    }

    /// Handles the end of a client's connection: all its registrations end, whether or not its MQTT
    /// session continues.
    fn handle_client_gone(&mut self, client_id: &str) {
        let ended = self.tables.registrations.remove_client(client_id);
        self.lose(ended);
        self.outbox.close_unit();
    }

    /// Handles the PUBACK of a PUBLISH with a token.
    ///
    /// [`ReasonCode::NO_MATCHING_SUBSCRIBERS`]
    /// [silences](Self::silenced_registrations) the registration, unless the client has renewed it
    /// since. Success protects the registrations of an unverified client id from
    /// [eviction](crate::limits::StoreLimits::unverified_registrations_kept) for that time.
    fn handle_published(&mut self, now: Now, token: PublishToken, reason: ReasonCode) {
        self.outbox.acknowledge(token);
        match reason {
            ReasonCode::NO_MATCHING_SUBSCRIBERS => {
                let is_new = self.tables.registrations.silence(now.instant, token);
                self.counters.registrations_silenced += u64::from(is_new);
            }
            ReasonCode::SUCCESS => {
                let kept = self.config.limits.unverified_registrations_kept;
                self.tables.registrations.record_delivery(now.instant + kept, token);
            }
            _ => {}
        }
    }

    /// Removes expired values and notifies their watchers. Early or repeated calls change nothing.
    ///
    /// One call removes at most 4,096 values, so that it takes a few milliseconds; the rest is due
    /// a millisecond later. It ends earlier when the output queue is full;
    /// [`poll_timeout`](Self::poll_timeout) returns a time again when the queue has capacity.
    fn handle_timeout(&mut self, now: Now) {
        self.dedup.expire(now.instant);
        let packets = self.config.limits.registrations_per_key_max;
        let is_done = self.remove_expired(now.instant, packets);
        self.expiry_resumes = if is_done { Instant::default() } else { now.instant + EXPIRY_PAUSE };
    }

    /// Reports that a batch, and every batch before it, is durable. Packets that waited for them
    /// are released.
    pub fn handle_persisted(&mut self, id: BatchId) {
        self.outbox.release(id);
    }

    /// The next packet to send, in order.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outbox.pop()
    }

    /// Takes the oldest records: up to [`record_bytes_max`](crate::limits::StoreLimits), and at
    /// least those of one request. Returns `None` without records and without packets that wait for
    /// a batch. With [linearizable reads](StoreConfig::linearizable_reads) a batch may be empty.
    #[must_use]
    pub fn poll_records(&mut self) -> Option<Batch> {
        self.poll_records_within(usize::MAX)
    }

    /// Like [`poll_records`](Self::poll_records), with at most `count` records, for an engine whose
    /// transactions have such a limit.
    ///
    /// The records of one request stay together and may exceed `count`, by at most two. Records of
    /// registrations that a request ends or evicts may be in earlier batches.
    #[must_use]
    pub fn poll_records_within(&mut self, count: usize) -> Option<Batch> {
        self.outbox.take_records(count, self.config.limits.record_bytes_max)
    }

    /// The time of the next [`Input::Timeout`]; `None` when nothing is due, or
    /// when packets must be sent first.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let next = self.tables.keyspace.next_expiry().filter(|_| self.can_expire())?;
        Some(next.max(self.expiry_resumes))
    }

    /// Returns whether the output queue has capacity for everything that one more request can
    /// cause. If not, hold messages in the driver, and go on reading.
    #[must_use]
    pub fn can_receive(&self) -> bool {
        self.has_capacity_for(self.config.limits.burst())
    }

    fn can_expire(&self) -> bool {
        self.has_capacity_for(self.config.limits.registrations_per_key_max)
    }

    /// Returns whether the output queue has capacity for this many packets.
    fn has_capacity_for(&self, packets: usize) -> bool {
        let limits = &self.config.limits;
        self.outbox.len().saturating_add(packets) <= limits.outgoing_max
            && self.outbox.bytes() <= limits.outgoing_bytes_max
            && self.outbox.record_bytes() <= limits.record_bytes_max
    }

    /// Returns whether the store is connected and subscribed to requests. A store in an embedded
    /// broker subscribes to nothing.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_subscribed
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, now: Now, key: &[u8]) -> Option<StoredEntry<'_>> {
        let entry = self.tables.keyspace.entry(key)?;
        (!entry.is_expired(now.instant)).then(|| self.tables.keyspace.stored_entry(entry))
    }

    /// All stored values, in an order that depends only on the calls made.
    pub fn iter(&self, now: Now) -> impl Iterator<Item = StoredEntry<'_>> {
        let entries =
            self.tables.keyspace.iter().filter(move |entry| !entry.is_expired(now.instant));
        entries.map(|entry| self.tables.keyspace.stored_entry(entry))
    }

    /// The number of keys, including expired ones that were not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.keyspace.len()
    }

    /// Returns whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.tables.keyspace.bytes()
    }

    /// The number of registrations, including silenced ones.
    #[must_use]
    pub fn registrations(&self) -> usize {
        self.tables.registrations.len()
    }

    /// The number of silenced registrations: a notification had
    /// [no subscriber](ReasonCode::NO_MATCHING_SUBSCRIBERS), so the store publishes nothing more
    /// for them until their client sends KEYNOTIFY again.
    ///
    /// They count towards the limits, and are evicted first when one is reached. They end like
    /// others: by STOP, which gets `+OK`, or when their
    /// [client is gone](Input::ClientGone). Records do not contain the silence: a restored
    /// registration is notified, and silenced again.
    #[must_use]
    pub fn silenced_registrations(&self) -> usize {
        self.tables.registrations.silenced()
    }

    /// The number of packets that wait to be polled or for a batch, or of records that wait to be
    /// polled if these are more.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Bytes of payloads, topics, keys and values in what [waits](Self::waiting).
    #[must_use]
    pub const fn waiting_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// Sets whether the storage for records is full, for what grows. Measure its free bytes before
    /// each request.
    ///
    /// While it is full, a SET whose value needs a record and a KEYNOTIFY that needs one get the
    /// quota error. All other requests are executed: reads, deletions, which free space later, and
    /// values that are not durable. Keys expire and registrations end. Their records need the
    /// [space to remove everything](Self::removal_bytes), and a value that is not durable needs a
    /// reservation of versions every ten seconds. Responses get no records: after a restart a
    /// redelivered deletion is executed again.
    ///
    /// ```
    /// use statestore_proto::store::{Durability, Store, StoreConfig};
    ///
    /// /// `free` are the bytes of the storage that are free without the commit in progress, and
    /// /// `commit` are the bytes of that one: `Batch::bytes`, or 0.
    /// fn update_space(store: &mut Store, free: usize, commit: usize, reserve: usize) {
    ///     // This engine writes each record to a log and to a database.
    ///     let unwritten = store.waiting_record_bytes() + commit;
    ///     let needed = 2 * (unwritten + store.removal_bytes());
    ///     store.set_storage_full(free < needed + reserve);
    /// }
    ///
    /// let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
    /// update_space(&mut store, 100 << 20, 0, 64 << 20);
    /// # assert_eq!((store.waiting_record_bytes(), store.removal_bytes()), (0, 0));
    /// ```
    pub const fn set_storage_full(&mut self, is_full: bool) {
        self.tables.is_storage_full = is_full;
    }

    /// Bytes of the records that [`poll_records`](Self::poll_records) has not returned yet.
    #[must_use]
    pub const fn waiting_record_bytes(&self) -> usize {
        self.outbox.record_bytes()
    }

    /// Maximum bytes of the records that remove all durable keys and registrations. Reserve this
    /// space, since keys expire and registrations end even while the
    /// [storage is full](Self::set_storage_full).
    #[must_use]
    pub fn removal_bytes(&self) -> usize {
        storage::removal_bytes(&self.config, &self.tables)
    }

    /// Maximum bytes of the records of a [snapshot](Self::snapshot). For one in progress, see
    /// [`SnapshotPosition::bytes_left`].
    ///
    /// ```
    /// use statestore_proto::store::{Durability, Store, StoreConfig};
    ///
    /// /// The records of requests that are handled during the snapshot need space too.
    /// fn can_begin(store: &Store, free: usize, during: usize) -> bool {
    ///     free >= store.snapshot_bytes() + store.removal_bytes() + during
    /// }
    ///
    /// let store = Store::new(StoreConfig::new(7).durability(Durability::All));
    /// assert!(can_begin(&store, 1 << 20, 0) && !can_begin(&store, 0, 0));
    /// ```
    #[must_use]
    pub fn snapshot_bytes(&self) -> usize {
        storage::snapshot_bytes(&self.config, &self.tables, &self.dedup)
    }

    /// The usage of the [owner](Principal::owner) of a verified client, or of the client; zero for
    /// an unverified one.
    ///
    /// ```
    /// use statestore_proto::store::{ClientUsage, Principal, Store, StoreConfig};
    ///
    /// let store = Store::new(StoreConfig::new(7));
    /// assert_eq!(store.usage_of(Principal::verified("sensor-1")), ClientUsage::default());
    /// ```
    #[must_use]
    pub fn usage_of(&self, principal: Principal<'_>) -> ClientUsage {
        let owner = self.tables.keyspace.owner_of(principal);
        let keys = self.tables.keyspace.usage_of(owner);
        let registrations = self.tables.registrations.usage_of(owner);
        ClientUsage {
            keys: keys.count,
            bytes: keys.bytes,
            registrations: registrations.count,
            registration_bytes: registrations.bytes,
        }
    }

    /// The greatest version that was issued or restored; zero if there is none.
    #[must_use]
    pub fn last_version(&self) -> VersionRef<'_> {
        VersionRef::new(self.tables.clock.last().borrowed())
    }

    /// The counters of the store.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Machine for Store {
    fn handle(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Connected { .. } => self.handle_connected(),
            // Queued packets wait for the next connection.
            Input::Disconnected => self.is_subscribed = false,
            Input::Subscribed(token, reason) => self.handle_subscribed(token, reason),
            Input::Published(token, reason) => self.handle_published(now, token, reason),
            Input::Message(incoming) => {
                self.handle_publish(now, incoming);
            }
            Input::ClientGone(client_id) => self.handle_client_gone(client_id),
            Input::Timeout => self.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        Self::poll_transmit(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn is_ready(&self) -> bool {
        Self::is_ready(self)
    }

    fn can_receive(&self) -> bool {
        Self::can_receive(self)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("config", &self.config)
            .field("keys", &self.len())
            .field("bytes", &self.bytes())
            .field("registrations", &self.registrations())
            .field("silenced_registrations", &self.silenced_registrations())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
