//! Initial keys of a store.

use bytes::Bytes;
use statestore_capture::CapturedStore;
use statestore_proto::hlc::{Hlc, NodeId, Version};
use statestore_proto::store::Record;
use statestore_proto::time::Now;

/// Sets the keys that are absent.
pub(crate) fn restore_absent(store: &mut CapturedStore, now: Now, seeds: Vec<(Bytes, Bytes)>) {
    if seeds.is_empty() {
        return;
    }
    let issued = *store.store().last_version().hlc();
    let node = NodeId::from(*issued.node());
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
