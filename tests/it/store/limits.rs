//! Exact limits in bytes, and what a store reports about itself.

use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_proto::hlc::NodeId;
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition};
use statestore_proto::store::{Durability, Record, StoreConfig};
use statestore_testkit::process::memory::live_bytes;

use super::{EPOCH, OK, Rig, del, error, get, set, set_if, vdel, watch};

const QUOTA: &str = "the quota has been exceeded";

/// Sends a request, persists its records, and returns the reply.
fn persisted_reply(rig: &mut Rig, request: &StoreRequest) -> Option<String> {
    let mut sent = rig.send(request);
    while let Some(batch) = rig.store.poll_records() {
        rig.store.handle_persisted(batch.id);
    }
    sent.extend(Sent::drain(&mut rig.store));
    sent.into_iter().find_map(|sent| match sent {
        Sent::Reply { payload, .. } => Some(payload),
        _ => None,
    })
}

/// A store that persists registrations, and values on request.
fn durable_rig() -> Rig {
    Rig::with(StoreConfig::new(7).durability(Durability::Requested).durable_registrations(true))
}

#[test]
fn full_storage_refuses_what_grows_and_executes_the_rest() {
    let quota = error(QUOTA).0;
    let mut rig = durable_rig();
    let answer = |rig: &mut Rig, command: &Command<&[u8]>, persist: bool| {
        let mut request = rig.request("c", command);
        request.persist = persist;
        persisted_reply(rig, &request)
    };
    let expiring = set_if("expiring", "v", Condition::Always, 5);
    for (command, persist) in [
        (set("k", "v"), true),
        (set("other", "v"), true),
        (set("volatile", "v"), false),
        (expiring, true),
        (watch("k"), false),
    ] {
        assert_eq!(answer(&mut rig, &command, persist).as_deref(), Some(OK));
    }
    rig.store.set_storage_full(true);
    for (command, persist, expected) in [
        (set("k", "w"), true, &*quota),
        (set("new", "w"), true, &quota),
        (watch("other"), false, &quota),
        (watch("k"), false, OK),
        (get("k"), false, r"$1\r\nv\r\n"),
        (set("other", "w"), false, OK),
        (vdel("k", "w"), false, r":-1\r\n"),
        (del("k"), false, r":1\r\n"),
        (del("absent"), true, r":0\r\n"),
        (del("volatile"), false, r":1\r\n"),
        (set("volatile", "v"), false, OK),
    ] {
        let found = answer(&mut rig, &command, persist);
        assert_eq!(found.as_deref(), Some(expected), "{command:?}");
    }
    let mut renewal = rig.request("c", &watch("k"));
    renewal.deployed = !renewal.deployed;
    let reply = persisted_reply(&mut rig, &renewal);
    assert_eq!(reply.as_deref(), Some(&*quota), "a renewal with another record");
    let stop = Command::Unwatch { key: b"k".as_slice() };
    assert_eq!(answer(&mut rig, &stop, false).as_deref(), Some(OK));
    rig.millis += 10;
    assert_eq!(answer(&mut rig, &set("expiring", "w"), false).as_deref(), Some(OK));
    rig.store.set_storage_full(false);
    assert_eq!(answer(&mut rig, &set("k", "w"), true).as_deref(), Some(OK));
}

/// Responses would take space that no removal frees.
#[test]
fn full_storage_records_only_removals() {
    let mut rig = durable_rig();
    for key in ["k", "other"] {
        let mut request = rig.request("c", &set(key, "v"));
        request.persist = true;
        assert_eq!(persisted_reply(&mut rig, &request).as_deref(), Some(OK));
    }
    rig.store.set_storage_full(true);
    for (command, records) in
        [(set("k", "w"), 0), (del("absent"), 0), (vdel("k", "w"), 0), (del("k"), 1)]
    {
        let mut request = rig.request("c", &command);
        request.persist = true;
        rig.send(&request);
        let found = rig.store.poll_records().map_or(Vec::new(), |batch| batch.records);
        assert_eq!(found.len(), records, "{command:?}");
        assert!(found.iter().all(|it| matches!(it, Record::Removed { .. })), "{command:?}");
    }
}

