//! Requests: sending, properties, outcomes.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{
    Client, ClientConfig, ConfigError, Event, Outcome, Request, SubmitError, Unmatched,
};
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_proto::machine::{Input, Machine};
use statestore_proto::message::{Command, Refusal, Reply, Response, ServiceError};
use statestore_proto::topic::{NotificationTopic, REQUEST, RESERVED, TopicError};
use statestore_proto::transport::{Correlation, Incoming, Qos, ReasonCode};

use super::{EPOCH, ID, Rig, config, filter, get, response_topic, set, version};

#[test]
fn nothing_is_published_before_its_response_topic_is_subscribed() {
    let mut rig = Rig::offline();
    rig.submit(get());
    assert_eq!(rig.client.poll_transmit(), None);
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    let (filter, token) = rig.subscribe().unwrap();
    assert_eq!((filter, rig.client.poll_transmit()), (response_topic(), None));
    rig.client.handle(rig.now(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
    assert_eq!((rig.client.poll_event(), rig.client.is_ready()), (Some(Event::Ready), true));
    assert_eq!(rig.sent().1, Command::Get { key: Bytes::from_static(b"k") });
    assert_eq!(rig.client.poll_transmit(), None);
}

#[test]
fn a_suback_of_an_earlier_connection_is_ignored() {
    let mut rig = Rig::offline();
    rig.submit(get());
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    let (_, old) = rig.subscribe().unwrap();
    rig.disconnect();
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    let (_, new) = rig.subscribe().unwrap();
    rig.client.handle(rig.now(), Input::Subscribed(old, ReasonCode::GRANTED_QOS_1));
    assert_eq!((rig.client.poll_event(), rig.client.poll_transmit()), (None, None));
    rig.client.handle(rig.now(), Input::Subscribed(new, ReasonCode::GRANTED_QOS_1));
    assert!(rig.client.is_ready());
}

#[test]
fn requests_wait_for_the_next_connection_after_a_refused_subscription() {
    let mut rig = Rig::offline();
    let id = rig.submit(get().timeout(Duration::from_secs(5)));
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    let (filter, token) = rig.subscribe().unwrap();
    rig.client.handle(rig.now(), Input::Subscribed(token, ReasonCode::NOT_AUTHORIZED));
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
fn a_client_is_ready_from_suback_to_disconnect() {
    let mut rig = Rig::offline();
    assert!(!rig.client.is_ready());
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    let (_, token) = rig.subscribe().unwrap();
    assert!(!rig.client.is_ready(), "requested, not granted");
    rig.client.handle(rig.now(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
    assert!(rig.client.is_ready());
    rig.disconnect();
    assert!(!rig.client.is_ready());
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    let (_, token) = rig.subscribe().unwrap();
    rig.client.handle(rig.now(), Input::Subscribed(token, ReasonCode::NOT_AUTHORIZED));
    assert!(!rig.client.is_ready(), "refused");
}

#[test]
fn a_request_has_exactly_the_properties_that_the_store_reads() {
    let mut rig = Rig::ready();
    let token = FencingToken::new("7:1:StateStore".parse::<Hlc>().unwrap());
    rig.submit(set().fencing_token(token.clone()).persist(true));
    rig.submit(get());
    rig.submit(Request::del("k").fencing_token(token));
    let mut properties = || {
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
    let incarnation = "statestore-incarnation=".to_owned();
    let always =
        |counter| [timestamp(counter), source.clone(), protocol.clone(), incarnation.clone()];
    assert_eq!(properties(), [&always(0)[..], &[fence.clone(), persist]].concat());
    assert_eq!(properties(), always(1));
    assert_eq!(properties(), [&always(2)[..], &[fence]].concat());
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
fn message_expiry_is_the_rest_of_the_timeout_in_seconds_rounded_up() {
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
    let outcome = Outcome::Responded {
        response: Response::Reply(reply),
        version: Some(version("5:0:StateStore")),
        incarnation: None,
    };
    assert_eq!(rig.completed(), (second, outcome.clone()));
    assert!(outcome.may_be_applied());
    rig.reply(&to_first, "$1\r\nv\r\n", Some("4:0:StateStore"));
    let reply = Reply::Value(Bytes::from_static(b"v"));
    assert_eq!(
        rig.completed(),
        (
            first,
            Outcome::Responded {
                response: Response::Reply(reply),
                version: Some(version("4:0:StateStore")),
                incarnation: None
            }
        )
    );
    for (duplicate, id) in [(&to_first, first), (&to_second, second)] {
        rig.reply(duplicate, "+OK\r\n", None);
        assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Reply(id))]);
    }
    assert_eq!(rig.client.poll_timeout(), None);
}

#[test]
fn refusals_and_malformed_replies_complete_their_requests() {
    let mut rig = Rig::ready();
    rig.submit(set());
    let publish = rig.sent().0;
    rig.reply(&publish, "-ERR the quota has been exceeded\r\n", None);
    let refused = Reply::Error(ServiceError::Known(Refusal::QuotaExceeded));
    let outcome = rig.completed().1;
    assert_eq!(
        outcome,
        Outcome::Responded { response: Response::Reply(refused), version: None, incarnation: None }
    );
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
fn a_request_times_out_whether_sent_or_not() {
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
    assert_eq!(rig.client.poll_transmit(), None, "a completed request is not sent");
    let sent = rig.submit(get());
    let publish = rig.sent().0;
    rig.pass(10_000);
    let outcome = Outcome::TimedOut { sent: true };
    assert!(outcome.may_be_applied());
    assert_eq!(rig.completed(), (sent, outcome));
    rig.reply(&publish, "$-1\r\n", None);
    assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Reply(sent))]);
}

#[test]
fn a_lost_connection_completes_sent_requests_as_connection_lost() {
    let mut rig = Rig::ready();
    let sent = rig.submit(set());
    rig.sent();
    let unsent = rig.submit(set());
    rig.disconnect();
    assert_eq!(rig.events(), [Event::Completed { id: sent, outcome: Outcome::ConnectionLost }]);
    assert!(Outcome::ConnectionLost.may_be_applied());
    rig.connect();
    let publish = rig.sent().0;
    rig.reply(&publish, "+OK\r\n", None);
    assert_eq!(rig.completed().0, unsent);
}

#[test]
fn connecting_without_a_disconnect_completes_sent_requests_as_connection_lost() {
    let mut rig = Rig::ready();
    let sent = rig.submit(set());
    rig.sent();
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    assert_eq!(rig.completed(), (sent, Outcome::ConnectionLost));
}

#[test]
fn with_a_kept_session_requests_stay_pending_until_session_present_is_known() {
    let mut rig = Rig::with(config().keeps_session(true));
    rig.connect();
    let id = rig.submit(set());
    let publish = rig.sent().0;
    rig.disconnect();
    assert_eq!(rig.events(), []);
    rig.client.handle(rig.now(), Input::Connected { session_present: true });
    rig.grant();
    assert_eq!((rig.events(), rig.client.poll_transmit()), (vec![Event::Ready], None));
    rig.reply(&publish, "+OK\r\n", None);
    assert_eq!(rig.completed().0, id);

    let id = rig.submit(set());
    rig.sent();
    rig.disconnect();
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    assert_eq!(rig.completed(), (id, Outcome::ConnectionLost));
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
    assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Reply(sent))]);
}

