//! Requests: when they are sent, what they carry, and what becomes of them.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{
    ClientConfig, ConfigError, Event, Outcome, Request, Stale, SubmitError,
};
use statestore_proto::hlc::{FencingToken, Hlc, NodeId};
use statestore_proto::machine::Machine;
use statestore_proto::message::{Command, Refusal, Reply, ServiceError};
use statestore_proto::mqtt::{Correlation, Incoming, ReasonCode, Transmit};
use statestore_proto::time::{Now, UnixTime};
use statestore_proto::topic::{NotificationTopic, REQUEST, RESERVED, TopicError};

use super::{EPOCH, ID, Rig, config, get, response_topic, set, version};

#[test]
fn nothing_is_published_before_its_response_topic_is_subscribed() {
    let mut rig = Rig::offline();
    rig.submit(get());
    assert_eq!(rig.client.poll_transmit(), None);
    rig.client.handle_connected(rig.now(), false);
    let (filter, token) = rig.subscribe().unwrap();
    assert_eq!((filter, rig.client.poll_transmit()), (response_topic(), None));
    rig.client.handle_subscribed(rig.now(), token, ReasonCode::GRANTED_QOS_1);
    assert_eq!((rig.client.poll_event(), rig.client.is_ready()), (Some(Event::Ready), true));
    assert_eq!(rig.sent().1, Command::Get { key: Bytes::from_static(b"k") });
    assert_eq!(rig.client.poll_transmit(), None);
}

#[test]
fn a_suback_of_an_earlier_connection_opens_nothing() {
    let mut rig = Rig::offline();
    rig.submit(get());
    rig.client.handle_connected(rig.now(), false);
    let (_, old) = rig.subscribe().unwrap();
    rig.disconnect();
    rig.client.handle_connected(rig.now(), false);
    let (_, new) = rig.subscribe().unwrap();
    rig.client.handle_subscribed(rig.now(), old, ReasonCode::GRANTED_QOS_1);
    assert_eq!((rig.client.poll_event(), rig.client.poll_transmit()), (None, None));
    rig.client.handle_subscribed(rig.now(), new, ReasonCode::GRANTED_QOS_1);
    assert!(rig.client.is_ready());
}

#[test]
fn a_refused_subscription_is_told_and_requests_wait_for_the_next_connection() {
    let mut rig = Rig::offline();
    let id = rig.submit(get().timeout(Duration::from_secs(5)));
    rig.client.handle_connected(rig.now(), false);
    let (filter, token) = rig.subscribe().unwrap();
    rig.client.handle_subscribed(rig.now(), token, ReasonCode::NOT_AUTHORIZED);
    let failed =
        Event::SubscribeFailed { filter: filter.into(), reason: ReasonCode::NOT_AUTHORIZED };
    assert_eq!((rig.events(), rig.client.poll_transmit()), (vec![failed], None));
    rig.pass(5_000);
    assert_eq!(rig.completed(), (id, Outcome::TimedOut { sent: false }));
    rig.submit(get());
    rig.connect();
    rig.sent();
}

#[test]
fn it_is_ready_from_the_suback_to_the_loss_of_the_connection() {
    let mut rig = Rig::offline();
    assert!(!rig.client.is_ready());
    rig.client.handle_connected(rig.now(), false);
    let (_, token) = rig.subscribe().unwrap();
    assert!(!rig.client.is_ready(), "asked, not granted");
    rig.client.handle_subscribed(rig.now(), token, ReasonCode::GRANTED_QOS_1);
    assert!(rig.client.is_ready());
    rig.disconnect();
    assert!(!rig.client.is_ready());
    rig.client.handle_connected(rig.now(), false);
    let (_, token) = rig.subscribe().unwrap();
    rig.client.handle_subscribed(rig.now(), token, ReasonCode::NOT_AUTHORIZED);
    assert!(!rig.client.is_ready(), "refused");
}

