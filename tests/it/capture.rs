//! Captures of a store: a difference is found, and what is redacted is gone and as good as what was
//! there.

use crate::vectors::vectors;
use std::cell::RefCell;
use std::collections::BTreeSet;

use statestore_capture::{
    CaptureError, CapturedStore, Difference, Next, Replay, end_frame, next_frame,
};
use statestore_models::machines::request::StoreRequest;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Expiry, Refusal};
use statestore_proto::store::{Durability, StoreConfig};
use statestore_proto::time::Now;
use statestore_proto::transport::Transmit;

const KEY: [u8; 16] = *b"sixteen bytes...";

fn store(redaction: Option<[u8; 16]>) -> CapturedStore {
    CapturedStore::capturing(StoreConfig::new(7), redaction)
}

/// The output of the store.
fn request(store: &mut CapturedStore, number: u64, payload: &[u8]) -> Vec<u8> {
    let request = StoreRequest::with_payload("c", number, payload.to_vec());
    send(store, &request)
}

fn send(store: &mut CapturedStore, request: &StoreRequest) -> Vec<u8> {
    store.handle_publish(Now::default(), &request.incoming());
    let mut sent = Vec::new();
    while let Some(transmit) = store.poll_transmit() {
        if let Transmit::Publish(publish) = transmit {
            sent.extend_from_slice(&publish.payload);
        }
    }
    sent
}

fn play(mut capture: &[u8]) -> Result<Vec<Difference>, CaptureError> {
    let (mut replay, mut found) = (Replay::new(), Vec::new());
    while let Next::Frame(frame, rest) = next_frame(capture)? {
        found.extend(replay.play(frame)?);
        capture = rest;
    }
    Ok(found)
}

fn holds(capture: &[u8], text: &[u8]) -> bool {
    capture.windows(text.len()).any(|part| part == text)
}

/// The end of the first frame.
fn first_frame(capture: &[u8]) -> usize {
    let Ok(Next::Frame(_, rest)) = next_frame(capture) else { panic!("no frame") };
    capture.len() - rest.len()
}

/// Whose quota a request counts for decides about later requests.
#[test]
fn capture_contains_the_owner_of_each_message() {
    let limits = StoreLimits { keys_max: 2, ..StoreLimits::default() };
    let config = StoreConfig::new(7).limits(limits);
    let mut store = CapturedStore::capturing(config, None);
    for (client, expected) in
        [("c-1", &b"+OK\r\n"[..]), ("c-2", b"-ERR the quota has been exceeded\r\n")]
    {
        let set = Command::set(client, "v");
        let mut request = StoreRequest::with_payload(client, 1, set.encode());
        request.owner = Some("user:c".into());
        assert_eq!(send(&mut store, &request), expected, "{client}");
    }
    assert_eq!(play(&store.take_capture()), Ok(Vec::new()));
}

#[test]
fn capture_contains_the_state_of_the_storage() {
    let config = StoreConfig::new(7).durability(Durability::All);
    let mut store = CapturedStore::capturing(config, None);
    let (set, del) = (Command::set("k", "v").encode(), Command::<&str>::Del { key: "k" }.encode());
    for (number, is_full, payload, has_effect) in [
        (1, true, &set, false),
        (2, false, &set, true),
        (3, true, &set, false),
        (4, true, &del, true),
    ] {
        store.set_storage_full(is_full);
        let request = StoreRequest::with_payload("c", number, payload.clone());
        store.handle_publish(Now::default(), &request.incoming());
        assert_eq!(store.poll_records().is_some(), has_effect, "{number}");
    }
    assert_eq!(play(&store.take_capture()), Ok(Vec::new()));
}