#[test]
fn machine_methods_agree_with_inherent_methods() {
    let mut rig = Rig::offline();
    assert!(!Machine::is_ready(&rig.client) && Machine::can_receive(&rig.client));
    assert_eq!(Machine::poll_timeout(&rig.client), None);
    rig.connect();
    rig.submit(get());
    assert!(Machine::is_ready(&rig.client));
    assert_eq!(Machine::poll_timeout(&rig.client), rig.client.poll_timeout());
    assert!(rig.client.poll_timeout().is_some());
}

#[test]
fn cancelling_an_unsent_request_leaves_the_others() {
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
fn a_failed_puback_completes_the_request_as_undelivered() {
    for reason in [
        ReasonCode::NOT_AUTHORIZED,
        ReasonCode::NO_MATCHING_SUBSCRIBERS,
        ReasonCode::PACKET_TOO_LARGE,
    ] {
        let mut rig = Rig::ready();
        let id = rig.submit(set());
        let token = rig.sent().0.token.unwrap();
        rig.client.handle(rig.now(), Input::Published(token, ReasonCode::SUCCESS));
        assert_eq!(rig.events(), []);
        rig.client.handle(rig.now(), Input::Published(token, reason));
        assert_eq!(rig.completed(), (id, Outcome::Undelivered(reason)));
        assert!(!Outcome::Undelivered(reason).may_be_applied());
        rig.client.handle(rig.now(), Input::Published(token, reason));
        assert_eq!(rig.events(), []);
    }
}

#[test]
fn unmatched_messages_are_reported_and_change_nothing() {
    let mut rig = Rig::ready();
    let id = rig.submit(get());
    let (publish, _) = rig.sent();
    let own = publish.correlation_data.unwrap();
    let (reply, junk) = (Bytes::from_static(b"$-1\r\n"), Bytes::from_static(b"junk"));
    let (response, key) = (response_topic(), NotificationTopic::new(ID, b"k").unwrap().to_string());
    let others = NotificationTopic::new("other", b"k").unwrap().to_string();
    let foreign = [&b""[..], &[0; 16], b"noncenon", b"noncenon\0\0\0\0\0\0\0\x01\0"];
    for data in foreign.into_iter().map(Some).chain([None]) {
        let mut incoming = Incoming::new(&response, &reply);
        incoming.correlation_data = data;
        rig.client.handle(rig.now(), Input::Message(&incoming));
        assert_eq!(rig.events(), [Event::Unmatched(Unmatched::ForeignReply)], "{data:?}");
    }
    let mut retained = Incoming::new(&response, &reply);
    (retained.correlation_data, retained.retain) = (Some(own.as_bytes()), true);
    for (incoming, unmatched) in [
        (retained, Unmatched::Topic),
        (Incoming::new("elsewhere", &reply), Unmatched::Topic),
        (Incoming::new(&others, &reply), Unmatched::Topic),
        (Incoming::new("", &junk), Unmatched::Topic),
        (Incoming::new(&key, &junk), Unmatched::Notification),
    ] {
        rig.client.handle(rig.now(), Input::Message(&incoming));
        assert_eq!(rig.events(), [Event::Unmatched(unmatched)]);
    }
    assert_eq!((rig.client.outstanding(), rig.client.cancel(id)), (1, true));
}

#[test]
fn a_timestamp_of_the_store_advances_the_clock() {
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
fn a_drift_beyond_the_limit_is_reported_with_the_reply() {
    let mut rig = Rig::ready();
    let id = rig.submit(get());
    let publish = rig.sent().0;
    let text = format!("{}:0:StateStore", EPOCH + 60_001);
    rig.reply(&publish, "$-1\r\n", Some(&text));
    let events = rig.events();
    let outcome = Outcome::Responded {
        response: Response::Reply(Reply::Absent),
        version: Some(version(&text)),
        incarnation: None,
    };
    assert!(matches!(events[0], Event::ClockDrift(_)), "{events:?}");
    assert_eq!(events[1..], [Event::Completed { id, outcome }]);
    rig.submit(set());
    let timestamp = rig.sent().0.user_properties().next().unwrap().1.to_string();
    assert_eq!(timestamp, format!("{EPOCH}:1:{ID}"), "the clock did not follow");
}

#[test]
fn after_a_step_back_of_the_wall_clock_timestamps_follow_it() {
    let mut rig = Rig::ready();
    rig.submit(get());
    rig.sent();
    for (behind, expected) in [
        // Within the drift limit they still increase.
        (60_000, format!("{EPOCH}:1:{ID}")),
        (60_001, format!("{}:0:{ID}", EPOCH - 60_001)),
    ] {
        rig.set_back = behind;
        rig.submit(set());
        let timestamp = rig.sent().0.user_properties().next().unwrap().1.to_string();
        assert_eq!(timestamp, expected);
    }
}

#[test]
fn after_a_step_back_a_version_of_the_store_is_no_drift() {
    let mut rig = Rig::ready();
    rig.submit(get());
    let publish = rig.sent().0;
    rig.set_back = 3_600_000;
    let back = EPOCH - rig.set_back;
    rig.reply(&publish, "$-1\r\n", Some(&format!("{back}:5:StateStore")));
    let drift = |event: &Event| matches!(event, Event::ClockDrift(_));
    assert!(!rig.events().iter().any(drift));
    rig.submit(set());
    let timestamp = rig.sent().0.user_properties().next().unwrap().1.to_string();
    assert_eq!(timestamp, format!("{back}:7:{ID}"));
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
        assert_eq!(refused, Err(SubmitError::WatchCommand));
    }
}

#[test]
fn invalid_configuration_is_rejected() {
    let error = |config: ClientConfig| Client::new(config).err();
    let named = |id: &str| ClientConfig::new(id, [0; 8]);
    assert_eq!(error(named("a/b")), None);
    assert_eq!(error(named("a+b")), Some(ConfigError::ClientId(TopicError::Wildcard)));
    assert!(matches!(error(named("")), Some(ConfigError::ClientId(_))));
    // They cannot be node ids of a clock.
    assert_eq!(error(named("urn:dev:7")), None);
    assert_eq!(error(named(&"é".repeat(200))), None);
    for topic in [REQUEST, RESERVED] {
        let config = named("c").response_topic(topic);
        assert!(matches!(error(config), Some(ConfigError::ResponseTopic(_))), "{topic}");
    }
    assert_eq!(error(named("c").timeout(Duration::ZERO)), Some(ConfigError::ZeroTimeout));
    assert_eq!(error(named("c").timeout(Duration::from_nanos(1))), None);
    let renewing = |interval| named("c").renew_watches(interval);
    assert_eq!(error(renewing(Some(Duration::ZERO))), Some(ConfigError::ZeroRenewal));
    assert_eq!(error(renewing(Some(Duration::from_nanos(1)))), None);
    assert_eq!(error(renewing(None)), None);
    let mut rig = Rig::with(named("c").response_topic("my/replies"));
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    assert_eq!(rig.subscribe().unwrap().0, "my/replies");
}

#[test]
fn only_a_set_may_ask_to_be_persisted() {
    let mut rig = Rig::ready();
    let key = || Bytes::from_static(b"k");
    let others: [Request; 4] = [
        Command::Get { key: key() }.into(),
        Command::Del { key: key() }.into(),
        Command::VDel { key: key(), value: key() }.into(),
        Request::scan("*", None).into(),
    ];
    for request in others {
        let kind = request.kind();
        let refused = rig.client.submit(rig.now(), request.with_persist(true));
        assert_eq!(refused, Err(SubmitError::PersistWithoutSet), "{kind:?}");
    }
    let request = Request::new(Command::set(key(), key())).with_persist(true);
    assert!(request.persist() && !request.clone().with_persist(false).persist());
    rig.submit(request);
    rig.published().with_incoming(|incoming| assert!(incoming.properties.persist));
}

#[test]
fn a_cancelled_request_reports_that_it_was_cancelled() {
    let mut rig = Rig::ready();
    let unsent = rig.submit(get());
    assert!(rig.client.cancel(unsent));
    let error = rig.completed().1.into_value().unwrap_err();
    assert_eq!(error.to_string(), "cancelled before it was sent");
    let sent = rig.submit(get());
    rig.published();
    assert!(rig.client.cancel(sent));
    let error = rig.completed().1.into_value().unwrap_err();
    assert_eq!(error.to_string(), "cancelled; the request may have been applied");
}

#[test]
fn with_incoming_shows_each_property_that_the_receiver_reads() {
    let mut rig = Rig::ready();
    let token: FencingToken = "7:1:StateStore".parse().unwrap();
    rig.submit(set().fencing_token(token).persist(true).timeout(Duration::from_secs(3)));
    let publish = rig.published();
    let timestamp = format!("{EPOCH}:0:{ID}");
    publish.with_incoming(|incoming| {
        assert_eq!((incoming.topic, incoming.payload), (REQUEST, &publish.payload));
        assert_eq!((incoming.qos, incoming.retain), (Qos::AtLeastOnce, false));
        assert_eq!(incoming.response_topic, Some(&*response_topic()));
        let data = publish.correlation_data.as_ref().map(Correlation::as_bytes);
        assert_eq!((incoming.correlation_data, data.is_some()), (data, true));
        assert_eq!(incoming.message_expiry, Some(3));
        let known = incoming.properties;
        assert_eq!(known.timestamp, Some(&*timestamp));
        assert_eq!(known.fencing_token, Some("7:1:StateStore"));
        assert_eq!(incoming.properties.source, Some(ID));
        assert!(known.persist && known.has_protocol_version);
    });
    rig.submit(get());
    rig.published().with_incoming(|incoming| {
        assert_eq!((incoming.properties.fencing_token, incoming.properties.persist), (None, false));
    });
}

#[test]
fn a_client_returns_what_its_transport_connects_and_subscribes_with() {
    let rig = Rig::offline();
    assert_eq!(&**rig.client.client_id(), ID);
    assert_eq!(&**rig.client.response_topic(), response_topic());
    assert_eq!(&**rig.client.notification_filter(), filter());
}

#[test]
fn correlation_data_is_compared_byte_by_byte() {
    let (short, long) = (b"0123456789abcdef", b"0123456789abcdef+");
    assert_eq!(Correlation::new(short), Correlation::new(short));
    for other in [&b"0123456789abcdeF"[..], b"0123456789abcde", b"", long] {
        assert_ne!(Correlation::new(short), Correlation::new(other));
    }
}

#[test]
fn the_reason_of_a_refusal_is_reported_before_its_completion() {
    let mut rig = Rig::ready();
    let mut refused = |payload: &'static [u8], reason: &str| {
        let id = rig.submit(set());
        let request = rig.published();
        let payload = Bytes::from_static(payload);
        let topic = request.response_topic.clone().unwrap();
        let mut incoming = Incoming::new(&topic, &payload);
        incoming.correlation_data = request.correlation_data.as_ref().map(Correlation::as_bytes);
        incoming.user_property("statestore-reason", reason);
        rig.client.handle(rig.now(), Input::Message(&incoming));
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
    assert_eq!(refused(b"+OK\r\n", "too much"), None, "not refused");
}
