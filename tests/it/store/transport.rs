//! Sections 1, 2, 4 and 10: how a request must come, who sent it, and in which words it is answered.

use bytes::Bytes;
use statestore_proto::machine::Machine;
use statestore_proto::message::{Command, Dialect, WordCase};
use statestore_proto::mqtt::{Incoming, Qos, ReasonCode, Transmit};
use statestore_proto::store::{Access, DialectPolicy, Principal, StoreConfig};
use statestore_proto::time::Instant;
use statestore_proto::topic::{REQUEST, RESERVED};
use statestore_tests::ask::Told;

use super::{OK, Rig, del, error, get, set, vdel, version, watch};

#[test]
fn a_store_subscribes_on_each_connection_and_is_ready_from_the_suback_to_its_loss() {
    let mut rig = Rig::new();
    let mut earlier = None;
    for reason in [ReasonCode::GRANTED_QOS_1, ReasonCode::NOT_AUTHORIZED, ReasonCode::SUCCESS] {
        rig.store.handle_connected();
        assert!(!rig.store.is_ready(), "asked, not granted");
        let Some(Transmit::Subscribe { filter, token }) = rig.store.poll_transmit() else {
            panic!("a store subscribes to requests first");
        };
        assert_eq!((&*filter, rig.store.poll_transmit()), (REQUEST, None));
        if let Some(earlier) = earlier.replace(token) {
            rig.store.handle_subscribed(earlier, ReasonCode::GRANTED_QOS_1);
            assert!(!rig.store.is_ready(), "that was granted on another connection");
        }
        rig.store.handle_subscribed(token, reason);
        assert_eq!(rig.store.is_ready(), !reason.is_error(), "{reason:?}");
        assert_eq!(Machine::is_ready(&rig.store), rig.store.is_ready());
        rig.store.handle_disconnected();
        assert!(!rig.store.is_ready());
    }
}

#[test]
fn without_response_topic_nothing_is_answered_and_all_is_acknowledged() {
    let mut rig = Rig::new();
    let mut ask = rig.ask("c", &set("k", "v"));
    ask.response_topic = None;
    assert_eq!(rig.hand(&ask), [Told::Acknowledge(1)]);
    assert_eq!((rig.store.counters().unanswerable, rig.store.len()), (1, 0));
}

#[test]
fn an_answer_is_of_use_for_as_long_as_its_request() {
    let mut rig = Rig::new();
    for (expiry, waited, left) in [
        (None, 9_000, None),
        (Some(10), 0, Some(10)),
        (Some(10), 1, Some(10)),
        (Some(10), 1_000, Some(9)),
        (Some(10), 9_999, Some(1)),
        (Some(0), 0, Some(1)),
        (Some(u32::MAX), 0, Some(u32::MAX)),
    ] {
        rig.millis += 100_000;
        let mut ask = rig.ask("c", &get("k"));
        ask.expiry = expiry;
        ask.arrived = Some(Instant::from_millis(rig.millis - waited));
        let told = rig.hand(&ask);
        let Some(Told::Reply { expiry: found, .. }) = told.first() else { panic!("{told:?}") };
        assert_eq!(*found, left, "{expiry:?} after {waited} ms");
    }
}

#[test]
fn a_forbidden_response_topic_costs_the_connection() {
    let below = format!("{RESERVED}/636C/command/notify/6B");
    let deep = "a/".repeat(200) + "a";
    for topic in
        [REQUEST, RESERVED, &below, "", "a/+", "a/#", "a\0b", &deep, "$SYS/x", "$share/g/t", "$"]
    {
        let mut rig = Rig::new();
        let mut ask = rig.ask("c", &set("k", "v"));
        ask.response_topic = Some(topic.into());
        (ask.verified, ask.source) = (Some("c".into()), None);
        let expected = [Told::Disconnect("c".into()), Told::Acknowledge(1)];
        assert_eq!(rig.hand(&ask), expected, "{topic:?}");
        assert_eq!((rig.store.counters().forbidden, rig.store.len()), (1, 0));
    }
}

#[test]
fn nobody_is_disconnected_for_what_another_says_in_its_name() {
    let mut rig = Rig::new();
    let mut ask = rig.ask("victim", &set("k", "v"));
    ask.response_topic = Some(REQUEST.into());
    (ask.verified, ask.source) = (None, Some("victim".into()));
    assert_eq!(rig.hand(&ask), [Told::Acknowledge(1)]);
    assert_eq!((rig.store.counters().forbidden, rig.store.len()), (1, 0));
}

