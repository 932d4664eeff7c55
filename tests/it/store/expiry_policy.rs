//! Expiries that the embedder decides.

use statestore_proto::message::{Condition, Expiry};
use statestore_proto::store::StoreConfig;

use super::{OK, Rig, get, set, set_if};

fn after(millis: u64) -> Option<Expiry> {
    Expiry::from_millis(millis)
}

/// The time left of a key in milliseconds.
fn left(rig: &Rig, key: &str) -> Option<u128> {
    let now = rig.now();
    let entry = rig.store.get(now, key.as_bytes()).expect("a value");
    entry.expires.map(|at| at.duration_since(now.instant).as_millis())
}

#[test]
fn policy_decides_the_expiry_of_a_value() {
    let mut rig = Rig::with(StoreConfig::new(7).expiry_policy(|key, requested| {
        let default = if key == b"default" { after(1_000) } else { None };
        requested.or(default).min(after(5_000))
    }));
    for (key, requested, expected) in [
        ("default", 0, Some(1_000)),
        ("default", 4_000, Some(4_000)),
        ("other", 60_000, Some(5_000)),
        ("other", 0, None),
    ] {
        let set = set_if(key, "v", Condition::Always, requested);
        assert_eq!(rig.answer("c", &set), OK, "{key} {requested}");
        assert_eq!(left(&rig, key), expected, "{key} {requested}");
    }
    rig.answer("c", &set("default", "v"));
    rig.millis += 999;
    assert_eq!(rig.answer("c", &get("default")), r"$1\r\nv\r\n");
    rig.millis += 1;
    assert_eq!(rig.answer("c", &get("default")), r"$-1\r\n", "it expires like any other");
}

#[test]
fn lease_keeps_its_expiry() {
    let mut rig = Rig::with(StoreConfig::new(7).expiry_policy(|_, _| after(100)));
    for condition in [Condition::IfAbsent, Condition::IfAbsentOrEqual] {
        assert_eq!(rig.answer("c", &set_if("lock", "me", condition, 30_000)), OK);
        assert_eq!(left(&rig, "lock"), Some(30_000));
        rig.millis += 30_000;
    }
    assert_eq!(rig.answer("c", &set_if("k", "v", Condition::IfAbsent, 0)), OK);
    assert_eq!(left(&rig, "k"), Some(100), "a condition without an expiry is not a lease");
}
