//! Defaults and maxima of expiries by key.

use statestore_proto::message::{Condition, Expiry};
use statestore_proto::store::{ExpiryRule, StoreConfig};

use super::{OK, Rig, get, set, set_if};

fn rule(pattern: &str) -> ExpiryRule {
    ExpiryRule::new(pattern.as_bytes()).expect("a pattern")
}

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
fn first_default_and_first_maximum_of_a_key_apply() {
    let mut rig = Rig::with(StoreConfig::new(7).expiry_rules([
        rule("sensors/slow/*").default_expiry(after(9_000)),
        rule("sensors/*").default_expiry(after(1_000)).max_expiry(after(5_000)),
        rule("sensors/*").default_expiry(after(77)).max_expiry(after(77)),
        rule("capped/*").max_expiry(after(3_000)),
    ]));
    for (key, requested, expected) in [
        ("sensors/1", 0, Some(1_000)),
        ("sensors/1", 4_000, Some(4_000)),
        ("sensors/1", 60_000, Some(5_000)),
        ("sensors/slow/1", 0, Some(5_000)),
        ("capped/1", 0, Some(3_000)),
        ("capped/1", 10, Some(10)),
        ("other", 0, None),
        ("other", 60_000, Some(60_000)),
    ] {
        let set = set_if(key, "v", Condition::Always, requested);
        assert_eq!(rig.answer("c", &set), OK, "{key} {requested}");
        assert_eq!(left(&rig, key), expected, "{key} {requested}");
    }
    rig.answer("c", &set("sensors/2", "v"));
    rig.millis += 999;
    assert_eq!(rig.answer("c", &get("sensors/2")), r"$1\r\nv\r\n");
    rig.millis += 1;
    assert_eq!(rig.answer("c", &get("sensors/2")), r"$-1\r\n", "a default expires like any other");
}

#[test]
fn lease_keeps_its_expiry() {
    let limit = rule("*").default_expiry(after(100)).max_expiry(after(100));
    let mut rig = Rig::with(StoreConfig::new(7).expiry_rules([limit]));
    for condition in [Condition::IfAbsent, Condition::IfAbsentOrEqual] {
        assert_eq!(rig.answer("c", &set_if("lock", "me", condition, 30_000)), OK);
        assert_eq!(left(&rig, "lock"), Some(30_000));
        rig.millis += 30_000;
    }
    assert_eq!(rig.answer("c", &set_if("k", "v", Condition::IfAbsent, 0)), OK);
    assert_eq!(left(&rig, "k"), Some(100), "a condition without an expiry is not a lease");
}
