//! Chunks of larger messages: an error for each, and no effect.

use statestore_capture::{CapturedStore, Next, Replay, next_frame};
use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_proto::message::{Command, Refusal, property};
use statestore_proto::store::{DropReason, RequestOutcome, StoreConfig};
use statestore_proto::time::Now;

use super::{OK, Rig, error, get, set};

/// Sends a request with this value of `__chunk`, and returns the packets and the outcome.
fn send(rig: &mut Rig, request: &StoreRequest, value: &str) -> (Vec<Sent>, RequestOutcome) {
    let mut incoming = request.incoming();
    incoming.user_property("__chunk", value);
    let outcome = rig.store.handle_publish(rig.now(), &incoming).outcome;
    (Sent::drain(&mut rig.store), outcome)
}

#[test]
fn chunk_gets_an_error_and_has_no_effect() {
    let mut rig = Rig::new();
    rig.answer("c", &set("k", "before"));
    // The chunk is a request by chance.
    let request = rig.request("c", &set("k", "v"));
    let values = ["0:3:4096", "1:3:4096", "", r#"{"chunkIndex":1}"#, &"x:".repeat(30_000)];
    for value in values {
        let (sent, outcome) = send(&mut rig, &request, value);
        let [Sent::Reply { payload, version, .. }, Sent::Acknowledge(_)] = &sent[..] else {
            panic!("{value}: {sent:?}")
        };
        let expected = error("chunked requests are not supported");
        assert_eq!((payload.clone(), version.clone()), expected, "{value}");
        let RequestOutcome::Refused(refused) = outcome else { panic!("{value}") };
        assert_eq!(refused.refusal(), Refusal::Chunked, "{value}");
        assert!(refused.to_string().len() <= property::REASON_BYTES_MAX);
    }
    let counters = *rig.store.counters();
    assert_eq!((counters.refused_for(Refusal::Chunked), counters.refused()), (5, 5));
    assert_eq!(rig.answer("c", &get("k")), r"$6\r\nbefore\r\n");
    // The same request as one message, with the same correlation data.
    assert_eq!(rig.reply(&request).0, OK);
}

#[test]
fn checks_of_the_address_precede_those_of_a_chunk() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.correlation = None;
    let (sent, _) = send(&mut rig, &request, "0:2:9");
    let Some(Sent::Reply { payload, .. }) = sent.first() else { panic!("{sent:?}") };
    assert_eq!(*payload, error("missing correlation data").0);
    request.response_topic = None;
    let (_, outcome) = send(&mut rig, &request, "0:2:9");
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
