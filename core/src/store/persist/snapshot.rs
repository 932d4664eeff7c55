//! Snapshots: the records from which a new store can be restored, without the ones that are
//! obsolete.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Record, RecordedExpiry};
use crate::hlc::{Hlc, Version};
use crate::message::Expiry;
use crate::store::storage::record_overhead;
use crate::store::{Durability, Store, StoredEntry};
use crate::time::{Now, UnixTime};

/// The position in a snapshot that is made in parts. The default is its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPosition {
    beginning: Option<Beginning>,
    at: Position,
    bytes_left: usize,
}

impl SnapshotPosition {
    /// Maximum bytes of the records in the parts from this position on; 0 at the beginning, where
    /// [`Store::snapshot_bytes`] returns them.
    ///
    /// ```
    /// use statestore_proto::store::{
    ///     Durability, Record, SnapshotPosition, Store, StoreConfig, encode_records,
    /// };
    /// use statestore_proto::time::Now;
    ///
    /// let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
    /// let now = Now::default();
    /// for key in 0..100_u8 {
    ///     store.restore(now, &Record::Put {
    ///         key: Box::from([key]),
    ///         value: vec![b'v'; 1_000].into(),
    ///         version: statestore_proto::hlc::Version::new("1:0:a".parse()?),
    ///         fencing_token: None,
    ///         expires: None,
    ///         persist: true,
    ///     });
    /// }
    /// let (mut next, mut left) = (Some(SnapshotPosition::default()), store.snapshot_bytes());
    /// while let Some(position) = next {
    ///     let part;
    ///     (part, next) = store.snapshot_part(now, &position, 10_000);
    ///     let left_after = next.as_ref().map_or(0, SnapshotPosition::bytes_left);
    ///     // Each part has nine bytes of its own.
    ///     assert!(encode_records(&part).len() - 9 <= left - left_after);
    ///     left = left_after;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn bytes_left(&self) -> usize {
        self.bytes_left
    }
}

/// The state of the store when a snapshot began. Newer changes have their own records and are left
/// out, or a snapshot that is made more slowly than the store writes would never end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Beginning {
    version: Hlc,
    response: u64,
    registration: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Start,
    /// At the first key that is not less than this one.
    Key(Vec<u8>),
    /// After the response with this number.
    Responses(u64),
    /// After the registration whose last record has this number.
    Registrations(u64),
}

