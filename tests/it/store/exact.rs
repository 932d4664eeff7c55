//! Limits to the very byte, and what a store says of itself.

use statestore_proto::hlc::NodeId;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::Condition;
use statestore_proto::store::{Durability, StoreConfig};
use statestore_tests::ask::{Ask, Told};
use statestore_tests::counting::live_bytes;

use super::{OK, Rig, del, error, get, set, set_if, watch};

const QUOTA: &str = "the quota has been exceeded";

#[test]
fn a_key_may_be_as_long_as_its_limit() {
    let limits = StoreLimits { key_bytes_max: 5, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    assert_eq!(rig.answer("c", &watch("12345")), OK);
    assert_eq!(rig.answer("c", &watch("123456")), error(QUOTA).0);
    assert_eq!(rig.answer("c", &set("12345", "v")), OK);
    assert_eq!(rig.answer("c", &set("123456", "v")), error(QUOTA).0);
}

#[test]
fn keys_and_values_may_be_as_many_bytes_as_their_limit() {
    let limits =
        StoreLimits { bytes_max: 10, keys_max: 2, client_percent: 100, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    assert_eq!(rig.store.bytes(), 0);
    assert_eq!(rig.answer("c", &set("key", "123456")), OK);
    assert_eq!(rig.store.bytes(), 9);
    assert_eq!(rig.answer("c", &set("key", "12345678")), error(QUOTA).0);
    assert_eq!(rig.answer("c", &set("key", "1234567")), OK);
    assert_eq!(rig.store.bytes(), 10);
    assert_eq!(rig.answer("c", &set("l", "")), error(QUOTA).0);
    assert_eq!(rig.answer("c", &set("key", "12345")), OK);
    assert_eq!(rig.answer("c", &set("l", "1")), OK);
    assert_eq!((rig.store.bytes(), rig.store.len()), (10, 2));
    assert_eq!(rig.answer("c", &del("key")), r":1\r\n");
    assert_eq!((rig.store.bytes(), rig.store.len()), (2, 1));
}

/// The limit of all, and not a client's share of it.
#[test]
fn a_value_that_grows_past_the_limit_of_all_is_refused_whoever_asks() {
    let mut rig = Rig::limited(StoreLimits { bytes_max: 10, ..StoreLimits::default() });
    let mut claimed = |value| {
        let mut ask = rig.ask("c", &set("key", value));
        ask.verified = None;
        rig.all(&ask).1.0
    };
    assert_eq!(claimed("1234"), OK);
    assert_eq!(claimed("12345678"), error(QUOTA).0);
    assert_eq!(claimed("1234567"), OK);
    assert_eq!(claimed("1"), OK);
}

/// Whether the first of two writes of equal length is still known when it comes again.
fn remembers_both(reply_bytes_max: usize) -> bool {
    let limits = StoreLimits { reply_bytes_max, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let asks = [rig.ask("c", &set("a", "1")), rig.ask("c", &set("b", "2"))];
    asks.iter().for_each(|ask| assert_eq!(rig.all(ask).1.0, OK));
    asks.iter().for_each(|ask| assert_eq!(rig.all(ask).1.0, OK));
    rig.store.counters().repeated() == 2
}

#[test]
fn answers_may_be_as_many_bytes_as_their_limit() {
    let one = |reply_bytes_max: usize| {
        let limits = StoreLimits { reply_bytes_max, ..StoreLimits::default() };
        let mut rig = Rig::limited(limits);
        let ask = rig.ask("c", &set("a", "1"));
        assert_eq!((rig.all(&ask).1.0, rig.all(&ask).1.0), (OK.into(), OK.into()));
        rig.store.counters().repeated() == 1
    };
    let least = (0..10_000).find(|bytes| one(*bytes)).expect("one answer is small");
    assert!(remembers_both(2 * least), "two take exactly twice as much");
    assert!(!remembers_both(2 * least - 1));
}

#[test]
fn versions_of_the_store_itself_take_no_room_of_their_own() {
    let each = |token: Option<&str>| {
        let limits = StoreLimits { replies_max: 0, ..StoreLimits::default() };
        let mut rig = Rig::limited(limits);
        let before = live_bytes();
        for number in 0..1_000 {
            let mut ask: Ask = rig.ask("c", &set(&format!("key {number:04}"), "value"));
            ask.token = token.map(Into::into);
            assert_eq!(rig.all(&ask).1.0, OK);
        }
        (live_bytes() - before) / 1_000
    };
    let (plain, fenced) = (each(None), each(Some("1:0:c")));
    assert!(plain + 64 < fenced, "{plain} bytes a key, with a token {fenced}");
}

#[test]
fn what_is_dropped_is_counted_together() {
    let mut rig = Rig::limited(StoreLimits {
        watches_per_key_max: 1,
        outgoing_max: 0,
        ..StoreLimits::default()
    });
    let ask = rig.ask("c", &get("k"));
    let spoilt = |times: usize, spoil: fn(&mut Ask)| {
        let mut ask = ask.clone();
        spoil(&mut ask);
        vec![ask; times]
    };
    rig.millis = 5_000;
    let waited = |ask: &mut Ask| {
        (ask.expiry, ask.arrived) = (Some(1), Some(statestore_proto::time::Instant::default()));
    };
    let dropped = [
        spoilt(1, |ask| ask.topic = "elsewhere".into()),
        spoilt(2, |ask| ask.response_topic = None),
        spoilt(4, |ask| ask.response_topic = Some(String::new())),
        spoilt(8, waited),
    ];
    for ask in dropped.concat() {
        rig.hand(&ask);
    }
    assert_eq!(rig.store.counters().dropped(), 15);
    while rig.store.has_room() {
        ask.hand_to(rig.now(), &mut rig.store);
    }
    (0..16).for_each(|_| _ = ask.hand_to(rig.now(), &mut rig.store));
    let counters = rig.store.counters();
    assert_eq!((counters.dropped(), counters.overloaded), (31, 16));
    let answers = Told::drain(&mut rig.store);
    assert!(answers.iter().all(|told| !matches!(told, Told::Notification { .. })));
}

#[test]
fn node_ids_are_ordered_by_their_bytes() {
    let node = |id| NodeId::new(id).expect("a plain id");
    let long = "a node id that is too long to be kept in place";
    let ordered = ["A", "B", "StateStore", "a", long, "b", "ä"].map(node);
    for (at, one) in ordered.iter().enumerate() {
        for (other_at, other) in ordered.iter().enumerate() {
            assert_eq!(one.partial_cmp(other), Some(at.cmp(&other_at)), "{one:?} {other:?}");
            assert_eq!((one < other, one == other), (at < other_at, at == other_at));
        }
    }
}

/// What was accepted once is kept whatever the limits say now, and a value that takes no more room may replace it.
#[test]
fn a_full_store_takes_what_does_not_grow() {
    let mut rig = Rig::with(StoreConfig::new(7).durability(Durability::All));
    let ask = rig.ask("c", &set("key", "12345678"));
    rig.hand(&ask);
    let records = rig.store.poll_records().expect("a write").records;
    let mut rig =
        Rig::limited(StoreLimits { bytes_max: 5, client_percent: 100, ..StoreLimits::default() });
    let now = rig.now();
    records.iter().for_each(|record| rig.store.restore(now, record));
    assert_eq!((rig.store.bytes(), rig.store.is_empty()), (11, false));
    assert_eq!(rig.answer("c", &set("key", "123456789")), error(QUOTA).0);
    assert_eq!(rig.answer("c", &set("key", "abcdefgh")), OK);
    assert_eq!(rig.answer("c", &del("key")), r":1\r\n");
    assert!(rig.store.is_empty());
}

#[test]
fn a_configuration_says_whether_writes_are_recorded_and_the_store_is_named() {
    let config = || StoreConfig::new(7);
    assert!(!config().is_durable() && !config().has_incarnation());
    for durability in [Durability::All, Durability::Requested] {
        assert!(config().durability(durability).is_durable());
    }
    assert!(config().incarnation(1).has_incarnation());
}

#[test]
fn expiries_wait_for_room_to_tell_of_them() {
    let limits = StoreLimits { outgoing_max: 0, watches_per_key_max: 1, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    for number in 0..100 {
        let key = format!("k{number}");
        rig.answer("a", &watch(&key));
        rig.notified(&set_if(&key, "v", Condition::Always, 100));
    }
    rig.millis = 100;
    let mut told = 0;
    while told < 100 {
        rig.store.handle_timeout(rig.now());
        assert_eq!(rig.store.poll_timeout(), None, "until something is sent, or for good");
        let packets = Told::drain(&mut rig.store).len();
        assert!((1..100).contains(&packets), "{packets} at once");
        told += packets;
    }
    assert_eq!((told, rig.store.poll_timeout()), (100, None));
}
