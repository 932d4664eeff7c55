//! Chunks of larger messages: one error for each message, and no effect.

use statestore_capture::{CapturedStore, Next, Replay, next_frame};
use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_proto::message::{Command, Refusal, property};
use statestore_proto::store::{DropReason, RequestOutcome, StoreConfig};
use statestore_proto::time::Now;

use super::{OK, Rig, error, get, set};

const ID: &str = "7b0c6f0e-7a40-4f6a-9c5e-0d1f0a2b3c4d";

/// Sends a request with these values of `__chunk`, and returns the packets and the outcome.
fn send(rig: &mut Rig, request: &StoreRequest, values: &[&str]) -> (Vec<Sent>, RequestOutcome) {
    let mut incoming = request.incoming();
    values.iter().for_each(|value| incoming.user_property("__chunk", value));
    let outcome = rig.store.handle_publish(rig.now(), &incoming).outcome;
    (Sent::drain(&mut rig.store), outcome)
}

/// Asserts that the packets are the error for a chunk and the acknowledgement.
fn assert_refused(request: &StoreRequest, sent: &[Sent], what: &str) {
    let [Sent::Reply { payload, version, .. }, Sent::Acknowledge(_)] = sent else {
        panic!("{what}: {sent:?}")
    };
    let expected = error("chunked requests are not supported");
    assert_eq!((payload.clone(), version.clone()), expected, "{what}: {request:?}");
}

#[test]
fn chunks_of_one_message_get_one_error_and_have_no_effect() {
    let head = |rest: &str| format!("h:{ID}:0:{rest}");
    let forms: [Vec<String>; 5] = [
        [head("4:sha256:ab")].into_iter().chain((1..4).map(|n| format!("d:{ID}:{n}"))).collect(),
        [format!("{ID}:0:4:ab")].into_iter().chain((1..4).map(|n| format!("{ID}:{n}"))).collect(),
        [format!("{ID};0;4;ab")].into_iter().chain((1..4).map(|n| format!("{ID};{n}"))).collect(),
        (0..4).map(|n| format!("{n}:4:4096")).collect(),
        (0..4).map(|n| format!(r#"{{"messageId":"{ID}","chunkIndex":{n}}}"#)).collect(),
    ];
    for values in forms {
        let mut rig = Rig::new();
        rig.answer("c", &set("k", "before"));
        // Each chunk is a request by chance. All have the correlation data of their message.
        let request = rig.request("c", &set("k", "v"));
        for (number, value) in values.iter().enumerate() {
            let (sent, outcome) = send(&mut rig, &request, &[value]);
            if number == 0 {
                assert_refused(&request, &sent, value);
                continue;
            }
            assert!(matches!(sent[..], [Sent::Acknowledge(_)]), "{value}: {sent:?}");
            assert_eq!(outcome, RequestOutcome::Dropped(DropReason::LaterChunk), "{value}");
        }
        // The broker redelivers the first chunk: a duplicate gets the same response.
        let (sent, _) = send(&mut rig, &request, &[&values[0]]);
        assert_refused(&request, &sent, &values[0]);
        let counters = *rig.store.counters();
        assert_eq!((counters.refused_for(Refusal::Chunked), counters.later_chunks), (2, 3));
        assert_eq!((counters.refused(), counters.dropped()), (2, 3));
        assert_eq!(rig.answer("c", &get("k")), r"$6\r\nbefore\r\n");
        // The same request as one message, with the same correlation data.
        assert_eq!(rig.reply(&request).0, OK);
    }
}

#[test]
fn chunk_with_an_invalid_position_is_refused() {
    let huge = format!("h:{ID}:0:4:sha256:{}", "a".repeat(60_000));
    let nested = "{\"a\":".repeat(10_000);
    for value in [
        "",
        "0",
        "true",
        "h",
        "d:x:-1",
        "{",
        "{}",
        r#"{"chunkIndex":"#,
        r#"{"chunkIndex":1e9}"#,
        r#"{"chunkIndex":[1]}"#,
        r#"{"a":{"chunkIndex":1}}"#,
        &huge,
        &nested,
    ] {
        let mut rig = Rig::new();
        let request = rig.request("c", &set("k", "v"));
        let (sent, outcome) = send(&mut rig, &request, &[value]);
        assert_refused(&request, &sent, value);
        let RequestOutcome::Refused(refused) = outcome else { panic!("{value}") };
        assert_eq!(refused.refusal(), Refusal::Chunked, "{value}");
        assert!(refused.to_string().len() <= property::REASON_BYTES_MAX);
        assert_eq!(rig.store.len(), 0, "{value}");
    }
}

#[test]
fn first_of_several_chunk_properties_counts() {
    let mut rig = Rig::new();
    let request = rig.request("c", &set("k", "v"));
    let (sent, _) = send(&mut rig, &request, &["0:2:9", "1:2:9"]);
    assert_refused(&request, &sent, "the first is the head");
    let (sent, _) = send(&mut rig, &request, &["1:2:9", "0:2:9"]);
    assert!(matches!(sent[..], [Sent::Acknowledge(_)]), "{sent:?}");
}

#[test]
fn checks_of_the_address_precede_those_of_a_chunk() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.correlation = None;
    let (sent, _) = send(&mut rig, &request, &["0:2:9"]);
    let Some(Sent::Reply { payload, .. }) = sent.first() else { panic!("{sent:?}") };
    assert_eq!(*payload, error("missing correlation data").0);
    let (sent, _) = send(&mut rig, &request, &["1:2:9"]);
    assert!(matches!(sent[..], [Sent::Acknowledge(_)]), "not one error for each chunk");
    request.response_topic = None;
    let (_, outcome) = send(&mut rig, &request, &["0:2:9"]);
    assert_eq!(outcome, RequestOutcome::Dropped(DropReason::NoResponseTopic));
}

#[test]
fn replay_of_a_capture_refuses_the_same_chunks() {
    for redaction in [None, Some([7; 16])] {
        let mut store = CapturedStore::capturing(StoreConfig::new(7), redaction);
        for (number, value) in [(1, "0:3:9"), (1, "1:3:9"), (2, "nonsense")] {
            let payload = Command::set("k", "v").encode();
            let request = StoreRequest::with_payload("c", number, payload);
            let mut incoming = request.incoming();
            incoming.user_property("__chunk", value);
            store.handle_publish(Now::default(), &incoming);
            while store.poll_transmit().is_some() {}
        }
        let capture = store.take_capture();
        let (mut capture, mut replay) = (&capture[..], Replay::new());
        while let Next::Frame(frame, rest) = next_frame(capture).expect("a capture") {
            assert_eq!(replay.play(frame), Ok(None));
            capture = rest;
        }
    }
}
