//! Transport: form of a request, identity of the sender, and dialect of the reply.

use bytes::Bytes;
use statestore_models::machines::request::Sent;
use statestore_proto::machine::{Input, Machine};
use statestore_proto::message::{Command, Dialect, WordCase};
use statestore_proto::store::{Access, DialectPolicy, StoreConfig};
use statestore_proto::time::Instant;
use statestore_proto::topic::{REQUEST, RESERVED};
use statestore_proto::transport::{Incoming, Qos, ReasonCode, Transmit};

use super::{OK, Rig, del, error, get, set, vdel, version, watch};

#[test]
fn store_is_ready_from_the_suback_of_a_connection_until_its_loss() {
    let mut rig = Rig::new();
    let mut earlier = None;
    for reason in [ReasonCode::GRANTED_QOS_1, ReasonCode::NOT_AUTHORIZED, ReasonCode::SUCCESS] {
        rig.store.handle(rig.now(), Input::Connected { session_present: false });
        assert!(!rig.store.is_ready(), "requested, not granted");
        let Some(Transmit::Subscribe { filter, token }) = rig.store.poll_transmit() else {
            panic!("a store subscribes to requests first");
        };
        assert_eq!((&*filter, rig.store.poll_transmit()), (REQUEST, None));
        if let Some(earlier) = earlier.replace(token) {
            rig.store.handle(rig.now(), Input::Subscribed(earlier, ReasonCode::GRANTED_QOS_1));
            assert!(!rig.store.is_ready(), "granted on an earlier connection");
        }
        rig.store.handle(rig.now(), Input::Subscribed(token, reason));
        assert_eq!(rig.store.is_ready(), !reason.is_error(), "{reason:?}");
        assert_eq!(Machine::is_ready(&rig.store), rig.store.is_ready());
        rig.store.handle(rig.now(), Input::Disconnected);
        assert!(!rig.store.is_ready());
    }
}

#[test]
fn request_without_response_topic_is_dropped_and_acknowledged() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.response_topic = None;
    assert_eq!(rig.send(&request), [Sent::Acknowledge(1)]);
    assert_eq!((rig.store.counters().unanswerable, rig.store.len()), (1, 0));
}

#[test]
fn reply_carries_the_remaining_message_expiry_of_its_request() {
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
        let mut request = rig.request("c", &get("k"));
        request.expiry = expiry;
        request.arrived = Some(Instant::from_millis(rig.millis - waited));
        let sent = rig.send(&request);
        let Some(Sent::Reply { expiry: found, .. }) = sent.first() else { panic!("{sent:?}") };
        assert_eq!(*found, left, "{expiry:?} after {waited} ms");
    }
}

#[test]
fn forbidden_response_topic_disconnects_the_verified_sender() {
    let below = format!("{RESERVED}/636C/command/notify/6B");
    let deep = "a/".repeat(200) + "a";
    for topic in
        [REQUEST, RESERVED, &below, "", "a/+", "a/#", "a\0b", &deep, "$SYS/x", "$share/g/t", "$"]
    {
        let mut rig = Rig::new();
        let mut request = rig.request("c", &set("k", "v"));
        request.response_topic = Some(topic.into());
        (request.verified, request.source) = (Some("c".into()), None);
        let expected = [Sent::Disconnect("c".into()), Sent::Acknowledge(1)];
        assert_eq!(rig.send(&request), expected, "{topic:?}");
        assert_eq!((rig.store.counters().forbidden, rig.store.len()), (1, 0));
    }
}

#[test]
fn forbidden_response_topic_does_not_disconnect_an_unverified_client_id() {
    let mut rig = Rig::new();
    let mut request = rig.request("victim", &set("k", "v"));
    request.response_topic = Some(REQUEST.into());
    (request.verified, request.source) = (None, Some("victim".into()));
    assert_eq!(rig.send(&request), [Sent::Acknowledge(1)]);
    assert_eq!((rig.store.counters().forbidden, rig.store.len()), (1, 0));
}

