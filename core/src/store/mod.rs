//! The store as a state machine: requests in, replies and notifications out.
//!
//! A [`Store`] holds keys, values, versions, fences, expiries and registrations. It does not know how requests reach it:
//! hand it each PUBLISH on [`topic::REQUEST`] with [`Store::handle_publish`], send what
//! [`Store::poll_transmit`] gives, call [`Store::handle_timeout`] when [`Store::poll_timeout`] says.
//!
//! ```
//! use bytes::Bytes;
//! use statestore_proto::mqtt::{Incoming, Transmit};
//! use statestore_proto::store::{Principal, Store, StoreConfig};
//! use statestore_proto::time::{Instant, Now, UnixTime};
//! use statestore_proto::topic;
//!
//! let mut store = Store::new(StoreConfig::new(7));
//! let now = Now::new(Instant::from_millis(0), UnixTime::from_millis(1_696_374_425_000));
//!
//! let payload = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
//! let mut request = Incoming::new(topic::REQUEST, &payload);
//! request.response_topic = Some("clients/CLIENT/services/statestore/_any_/command/invoke/response");
//! request.correlation_data = Some(b"0123456789abcdef");
//! request.user_property("__ts", "1696374425000:0:CLIENT");
//! store.handle_publish(now, Principal::of(&request), &request);
//!
//! let Some(Transmit::Publish(reply)) = store.poll_transmit() else { panic!("every request is answered") };
//! assert_eq!(&reply.payload[..], b"+OK\r\n");
//! let properties: Vec<_> = reply.user_properties().map(|(name, value)| format!("{name}={value}")).collect();
//! assert_eq!(properties, ["__ts=1696374425000:1:StateStore", "__stat=200"]);
//! assert_eq!(store.get(now, b"k").unwrap().value, b"v");
//! ```
//!
//! # Time
//!
//! A value set with an expiry is gone from the very millisecond it is due, by the monotonic clock, whether
//! [`Store::handle_timeout`] was called or not; the timer only decides when its watchers hear of it.
//!
//! # Delivery
//!
//! For each request with a delivery token there is one [`Transmit::Acknowledge`], after everything that answers it and
//! in order of arrival. A request that comes again, with the same payload and stamps, is answered from a bounded cache;
//! GET and SCAN, which have no effect, are executed again, and so is KEYNOTIFY: whoever is told that it watches does, also
//! when its registration has ended since.
//!
//! A notification is kept until its PUBACK is [reported](Store::handle_published), or until as many are kept as the
//! [queue](crate::limits::StoreLimits::outgoing_max) may hold: [`Store::handle_connected`] sends it again. So watchers may
//! have it twice, and those that are behind a broker miss none when the store loses its connection.
//!
//! # Incarnation
//!
//! A store begins without registrations, and one in memory without values, fences and locks. With
//! [`StoreConfig::incarnation`] it says so: clients that ask are told which store they talk to, on every reply and
//! notification ([`property::INCARNATION`](crate::message::property::INCARNATION)), and notice when it is another.
//!
//! # Durability
//!
//! With [`StoreConfig::durability`], [`Store::poll_records`] hands out what must survive: values, answers, and with
//! [`StoreConfig::durable_watches`] registrations. Whatever tells of a key that was written is held until
//! [`Store::handle_persisted`] says that its records are safe, and nothing else waits. A new store takes the records back
//! through [`Store::restore`].
//!
//! | What | After a restart |
//! |---|---|
//! | a value that is kept, its version and fence | as it was |
//! | a value with an expiry | has what the wall clock leaves of its time ([`RecordedExpiry::rest`]), a lease all of it |
//! | a value that is not kept ([`Durability::Requested`]) | is gone, with its fence |
//! | a request whose answer was recorded, delivered again | gets that answer and has no effect, refusals included |
//! | a request whose answer was not recorded | is new; nobody had its answer |
//! | versions | go on past the greatest that was issued, whatever the wall clock says |
//! | registrations | are there with [`StoreConfig::durable_watches`], and gone without |
//!
//! A store that another may replace while it stands still, as a leader among standbys, learns of that when it persists. With
//! [`StoreConfig::linearizable_reads`] reads wait for that too, or it would answer with what is no longer so.
//!
//! Records add up, and only the last of a key counts. To compact them, write a snapshot to a new log, whole with
//! [`Store::snapshot`] or in parts, between requests, with [`Store::snapshot_part`]; what is written from its beginning on
//! goes to the new log too. Once all of it is safe, let it take the place of the old one, in one step.
//!
//! Batches that are handed out and not yet persisted need no care: what the snapshot and a batch both say, restores the
//! same. An embedder with another idea of what to keep makes its records from [`Store::iter`] with
//! [`StoredEntry::to_record`], and keeps the first record of the snapshot with them.