#[test]
fn a_retained_request_is_no_request() {
    let mut rig = Rig::new();
    let payload = Bytes::from_static(b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n");
    let mut incoming = Incoming::new(REQUEST, &payload);
    incoming.response_topic = Some("reply");
    incoming.correlation_data = Some(b"0123456789abcdef");
    incoming.retain = true;
    let now = rig.now();
    rig.store.handle_publish(now, Principal::verified("c"), &incoming);
    assert_eq!((rig.store.poll_transmit(), rig.store.counters().not_requests), (None, 1));
}

#[test]
fn any_other_response_topic_is_used_verbatim() {
    let mut rig = Rig::new();
    let deep = "a/".repeat(199) + "a";
    for topic in ["reply", "clients/c/response", "clients/statestore/v1", "/", "a/$SYS", &deep] {
        let mut ask = rig.ask("c", &get("k"));
        ask.response_topic = Some(topic.into());
        assert_eq!(rig.reply(&ask).0, r"$-1\r\n");
    }
}

#[test]
fn correlation_data_is_required_and_copied() {
    let mut rig = Rig::new();
    let mut ask = rig.ask("c", &set("k", "v"));
    ask.correlation = None;
    assert_eq!(rig.reply(&ask), error("missing correlation data"));
    assert_eq!(rig.store.len(), 0);
    for data in [vec![], vec![0], vec![7; 16], vec![255; 500]] {
        let mut ask = rig.ask("c", &get("k"));
        ask.correlation = Some(data);
        assert_eq!(rig.reply(&ask).0, r"$-1\r\n");
    }
}

#[test]
fn only_qos_1_will_do() {
    for qos in [Qos::AtMostOnce, Qos::ExactlyOnce] {
        let mut rig = Rig::new();
        let mut ask = rig.ask("c", &set("k", "v"));
        ask.qos = qos;
        assert_eq!(rig.reply(&ask), error("the request must be published with QoS 1"));
        assert_eq!(rig.store.len(), 0);
    }
}

#[test]
fn a_request_that_waited_past_its_expiry_is_dropped() {
    let mut rig = Rig::new();
    rig.millis = 10_000;
    let mut ask = rig.ask("c", &set("k", "v"));
    (ask.expiry, ask.arrived) = (Some(2), Some(Instant::from_millis(8_000)));
    assert_eq!(rig.hand(&ask), [Told::Acknowledge(1)]);
    assert_eq!((rig.store.counters().expired_requests, rig.store.len()), (1, 0));
    ask.arrived = Some(Instant::from_millis(8_001));
    assert_eq!(rig.reply(&ask).0, OK);
}

#[test]
fn a_message_on_another_topic_is_no_request() {
    let mut rig = Rig::new();
    let mut ask = rig.ask("c", &set("k", "v"));
    ask.topic = "statestore/v1/elsewhere".into();
    assert_eq!(rig.hand(&ask), [Told::Acknowledge(1)]);
    assert_eq!((rig.store.counters().not_requests, rig.store.len()), (1, 0));
}

#[test]
fn a_store_that_is_a_client_subscribes_to_requests_on_each_connection() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        rig.store.handle_connected();
        assert_eq!(Told::drain(&mut rig.store), [Told::Subscribe(REQUEST.into())]);
    }
}

#[test]
fn each_requester_is_answered_in_its_own_dialect() {
    let mut rig = Rig::new();
    rig.answer("c", &set("k", "v"));
    for (deployed, expected) in [(true, r":-1\r\n"), (false, r"-1\r\n")] {
        let mut ask = rig.ask("c", &vdel("k", "other"));
        ask.deployed = deployed;
        assert_eq!(rig.reply(&ask).0, expected);
    }
}

#[test]
fn a_notification_speaks_the_dialect_of_its_registration() {
    let mut rig = Rig::new();
    for (client, deployed) in [("new", true), ("old", false)] {
        let mut ask = rig.ask(client, &watch("k"));
        ask.deployed = deployed;
        assert_eq!(rig.reply(&ask).0, OK);
    }
    rig.answer("writer", &set("k", "v"));
    let payloads: Vec<_> = rig.notified(&del("k")).into_iter().map(|told| told.1).collect();
    assert_eq!(
        payloads,
        [r"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n", r"*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n"]
    );
}

#[test]
fn a_pinned_dialect_is_spoken_to_everybody() {
    for (dialect, expected) in [(Dialect::Deployed, r":-1\r\n"), (Dialect::Page, r"-1\r\n")] {
        let mut rig = Rig::with(StoreConfig::new(7).dialect(DialectPolicy::Pinned(dialect)));
        rig.answer("c", &set("k", "v"));
        for deployed in [true, false] {
            let mut ask = rig.ask("c", &vdel("k", "other"));
            ask.deployed = deployed;
            assert_eq!(rig.reply(&ask).0, expected);
        }
    }
}

#[test]
fn lower_case_verbs_are_read_unless_the_store_is_strict() {
    let payload = b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n".as_slice();
    for (case, expected) in
        [(WordCase::Any, r"$-1\r\n"), (WordCase::Upper, r"-ERR unknown command\r\n")]
    {
        let mut rig = Rig::with(StoreConfig::new(7).word_case(case));
        let mut ask = rig.ask("c", &get("k"));
        ask.payload = payload.into();
        assert_eq!(rig.reply(&ask).0, expected);
    }
}

