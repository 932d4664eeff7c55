//! What survives: a store from the records of an earlier one, and the records that say all of it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::replies::{Answer, Remembered, RequestKey};
use super::table::Meta;
use super::watches::Registration;
use super::{Answered, Durability, Record, RecordedExpiry, Store, StoredEntry};
use crate::hlc::{Hlc, Version};
use crate::message::Expiry;
use crate::time::{Now, UnixTime};

/// How far a snapshot in parts has got. The default is its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPosition {
    began: Option<Began>,
    at: Position,
}

/// Where a snapshot began. What is later has a record behind it, and is left out, or one that is written more slowly than the
/// store goes on would never end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Began {
    version: Hlc,
    answer: u64,
    watch: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Start,
    /// The first key that is not there yet, or where it would be.
    Key(Vec<u8>),
    /// The answers after this one.
    Answers(u64),
    /// The registrations after this one.
    Watches(u64),
}

impl StoredEntry<'_> {
    /// What [`Store::restore`] makes this entry of, written at `now`.
    ///
    /// To a value that expires it gives what is left of its time at `now`, and never more than that. So a lease, which
    /// gets all of it again when it is restored, ends no earlier than its holder expects.
    ///
    /// ```
    /// # use statestore_proto::store::{Record, Store};
    /// # use statestore_proto::time::Now;
    /// fn of_one_tenant(store: &Store, now: Now) -> Vec<Record> {
    ///     store.iter(now).filter(|entry| entry.key.starts_with(b"tenant-7/")).map(|entry| entry.to_record(now)).collect()
    /// }
    /// # assert_eq!(of_one_tenant(&Store::new(statestore_proto::store::StoreConfig::new(0)), Now::default()), []);
    /// ```
    #[must_use]
    pub fn to_record(&self, now: Now) -> Record {
        let expires = self.expires.and_then(|at| {
            let left = at.duration_since(now.instant);
            let after = Expiry::after(left.max(Duration::from_millis(1)))?;
            Some(RecordedExpiry { at: now.unix + left, after, is_lease: self.is_lease })
        });
        Record::Put {
            key: self.key.into(),
            value: self.value.into(),
            version: self.version.clone(),
            fencing_token: self.fencing_token.cloned(),
            expires,
            persist: self.persist,
        }
    }
}

impl Store {
    /// Restores one record of an earlier store. Call it for all records, in order, before anything else.
    ///
    /// The clock moves past every version seen, so no version is issued twice. Limits of keys and registrations do not
    /// apply: what was accepted once is kept. Records do not say who wrote a value, so it counts for no [client's
    /// share](crate::limits::StoreLimits::client_percent) until a client writes it again. [`RecordedExpiry::rest`] says
    /// how much time is left to a value that expires; one that has none left
    /// is absent from now on, and the next [`handle_timeout`](Self::handle_timeout) records its removal, so that no
    /// later store with an earlier wall clock has it again. An answer is remembered for all of its time again.
    pub fn restore(&mut self, now: Now, record: &Record) {
        match record {
            Record::Put { key, value, version, fencing_token, expires, persist } => {
                // It is kept, whatever was asked: its end must be recorded too, or the next store would have it again.
                let persist = *persist || self.config.durability == Durability::Requested;
                let meta = Meta {
                    version: version.clone(),
                    persist,
                    expires: expires.map(|expires| now.instant + expires.rest(now.unix)),
                    is_lease: expires.is_some_and(|expires| expires.is_lease),
                    fence: fencing_token.clone(),
                    owner: None,
                };
                self.restore_removed(key, version);
                self.put(None, key, value, meta);
            }
            Record::Removed { key, version } => self.restore_removed(key, version),
            Record::Answered(answered) => self.restore_answered(now, answered),
            Record::Watched { client_id, key, verified, dialect, wants_incarnation, order } => {
                let registration = Registration {
                    client_id,
                    verified: *verified,
                    key,
                    dialect: *dialect,
                    incarnation: self.config.incarnation.filter(|_| *wants_incarnation),
                    request: *order,
                };
                let _ = self.watches.insert(now.instant, &registration);
                self.replies.advance(*order);
            }
            Record::Unwatched { client_id, key } => {
                self.watches.remove(client_id, key);
                // It was recorded when it ended.
                while self.watches.poll_ended().is_some() {}
            }
            Record::Issued { version } => {
                self.clock.advance_past(version.hlc().as_deref());
                self.reserved = self.reserved.max(version.hlc().wall());
            }
        }
    }

    fn restore_removed(&mut self, key: &[u8], version: &Version) {
        self.clock.advance_past(version.hlc().as_deref());
        if let Some(slot) = self.table.find(key) {
            self.remove(slot);
        }
    }