mod codec;
mod config;
mod counters;
mod execute;
mod explain;
mod order;
mod outbox;
mod pending;
mod quota;
mod record;
pub mod recording;
mod replies;
mod restore;
mod scan;
mod seal;
mod shares;
mod table;
mod unacknowledged;
mod watches;

use core::fmt;
use core::time::Duration;

pub use codec::{RecordsError, decode_records, encode_records};
pub use config::{
    Access, Authorizer, DialectPolicy, Durability, KeySelector, Principal, StoreConfig,
};
pub use counters::{Ahead, Counters, DropReason, Handled, Verdict, Verdicts};
pub use explain::{Exceeded, Explanation, Limit};
pub use record::{Answered, Batch, BatchId, Record, RecordedExpiry};
pub use restore::SnapshotPosition;
pub use shares::Holding;

use crate::deadlines::Deadlines;
use crate::hlc::{FencingToken, HlcRef, HybridClock, Version};
use crate::limits::AHEAD_NOTED;
use crate::machine::{Input, Machine};
use crate::mqtt::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};
use crate::time::{Instant, Now, UnixTime};
use crate::topic;
use outbox::{About, Outbox};
use replies::Replies;
use seal::Seal;
use table::{Entry, Meta, Slot, Table};
use watches::Watches;

/// How long an answer is remembered when its request has no message expiry interval.
const REPLY_KEPT: Duration = Duration::from_secs(60);

/// How long an answer is remembered at least: a request with a message expiry interval of zero is delivered at once,
/// and may be twice.
const REPLY_KEPT_MIN: Duration = Duration::from_secs(1);

/// A state store. See the [module documentation](self).
pub struct Store {
    config: StoreConfig,
    clock: HybridClock,
    table: Table,
    expiries: Deadlines<Slot>,
    watches: Watches,
    replies: Replies,
    outbox: Outbox,
    seal: Seal,
    connections: u64,
    /// The latest time it was told with a request or a timer, for what is told without.
    latest: Instant,
    /// Whether requests are subscribed on this connection.
    subscribed: bool,
    /// No version from here on may be issued before a record says so, where not every version has one.
    reserved: UnixTime,
    counters: Counters,
    /// Why the last message was refused or dropped.
    explained: Option<Explanation>,
    /// Messages that were handed over.
    handed: u64,
}

/// A stored value, for the embedder.
#[derive(Clone)]
pub struct StoredEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Its version.
    pub version: Version,
    /// The token that fences the key.
    pub fencing_token: Option<&'a FencingToken>,
    /// When it expires.
    pub expires: Option<Instant>,
    /// Whether it expires and was set on a condition (NX or NEX), as locks are.
    pub is_lease: bool,
    /// Whether it is to be kept where not everything is: its requester asked for that, or its key says so.
    pub persist: bool,
}

