//! Section 9: registrations and what they cause.

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::Condition;
use statestore_proto::mqtt::{PublishToken, ReasonCode, Transmit};
use statestore_proto::time::Instant;
use statestore_tests::ask::Told;

use super::{OK, Rig, del, error, get, set, set_if, stop, vdel, version, watch};

const SET_V: &str = r"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\nv\r\n";
const DELETED: &str = r"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n";

fn told(client: &str, payload: &str, version: &str) -> (String, String, String) {
    (client.into(), payload.into(), version.into())
}

#[test]
fn every_applied_change_is_told_to_every_watcher_in_order() {
    let mut rig = Rig::new();
    assert_eq!(rig.answer("b", &watch("k")), OK);
    assert_eq!(rig.answer("a", &watch("k")), OK);
    assert_eq!(rig.answer("a", &watch("other")), OK);
    assert_eq!(rig.answer("b", &watch("k")), OK, "again is fine");
    let first = version(0, 1);
    assert_eq!(rig.notified(&set("k", "v")), [told("b", SET_V, &first), told("a", SET_V, &first)]);
    assert_eq!(rig.notified(&del("k")), [told("b", DELETED, &first), told("a", DELETED, &first)]);
    for no_op in [del("k"), vdel("k", "v"), get("k"), set("unwatched", "v")] {
        assert_eq!(rig.notified(&no_op), []);
    }
    assert_eq!(rig.store.counters().notifications, 4);
}

#[test]
fn a_notification_goes_to_the_golden_topic_also_for_ones_own_writes() {
    let mut rig = Rig::new();
    rig.answer("client-id1", &watch("SOMEKEY"));
    let ask = rig.ask("client-id1", &set("SOMEKEY", "v"));
    let told = rig.all(&ask).0;
    let [Told::Notification { topic, client, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert!(topic.ends_with("/636C69656E742D696431/command/notify/534F4D454B4559"));
    assert_eq!(client, "client-id1");
}

#[test]
fn refused_writes_are_not_told() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    rig.notified(&set("k", "v"));
    assert_eq!(rig.notified(&set_if("k", "w", Condition::IfAbsent, 0)), []);
    let mut ask = rig.ask("writer", &set("k", "w"));
    ask.timestamp = None;
    assert_eq!(rig.reply(&ask), error("missing timestamp"));
}

#[test]
fn what_was_caused_before_a_stop_is_told_before_its_answer() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    let (write, end) = (rig.ask("b", &set("k", "v")), rig.ask("a", &stop("k")));
    write.hand_to(rig.now(), &mut rig.store);
    let all = rig.hand(&end);
    let position = |found: &dyn Fn(&Told) -> bool| all.iter().position(found).unwrap();
    let notified = position(&|told| matches!(told, Told::Notification { .. }));
    let stopped = position(
        &|told| matches!(told, Told::Reply { correlation, .. } if *correlation == end.correlation),
    );
    assert!(notified < stopped, "{all:?}");
    assert_eq!(rig.notified(&set("k", "v")), []);
    assert_eq!(rig.answer("a", &stop("k")), r":0\r\n");
    assert_eq!(rig.answer("never", &stop("k")), r":0\r\n");
}

#[test]
fn an_expiry_is_told_by_the_timer_with_the_version_that_expired() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    rig.notified(&set_if("k", "v", Condition::Always, 100));
    assert_eq!(rig.store.poll_timeout(), Some(Instant::from_millis(100)));
    rig.millis = 99;
    assert_eq!(rig.timer(), []);
    rig.millis = 100;
    assert_eq!(rig.timer(), [told("a", DELETED, &version(0, 1))]);
    assert_eq!((rig.timer(), rig.store.poll_timeout()), (vec![], None));
}

#[test]
fn an_expiry_that_a_request_finds_is_told_before_its_answer() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    rig.notified(&set_if("k", "v", Condition::Always, 100));
    rig.millis = 100;
    let expected = [told("a", DELETED, &version(0, 1)), told("a", SET_V, &version(100, 1))];
    assert_eq!(rig.notified(&set("k", "v")), expected);
    assert_eq!(rig.timer(), []);
}

#[test]
fn the_earliest_expires_first() {
    let mut rig = Rig::new();
    for (key, px) in [("c", 30), ("a", 10), ("b", 20)] {
        rig.answer(key, &watch(key));
        rig.notified(&set_if(key, "v", Condition::Always, px));
    }
    rig.millis = 30;
    let clients: Vec<_> = rig.timer().into_iter().map(|told| told.0).collect();
    assert_eq!(clients, ["a", "b", "c"]);
}

#[test]
fn a_client_that_is_gone_has_no_registrations() {
    let mut rig = Rig::new();
    for key in ["k", "l"] {
        rig.answer("a", &watch(key));
        rig.answer("b", &watch(key));
    }
    rig.store.handle_client_gone("a");
    assert_eq!((rig.store.watches(), rig.store.counters().watches_lost), (2, 2));
    assert_eq!(rig.notified(&set("k", "v")), [told("b", SET_V, &version(0, 1))]);
}

/// The token of the notification that the next write causes.
fn token(rig: &mut Rig, key: &str) -> PublishToken {
    let ask = rig.ask("writer", &set(key, "v"));
    ask.hand_to(rig.now(), &mut rig.store);
    let Some(Transmit::Publish(publish)) = rig.store.poll_transmit() else {
        panic!("a watcher is told")
    };
    let _ = Told::drain(&mut rig.store);
    publish.token.unwrap()
}