#[test]
fn a_request_carries_exactly_what_the_store_reads() {
    let mut rig = Rig::ready();
    let token = FencingToken::new("7:1:StateStore".parse::<Hlc>().unwrap());
    rig.submit(set().fencing_token(token.clone()).persist(true));
    rig.submit(get().fencing_token(token.clone()).persist(true));
    rig.submit(
        Request::new(Command::Del { key: Bytes::from_static(b"k") })
            .fencing_token(token)
            .persist(true),
    );
    let mut carried = || {
        let (publish, _) = rig.sent();
        assert_eq!(&*publish.topic, REQUEST);
        assert_eq!(publish.response_topic.as_deref(), Some(&*response_topic()));
        assert_eq!(publish.content_type, Some("application/octet-stream"));
        let properties = publish.user_properties();
        properties.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let (source, protocol) = (format!("__srcId={ID}"), "__protVer=1.0".to_owned());
    let timestamp = |counter| format!("__ts={EPOCH}:{counter}:{ID}");
    let fence = "__ft=7:1:StateStore".to_owned();
    let persist = "aio-persistence=true".to_owned();
    let asks = "statestore-incarnation=".to_owned();
    let always = |counter| [timestamp(counter), source.clone(), protocol.clone(), asks.clone()];
    assert_eq!(carried(), [&always(0)[..], &[fence.clone(), persist]].concat());
    assert_eq!(carried(), always(1));
    assert_eq!(carried(), [&always(2)[..], &[fence]].concat());
}

#[test]
fn correlation_data_is_the_nonce_and_a_counter() {
    let mut rig = Rig::ready();
    for number in 1_u64..=3 {
        rig.submit(get());
        let data = rig.sent().0.correlation_data.unwrap();
        assert_eq!(data.as_bytes(), [*b"noncenon", number.to_be_bytes()].concat());
    }
}

#[test]
fn message_expiry_is_what_is_left_of_the_time_out_in_seconds_rounded_up() {
    for (timeout, waited, expiry) in [
        (1, 0, 1),
        (1_000, 0, 1),
        (1_001, 0, 2),
        (10_000, 0, 10),
        (10_000, 9_001, 1),
        (10_000, 8_999, 2),
    ] {
        let mut rig = Rig::offline();
        rig.submit(get().timeout(Duration::from_millis(timeout)));
        rig.pass(waited);
        rig.connect();
        assert_eq!(rig.sent().0.message_expiry, Some(expiry), "{timeout} ms, {waited} ms waited");
    }
    let mut rig = Rig::ready();
    rig.submit(get().timeout(Duration::MAX));
    assert_eq!(rig.sent().0.message_expiry, Some(u32::MAX));
}

#[test]
fn a_reply_completes_its_request_once() {
    let mut rig = Rig::ready();
    let (first, second) = (rig.submit(get()), rig.submit(set()));
    let (to_first, to_second) = (rig.sent().0, rig.sent().0);
    rig.reply(&to_second, "+OK\r\n", Some("5:0:StateStore"));
    let reply = Reply::Done;
    let outcome =
        Outcome::Replied { reply, version: Some(version("5:0:StateStore")), incarnation: None };
    assert_eq!(rig.completed(), (second, outcome.clone()));
    assert!(outcome.may_be_applied());
    rig.reply(&to_first, "$1\r\nv\r\n", Some("4:0:StateStore"));
    let reply = Reply::Value(Bytes::from_static(b"v"));
    assert_eq!(
        rig.completed(),
        (
            first,
            Outcome::Replied { reply, version: Some(version("4:0:StateStore")), incarnation: None }
        )
    );
    for (duplicate, id) in [(&to_first, first), (&to_second, second)] {
        rig.reply(duplicate, "+OK\r\n", None);
        assert_eq!(rig.events(), [Event::Stale(Stale::Reply(id))]);
    }
    assert_eq!(rig.client.poll_timeout(), None);
}

#[test]
fn refusals_and_unreadable_replies_complete_too() {
    let mut rig = Rig::ready();
    rig.submit(set());
    let publish = rig.sent().0;
    rig.reply(&publish, "-ERR the quota has been exceeded\r\n", None);
    let refused = Reply::Error(ServiceError::Known(Refusal::QuotaExceeded));
    let outcome = rig.completed().1;
    assert_eq!(outcome, Outcome::Replied { reply: refused, version: None, incarnation: None });
    assert!(!outcome.may_be_applied());
    for payload in ["", "$5\r\nv\r\n", ":1\r\n"] {
        rig.submit(set());
        let publish = rig.sent().0;
        rig.reply(&publish, payload, None);
        let outcome = rig.completed().1;
        assert!(
            matches!(outcome, Outcome::Malformed(_)) && outcome.may_be_applied(),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_request_times_out_sent_or_not() {
    let mut rig = Rig::offline();
    let unsent = rig.submit(get().timeout(Duration::from_micros(99_001)));
    assert_eq!(rig.client.poll_timeout().unwrap().as_millis(), 100);
    rig.pass(99);
    assert_eq!(rig.events(), []);
    rig.pass(1);
    let outcome = Outcome::TimedOut { sent: false };
    assert!(!outcome.may_be_applied());
    assert_eq!(rig.completed(), (unsent, outcome));
    rig.connect();
    assert_eq!(rig.client.poll_transmit(), None, "what is over is not sent");
    let sent = rig.submit(get());
    let publish = rig.sent().0;
    rig.pass(10_000);
    let outcome = Outcome::TimedOut { sent: true };
    assert!(outcome.may_be_applied());
    assert_eq!(rig.completed(), (sent, outcome));
    rig.reply(&publish, "$-1\r\n", None);
    assert_eq!(rig.events(), [Event::Stale(Stale::Reply(sent))]);
}

#[test]
fn a_lost_connection_leaves_what_was_sent_unknown() {
    let mut rig = Rig::ready();
    let sent = rig.submit(set());
    rig.sent();
    let unsent = rig.submit(set());
    rig.disconnect();
    assert_eq!(rig.events(), [Event::Completed { id: sent, outcome: Outcome::Unknown }]);
    assert!(Outcome::Unknown.may_be_applied());
    rig.connect();
    let publish = rig.sent().0;
    rig.reply(&publish, "+OK\r\n", None);
    assert_eq!(rig.completed().0, unsent);
}

#[test]
fn a_connection_that_replaces_one_unannounced_loses_it_too() {
    let mut rig = Rig::ready();
    let sent = rig.submit(set());
    rig.sent();
    rig.client.handle_connected(rig.now(), false);
    assert_eq!(rig.completed(), (sent, Outcome::Unknown));
}

#[test]
fn a_kept_session_keeps_requests_until_the_next_connection_shows() {
    let mut rig = Rig::with(config().keeps_session(true));
    rig.connect();
    let id = rig.submit(set());
    let publish = rig.sent().0;
    rig.disconnect();
    assert_eq!(rig.events(), []);
    rig.client.handle_connected(rig.now(), true);
    rig.grant();
    assert_eq!((rig.events(), rig.client.poll_transmit()), (vec![Event::Ready], None));
    rig.reply(&publish, "+OK\r\n", None);
    assert_eq!(rig.completed().0, id);

    let id = rig.submit(set());
    rig.sent();
    rig.disconnect();
    rig.client.handle_connected(rig.now(), false);
    assert_eq!(rig.completed(), (id, Outcome::Unknown));
}

#[test]
fn a_cancelled_request_completes_at_once() {
    let mut rig = Rig::ready();
    let (sent, unsent) = (rig.submit(get()), rig.submit(get()));
    let publish = rig.sent().0;
    for (id, was_sent) in [(sent, true), (unsent, false)] {
        assert!(rig.client.cancel(id) && !rig.client.cancel(id));
        assert_eq!(rig.completed(), (id, Outcome::Cancelled { sent: was_sent }));
    }
    assert_eq!((rig.client.poll_transmit(), rig.client.poll_timeout()), (None, None));
    rig.reply(&publish, "$-1\r\n", None);
    assert_eq!(rig.events(), [Event::Stale(Stale::Reply(sent))]);
}

#[test]
fn a_transport_is_told_what_the_application_is() {
    let mut rig = Rig::offline();
    assert!(!Machine::is_ready(&rig.client) && Machine::wants_messages(&rig.client));
    assert_eq!(Machine::poll_timeout(&rig.client), None);
    rig.connect();
    rig.submit(get());
    assert!(Machine::is_ready(&rig.client));
    assert_eq!(Machine::poll_timeout(&rig.client), rig.client.poll_timeout());
    assert!(rig.client.poll_timeout().is_some());
}

#[test]
fn a_request_given_up_before_it_was_sent_takes_no_other_with_it() {
    let mut rig = Rig::offline();
    let ids = [rig.submit(get()), rig.submit(set()), rig.submit(get())];
    assert!(rig.client.cancel(ids[1]));
    assert_eq!(rig.completed(), (ids[1], Outcome::Cancelled { sent: false }));
    rig.connect();
    for id in [ids[0], ids[2]] {
        let publish = rig.sent().0;
        rig.reply(&publish, "$-1\r\n", None);
        assert_eq!(rig.completed().0, id);
    }
    assert_eq!(rig.client.poll_transmit(), None);
}

#[test]
fn a_request_that_the_broker_does_not_pass_on_is_rejected() {
    for reason in [
        ReasonCode::NOT_AUTHORIZED,
        ReasonCode::NO_MATCHING_SUBSCRIBERS,
        ReasonCode::PACKET_TOO_LARGE,
    ] {
        let mut rig = Rig::ready();
        let id = rig.submit(set());
        let token = rig.sent().0.token.unwrap();
        rig.client.handle_published(rig.now(), token, ReasonCode::SUCCESS);
        assert_eq!(rig.events(), []);
        rig.client.handle_published(rig.now(), token, reason);
        assert_eq!(rig.completed(), (id, Outcome::Rejected(reason)));
        assert!(!Outcome::Rejected(reason).may_be_applied());
        rig.client.handle_published(rig.now(), token, reason);
        assert_eq!(rig.events(), []);
    }
}

#[test]
fn messages_that_belong_to_nothing_are_told_and_harmless() {
    let mut rig = Rig::ready();
    let id = rig.submit(get());
    let (publish, _) = rig.sent();
    let own = publish.correlation_data.unwrap();
    let (reply, junk) = (Bytes::from_static(b"$-1\r\n"), Bytes::from_static(b"junk"));
    let (response, key) = (response_topic(), NotificationTopic::new(ID, b"k").unwrap().to_string());
    let others = NotificationTopic::new("other", b"k").unwrap().to_string();
    let strangers = [&b""[..], &[0; 16], b"noncenon", b"noncenon\0\0\0\0\0\0\0\x01\0"];
    for data in strangers.into_iter().map(Some).chain([None]) {
        let mut incoming = Incoming::new(&response, &reply);
        incoming.correlation_data = data;
        rig.client.handle_publish(rig.now(), &incoming);
        assert_eq!(rig.events(), [Event::Stale(Stale::StrangersReply)], "{data:?}");
    }
    let mut retained = Incoming::new(&response, &reply);
    (retained.correlation_data, retained.retain) = (Some(own.as_bytes()), true);
    for (incoming, stale) in [
        (retained, Stale::Topic),
        (Incoming::new("elsewhere", &reply), Stale::Topic),
        (Incoming::new(&others, &reply), Stale::Topic),
        (Incoming::new("", &junk), Stale::Topic),
        (Incoming::new(&key, &junk), Stale::Notification),
    ] {
        rig.client.handle_publish(rig.now(), &incoming);
        assert_eq!(rig.events(), [Event::Stale(stale)]);
    }
    assert_eq!((rig.client.outstanding(), rig.client.cancel(id)), (1, true));
}

#[test]
fn every_timestamp_of_the_store_moves_the_clock() {
    let mut rig = Rig::ready();
    rig.submit(get());
    let publish = rig.sent().0;
    rig.reply(&publish, "$-1\r\n", Some(&format!("{}:4:StateStore", EPOCH + 60_000)));
    rig.completed();
    rig.submit(set());
    let sent = rig.sent().0;
    let timestamp = sent.user_properties().next().unwrap().1.to_string();
    assert_eq!(timestamp, format!("{}:6:{ID}", EPOCH + 60_000));
}

#[test]
fn a_store_too_far_ahead_is_told_and_costs_no_reply() {
    let mut rig = Rig::ready();
    let id = rig.submit(get());
    let publish = rig.sent().0;
    let text = format!("{}:0:StateStore", EPOCH + 60_001);
    rig.reply(&publish, "$-1\r\n", Some(&text));
    let events = rig.events();
    let outcome =
        Outcome::Replied { reply: Reply::Absent, version: Some(version(&text)), incarnation: None };
    assert!(matches!(events[0], Event::ClockDrift(_)), "{events:?}");
    assert_eq!(events[1..], [Event::Completed { id, outcome }]);
    rig.submit(set());
    let timestamp = rig.sent().0.user_properties().next().unwrap().1.to_string();
    assert_eq!(timestamp, format!("{EPOCH}:1:{ID}"), "the clock did not follow");
}

#[test]
fn a_wall_clock_that_stepped_back_refuses_a_set_and_no_get() {
    let mut rig = Rig::ready();
    rig.submit(get());
    let back = Now::new(rig.now().instant, UnixTime::from_millis(EPOCH - 60_001));
    assert!(matches!(rig.client.submit(back, set()), Err(SubmitError::Clock(_))));
    assert!(rig.client.submit(back, get()).is_ok());
    rig.sent();
    let names: Vec<_> = rig.sent().0.user_properties().map(|(name, _)| name).collect();
    assert_eq!(names, ["__srcId", "__protVer", "statestore-incarnation"]);
}

#[test]
fn keys_must_fit_a_notification_topic() {
    let mut rig = Rig::ready();
    let longest = NotificationTopic::key_len_max(ID);
    let with = |len| Request::new(Command::Get { key: Bytes::from(vec![b'k'; len]) });
    for (len, expected) in [
        (0, Some(SubmitError::EmptyKey)),
        (longest, None),
        (longest + 1, Some(SubmitError::KeyTooLong)),
    ] {
        assert_eq!(rig.client.submit(rig.now(), with(len)).err(), expected);
        let watched = rig.client.watch(rig.now(), Bytes::from(vec![b'k'; len]));
        assert_eq!(watched.err(), expected);
    }
    for command in [
        Command::Watch { key: Bytes::from_static(b"k") },
        Command::Unwatch { key: Bytes::from_static(b"k") },
    ] {
        let refused = rig.client.submit(rig.now(), Request::new(command));
        assert_eq!(refused, Err(SubmitError::NotARequest));
    }
}

#[test]
fn a_configuration_that_no_store_would_answer_is_refused() {
    let of = |id: &str| ClientConfig::new(id, [0; 8]).err();
    assert_eq!(of("a/b"), None);
    assert_eq!(of("a+b"), Some(ConfigError::Topic(TopicError::Wildcard)));
    assert!(matches!(of(""), Some(ConfigError::NodeId(_))));
    assert!(matches!(of("a:b"), Some(ConfigError::NodeId(_))));
    let node = NodeId::new("node").unwrap();
    assert!(ClientConfig::with_node_id("a:b", node, [0; 8]).is_ok());
    let config = || ClientConfig::new("c", [0; 8]).unwrap();
    assert!(
        config().response_topic(REQUEST).is_err() && config().response_topic(RESERVED).is_err()
    );
    let mut rig = Rig::with(config().response_topic("my/replies").unwrap());
    rig.client.handle_connected(rig.now(), false);
    assert!(
        matches!(rig.client.poll_transmit(), Some(Transmit::Subscribe { filter, .. }) if &*filter == "my/replies")
    );
}

#[test]
fn correlation_data_are_equal_byte_by_byte() {
    let (short, long) = (b"0123456789abcdef", b"0123456789abcdef+");
    assert_eq!(Correlation::new(short), Correlation::new(short));
    for other in [&b"0123456789abcdeF"[..], b"0123456789abcde", b"", long] {
        assert_ne!(Correlation::new(short), Correlation::new(other));
    }
}

#[test]
fn the_reason_of_a_refusal_is_told_before_it() {
    let mut rig = Rig::ready();
    let mut refused = |payload: &'static [u8], reason: &str| {
        let id = rig.submit(set());
        let request = rig.published();
        let payload = Bytes::from_static(payload);
        let topic = request.response_topic.clone().unwrap();
        let mut incoming = Incoming::new(&topic, &payload);
        incoming.correlation_data = request.correlation_data.as_ref().map(Correlation::as_bytes);
        incoming.user_property("statestore-reason", reason);
        rig.client.handle_publish(rig.now(), &incoming);
        let explained = match rig.client.poll_event() {
            Some(Event::Explained { id: of, reason }) => Some((of == id, reason.to_string())),
            Some(Event::Completed { .. }) => None,
            other => panic!("{other:?}"),
        };
        if explained.is_some() {
            assert_eq!(rig.completed().0, id);
        }
        explained
    };
    let quota = b"-ERR the quota has been exceeded\r\n";
    assert_eq!(refused(quota, "too much"), Some((true, "too much".into())));
    assert_eq!(refused(quota, &"\u{fc}".repeat(200)), Some((true, "\u{fc}".repeat(128))));
    assert_eq!(refused(b"+OK\r\n", "too much"), None, "it was not refused");
}