#[test]
fn retained_message_is_not_a_request() {
    let mut rig = Rig::new();
    let payload = Bytes::from_static(b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n");
    let mut incoming = Incoming::new(REQUEST, &payload);
    incoming.response_topic = Some("reply");
    incoming.correlation_data = Some(b"0123456789abcdef");
    incoming.retain = true;
    let now = rig.now();
    incoming.verified_sender = Some("c");
    rig.store.handle_publish(now, &incoming);
    assert_eq!((rig.store.poll_transmit(), rig.store.counters().not_requests), (None, 1));
}

#[test]
fn any_other_response_topic_is_used_verbatim() {
    let mut rig = Rig::new();
    let deep = "a/".repeat(199) + "a";
    for topic in ["reply", "clients/c/response", "clients/statestore/v1", "/", "a/$SYS", &deep] {
        let mut request = rig.request("c", &get("k"));
        request.response_topic = Some(topic.into());
        assert_eq!(rig.reply(&request).0, r"$-1\r\n");
    }
}

#[test]
fn correlation_data_is_required_and_copied_into_the_reply() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.correlation = None;
    assert_eq!(rig.reply(&request), error("missing correlation data"));
    assert_eq!(rig.store.len(), 0);
    for data in [vec![], vec![0], vec![7; 16], vec![255; 500]] {
        let mut request = rig.request("c", &get("k"));
        request.correlation = Some(data);
        assert_eq!(rig.reply(&request).0, r"$-1\r\n");
    }
}

#[test]
fn request_not_at_qos_1_is_refused() {
    for qos in [Qos::AtMostOnce, Qos::ExactlyOnce] {
        let mut rig = Rig::new();
        let mut request = rig.request("c", &set("k", "v"));
        request.qos = qos;
        assert_eq!(rig.reply(&request), error("the request must be published with QoS 1"));
        assert_eq!(rig.store.len(), 0);
    }
}

#[test]
fn request_that_waited_past_its_message_expiry_is_dropped() {
    let mut rig = Rig::new();
    rig.millis = 10_000;
    let mut request = rig.request("c", &set("k", "v"));
    (request.expiry, request.arrived) = (Some(2), Some(Instant::from_millis(8_000)));
    assert_eq!(rig.send(&request), [Sent::Acknowledge(1)]);
    assert_eq!((rig.store.counters().expired_requests, rig.store.len()), (1, 0));
    request.arrived = Some(Instant::from_millis(8_001));
    assert_eq!(rig.reply(&request).0, OK);
}

#[test]
fn message_on_another_topic_is_not_a_request() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.topic = "statestore/v1/elsewhere".into();
    assert_eq!(rig.send(&request), [Sent::Acknowledge(1)]);
    assert_eq!((rig.store.counters().not_requests, rig.store.len()), (1, 0));
}

#[test]
fn store_subscribes_to_the_request_topic_on_each_connection() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        rig.store.handle(rig.now(), Input::Connected { session_present: false });
        assert_eq!(Sent::drain(&mut rig.store), [Sent::Subscribe(REQUEST.into())]);
    }
}

#[test]
fn reply_uses_the_dialect_of_its_request() {
    let mut rig = Rig::new();
    rig.answer("c", &set("k", "v"));
    for (deployed, expected) in [(true, r":-1\r\n"), (false, r"-1\r\n")] {
        let mut request = rig.request("c", &vdel("k", "other"));
        request.deployed = deployed;
        assert_eq!(rig.reply(&request).0, expected);
    }
}

#[test]
fn notification_uses_the_dialect_of_its_registration() {
    let mut rig = Rig::new();
    for (client, deployed) in [("new", true), ("old", false)] {
        let mut request = rig.request(client, &watch("k"));
        request.deployed = deployed;
        assert_eq!(rig.reply(&request).0, OK);
    }
    rig.answer("writer", &set("k", "v"));
    let payloads: Vec<_> = rig.notified(&del("k")).into_iter().map(|sent| sent.1).collect();
    assert_eq!(
        payloads,
        [r"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n", r"*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n"]
    );
}

#[test]
fn pinned_dialect_is_used_for_every_requester() {
    for (dialect, expected) in [(Dialect::Deployed, r":-1\r\n"), (Dialect::Spec, r"-1\r\n")] {
        let mut rig = Rig::with(StoreConfig::new(7).dialect(DialectPolicy::Pinned(dialect)));
        rig.answer("c", &set("k", "v"));
        for deployed in [true, false] {
            let mut request = rig.request("c", &vdel("k", "other"));
            request.deployed = deployed;
            assert_eq!(rig.reply(&request).0, expected);
        }
    }
}