    fn restore_answered(&mut self, now: Now, answered: &Answered) {
        let Answered { client_id, response_topic, correlation, content, .. } = answered;
        let key = RequestKey {
            correlation: correlation.as_bytes(),
            client_id,
            response_topic,
            content: *content,
        };
        let remembered = Remembered {
            hash: self.replies.hash_of(key),
            response_topic: Arc::clone(response_topic),
            correlation: correlation.clone(),
            content: *content,
            answer: Answer {
                payload: answered.payload.clone(),
                timestamp: answered.timestamp.clone(),
            },
            until: now.instant + answered.kept,
            is_recorded: true,
        };
        self.replies.insert_as(answered.order, client_id, remembered);
    }

    /// Records that say what all records until now say, and no more: what a log of records can begin with in their place.
    ///
    /// The first is [`Record::Issued`], so that no later store issues the version of a value that was removed since. Then
    /// comes each value that is kept: with [`Durability::Requested`] those that asked for it, otherwise all; then the
    /// answers that were recorded, and registrations where they are.
    pub fn snapshot(&self, now: Now) -> impl Iterator<Item = Record> {
        let mut position = Some(SnapshotPosition::default());
        core::iter::from_fn(move || {
            let (part, next) = self.snapshot_part(now, &position.take()?, usize::MAX);
            position = next;
            Some(part)
        })
        .flatten()
    }

    /// A part of a [snapshot](Self::snapshot), and where the next one begins; `None` where it was the last. A part ends
    /// where its records have some `bytes` together; it may be empty.
    ///
    /// Between two parts the store may go on: what one part says may be older than what another says, and what is written
    /// after the first part is in none. So restore all of them first, and then all records that were handed out since
    /// the first part, in order; each says the whole of what it is about.
    ///
    /// ```
    /// use statestore_proto::store::{Record, SnapshotPosition, Store, StoreConfig};
    /// use statestore_proto::time::Now;
    ///
    /// let store = Store::new(StoreConfig::new(7));
    /// let (part, next) = store.snapshot_part(Now::default(), &SnapshotPosition::default(), 64 * 1024);
    /// assert!(matches!(&part[..], [Record::Issued { .. }]) && next.is_none());
    /// ```
    #[must_use]
    pub fn snapshot_part(
        &self,
        now: Now,
        from: &SnapshotPosition,
        bytes: usize,
    ) -> (Vec<Record>, Option<SnapshotPosition>) {
        let began = from.began.clone().unwrap_or_else(|| Began {
            version: self.clock.last().into(),
            answer: self.replies.last_answer(),
            watch: self.watches.last(),
        });
        let mut part = Part { records: Vec::new(), bytes: 0, bytes_max: bytes };
        let next = self.fill(now, &began, &from.at, &mut part);
        (part.records, next.map(|at| SnapshotPosition { began: Some(began), at }))
    }

    fn fill(&self, now: Now, began: &Began, from: &Position, part: &mut Part) -> Option<Position> {
        let mut first: &[u8] = &[];
        let mut answers_after = 0;
        let mut watches_after = 0;
        match from {
            Position::Start => {
                let reserved = Hlc::new(self.reserved, 0, began.version.node().clone());
                let version = Version::new(reserved.max(began.version.clone()));
                part.push(Record::Issued { version });
            }
            Position::Key(key) => first = key,
            Position::Answers(number) => answers_after = *number,
            Position::Watches(number) => watches_after = *number,
        }
        if matches!(from, Position::Start | Position::Key(_)) {
            let chosen = self.config.durability == Durability::Requested;
            for entry in self.table.from(first) {
                if part.is_full() {
                    return Some(Position::Key(entry.key().to_vec()));
                }
                let stored = self.stored(entry);
                part.bytes = part.bytes.saturating_add(RECORD_WORK);
                if !entry.is_expired(now.instant)
                    && (stored.persist || !chosen)
                    && place(stored.version.hlc()) <= place(&began.version)
                {
                    part.push(stored.to_record(now));
                }
            }
        }
        if !matches!(from, Position::Watches(_)) {
            let mut last = answers_after;
            for answered in self.replies.recorded(now.instant, answers_after, began.answer) {
                if part.is_full() {
                    return Some(Position::Answers(last));
                }
                last = answered.order;
                part.push(Record::Answered(answered));
            }
        }
        let mut last = watches_after;
        for watch in self.watches.recorded(watches_after, began.watch) {
            if part.is_full() {
                return Some(Position::Watches(last));
            }
            last = watch.number();
            part.push(watch.to_record());
        }
        None
    }
}

/// Where a version stands among those that were issued. Values that were restored may be of another node, which is no reason
/// for them to be later.
const fn place(hlc: &Hlc) -> (UnixTime, u64) {
    (hlc.wall(), hlc.counter())
}

/// What it costs to look at a record, in the measure of bytes.
const RECORD_WORK: usize = 64;

struct Part {
    records: Vec<Record>,
    bytes: usize,
    bytes_max: usize,
}

impl Part {
    /// Each part gets further, since it looks at something first.
    fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    fn push(&mut self, record: Record) {
        self.bytes = self.bytes.saturating_add(record.len() + RECORD_WORK);
        self.records.push(record);
    }
}
