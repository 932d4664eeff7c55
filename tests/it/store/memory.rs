//! Memory of a store is bounded in bytes.

use statestore_models::machines::request::Sent;
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine};
use statestore_proto::message::Condition;
use statestore_proto::store::{Durability, Store, StoreConfig};
use statestore_proto::time::Instant;
use statestore_proto::transport::{ReasonCode, Transmit};
use statestore_testkit::process::memory::live_bytes;

use super::{OK, Rig, error, get, set, set_if, stop, watch};

const QUOTA: &str = "the quota has been exceeded";

#[test]
fn registrations_beyond_registration_bytes_max_are_refused() {
    let limits =
        StoreLimits { registration_bytes_max: 100, client_percent: 100, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let long = "k".repeat(91);
    // Each registration counts its key and nine bytes of client id.
    assert_eq!(rig.answer("client-id", &watch(&long)), OK);
    assert_eq!(rig.answer("client-id", &watch("l")), error(QUOTA).0);
    assert_eq!(rig.answer("client-id", &watch(&long)), OK, "a renewal takes no more");
    assert_eq!(rig.answer("client-id", &stop(&long)), OK);
    assert_eq!(rig.answer("client-id", &watch(&(long + "k"))), error(QUOTA).0);
    assert_eq!(rig.answer("client-id", &watch("l")), OK);
    rig.store.handle(rig.now(), Input::ClientGone("client-id"));
    assert_eq!(rig.answer("client-id", &watch(&"k".repeat(91))), OK, "all bytes were released");
}

#[test]
fn registration_needs_little_more_memory_than_its_key() {
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
fn output_queue_beyond_outgoing_bytes_max_blocks_requests() {
    let mut rig =
        Rig::limited(StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() });
    assert_eq!(rig.answer("c", &set("big", &"v".repeat(4_000))), OK);
    let request = rig.request("c", &get("big"));
    let mut handed = 0;
    while rig.store.can_receive() {
        request.submit_to(rig.now(), &mut rig.store);
        handed += 1;
    }
    assert_eq!(handed, 3, "the first that exceeds the limit is the last");
    while !rig.store.can_receive() {
        assert!(rig.store.poll_transmit().is_some());
    }
    let left = Sent::drain(&mut rig.store);
    let left = left.iter().filter(|sent| matches!(sent, Sent::Reply { .. }));
    assert_eq!(left.count(), 2);
}

#[test]
fn payload_of_a_fan_out_counts_once_until_the_last_notification_is_sent() {
    let mut rig =
        Rig::limited(StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() });
    for n in 0..100 {
        assert_eq!(rig.answer(&format!("c{n}"), &watch("k")), OK);
    }
    let request = rig.request("w", &set("k", &"v".repeat(4_000)));
    request.submit_to(rig.now(), &mut rig.store);
    assert!(rig.store.can_receive(), "a hundred notifications share one payload");
    let more = rig.request("w", &set("k", &"w".repeat(7_000)));
    more.submit_to(rig.now(), &mut rig.store);
    assert!(!rig.store.can_receive());
    for _ in 0..99 {
        assert!(matches!(rig.store.poll_transmit(), Some(Transmit::Publish(_))));
    }
    assert!(!rig.store.can_receive(), "the last notification still holds the payload");
    assert!(rig.store.poll_transmit().is_some());
    assert!(rig.store.can_receive());
}

/// The key counts as well as the value: twice in a notification, whose topic contains it in Base16, and
/// once in a record.
#[test]
fn keys_count_toward_outgoing_bytes_max() {
    let limits = StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() };
    let long = "k".repeat(6_000);
    let mut rig = Rig::limited(limits);
    let key = "k".repeat(3_000);
    assert_eq!(rig.answer("c", &watch(&key)), OK);
    for has_room in [true, false] {
        let request = rig.request("w", &set(&key, ""));
        request.submit_to(rig.now(), &mut rig.store);
        assert_eq!(rig.store.can_receive(), has_room);
        assert_eq!(Machine::can_receive(&rig.store), has_room);
    }
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    for has_room in [true, false] {
        let request = rig.request("w", &set(&long, ""));
        request.submit_to(rig.now(), &mut rig.store);
        assert_eq!(rig.store.can_receive(), has_room);
    }
}

#[test]
fn records_not_polled_block_requests() {
    let limits = StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() };
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    let request = rig.request("c", &set("k", &"v".repeat(10_000)));
    request.submit_to(rig.now(), &mut rig.store);
    assert!(!rig.store.can_receive());
    let batch = rig.store.poll_records().unwrap();
    assert!(rig.store.can_receive());
    rig.store.handle_persisted(batch.id);
    assert_eq!(Sent::drain(&mut rig.store).len(), 2);
}

