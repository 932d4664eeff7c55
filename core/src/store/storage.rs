//! The space that the records of a store need.

use super::StoreConfig;
use super::dedup::Dedup;
use super::tables::Tables;

/// Maximum bytes of a record in addition to the keys, values, texts and node ids in it.
const RECORD_OVERHEAD: usize = 80;

/// Maximum bytes of the record of a removal in addition to the key, client id and node id in it.
const REMOVAL_OVERHEAD: usize = 32;

/// Maximum bytes of a record in addition to the keys, values and texts in it.
pub(super) fn record_overhead(config: &StoreConfig) -> usize {
    RECORD_OVERHEAD + config.node_id.as_str().len()
}

/// Maximum bytes of the records that remove all durable keys and registrations.
pub(super) fn removal_bytes(config: &StoreConfig, tables: &Tables) -> usize {
    if !config.is_durable() {
        return 0;
    }
    let keys = tables.keyspace.recorded();
    let (registrations, bytes) = recorded_registrations(config, tables);
    let count = keys.count.saturating_add(registrations);
    let overhead = REMOVAL_OVERHEAD + config.node_id.as_str().len();
    sum([keys.removal_bytes, bytes, count.saturating_mul(overhead)])
}

/// Maximum bytes of the records of a snapshot.
pub(super) fn snapshot_bytes(config: &StoreConfig, tables: &Tables, dedup: &Dedup) -> usize {
    let keys = tables.keyspace.recorded();
    let (registrations, registration_bytes) = recorded_registrations(config, tables);
    let (responses, response_bytes) = match config.is_durable() {
        true => (dedup.len(), dedup.bytes()),
        false => (0, 0),
    };
    let records = sum([keys.count, registrations, responses, 1]);
    let overhead = records.saturating_mul(record_overhead(config));
    sum([keys.put_bytes, registration_bytes, response_bytes, overhead])
}

/// The number of registrations with a record, and their bytes.
fn recorded_registrations(config: &StoreConfig, tables: &Tables) -> (usize, usize) {
    match config.records_registrations() {
        true => (tables.registrations.len(), tables.registrations.bytes()),
        false => (0, 0),
    }
}

fn sum<const N: usize>(terms: [usize; N]) -> usize {
    terms.into_iter().fold(0, usize::saturating_add)
}