impl fmt::Debug for StoredEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEntry")
            .field("key", &crate::debug::Key(self.key))
            .field("value", &crate::debug::Value(self.value))
            .field("version", &self.version)
            .field("fencing_token", &self.fencing_token)
            .field("expires", &self.expires)
            .field("is_lease", &self.is_lease)
            .field("persist", &self.persist)
            .finish()
    }
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(mut config: StoreConfig) -> Self {
        let limits = &mut config.limits;
        let fan_outs = limits.burst().saturating_add(limits.watches_per_key_max);
        limits.outgoing_max = limits.outgoing_max.max(fan_outs);
        let seed = config.hash_seed;
        Self {
            // What comes in is bounded by `Stamps::verify_within`; no request is refused for what this store has issued.
            clock: HybridClock::new(config.node_id.clone()).with_drift_max(Duration::MAX),
            table: Table::new(seed, config.node_id.clone()),
            expiries: Deadlines::new(),
            watches: Watches::new(config.keeps_watches()),
            replies: Replies::new(seed, &config.limits, config.is_durable()),
            outbox: Outbox::new(seed, config.holds_reads(), &config.limits),
            seal: Seal::new(config.effective_scan_secret()),
            connections: 0,
            latest: Instant::default(),
            subscribed: false,
            reserved: UnixTime::default(),
            counters: Counters::default(),
            explained: None,
            handed: 0,
            config,
        }
    }

    /// Handles a new connection, for a store that is an ordinary client of a broker: it subscribes to requests. A
    /// broker that hosts the store hands requests over without. The SUBSCRIBE comes before whatever else waits to be sent, and
    /// then every notification that was handed out and not [acknowledged](Self::handle_published): it may be lost with the connection before, and
    /// nobody asks for it again.
    pub fn handle_connected(&mut self) {
        self.connections += 1;
        self.subscribed = false;
        let token = SubscribeToken(self.connections);
        self.outbox.again();
        self.outbox.subscribe(Transmit::Subscribe { filter: topic::REQUEST.into(), token });
    }

    /// Handles a SUBACK. One that belongs to an earlier connection is ignored.
    pub const fn handle_subscribed(&mut self, token: SubscribeToken, reason: ReasonCode) {
        if token.0 == self.connections {
            self.subscribed = !reason.is_error();
        }
    }

    /// Handles the loss of the connection. Packets that wait to be sent wait for the next connection.
    pub const fn handle_disconnected(&mut self) {
        self.subscribed = false;
    }

    /// Handles a received PUBLISH. `from` says who sent it.
    ///
    /// Whatever the message is, it affects at most the request it is: bad input is answered with an error or counted.
    /// Call it only while it [has room](Self::has_room); a request handed over at another time is counted and forgotten,
    /// unacknowledged. What became of it is counted, and returned for those who keep a log.
    pub fn handle_publish(
        &mut self,
        now: Now,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
    ) -> Handled {
        self.explained = None;
        self.handed += 1;
        let handled = if self.has_room() {
            self.latest = now.instant;
            self.replies.expire(now.instant);
            let issued = self.clock.last().wall();
            let mut handled = self.process(now, from, incoming);
            handled.ahead = self.set_ahead(now.unix, issued, incoming);
            if let Some(delivery) = incoming.delivery {
                // Acknowledgements stay in order.
                self.outbox.push(About::Everything, Transmit::Acknowledge(delivery));
            }
            self.end_unit();
            handled
        } else {
            Handled::dropped(DropReason::Overloaded)
        };
        if let (Verdict::Dropped(reason), None) = (handled.verdict, &self.explained) {
            self.explained = Some(Explanation::Dropped(reason));
        }
        self.counters.count(handled);
        handled
    }

    /// How far a request has set the clock ahead, which had `issued` that before, if that is worth a word.
    fn set_ahead(&self, now: UnixTime, issued: UnixTime, incoming: &Incoming<'_>) -> Option<Ahead> {
        let last = self.clock.last().wall();
        if last <= issued || last <= now + AHEAD_NOTED {
            return None;
        }
        let by = Duration::from_millis(last.as_millis() - now.as_millis());
        let token = incoming.properties.fencing_token.and_then(|text| HlcRef::parse(text).ok());
        Some(Ahead { by, is_fence: token.is_some_and(|token| token.wall() >= last) })
    }

    /// Sorts out what is no request that can be answered.
    fn process(&mut self, now: Now, from: Principal<'_>, incoming: &Incoming<'_>) -> Handled {
        // A retained request was asked long ago, and would be again at each connection of this store.
        if incoming.topic != topic::REQUEST || incoming.retain {
            return Handled::dropped(DropReason::NotARequest);
        }
        let Some(response_topic) = incoming.response_topic else {
            return Handled::dropped(DropReason::Unanswerable);
        };
        if let Err(offence) = topic::check_response(response_topic) {
            // A name that is only claimed may be the name of a victim.
            if let Some(client_id) = from.client_id().filter(|_| from.is_verified()) {
                let disconnect = Transmit::Disconnect {
                    client_id: client_id.into(),
                    response_topic: response_topic.into(),
                    offence,
                };
                self.outbox.push(About::Nothing, disconnect);
            }
            self.explained = Some(Explanation::ResponseTopic(offence));
            return Handled::dropped(DropReason::Forbidden);
        }
        if incoming.is_expired(now.instant) {
            return Handled::dropped(DropReason::Expired);
        }
        self.answer(now, from, incoming, response_topic)
    }

    /// Ends every registration of a client that has disconnected, whether or not its MQTT session lives on.
    pub fn handle_client_gone(&mut self, client_id: &str) {
        self.counters.watches_lost += self.watches.remove_client(client_id) as u64;
        self.end_unit();
    }

    /// Handles the PUBACK of a PUBLISH that carried a token. When it reached nobody
    /// ([`ReasonCode::NO_MATCHING_SUBSCRIBERS`]) the client is gone, and so are its registrations, except those that it
    /// has renewed since. One that reached somebody is a [sign of
    /// life](crate::limits::StoreLimits::claimed_watches_kept).
    pub fn handle_published(&mut self, token: PublishToken, reason: ReasonCode) {
        self.outbox.settled(token);
        match reason {
            ReasonCode::NO_MATCHING_SUBSCRIBERS => {
                self.counters.watches_lost += self.watches.remove_undeliverable(token) as u64;
            }
            // Longer ago than this the notification was not caused.
            ReasonCode::SUCCESS => self.watches.delivered(self.latest, token),
            _ => {}
        }
        self.end_unit();
    }

    /// Removes what is due and tells its watchers. Early or repeated calls change nothing.
    ///
    /// When the queue of outgoing packets is full it stops; [`poll_timeout`](Self::poll_timeout) asks again once there
    /// is room.
    pub fn handle_timeout(&mut self, now: Now) {
        self.latest = now.instant;
        self.replies.expire(now.instant);
        while self.has_room_to_expire() {
            let Some(slot) = self.expiries.pop_due(now.instant) else {
                break;
            };
            self.expire(slot);
            self.end_unit();
        }
    }

    /// Says that a batch, and every batch before it, is safe; what waited for it is released.
    pub fn handle_persisted(&mut self, id: BatchId) {
        self.outbox.persisted(id);
    }

    /// The next packet to send, in order.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outbox.pop()
    }

    /// All records since the last call; `None` when there were none, and nothing waits for a batch as with
    /// [linearizable reads](StoreConfig::linearizable_reads).
    #[must_use]
    pub fn poll_records(&mut self) -> Option<Batch> {
        self.outbox.take_records(usize::MAX)
    }

    /// The oldest records, no more than `count` of them, for an engine whose transactions have a limit; `None` where
    /// [`poll_records`](Self::poll_records) has none. What one request wrote stays together, and may be more than `count` alone.
    ///
    /// One request has up to five, and one more for each registration that it ends.
    #[must_use]
    pub fn poll_records_within(&mut self, count: usize) -> Option<Batch> {
        self.outbox.take_records(count)
    }

    /// Closes what is persisted together.
    fn end_unit(&mut self) {
        self.record_ended();
        self.outbox.close_unit();
    }

    /// Records the registrations that have ended.
    fn record_ended(&mut self) {
        while let Some(watch) = self.watches.poll_ended() {
            self.outbox.record(watch.key(), watch.to_end());
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` when nothing is due, or when nothing can be done
    /// before packets are sent.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.has_room_to_expire() { self.expiries.next() } else { None }
    }

    /// Whether there is room for whatever one more request can cause. While there is not, do not take the next message
    /// from the broker.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_for(self.config.limits.burst())
    }

    /// Whether requests arrive: connected, and subscribed to them. A broker that hosts the store subscribes nothing.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.subscribed
    }

    /// The value stored under a key.
    #[must_use]
    pub fn get(&self, now: Now, key: &[u8]) -> Option<StoredEntry<'_>> {
        let entry = self.table.get(self.table.find(key)?)?;
        (!entry.is_expired(now.instant)).then(|| self.stored(entry))
    }

    /// All stored values, in an order that depends only on the calls made.
    pub fn iter(&self, now: Now) -> impl Iterator<Item = StoredEntry<'_>> {
        self.table
            .iter()
            .filter(move |entry| !entry.is_expired(now.instant))
            .map(|entry| self.stored(entry))
    }

    /// Keys stored, those included that have expired and were not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all keys and values stored.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Registrations for notifications.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// Packets, and records if these are more, that wait to be polled or for a batch to be persisted.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Bytes of payloads, topics, keys and values in what [waits](Self::waiting).
    #[must_use]
    pub const fn waiting_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// What a verified client holds; nothing for a name that nobody vouched for.
    ///
    /// ```
    /// use statestore_proto::store::{Holding, Store, StoreConfig};
    ///
    /// let store = Store::new(StoreConfig::new(7));
    /// assert_eq!(store.held_by("sensor-1"), Holding::default());
    /// ```
    #[must_use]
    pub fn held_by(&self, client_id: &str) -> Holding {
        let owner = self.table.owner_of(Principal::verified(client_id));
        let held = owner.map(|owner| self.table.held_by(owner)).unwrap_or_default();
        let watched = self.watches.held_by(client_id);
        Holding {
            keys: held.keys,
            bytes: held.bytes,
            watches: watched.count,
            watch_bytes: watched.bytes,
        }
    }

    /// What the store has seen and done.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    fn stored<'a>(&self, entry: &'a Entry) -> StoredEntry<'a> {
        StoredEntry {
            key: entry.key(),
            value: entry.value(),
            version: self.table.version_of(entry),
            fencing_token: entry.fence(),
            expires: entry.expires(),
            is_lease: entry.is_lease(),
            persist: entry.is_persistent(),
        }
    }

    fn has_room_to_expire(&self) -> bool {
        self.has_room_for(self.config.limits.watches_per_key_max)
    }

    /// Whether so many packets more may wait to be sent.
    fn has_room_for(&self, packets: usize) -> bool {
        let limits = &self.config.limits;
        self.outbox.len().saturating_add(packets) <= limits.outgoing_max
            && self.outbox.bytes() <= limits.outgoing_bytes_max
    }

    /// Stores a value in its slot, or in a new one, and arms its expiry.
    fn put(&mut self, slot: Option<Slot>, key: &[u8], value: &[u8], meta: Meta) {
        let expires = meta.expires;
        let slot = match slot {
            Some(slot) => {
                self.disarm(slot);
                self.table.replace(slot, value, meta);
                Some(slot)
            }
            None => self.table.insert(key, value, meta),
        };
        if let Some((at, slot)) = expires.zip(slot) {
            self.expiries.insert(at, slot);
        }
    }

    fn remove(&mut self, slot: Slot) -> Option<Entry> {
        self.disarm(slot);
        self.table.remove(slot)
    }

    fn disarm(&mut self, slot: Slot) {
        if let Some(at) = self.table.get(slot).and_then(Entry::expires) {
            self.expiries.remove(at, slot);
        }
    }
}

impl Machine for Store {
    /// A message is from its [verified sender](Incoming::verified_sender), or else from whom it says.
    fn handle(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Connected { .. } => self.handle_connected(),
            Input::Disconnected => self.handle_disconnected(),
            Input::Subscribed(token, reason) => self.handle_subscribed(token, reason),
            Input::Published(token, reason) => self.handle_published(token, reason),
            Input::Message(incoming) => {
                self.handle_publish(now, Principal::of(incoming), incoming);
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

    fn wants_messages(&self) -> bool {
        Self::has_room(self)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("config", &self.config)
            .field("keys", &self.len())
            .field("bytes", &self.bytes())
            .field("watches", &self.watches())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