/// Timestamps of clients may be 60 s ahead.
#[test]
fn volatile_writes_ahead_of_the_clock_record_a_reservation_per_second_and_per_ten_on_a_full_disk() {
    for (is_full, expected) in [(false, 30), (true, 3)] {
        let mut rig = durable_rig();
        rig.store.set_storage_full(is_full);
        let mut records = 0;
        for millis in 0..30_000 {
            let mut request = rig.request("c", &set("k", "v"));
            request.timestamp = Some(format!("{:015}:00000:c", EPOCH + 30_000 + millis));
            rig.send(&request);
            while let Some(batch) = rig.store.poll_records() {
                records += batch.records.len();
                rig.store.handle_persisted(batch.id);
            }
        }
        assert_eq!(records, expected, "{is_full}");
    }
}

#[test]
fn key_of_exactly_key_bytes_max_is_accepted_and_one_byte_more_refused() {
    let limits = StoreLimits { key_bytes_max: 5, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    assert_eq!(rig.answer("c", &watch("12345")), OK);
    assert_eq!(rig.answer("c", &watch("123456")), error(QUOTA).0);
    assert_eq!(rig.answer("c", &set("12345", "v")), OK);
    assert_eq!(rig.answer("c", &set("123456", "v")), error(QUOTA).0);
}

#[test]
fn keys_and_values_may_use_exactly_bytes_max() {
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

/// The limit of the whole store, not the share of one client.
#[test]
fn growing_value_beyond_bytes_max_is_refused_for_unverified_clients_too() {
    let mut rig = Rig::limited(StoreLimits { bytes_max: 10, ..StoreLimits::default() });
    let mut claimed = |value| {
        let mut request = rig.request("c", &set("key", value));
        request.verified = None;
        rig.all(&request).1.0
    };
    assert_eq!(claimed("1234"), OK);
    assert_eq!(claimed("12345678"), error(QUOTA).0);
    assert_eq!(claimed("1234567"), OK);
    assert_eq!(claimed("1"), OK);
}

/// Returns whether a duplicate of each of two writes of equal length is recognised.
fn caches_both(dedup_bytes_max: usize) -> bool {
    let limits = StoreLimits { dedup_bytes_max, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let requests = [rig.request("c", &set("a", "1")), rig.request("c", &set("b", "2"))];
    requests.iter().for_each(|request| assert_eq!(rig.all(request).1.0, OK));
    requests.iter().for_each(|request| assert_eq!(rig.all(request).1.0, OK));
    rig.store.counters().duplicates() == 2
}

#[test]
fn deduplication_cache_may_use_exactly_dedup_bytes_max() {
    let one = |dedup_bytes_max: usize| {
        let limits = StoreLimits { dedup_bytes_max, ..StoreLimits::default() };
        let mut rig = Rig::limited(limits);
        let request = rig.request("c", &set("a", "1"));
        assert_eq!((rig.all(&request).1.0, rig.all(&request).1.0), (OK.into(), OK.into()));
        rig.store.counters().duplicates() == 1
    };
    let least = (0..10_000).find(|bytes| one(*bytes)).expect("one reply is small");
    assert!(caches_both(2 * least), "two replies take exactly twice as much");
    assert!(!caches_both(2 * least - 1));
}

#[test]
fn versions_with_the_node_id_of_the_store_need_no_allocation() {
    let each = |token: Option<&str>| {
        let limits = StoreLimits { dedup_entries_max: 0, ..StoreLimits::default() };
        let mut rig = Rig::limited(limits);
        let before = live_bytes();
        for number in 0..1_000 {
            let mut request: StoreRequest =
                rig.request("c", &set(&format!("key {number:04}"), "value"));
            request.token = token.map(Into::into);
            assert_eq!(rig.all(&request).1.0, OK);
        }
        (live_bytes() - before) / 1_000
    };
    let (plain, fenced) = (each(None), each(Some("1:0:c")));
    assert!(plain + 64 < fenced, "{plain} bytes a key, with a token {fenced}");
}

#[test]
fn dropped_requests_are_counted_in_total() {
    let mut rig = Rig::limited(StoreLimits {
        registrations_per_key_max: 1,
        outgoing_max: 0,
        ..StoreLimits::default()
    });
    let request = rig.request("c", &get("k"));
    let spoilt = |times: usize, spoil: fn(&mut StoreRequest)| {
        let mut request = request.clone();
        spoil(&mut request);
        vec![request; times]
    };
    rig.millis = 5_000;
    let waited = |request: &mut StoreRequest| {
        (request.expiry, request.arrived) =
            (Some(1), Some(statestore_proto::time::Instant::default()));
    };
    let dropped = [
        spoilt(1, |request| request.topic = "elsewhere".into()),
        spoilt(2, |request| request.response_topic = None),
        spoilt(4, |request| request.response_topic = Some(String::new())),
        spoilt(8, waited),
    ];
    for request in dropped.concat() {
        rig.send(&request);
    }
    assert_eq!(rig.store.counters().dropped(), 15);
    while rig.store.can_receive() {
        request.submit_to(rig.now(), &mut rig.store);
    }
    (0..16).for_each(|_| _ = request.submit_to(rig.now(), &mut rig.store));
    let counters = rig.store.counters();
    assert_eq!((counters.dropped(), counters.overloaded), (31, 16));
    let answers = Sent::drain(&mut rig.store);
    assert!(answers.iter().all(|sent| !matches!(sent, Sent::Notification { .. })));
}

#[test]
fn node_ids_are_ordered_bytewise() {
    let node = |id| NodeId::new(id).expect("a plain id");
    let long = "a node id that is too long to be stored inline";
    let ordered = ["A", "B", "StateStore", "a", long, "b", "ä"].map(node);
    for (at, one) in ordered.iter().enumerate() {
        for (other_at, other) in ordered.iter().enumerate() {
            assert_eq!(one.partial_cmp(other), Some(at.cmp(&other_at)), "{one:?} {other:?}");
            assert_eq!((one < other, one == other), (at < other_at, at == other_at));
        }
    }
}

/// Restored values are kept even beyond the limits, and a value that is not longer may replace one.
#[test]
fn store_beyond_its_limit_accepts_a_value_that_is_not_longer() {
    let mut rig = Rig::with(StoreConfig::new(7).durability(Durability::All));
    let request = rig.request("c", &set("key", "12345678"));
    rig.send(&request);
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
fn config_reports_durability() {
    let config = || StoreConfig::new(7);
    assert!(!config().is_durable());
    for durability in [Durability::All, Durability::Requested] {
        assert!(config().durability(durability).is_durable());
    }
}

#[test]
fn expiries_wait_for_capacity_in_the_output_queue() {
    let limits =
        StoreLimits { outgoing_max: 0, registrations_per_key_max: 1, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    for number in 0..100 {
        let key = format!("k{number}");
        rig.answer("a", &watch(&key));
        rig.notified(&set_if(&key, "v", Condition::Always, 100));
    }
    rig.millis = 100;
    let mut sent = 0;
    while sent < 100 {
        rig.store.handle(rig.now(), Input::Timeout);
        assert_eq!(rig.store.poll_timeout(), None, "no deadline until a packet is sent, or ever");
        let packets = Sent::drain(&mut rig.store).len();
        assert!((1..100).contains(&packets), "{packets} at once");
        sent += packets;
    }
    assert_eq!((sent, rig.store.poll_timeout()), (100, None));
}