#[test]
fn batch_has_at_most_record_bytes_max_or_the_records_of_one_request() {
    const MAX: usize = 10_000;
    let limits = StoreLimits { record_bytes_max: MAX, ..StoreLimits::default() };
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    let drain = |rig: &mut Rig| {
        let batches: Vec<_> = std::iter::from_fn(|| rig.store.poll_records()).collect();
        assert_eq!(rig.store.waiting_record_bytes(), 0);
        batches.iter().for_each(|batch| rig.store.handle_persisted(batch.id));
        Vec::from_iter(batches.iter().map(|batch| batch.bytes))
    };
    for at in 0..10 {
        let key = format!("{at:03000}");
        let request = rig.request("c", &set_if(&key, "v", Condition::Always, 1_000));
        assert!(rig.store.can_receive());
        request.submit_to(rig.now(), &mut rig.store);
        assert_eq!(rig.store.can_receive(), at % 4 != 3, "each takes 3,000 bytes and its reply");
        if !rig.store.can_receive() {
            let bytes = drain(&mut rig);
            assert!(bytes.len() == 2 && bytes.iter().all(|bytes| *bytes <= MAX), "{bytes:?}");
        }
    }
    drain(&mut rig);
    rig.millis += 2_000;
    let mut removed = 0;
    while rig.store.poll_timeout().is_some_and(|at| at <= rig.now().instant) {
        rig.store.handle(rig.now(), Input::Timeout);
        let bytes = drain(&mut rig);
        assert!(bytes.iter().all(|bytes| *bytes <= MAX), "{bytes:?}");
        removed += bytes.iter().sum::<usize>();
    }
    assert_eq!(removed, 10 * 3_000);
    let request = rig.request("c", &set("k", &"v".repeat(2 * MAX)));
    request.submit_to(rig.now(), &mut rig.store);
    assert!(matches!(&drain(&mut rig)[..], [bytes] if *bytes > 2 * MAX));
}

/// With longest response topics and correlation data, a reply needs more bytes than its key.
#[test]
fn response_topics_and_correlation_data_count_toward_record_bytes_max() {
    let limits = StoreLimits { record_bytes_max: 10_000, ..StoreLimits::default() };
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    let mut request = rig.request("c", &set("k", "v"));
    request.correlation = Some(vec![b'c'; 11_000]);
    request.submit_to(rig.now(), &mut rig.store);
    assert!(!rig.store.can_receive());
}

#[test]
fn reconnects_leave_one_subscribe_sent_before_all_else() {
    let mut store = Store::new(StoreConfig::new(7));
    (0..1_000).for_each(|_| {
        store.handle(
            statestore_proto::time::Now::default(),
            Input::Connected { session_present: false },
        )
    });
    assert!(matches!(store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    assert_eq!(store.poll_transmit(), None);
    let mut rig = Rig::with(StoreConfig::new(7).durability(Durability::All));
    let request = rig.request("c", &set("k", "v"));
    assert_eq!(rig.send(&request), [], "the reply waits for its record");
    rig.store.handle(rig.now(), Input::Connected { session_present: false });
    assert!(matches!(rig.store.poll_transmit(), Some(Transmit::Subscribe { .. })));
}

#[test]
fn unacknowledged_payloads_stay_within_outgoing_bytes_max_in_any_order_of_acknowledgement() {
    let limits = StoreLimits { outgoing_bytes_max: 10_000, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    for client in ["first", "last"] {
        assert_eq!(rig.answer(client, &watch("k")), OK);
    }
    for _ in 0..100 {
        let request = rig.request("w", &set("k", &"v".repeat(1_000)));
        request.submit_to(rig.now(), &mut rig.store);
        let sent: Vec<_> = std::iter::from_fn(|| rig.store.poll_transmit()).collect();
        let tokens = sent.iter().filter_map(|transmit| match transmit {
            Transmit::Publish(publish) => publish.token,
            _ => None,
        });
        // Only the last notification of each fan-out is acknowledged.
        let last = tokens.last().expect("two notifications");
        rig.store.handle(rig.now(), Input::Published(last, ReasonCode::SUCCESS));
    }
    rig.store.handle(rig.now(), Input::Connected { session_present: false });
    assert!(rig.store.can_receive(), "{} bytes wait", rig.store.waiting_bytes());
    let again = std::iter::from_fn(|| rig.store.poll_transmit()).filter_map(|it| match it {
        Transmit::Publish(publish) => Some(publish.payload.len()),
        _ => None,
    });
    let bytes: usize = again.sum();
    assert!((8_000..=10_000).contains(&bytes), "{bytes} bytes were retained");
}

#[test]
fn expired_values_removed_for_a_quota_are_recorded_one_by_one() {
    let limits = StoreLimits { bytes_max: 4_000, ..StoreLimits::default() };
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    let drain = |rig: &mut Rig| {
        let mut units = Vec::new();
        while let Some(batch) = rig.store.poll_records_within(1) {
            rig.store.handle_persisted(batch.id);
            units.push(batch.records.len());
        }
        units
    };
    for n in 0..100 {
        let key = format!("key-{n:03}");
        let request = rig.request("c", &set_if(&key, "0123456789", Condition::Always, 1));
        request.submit_to(rig.now(), &mut rig.store);
        drain(&mut rig);
        _ = Sent::drain(&mut rig.store);
    }
    rig.millis = 10;
    let request = rig.request("c", &set("big", &"v".repeat(1_500)));
    request.submit_to(rig.now(), &mut rig.store);
    let units = drain(&mut rig);
    assert_eq!(units, [vec![1; 100], vec![2]].concat(), "the value and its response");
}

#[test]
fn one_timeout_removes_a_bounded_number_of_values() {
    let mut rig = Rig::new();
    for n in 0..10_000 {
        rig.answer("c", &set_if(&format!("{n}"), "v", Condition::Always, 1));
    }
    rig.millis = 1;
    let mut calls = 0;
    while let Some(due) = rig.store.poll_timeout() {
        assert!(due <= Instant::from_millis(rig.millis));
        let before = rig.store.len();
        rig.store.handle(rig.now(), Input::Timeout);
        assert!(before - rig.store.len() <= 4_096);
        rig.millis += 1;
        calls += 1;
    }
    assert_eq!((rig.store.len(), calls), (0, 3));
}
