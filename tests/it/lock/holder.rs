//! The holder of a lock, from the events of a watch.

use super::*;
use statestore_proto::client::WatchEnd;
use statestore_proto::lock::{Holder, HolderTracker};

fn held(value: &'static str, wall: u64) -> HolderStatus {
    HolderStatus::Held(Holder::new(Bytes::from_static(value.as_bytes()), Some(version(wall))))
}

#[test]
fn tracker_reports_each_change_of_the_holder() {
    let mut tracker = HolderTracker::new();
    assert_eq!(*tracker.status(), HolderStatus::Unknown);
    for (event, expected) in [
        (changed(Some("a"), Some(1)), None),
        (WatchEvent::Live, Some(held("a", 1))),
        (WatchEvent::Live, None),
        (changed(Some("a"), Some(2)), Some(held("a", 2))),
        (changed(Some("b"), Some(3)), Some(held("b", 3))),
        (changed(None, Some(3)), Some(HolderStatus::Free)),
        (WatchEvent::Gap, Some(HolderStatus::Unknown)),
        (WatchEvent::Gap, None),
        (changed(Some("c"), Some(4)), None),
        (WatchEvent::Live, Some(held("c", 4))),
        (WatchEvent::Gap, Some(HolderStatus::Unknown)),
        (WatchEvent::Live, Some(held("c", 4))),
        (WatchEvent::Ended(WatchEnd::Stopped), Some(HolderStatus::Unknown)),
    ] {
        assert_eq!(tracker.handle_event(&event).cloned(), expected, "{event:?}");
    }
    tracker.handle_event(&WatchEvent::Live);
    assert_eq!(*tracker.status(), HolderStatus::Free, "the end forgets the holder");
    tracker.reset();
    assert_eq!(*tracker.status(), HolderStatus::Unknown);
}

#[test]
fn a_renewal_is_the_same_holding() {
    assert!(held("a", 1).is_same_holding(&held("a", 2)));
    assert!(!held("a", 1).is_same_holding(&held("b", 1)));
    assert!(!held("a", 1).is_same_holding(&HolderStatus::Free));
    assert!(HolderStatus::Free.is_same_holding(&HolderStatus::Free));
    assert!(!HolderStatus::Free.is_same_holding(&HolderStatus::Unknown));
}
