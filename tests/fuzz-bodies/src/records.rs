//! Records as bytes.

use std::hash::{DefaultHasher, Hasher};

use statestore_proto::store::{
    Durability, Record, Store, StoreConfig, decode_records, encode_records,
};
use statestore_proto::time::{Instant, Now, UnixTime};

/// Each list of records has one form: what is read is written as it was, and a snapshot of what was
/// restored restores the same.
///
/// # Panics
/// When it does not hold.
pub fn records(data: &[u8]) {
    // As they are, they nearly never have the right checksum.
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
    // Registrations are in the order in which they were restored, which their numbers follow.
    assert_eq!(again.snapshot(now).collect::<Vec<_>>(), snapshot);
    assert_eq!(decode_records(&encode_records(&snapshot)), Ok(snapshot));
}