#[test]
fn a_notification_that_reached_nobody_ends_the_registrations_that_were_not_renewed() {
    let mut rig = Rig::new();
    for key in ["k", "l", "m"] {
        rig.answer("a", &watch(key));
    }
    rig.answer("b", &watch("k"));
    let (old, kept) = (token(&mut rig, "l"), token(&mut rig, "m"));
    rig.answer("a", &watch("k"));
    for (token, reason) in [(kept, ReasonCode::SUCCESS), (kept, ReasonCode::NOT_AUTHORIZED)] {
        rig.store.handle_published(token, reason);
        assert_eq!(rig.store.watches(), 4);
    }
    rig.store.handle_published(old, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    // `k` was renewed and `m` registered after `l`, so both may be of a later connection.
    assert_eq!((rig.store.watches(), rig.store.counters().watches_lost), (3, 1));
    rig.store.handle_published(kept, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(rig.store.watches(), 2);
    let clients: Vec<_> = rig.notified(&set("k", "v")).into_iter().map(|told| told.0).collect();
    assert_eq!(clients, ["a", "b"], "a renewal keeps its place");
    rig.store.handle_published(old, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(rig.store.watches(), 2, "a late PUBACK of what is gone says nothing");
}

#[test]
fn registrations_have_quotas() {
    let quota = error("the quota has been exceeded").0;
    let limits = StoreLimits {
        watches_max: 3,
        watches_per_key_max: 2,
        key_bytes_max: 3,
        ..StoreLimits::default()
    };
    let mut rig = Rig::limited(limits);
    for (client, key, expected) in [
        ("a", "long", quota.as_str()),
        ("a", "k", OK),
        ("b", "k", OK),
        ("c", "k", &quota),
        ("a", "k", OK),
        ("c", "l", OK),
        ("c", "m", &quota),
        ("c", "l", OK),
    ] {
        assert_eq!(rig.answer(client, &watch(key)), expected, "{client} {key}");
    }
    let long = "k".repeat(30_000);
    let name = "c".repeat(5_000);
    assert_eq!(Rig::new().answer(&name, &watch(&long)), quota, "no topic can name it");
}

#[test]
fn a_full_queue_takes_no_request_and_no_expiry_until_there_is_room() {
    let limits = StoreLimits { outgoing_max: 0, watches_per_key_max: 1, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    rig.answer("a", &watch("k"));
    rig.notified(&set_if("k", "v", Condition::Always, 100));
    let mut handed = 0;
    while rig.store.has_room() {
        let ask = rig.ask("c", &get("k"));
        ask.hand_to(rig.now(), &mut rig.store);
        handed += 1;
    }
    rig.millis = 100;
    let lost = rig.ask("c", &set("lost", "v"));
    lost.hand_to(rig.now(), &mut rig.store);
    assert_eq!(
        (rig.store.counters().overloaded, rig.store.get(rig.now(), b"lost").is_some()),
        (1, false)
    );
    let packets = Told::drain(&mut rig.store);
    assert_eq!(packets.len(), 2 * handed, "neither answered nor acknowledged: {packets:?}");
    assert!(rig.store.has_room() && rig.store.poll_timeout().is_some());
    assert_eq!(rig.timer().len(), 1);
}

/// What is sent now: the values of notifications, with their tokens.
fn notifications(rig: &mut Rig) -> Vec<(String, PublishToken)> {
    let sent = std::iter::from_fn(|| rig.store.poll_transmit());
    let publishes = sent.filter_map(|transmit| match transmit {
        Transmit::Publish(publish) => Some(publish),
        _ => None,
    });
    let told = publishes.filter_map(|publish| {
        let value = publish.payload.split(|byte| *byte == b'\n').rev().nth(1)?;
        Some((value.escape_ascii().to_string(), publish.token?))
    });
    told.collect()
}

fn write(rig: &mut Rig, value: &str) {
    rig.millis += 1;
    let ask = rig.ask("writer", &set("k", value));
    ask.hand_to(rig.now(), &mut rig.store);
}

/// It may be lost with the connection, and its request was answered: nobody else tells of it.
#[test]
fn what_was_not_acknowledged_is_told_again_on_the_next_connection() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    ["1", "2", "3"].iter().for_each(|value| write(&mut rig, value));
    let sent = notifications(&mut rig);
    let values = |sent: &[(String, PublishToken)]| -> Vec<String> {
        sent.iter().map(|(value, _)| value.trim_end_matches(r"\r").to_owned()).collect()
    };
    assert_eq!(values(&sent), ["1", "2", "3"]);
    rig.store.handle_published(sent[0].1, ReasonCode::SUCCESS);
    rig.store.handle_disconnected();
    write(&mut rig, "4");
    rig.store.handle_connected();
    assert!(matches!(rig.store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    let again = notifications(&mut rig);
    assert_eq!(values(&again), ["2", "3", "4"], "in order, and before what is new");
    for (_, token) in again {
        rig.store.handle_published(token, ReasonCode::SUCCESS);
    }
    rig.store.handle_connected();
    assert_eq!(notifications(&mut rig), []);
}

/// A broker that acknowledges nothing fills no memory: the oldest are forgotten.
#[test]
fn of_what_nobody_acknowledges_the_newest_are_kept() {
    let limits = StoreLimits { watches_per_key_max: 1, outgoing_max: 15, ..StoreLimits::default() };
    let bytes = StoreLimits { outgoing_bytes_max: 15 * 100, ..StoreLimits::default() };
    for (limits, value) in [(limits, "v".to_owned()), (bytes, "v".repeat(64))] {
        let mut rig = Rig::limited(limits);
        rig.answer("a", &watch("k"));
        for _ in 0..100 {
            write(&mut rig, &value);
            assert_eq!(notifications(&mut rig).len(), 1);
        }
        rig.store.handle_connected();
        let kept = notifications(&mut rig).len();
        assert!((10..=15).contains(&kept), "{kept}");
    }
}