impl StoredEntry<'_> {
    /// The record from which [`Store::restore`] makes this entry, written at `now`.
    ///
    /// A value that expires gets the time that is left at `now`, never more. A lease, which gets
    /// all of that time again when it is restored, then ends no earlier than its holder expects.
    ///
    /// ```
    /// # use statestore_proto::store::{Record, Store};
    /// # use statestore_proto::time::Now;
    /// fn records_of_tenant(store: &Store, now: Now) -> Vec<Record> {
    ///     let entries = store.iter(now).filter(|entry| entry.key.starts_with(b"tenant-7/"));
    ///     entries.map(|entry| entry.to_record(now)).collect()
    /// }
    /// # let store = Store::new(statestore_proto::store::StoreConfig::new(0));
    /// # assert_eq!(records_of_tenant(&store, Now::default()), []);
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
    /// A compacted log: records that restore the same store as all records so far.
    ///
    /// The first record is [`Record::Issued`], so that no later store issues the version of a value
    /// that was removed since. Then follow the durable values: with [`Durability::Requested`] those
    /// that asked for it, otherwise all; then the recorded responses, and registrations if they are
    /// recorded.
    pub fn snapshot(&self, now: Now) -> impl Iterator<Item = Record> {
        let mut position = Some(SnapshotPosition::default());
        core::iter::from_fn(move || {
            let (part, next) = self.snapshot_part(now, &position.take()?, usize::MAX);
            position = next;
            Some(part)
        })
        .flatten()
    }

    /// A part of a [snapshot](Self::snapshot), and the position of the next part; `None` after the
    /// last one. A part ends with the record that exceeds `bytes`; it may be empty.
    ///
    /// The store may go on between two parts. Parts may then disagree, and what is written after
    /// the first part is in none of them. So restore all parts first, and then, in order, all
    /// records that were handed out since the first part.
    ///
    /// ```
    /// use statestore_proto::store::{Record, SnapshotPosition, Store, StoreConfig};
    /// use statestore_proto::time::Now;
    ///
    /// let store = Store::new(StoreConfig::new(7));
    /// let beginning = SnapshotPosition::default();
    /// let (part, next) = store.snapshot_part(Now::default(), &beginning, 64 * 1024);
    /// assert!(matches!(&part[..], [Record::Issued { .. }]) && next.is_none());
    /// ```
    #[must_use]
    pub fn snapshot_part(
        &self,
        now: Now,
        from: &SnapshotPosition,
        bytes: usize,
    ) -> (Vec<Record>, Option<SnapshotPosition>) {
        let (beginning, bytes_left) = match &from.beginning {
            Some(beginning) => (beginning.clone(), from.bytes_left),
            None => (self.beginning(), self.snapshot_bytes()),
        };
        let mut part = Part { records: Vec::new(), bytes: 0, bytes_max: bytes };
        let next = self.fill_part(now, &beginning, &from.at, &mut part);
        let bytes_left = bytes_left.saturating_sub(self.bytes_of(&part.records));
        let next = next.map(|at| SnapshotPosition { beginning: Some(beginning), at, bytes_left });
        (part.records, next)
    }

    fn beginning(&self) -> Beginning {
        Beginning {
            version: self.tables.clock.last().clone(),
            response: self.dedup.last_response(),
            registration: self.tables.registrations.last_id(),
        }
    }

    /// Maximum bytes of these records.
    fn bytes_of(&self, records: &[Record]) -> usize {
        let overhead = records.len().saturating_mul(record_overhead(&self.config));
        records.iter().map(Record::len).fold(overhead, usize::saturating_add)
    }

    fn fill_part(
        &self,
        now: Now,
        beginning: &Beginning,
        from: &Position,
        part: &mut Part,
    ) -> Option<Position> {
        let mut first_key: &[u8] = &[];
        let mut last_response = 0;
        let mut last_registration = 0;
        match from {
            Position::Start => {
                let reserved = Hlc::new(self.tables.reserved, 0, beginning.version.node().clone());
                let version = Version::new(reserved.max(beginning.version.clone()));
                part.push(Record::Issued { version });
            }
            Position::Key(key) => first_key = key,
            Position::Responses(number) => last_response = *number,
            Position::Registrations(number) => last_registration = *number,
        }
        if matches!(from, Position::Start | Position::Key(_)) {
            let only_requested = self.config.durability == Durability::Requested;
            for entry in self.tables.keyspace.range_from(first_key) {
                if part.is_full() {
                    return Some(Position::Key(entry.key().to_vec()));
                }
                let stored = self.tables.keyspace.stored_entry(entry);
                part.bytes = part.bytes.saturating_add(RECORD_WORK);
                if !entry.is_expired(now.instant)
                    && (stored.persist || !only_requested)
                    && issue_order(stored.version.hlc()) <= issue_order(&beginning.version)
                {
                    part.push(stored.to_record(now));
                }
            }
        }
        if !matches!(from, Position::Registrations(_)) {
            let responses =
                self.dedup.recorded_responses(now.instant, last_response, beginning.response);
            for response in responses {
                if part.is_full() {
                    return Some(Position::Responses(last_response));
                }
                last_response = response.order;
                part.push(Record::Response(response));
            }
        }
        if !self.config.records_registrations() {
            return None;
        }
        for registration in
            self.tables.registrations.recorded_between(last_registration, beginning.registration)
        {
            if part.is_full() {
                return Some(Position::Registrations(last_registration));
            }
            last_registration = registration.recorded_id;
            part.push(registration.to_record());
        }
        None
    }
}

/// The position of a version in the order of issue. The node id does not count, since restored
/// values may have been issued by another node.
const fn issue_order(hlc: &Hlc) -> (UnixTime, u64) {
    (hlc.wall(), hlc.counter())
}

/// The cost of visiting a record, in bytes.
const RECORD_WORK: usize = 64;

struct Part {
    records: Vec<Record>,
    bytes: usize,
    bytes_max: usize,
}

impl Part {
    /// Each part visits at least one record, so that each one makes progress.
    fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    fn push(&mut self, record: Record) {
        self.bytes = self.bytes.saturating_add(record.len() + RECORD_WORK);
        self.records.push(record);
    }
}
