//! The space of the storage: the state that the embedder reports, and the bytes that it needs.

use super::{Durability, Principal, Store};
use crate::message::{Command, RequestKind};
use crate::rules::{Exceeded, Limit};
use crate::transport::Incoming;

/// How much space the storage for records has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StorageSpace {
    /// Enough: all requests are executed.
    #[default]
    Enough,
    /// Little. These requests get the quota error: a SET whose value needs a record, a KEYNOTIFY that
    /// needs one, and a request whose response needs a record with more than 1 KiB of client id,
    /// response topic and correlation data. A DEL is executed, and frees space later.
    Low,
    /// Too little for requests: each request whose effect needs a record gets the quota error. Keys
    /// still expire, which needs the [space to remove everything](Store::removal_bytes). A SET
    /// without a record may record a reservation of versions: one for ten seconds of versions.
    Exhausted,
}

/// Maximum bytes of a record in addition to the keys, values, texts and node ids in it.
const RECORD_OVERHEAD: usize = 80;

/// Maximum bytes of the record of a removal in addition to the key, client id and node id in it.
const REMOVAL_OVERHEAD: usize = 32;

/// Maximum bytes of the texts in the record of a response while the storage has little space.
const LOW_RESPONSE_BYTES_MAX: usize = 1 << 10;

impl Store {
    /// Sets how much space the storage has. Measure it before each request.
    ///
    /// ```
    /// use statestore_proto::store::{Durability, StorageSpace, Store, StoreConfig};
    ///
    /// /// `free` are the bytes of the storage that are free without the commit in progress, and
    /// /// `commit` are the bytes of that one: `Batch::bytes`, or 0.
    /// fn update_space(store: &mut Store, free: usize, commit: usize, reserve: usize) {
    ///     // This engine writes each record to a log and to a database.
    ///     let unwritten = store.waiting_record_bytes() + commit;
    ///     let available = free.checked_sub(2 * (unwritten + store.removal_bytes()));
    ///     store.set_storage_space(match available {
    ///         Some(bytes) if bytes >= reserve => StorageSpace::Enough,
    ///         Some(bytes) if bytes >= reserve / 2 => StorageSpace::Low,
    ///         _ => StorageSpace::Exhausted,
    ///     });
    /// }
    ///
    /// let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
    /// update_space(&mut store, 100 << 20, 0, 64 << 20);
    /// # assert_eq!((store.waiting_record_bytes(), store.removal_bytes()), (0, 0));
    /// ```
    pub const fn set_storage_space(&mut self, space: StorageSpace) {
        self.storage_space = space;
    }

    /// Bytes of the records that [`poll_records`](Self::poll_records) has not returned yet.
    #[must_use]
    pub const fn waiting_record_bytes(&self) -> usize {
        self.outbox.record_bytes()
    }

    /// Maximum bytes of the records that remove all durable keys and registrations. Reserve this
    /// space, since keys expire and registrations end whatever the
    /// [space of the storage](Self::set_storage_space).
    #[must_use]
    pub fn removal_bytes(&self) -> usize {
        let keys = match self.config.durability {
            Durability::None => KeyTotals::default(),
            _ => self.recorded_keys(),
        };
        let (registrations, bytes) = self.recorded_registrations();
        let count = keys.count.saturating_add(registrations);
        let overhead = REMOVAL_OVERHEAD + self.config.node_id.as_str().len();
        sum([keys.removal_bytes, bytes, count.saturating_mul(overhead)])
    }

    /// Maximum bytes of the records of a [snapshot](Self::snapshot). For one in progress, see
    /// [`SnapshotPosition::bytes_left`](super::SnapshotPosition::bytes_left).
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
        let keys = self.recorded_keys();
        let (registrations, registration_bytes) = self.recorded_registrations();
        let (responses, response_bytes) = match self.config.is_durable() {
            true => (self.dedup.len(), self.dedup.bytes()),
            false => (0, 0),
        };
        let records = sum([keys.count, registrations, responses, 1]);
        let overhead = records.saturating_mul(self.record_overhead());
        sum([keys.put_bytes, registration_bytes, response_bytes, overhead])
    }

    /// Maximum bytes of a record in addition to the keys, values and texts in it.
    pub(super) fn record_overhead(&self) -> usize {
        RECORD_OVERHEAD + self.config.node_id.as_str().len()
    }

    /// The keys with a record, which are those of a snapshot.
    fn recorded_keys(&self) -> KeyTotals {
        match self.config.durability {
            Durability::Requested => self.keyspace.persistent_keys(),
            Durability::None | Durability::All => self.keyspace.all_keys(),
        }
    }

    /// The number of registrations with a record, and their bytes.
    fn recorded_registrations(&self) -> (usize, usize) {
        match self.config.records_registrations() {
            true => (self.registrations.len(), self.registrations.bytes()),
            false => (0, 0),
        }
    }

    /// Checks whether the storage has space for the records that the effect of a command needs.
    pub(super) fn check_storage(
        &self,
        sender: Principal<'_>,
        incoming: &Incoming<'_>,
        command: &Command<&[u8]>,
    ) -> Result<(), Exceeded> {
        if self.storage_space == StorageSpace::Enough {
            return Ok(());
        }
        let added = match command {
            Command::Set { key, value, .. }
                if self.config.records_put(key, incoming.properties.persist) =>
            {
                key.len() + value.len()
            }
            Command::Watch { key } if self.config.records_registrations() => key.len(),
            _ => 0,
        };
        let has_response = command.kind() != RequestKind::Watch;
        let response = match has_response && self.records_response(incoming, command) {
            true => response_bytes(sender, incoming),
            false => 0,
        };
        let max = match self.storage_space {
            StorageSpace::Low if added == 0 => LOW_RESPONSE_BYTES_MAX,
            _ => 0,
        };
        if added == 0 && response <= max {
            return Ok(());
        }
        Err(Exceeded::new(Limit::StorageBytes, added.saturating_add(response), max))
    }
}

/// The number and the bytes of some keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyTotals {
    pub(super) count: usize,
    /// Bytes of keys, and of node ids of versions.
    pub(super) removal_bytes: usize,
    /// Bytes of keys, values, and node ids of versions and fences. The node id of the store does not
    /// count.
    pub(super) put_bytes: usize,
}

impl KeyTotals {
    pub(super) const fn add(&mut self, other: Self) {
        self.count += other.count;
        self.removal_bytes += other.removal_bytes;
        self.put_bytes += other.put_bytes;
    }

    pub(super) const fn subtract(&mut self, other: Self) {
        self.count -= other.count;
        self.removal_bytes -= other.removal_bytes;
        self.put_bytes -= other.put_bytes;
    }
}

/// Bytes of the texts in the record of the response to a request; at least 1.
fn response_bytes(sender: Principal<'_>, incoming: &Incoming<'_>) -> usize {
    let client_id = sender.client_id().map_or(0, str::len);
    let owner = sender.owner().map_or(0, str::len);
    let topic = incoming.response_topic.map_or(0, str::len);
    let correlation = incoming.correlation_data.map_or(0, <[u8]>::len);
    sum([client_id, owner, topic, correlation, 1])
}

fn sum<const N: usize>(terms: [usize; N]) -> usize {
    terms.into_iter().fold(0, usize::saturating_add)
}
