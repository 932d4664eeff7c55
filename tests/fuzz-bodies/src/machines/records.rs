//! Records in their binary form.

use std::hash::{DefaultHasher, Hasher};

use statestore_proto::store::{
    Durability, Record, Store, StoreConfig, decode_records, encode_records,
};
use statestore_proto::time::{Instant, Now, UnixTime};

/// Oracle: each list of records has exactly one binary form. A snapshot of restored records restores
/// the same state.
///
/// Input: records in their binary form, without the checksum at their end.
///
/// # Panics
/// If the forms or states differ.
pub fn records(data: &[u8]) {
    // Random input rarely has a valid checksum.
    let _ = decode_records(data);
    let mut hasher = DefaultHasher::new();
    hasher.write(data);
    let bytes = [data, &hasher.finish().to_le_bytes()].concat();
    let Ok(records) = decode_records(&bytes) else { return };
    assert_eq!(encode_records(&records), bytes);
    let now = Now::new(Instant::from_millis(1_000), UnixTime::from_millis(1_000_000));
    let restored = |records: &[Record]| {
        let config = StoreConfig::new(7).durability(Durability::All).durable_registrations(true);
        let mut store = Store::new(config);
        records.iter().for_each(|record| store.restore(now, record));
        store
    };
    let store = restored(&records);
    let snapshot: Vec<Record> = store.snapshot(now).collect();
    let again = restored(&snapshot);
    // The numbers of registrations follow the order in which they were restored.
    assert_eq!(again.snapshot(now).collect::<Vec<_>>(), snapshot);
    assert_eq!(decode_records(&encode_records(&snapshot)), Ok(snapshot));
}