#[test]
fn replay_reports_a_different_response() {
    let mut store = store(None);
    request(&mut store, 1, &Command::set("k", "v").encode());
    request(&mut store, 2, &Command::get("k").encode());
    let capture = store.take_capture();
    assert_eq!(play(&capture), Ok(Vec::new()));
    // Without the SET.
    let begun = first_frame(&capture);
    let set = first_frame(&capture[begun..]);
    let less = [&capture[..begun], &capture[begun + set..]].concat();
    let found = play(&less).expect("a capture");
    let [first, .., last] = &found[..] else { panic!("{found:?}") };
    // The answer to the SET comes before any message now.
    assert_eq!((first.frame, &*first.after, &first.replayed), (2, "", &None));
    assert_eq!(last.after, "message 1: GET \"k\" from \"c\"");
    assert!(last.captured.contains(r#""$1\r\nv\r\n""#), "{}", last.captured);
    assert!(!format!("{found:?}").contains("PUBLISH"), "values never are in debug output");
}

#[test]
fn replay_rejects_a_file_that_is_not_a_capture() {
    let capture = store(None).take_capture();
    assert_eq!(play(&end_frame("the end")), Err(CaptureError::NoCapture));
    assert_eq!(play(b"neither of the two"), Err(CaptureError::Damaged));
    let mut changed = capture.clone();
    changed[20] ^= 1;
    assert_eq!(play(&changed), Err(CaptureError::Damaged));
    for part in 0..capture.len() {
        assert_eq!(play(&capture[..part]), Ok(Vec::new()), "cut off at {part}");
    }
    let joined = [&capture[..], &capture, &end_frame("the end")].concat();
    assert_eq!(play(&joined), Ok(Vec::new()));
}

/// Capture of a value of each length, which different code paths handle.
#[test]
fn redaction_preserves_equality_of_values() {
    let mut store = store(Some(KEY));
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    let words: [&[u8]; 4] = [b"NX", b"px", b"nEx", b""];
    let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
    let longer = (2..70).map(|len| vec![b'a'; len]);
    let values: Vec<_> = bytes.chain(longer).chain(words.map(<[u8]>::to_vec)).collect();
    for (place, value) in values.iter().enumerate() {
        let other = &values[(place + 1) % values.len()];
        for (removed, expected) in [(other, b":-1\r\n"), (value, b":1\r\n\0")] {
            let expected = expected.strip_suffix(b"\0").unwrap_or(expected);
            assert_eq!(
                request(&mut store, next(), &Command::set(b"k".as_slice(), value).encode()),
                b"+OK\r\n"
            );
            assert_eq!(
                request(&mut store, next(), &Command::vdel(&b"k"[..], removed).encode()),
                expected
            );
        }
    }
    assert_eq!(play(&store.take_capture()), Ok(Vec::new()));
}

#[test]
fn redacted_capture_contains_no_value() {
    let secret = "this is a secret text";
    let mut plain = store(None);
    let mut redacted = store(Some(KEY));
    for store in [&mut plain, &mut redacted] {
        let watch = Command::Watch { key: "k" };
        for (number, command) in
            [watch, Command::set("k", secret), Command::get("k")].iter().enumerate()
        {
            request(store, number as u64, &command.encode());
        }
        request(store, 3, b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$3\r\nNEX\r\n$21\r\nthis is a secret text\r\n");
        request(store, 4, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$99\r\nthis is a secret text\r\n");
        request(store, 5, b"this is a secret text");
        request(store, 6, &Command::vdel("k", secret).encode());
    }
    let (plain, redacted) = (plain.take_capture(), redacted.take_capture());
    assert!(holds(&plain, secret.as_bytes()) && !holds(&redacted, secret.as_bytes()));
    assert_eq!(play(&redacted), Ok(Vec::new()));
}

/// A payload that cannot be decoded is replaced by one that is refused in the same way.
#[test]
fn redacted_capture_preserves_refusals() {
    let rows = RefCell::new(Vec::new());
    vectors("requests-refused.txt").run(110, |case| {
        if case.text("case")? == "any" {
            rows.borrow_mut().push((case.bytes("payload")?, case.text("text")?.to_owned()));
        }
        Ok(())
    });
    let (mut store, mut refused) = (store(Some(KEY)), BTreeSet::new());
    for (number, (payload, text)) in (0..).zip(rows.into_inner()) {
        assert_eq!(request(&mut store, number, &payload), format!("-ERR {text}\r\n").as_bytes());
        refused.insert(text);
    }
    let all = [Refusal::Syntax, Refusal::UnknownCommand, Refusal::WrongArity, Refusal::EmptyKey];
    assert!(all.iter().all(|refusal| refused.contains(refusal.text())), "{refused:?}");
    assert_eq!(play(&store.take_capture()), Ok(Vec::new()));
}

/// The batch of records contains the expiry, so a replay without the policy would differ.
#[test]
fn capture_contains_the_results_of_the_policy_of_expiries() {
    let config = StoreConfig::new(7)
        .durability(Durability::All)
        .expiry_policy(|_, requested| requested.or(Expiry::from_millis(5_000)));
    let mut store = CapturedStore::capturing(config, None);
    request(&mut store, 1, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
    assert!(store.poll_records().is_some());
    let capture = store.take_capture();
    assert_eq!(play(&capture).expect("a capture"), []);
    let Next::Frame(begin, _) = next_frame(&capture).expect("a capture") else { panic!("a frame") };
    let mut replay = Replay::new();
    replay.play(begin).expect("the first frame");
    assert!(replay.store().is_some());
}
