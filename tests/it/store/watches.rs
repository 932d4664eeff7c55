//! Registrations and their notifications.

use statestore_models::machines::request::Sent;
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::Condition;
use statestore_proto::time::Instant;
use statestore_proto::topic::RESERVED;
use statestore_proto::transport::{PublishToken, ReasonCode, Transmit};

use super::{OK, Rig, del, error, get, set, set_if, stop, vdel, version, watch};

const SET_V: &str = r"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\nv\r\n";
const DELETED: &str = r"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n";

fn notification(client: &str, payload: &str, version: &str) -> (String, String, String) {
    (client.into(), payload.into(), version.into())
}

#[test]
fn every_applied_change_notifies_every_registration_in_order() {
    let mut rig = Rig::new();
    assert_eq!(rig.answer("b", &watch("k")), OK);
    assert_eq!(rig.answer("a", &watch("k")), OK);
    assert_eq!(rig.answer("a", &watch("other")), OK);
    assert_eq!(rig.answer("b", &watch("k")), OK, "registering again succeeds");
    let first = version(0, 1);
    assert_eq!(
        rig.notified(&set("k", "v")),
        [notification("b", SET_V, &first), notification("a", SET_V, &first)]
    );
    assert_eq!(
        rig.notified(&del("k")),
        [notification("b", DELETED, &first), notification("a", DELETED, &first)]
    );
    for no_op in [del("k"), vdel("k", "v"), get("k"), set("unwatched", "v")] {
        assert_eq!(rig.notified(&no_op), []);
    }
    assert_eq!(rig.store.counters().notifications, 4);
}

#[test]
fn client_is_notified_of_its_own_writes_on_the_golden_topic() {
    let mut rig = Rig::new();
    rig.answer("client-id1", &watch("SOMEKEY"));
    let request = rig.request("client-id1", &set("SOMEKEY", "v"));
    let sent = rig.all(&request).0;
    let [Sent::Notification { topic, client, .. }] = sent.as_slice() else { panic!("{sent:?}") };
    assert!(topic.ends_with("/636C69656E742D696431/command/notify/534F4D454B4559"));
    assert_eq!(client, "client-id1");
}

#[test]
fn refused_writes_cause_no_notification() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    rig.notified(&set("k", "v"));
    assert_eq!(rig.notified(&set_if("k", "w", Condition::IfAbsent, 0)), []);
    let mut request = rig.request("writer", &set("k", "w"));
    request.timestamp = None;
    assert_eq!(rig.reply(&request), error("missing timestamp"));
}

#[test]
fn notification_caused_before_a_stop_precedes_the_reply_of_the_stop() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    let (write, end) = (rig.request("b", &set("k", "v")), rig.request("a", &stop("k")));
    write.submit_to(rig.now(), &mut rig.store);
    let all = rig.send(&end);
    let position = |found: &dyn Fn(&Sent) -> bool| all.iter().position(found).unwrap();
    let notified = position(&|sent| matches!(sent, Sent::Notification { .. }));
    let stopped = position(
        &|sent| matches!(sent, Sent::Reply { correlation, .. } if *correlation == end.correlation),
    );
    assert!(notified < stopped, "{all:?}");
    assert_eq!(rig.notified(&set("k", "v")), []);
    assert_eq!(rig.answer("a", &stop("k")), r":0\r\n");
    assert_eq!(rig.answer("never", &stop("k")), r":0\r\n");
}

#[test]
fn timer_notifies_an_expiry_with_the_version_that_expired() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    rig.notified(&set_if("k", "v", Condition::Always, 100));
    assert_eq!(rig.store.poll_timeout(), Some(Instant::from_millis(100)));
    rig.millis = 99;
    assert_eq!(rig.timer(), []);
    rig.millis = 100;
    assert_eq!(rig.timer(), [notification("a", DELETED, &version(0, 1))]);
    assert_eq!((rig.timer(), rig.store.poll_timeout()), (vec![], None));
}

#[test]
fn expiry_found_by_a_request_is_notified_before_its_reply() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    rig.notified(&set_if("k", "v", Condition::Always, 100));
    rig.millis = 100;
    let expected =
        [notification("a", DELETED, &version(0, 1)), notification("a", SET_V, &version(100, 1))];
    assert_eq!(rig.notified(&set("k", "v")), expected);
    assert_eq!(rig.timer(), []);
}

#[test]
fn expiries_are_notified_earliest_first() {
    let mut rig = Rig::new();
    for (key, px) in [("c", 30), ("a", 10), ("b", 20)] {
        rig.answer(key, &watch(key));
        rig.notified(&set_if(key, "v", Condition::Always, px));
    }
    rig.millis = 30;
    let clients: Vec<_> = rig.timer().into_iter().map(|sent| sent.0).collect();
    assert_eq!(clients, ["a", "b", "c"]);
}

#[test]
fn disconnected_client_loses_its_registrations() {
    let mut rig = Rig::new();
    for key in ["k", "l"] {
        rig.answer("a", &watch(key));
        rig.answer("b", &watch(key));
    }
    rig.store.handle(rig.now(), Input::ClientGone("a"));
    assert_eq!((rig.store.registrations(), rig.store.counters().registrations_lost), (2, 2));
    assert_eq!(rig.notified(&set("k", "v")), [notification("b", SET_V, &version(0, 1))]);
}

