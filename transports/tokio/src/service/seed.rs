//! Initial keys of a store.

use bytes::Bytes;
use statestore_capture::CapturedStore;
use statestore_proto::hlc::{Hlc, Version};
use statestore_proto::store::{Record, SnapshotPosition};
use statestore_proto::time::Now;

/// Sets the keys that are absent.
pub(crate) fn restore_absent(store: &mut CapturedStore, now: Now, seeds: Vec<(Bytes, Bytes)>) {
    if seeds.is_empty() {
        return;
    }
    // The first record of a snapshot is the greatest version that was issued.
    let (beginning, _) = store.store().snapshot_part(now, &SnapshotPosition::default(), 0);
    let Some(Record::Issued { version }) = beginning.first() else { return };
    let issued = version.hlc();
    let node = issued.node().clone();
    let (wall, mut counter) = match issued.wall() < now.unix {
        true => (now.unix, 0),
        false => (issued.wall(), issued.counter().saturating_add(1)),
    };
    for (key, value) in seeds {
        if store.store().get(now, &key).is_some() {
            continue;
        }
        store.restore(
            now,
            &Record::Put {
                key: Box::from(&key[..]),
                value: Box::from(&value[..]),
                version: Version::new(Hlc::new(wall, counter, node.clone())),
                fencing_token: None,
                expires: None,
                persist: false,
            },
        );
        counter = counter.saturating_add(1);
    }
}
