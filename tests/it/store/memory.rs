//! What a store keeps is bounded in bytes, whoever asks for it.

use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::Machine;
use statestore_proto::mqtt::Transmit;
use statestore_proto::store::{Durability, Store, StoreConfig};
use statestore_tests::ask::Told;
use statestore_tests::counting::live_bytes;

use super::{OK, Rig, error, get, set, stop, watch};

const QUOTA: &str = "the quota has been exceeded";

#[test]
fn registrations_are_bounded_in_bytes() {
    let limits =
        StoreLimits { watch_bytes_max: 100, client_percent: 100, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let long = "k".repeat(91);
    // Nine bytes of client id beside each key.
    assert_eq!(rig.answer("client-id", &watch(&long)), OK);
    assert_eq!(rig.answer("client-id", &watch("l")), error(QUOTA).0);
    assert_eq!(rig.answer("client-id", &watch(&long)), OK, "it is there already");
    assert_eq!(rig.answer("client-id", &stop(&long)), OK);
    assert_eq!(rig.answer("client-id", &watch(&(long + "k"))), error(QUOTA).0);
    assert_eq!(rig.answer("client-id", &watch("l")), OK);
    rig.store.handle_client_gone("client-id");
    assert_eq!(rig.answer("client-id", &watch(&"k".repeat(91))), OK, "all were given back");
}

#[test]
fn a_registration_takes_little_more_than_its_key() {
    let client = "c".repeat(200);
    let mut rig = Rig::new();
    let before = live_bytes();
    for n in 0..500 {
        assert_eq!(rig.answer(&client, &watch(&format!("{n:032000}"))), OK);
    }
    rig.millis = 120_000;
    rig.answer("other", &get("k"));
    let each = (live_bytes() - before) / 500;
    assert!((32_000..34_000_i64).contains(&each), "{each} bytes each");
}

#[test]
fn what_waits_to_be_sent_is_bounded_in_bytes() {
    let mut rig =
        Rig::limited(StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() });
    assert_eq!(rig.answer("c", &set("big", &"v".repeat(4_000))), OK);
    let ask = rig.ask("c", &get("big"));
    let mut handed = 0;
    while rig.store.has_room() {
        ask.hand_to(rig.now(), &mut rig.store);
        handed += 1;
    }
    assert_eq!(handed, 3, "the one that passes the limit is the last");
    while !rig.store.has_room() {
        assert!(rig.store.poll_transmit().is_some());
    }
    let left = Told::drain(&mut rig.store);
    let left = left.iter().filter(|told| matches!(told, Told::Reply { .. }));
    assert_eq!(left.count(), 2);
}

#[test]
fn a_fan_out_counts_its_payload_once_and_until_it_is_gone() {
    let mut rig =
        Rig::limited(StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() });
    for n in 0..100 {
        assert_eq!(rig.answer(&format!("c{n}"), &watch("k")), OK);
    }
    let ask = rig.ask("w", &set("k", &"v".repeat(4_000)));
    ask.hand_to(rig.now(), &mut rig.store);
    assert!(rig.store.has_room(), "a hundred notifications share one payload");
    let more = rig.ask("w", &set("k", &"w".repeat(7_000)));
    more.hand_to(rig.now(), &mut rig.store);
    assert!(!rig.store.has_room());
    for _ in 0..99 {
        assert!(matches!(rig.store.poll_transmit(), Some(Transmit::Publish(_))));
    }
    assert!(!rig.store.has_room(), "the last of them still holds it");
    assert!(rig.store.poll_transmit().is_some());
    assert!(rig.store.has_room());
}

/// A key counts beside its value, in what is notified and in what is recorded.
#[test]
fn keys_that_wait_count_as_values_do() {
    let limits = StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() };
    let long = "k".repeat(6_000);
    let mut rig = Rig::limited(limits);
    assert_eq!(rig.answer("c", &watch(&long)), OK);
    for has_room in [true, false] {
        let ask = rig.ask("w", &set(&long, ""));
        ask.hand_to(rig.now(), &mut rig.store);
        assert_eq!(rig.store.has_room(), has_room);
        assert_eq!(Machine::wants_messages(&rig.store), has_room);
    }
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    for has_room in [true, false] {
        let ask = rig.ask("w", &set(&long, ""));
        ask.hand_to(rig.now(), &mut rig.store);
        assert_eq!(rig.store.has_room(), has_room);
    }
}

#[test]
fn records_that_nobody_takes_hold_requests_back() {
    let limits = StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() };
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    let ask = rig.ask("c", &set("k", &"v".repeat(10_000)));
    ask.hand_to(rig.now(), &mut rig.store);
    assert!(!rig.store.has_room());
    let batch = rig.store.poll_records().unwrap();
    assert!(rig.store.has_room());
    rig.store.handle_persisted(batch.id);
    assert_eq!(Told::drain(&mut rig.store).len(), 2);
}

#[test]
fn connections_leave_one_subscribe_and_it_goes_first() {
    let mut store = Store::new(StoreConfig::new(7));
    (0..1_000).for_each(|_| store.handle_connected());
    assert!(matches!(store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    assert_eq!(store.poll_transmit(), None);
    let mut rig = Rig::with(StoreConfig::new(7).durability(Durability::All));
    let ask = rig.ask("c", &set("k", "v"));
    assert_eq!(rig.hand(&ask), [], "it waits for its record");
    rig.store.handle_connected();
    assert!(matches!(rig.store.poll_transmit(), Some(Transmit::Subscribe { .. })));
}