#[test]
fn lower_case_verbs_are_accepted_unless_word_case_is_upper() {
    let payload = b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n".as_slice();
    for (case, expected) in
        [(WordCase::Any, r"$-1\r\n"), (WordCase::Upper, r"-ERR unknown command\r\n")]
    {
        let mut rig = Rig::with(StoreConfig::new(7).word_case(case));
        let mut request = rig.request("c", &get("k"));
        request.payload = payload.into();
        assert_eq!(rig.reply(&request).0, expected);
    }
}

#[test]
fn malformed_request_is_refused_with_the_text_for_its_fault() {
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
        let mut request = rig.request("c", &get("k"));
        request.payload = payload.as_bytes().to_vec().into();
        assert_eq!(rig.reply(&request), error(text), "{payload:?}");
        assert_eq!(rig.store.counters().refused(), 1);
    }
}

#[test]
fn source_id_of_another_client_is_not_authorized() {
    let mut rig = Rig::new();
    let mut request = rig.request("mallory", &set("k", "v"));
    request.source = Some("alice".into());
    assert_eq!(rig.reply(&request), error("not authorized"));
    assert_eq!(rig.store.len(), 0);
    request = rig.request("mallory", &set("k", "v"));
    request.source = Some("mallory".into());
    assert_eq!(rig.reply(&request).0, OK);
}

#[test]
fn unverified_client_id_is_taken_from_source_id_or_response_topic() {
    for (source, topic, name) in [
        (Some("alice"), "some/topic", Some("alice")),
        (None, "clients/bob/services/statestore/_any_/command/invoke/response", Some("bob")),
        (Some(""), "some/topic", None),
        (None, "some/topic", None),
    ] {
        let mut rig = Rig::new();
        let mut request = rig.request("x", &watch("k"));
        request.verified = None;
        (request.source, request.response_topic) = (source.map(Into::into), Some(topic.into()));
        let answer = rig.reply(&request).0;
        let sent = rig.notified(&set("k", "v"));
        assert_eq!(sent.first().map(|sent| sent.0.as_str()), name);
        assert_eq!(answer == OK, name.is_some(), "{answer}");
    }
}

#[test]
fn authorizer_is_consulted_for_every_command_before_other_checks() {
    let config = StoreConfig::new(7).authorizer(|from, access, key| {
        assert!(from.is_verified());
        from.client_id() == Some("admin") || (access == Access::Read && key != b"secret")
    });
    let mut rig = Rig::with(config);
    let refused = error("not authorized").0;
    assert_eq!(rig.answer("admin", &set("secret", "v")), OK);
    assert_eq!(rig.answer("c", &get("open")), r"$-1\r\n");
    for command in
        [get("secret"), watch("secret"), set("open", "v"), del("open"), vdel("open", "v")]
    {
        assert_eq!(rig.answer("c", &command), refused, "{command:?}");
    }
    // A fencing token does not bypass the policy.
    let mut fenced = rig.request("c", &set("open", "v"));
    fenced.token = Some(version(0, 0));
    assert_eq!(rig.reply(&fenced).0, refused);
    // Authorization precedes the other checks of a request.
    let mut request = rig.request("c", &set("open", "v"));
    request.timestamp = None;
    assert_eq!(rig.reply(&request).0, refused);
}

/// A client that may write may still be denied the right to fence others out.
#[test]
fn fencing_token_requires_the_fence_right() {
    let config = StoreConfig::new(7).authorizer(|from, access, key| match access {
        Access::Read => true,
        Access::Write => key == b"shared",
        Access::Fence => from.client_id() == Some("holder"),
        other => panic!("{other:?}"),
    });
    let mut rig = Rig::with(config);
    let refused = error("not authorized").0;
    let mut send = |client: &str, command: &Command<&[u8]>, token: Option<&str>| {
        let mut request = rig.request(client, command);
        request.token = token.map(Into::into);
        rig.reply(&request).0
    };
    let token = version(0, 0);
    assert_eq!(send("c", &set("shared", "v"), None), OK);
    for command in [set("shared", "w"), del("shared"), vdel("shared", "v")] {
        assert_eq!(send("c", &command, Some(&token)), refused, "{command:?}");
        assert_eq!(send("c", &command, Some("nonsense")), refused, "{command:?}");
    }
    // A command that ignores the token does not require the right.
    assert_eq!(send("c", &get("shared"), Some(&token)), r"$1\r\nv\r\n");
    assert_eq!(send("holder", &set("shared", "w"), Some(&token)), OK);
    assert_eq!(send("holder", &set("other", "w"), Some(&token)), refused);
    assert_eq!(send("holder", &del("shared"), Some(&token)), r":1\r\n");
}