#[test]
fn registrations_beyond_their_limits_are_refused() {
    let quota = error("the quota has been exceeded").0;
    let limits = StoreLimits {
        registrations_max: 3,
        registrations_per_key_max: 2,
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
    assert_eq!(Rig::new().answer(&name, &watch(&long)), quota, "its topic would be too long");
}

#[test]
fn full_output_queue_drops_requests_and_defers_expiries() {
    let limits =
        StoreLimits { outgoing_max: 0, registrations_per_key_max: 1, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    rig.answer("a", &watch("k"));
    rig.notified(&set_if("k", "v", Condition::Always, 100));
    let mut handed = 0;
    while rig.store.can_receive() {
        let request = rig.request("c", &get("k"));
        request.submit_to(rig.now(), &mut rig.store);
        handed += 1;
    }
    rig.millis = 100;
    let lost = rig.request("c", &set("lost", "v"));
    lost.submit_to(rig.now(), &mut rig.store);
    assert_eq!(
        (rig.store.counters().overloaded, rig.store.get(rig.now(), b"lost").is_some()),
        (1, false)
    );
    let packets = Sent::drain(&mut rig.store);
    assert_eq!(packets.len(), 2 * handed, "neither replied to nor acknowledged: {packets:?}");
    assert!(rig.store.can_receive() && rig.store.poll_timeout().is_some());
    assert_eq!(rig.timer().len(), 1);
}

/// Polls all packets; returns the values of notifications with their tokens.
fn notifications(rig: &mut Rig) -> Vec<(String, PublishToken)> {
    let sent = std::iter::from_fn(|| rig.store.poll_transmit());
    let publishes = sent.filter_map(|transmit| match transmit {
        Transmit::Publish(publish) => Some(publish),
        _ => None,
    });
    let sent = publishes.filter_map(|publish| {
        let value = publish.payload.split(|byte| *byte == b'\n').rev().nth(1)?;
        Some((value.escape_ascii().to_string(), publish.token?))
    });
    sent.collect()
}

fn write(rig: &mut Rig, value: &str) {
    rig.millis += 1;
    let request = rig.request("writer", &set("k", value));
    request.submit_to(rig.now(), &mut rig.store);
}

/// An unacknowledged notification may be lost with the connection, and nothing else replaces it.
#[test]
fn unacknowledged_notifications_are_sent_again_on_the_next_connection() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    ["1", "2", "3"].iter().for_each(|value| write(&mut rig, value));
    let sent = notifications(&mut rig);
    let values = |sent: &[(String, PublishToken)]| -> Vec<String> {
        sent.iter().map(|(value, _)| value.trim_end_matches(r"\r").to_owned()).collect()
    };
    assert_eq!(values(&sent), ["1", "2", "3"]);
    rig.store.handle(rig.now(), Input::Published(sent[0].1, ReasonCode::SUCCESS));
    rig.store.handle(rig.now(), Input::Disconnected);
    write(&mut rig, "4");
    rig.store.handle(rig.now(), Input::Connected { session_present: false });
    assert!(matches!(rig.store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    let again = notifications(&mut rig);
    assert_eq!(values(&again), ["2", "3", "4"], "in order, and before new ones");
    for (_, token) in again {
        rig.store.handle(rig.now(), Input::Published(token, ReasonCode::SUCCESS));
    }
    rig.store.handle(rig.now(), Input::Connected { session_present: false });
    assert_eq!(notifications(&mut rig), []);
}

/// A broker that never acknowledges does not exhaust memory: the oldest notifications are dropped.
#[test]
fn unacknowledged_notifications_are_bounded_and_the_newest_kept() {
    let limits =
        StoreLimits { registrations_per_key_max: 1, outgoing_max: 15, ..StoreLimits::default() };
    let bytes = StoreLimits { outgoing_bytes_max: 15 * 100, ..StoreLimits::default() };
    for (limits, value) in [(limits, "v".to_owned()), (bytes, "v".repeat(64))] {
        let mut rig = Rig::limited(limits);
        rig.answer("a", &watch("k"));
        for _ in 0..100 {
            write(&mut rig, &value);
            assert_eq!(notifications(&mut rig).len(), 1);
        }
        rig.store.handle(rig.now(), Input::Connected { session_present: false });
        let kept = notifications(&mut rig).len();
        assert!((10..=15).contains(&kept), "{kept}");
    }
}

/// The store keeps a part of the topic for short client ids only.
#[test]
fn topic_contains_client_id_and_key_whatever_the_length_of_the_id() {
    for len in [1, 63, 64, 65, 200] {
        let (mut rig, client) = (Rig::new(), "c".repeat(len));
        for key in ["k", "other"] {
            assert_eq!(rig.answer(&client, &watch(key)), OK);
            rig.request("w", &set(key, "v")).submit_to(rig.now(), &mut rig.store);
            let sent = std::iter::from_fn(|| rig.store.poll_transmit());
            let topics: Vec<_> = sent
                .filter_map(|transmit| match transmit {
                    Transmit::Publish(publish) if publish.recipient().is_some() => {
                        Some(publish.topic.to_string())
                    }
                    _ => None,
                })
                .collect();
            let (client, key) = (hex::encode_upper(&client), hex::encode_upper(key));
            assert_eq!(topics, [format!("{RESERVED}/{client}/command/notify/{key}")]);
        }
    }
}
