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
    /// Little. A SET that would need a record with its value, a KEYNOTIFY that would need one, and a
    /// request whose response would need a record with more than 1 KiB of client id, response topic
    /// and correlation data, get the quota error. So a DEL is executed: it needs only a small record,
    /// and frees space later.
    Low,
    /// Too little for requests: each request whose effect would need a record gets the quota error.
    /// Keys still expire, which needs the [space to remove everything](Store::removal_bytes). A
    /// volatile SET may record a reservation of versions, at most every ten seconds.
    Exhausted,
}

/// Bytes of a record besides the keys, values and texts in it, and besides the node id of the store.
const RECORD_BYTES: usize = 48;

/// Maximum bytes of the texts in the record of a response while the storage has little space.
const RESPONSE_BYTES_MAX: usize = 1 << 10;

impl Store {
    /// Sets how much space the storage has. Measure it before each request, and count
    /// [`record_bytes`](Self::record_bytes) as used.
    pub const fn set_storage_space(&mut self, space: StorageSpace) {
        self.storage_space = space;
    }

    /// Bytes of the records that [`poll_records`](Self::poll_records) has not returned yet.
    #[must_use]
    pub const fn record_bytes(&self) -> usize {
        self.outbox.record_bytes()
    }

    /// Maximum bytes of the records that remove all durable keys and registrations. Reserve this
    /// space, since keys expire and registrations end whatever the
    /// [space of the storage](Self::set_storage_space).
    #[must_use]
    pub fn removal_bytes(&self) -> usize {
        let keys = match self.config.durability {
            Durability::None => KeyTotals::default(),
            _ => self.snapshot_keys(),
        };
        let (registrations, bytes) = self.durable_registrations();
        let records = keys.count.saturating_add(registrations);
        sum([keys.key_bytes, bytes, records.saturating_mul(self.record_overhead())])
    }

    /// Maximum bytes of the records of a [snapshot](Self::snapshot).
    #[must_use]
    pub fn snapshot_bytes(&self) -> usize {
        let keys = self.snapshot_keys();
        let (registrations, registration_bytes) = self.durable_registrations();
        let (responses, response_bytes) = match self.config.is_durable() {
            true => (self.dedup.len(), self.dedup.bytes()),
            false => (0, 0),
        };
        let records = sum([keys.count, registrations, responses, 1]);
        let overhead = records.saturating_mul(self.record_overhead());
        sum([keys.record_bytes, registration_bytes, response_bytes, overhead])
    }

    fn record_overhead(&self) -> usize {
        RECORD_BYTES + self.config.node_id.as_str().len()
    }

    /// The keys in a snapshot.
    const fn snapshot_keys(&self) -> KeyTotals {
        match self.config.durability {
            Durability::Requested => self.keyspace.persistent_keys(),
            Durability::None | Durability::All => self.keyspace.all_keys(),
        }
    }

    /// The number of registrations with a record, and their bytes.
    fn durable_registrations(&self) -> (usize, usize) {
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
            StorageSpace::Low => RESPONSE_BYTES_MAX,
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
    pub(super) key_bytes: usize,
    /// Bytes of keys, values and node ids, as in [`Record::len`](super::Record).
    pub(super) record_bytes: usize,
}

impl KeyTotals {
    pub(super) const fn add(&mut self, other: Self) {
        self.count += other.count;
        self.key_bytes += other.key_bytes;
        self.record_bytes += other.record_bytes;
    }

    pub(super) const fn subtract(&mut self, other: Self) {
        self.count -= other.count;
        self.key_bytes -= other.key_bytes;
        self.record_bytes -= other.record_bytes;
    }
}

/// Bytes of the texts in the record of the response to a request; at least 1.
fn response_bytes(sender: Principal<'_>, incoming: &Incoming<'_>) -> usize {
    let client_id = sender.client_id().map_or(0, str::len);
    let topic = incoming.response_topic.map_or(0, str::len);
    let correlation = incoming.correlation_data.map_or(0, <[u8]>::len);
    sum([client_id, topic, correlation, 1])
}

fn sum<const N: usize>(terms: [usize; N]) -> usize {
    terms.into_iter().fold(0, usize::saturating_add)
}