#[test]
fn errors_of_grammar_have_their_texts() {
    for (payload, text) in [
        ("", "syntax error"),
        ("*2\r\n$3\r\nGET\r\n$1\r\nk", "syntax error"),
        ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n.", "syntax error"),
        ("*1\r\n$3\r\nGET\r\n", "wrong number of arguments"),
        ("*2\r\n$3\r\nPUT\r\n$1\r\nk\r\n", "unknown command"),
        ("*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "the key length is zero"),
        ("*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nPX\r\n$1\r\n0\r\n", "syntax error"),
        ("*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nNX\r\n$3\r\nNEX\r\n", "syntax error"),
    ] {
        let mut rig = Rig::new();
        let mut ask = rig.ask("c", &get("k"));
        ask.payload = payload.as_bytes().to_vec().into();
        assert_eq!(rig.reply(&ask), error(text), "{payload:?}");
        assert_eq!(rig.store.counters().refused(), 1);
    }
}

#[test]
fn a_verified_sender_speaks_in_no_other_name() {
    let mut rig = Rig::new();
    let mut ask = rig.ask("mallory", &set("k", "v"));
    ask.source = Some("alice".into());
    assert_eq!(rig.reply(&ask), error("not authorized"));
    assert_eq!(rig.store.len(), 0);
    ask = rig.ask("mallory", &set("k", "v"));
    ask.source = Some("mallory".into());
    assert_eq!(rig.reply(&ask).0, OK);
}

#[test]
fn a_claimed_sender_is_found_in_source_or_response_topic() {
    for (source, topic, name) in [
        (Some("alice"), "some/topic", Some("alice")),
        (None, "clients/bob/services/statestore/_any_/command/invoke/response", Some("bob")),
        (Some(""), "some/topic", None),
        (None, "some/topic", None),
    ] {
        let mut rig = Rig::new();
        let mut ask = rig.ask("x", &watch("k"));
        ask.verified = None;
        (ask.source, ask.response_topic) = (source.map(Into::into), Some(topic.into()));
        let answer = rig.reply(&ask).0;
        let told = rig.notified(&set("k", "v"));
        assert_eq!(told.first().map(|told| told.0.as_str()), name);
        assert_eq!(answer == OK, name.is_some(), "{answer}");
    }
}

#[test]
fn the_authorizer_is_asked_about_everything() {
    let config = StoreConfig::new(7).authorizer(Box::new(|from, access, key| {
        assert!(from.is_verified());
        from.client_id() == Some("admin") || (access == Access::Read && key != b"secret")
    }));
    let mut rig = Rig::with(config);
    let refused = error("not authorized").0;
    assert_eq!(rig.answer("admin", &set("secret", "v")), OK);
    assert_eq!(rig.answer("c", &get("open")), r"$-1\r\n");
    for command in
        [get("secret"), watch("secret"), set("open", "v"), del("open"), vdel("open", "v")]
    {
        assert_eq!(rig.answer("c", &command), refused, "{command:?}");
    }
    // The token is no way around.
    let mut fenced = rig.ask("c", &set("open", "v"));
    fenced.token = Some(version(0, 0));
    assert_eq!(rig.reply(&fenced).0, refused);
    // Before anything else of the request is looked at.
    let mut ask = rig.ask("c", &set("open", "v"));
    ask.timestamp = None;
    assert_eq!(rig.reply(&ask).0, refused);
}

/// Who may write need not be one who may shut others out.
#[test]
fn a_token_takes_a_right_of_its_own() {
    let config = StoreConfig::new(7).authorizer(Box::new(|from, access, key| match access {
        Access::Read => true,
        Access::Write => key == b"shared",
        Access::Fence => from.client_id() == Some("holder"),
        other => panic!("{other:?}"),
    }));
    let mut rig = Rig::with(config);
    let refused = error("not authorized").0;
    let mut tell = |client: &str, command: &Command<&[u8]>, token: Option<&str>| {
        let mut ask = rig.ask(client, command);
        ask.token = token.map(Into::into);
        rig.reply(&ask).0
    };
    let token = version(0, 0);
    assert_eq!(tell("c", &set("shared", "v"), None), OK);
    for command in [set("shared", "w"), del("shared"), vdel("shared", "v")] {
        assert_eq!(tell("c", &command, Some(&token)), refused, "{command:?}");
        assert_eq!(tell("c", &command, Some("nonsense")), refused, "{command:?}");
    }
    // Where no token counts none is asked about.
    assert_eq!(tell("c", &get("shared"), Some(&token)), r"$1\r\nv\r\n");
    assert_eq!(tell("holder", &set("shared", "w"), Some(&token)), OK);
    assert_eq!(tell("holder", &set("other", "w"), Some(&token)), refused);
    assert_eq!(tell("holder", &del("shared"), Some(&token)), r":1\r\n");
}
