//! Malicious payloads: each gets an error, and other clients are still served.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use statestore_proto::message::{Refusal, Reply, RequestKind, RequestPayload, Response};
use statestore_testkit::wire::raw::{Raw, RawRequest, array, blob};

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(every_fuzz_input_gets_a_response_while_others_are_served);

/// Returns every input of the corpora whose bytes are messages or texts.
fn inputs() -> Vec<Vec<u8>> {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut all = Vec::new();
    for target in ["request", "notification", "reply", "differential", "scan", "hlc_text", "topics"]
    {
        let mut files: Vec<_> = fs::read_dir(corpora.join(target))
            .expect("a corpus")
            .map(|file| file.expect("a file").path())
            .collect();
        files.sort();
        all.extend(files.iter().map(|file| fs::read(file).expect("an input")));
    }
    assert!(all.len() > 400, "{} inputs", all.len());
    all
}

/// Sends an input and checks its response: the error that the grammar requires, or the reply to its
/// command.
fn attack(raw: &mut Raw, input: &[u8]) {
    let response = raw.answer(&RawRequest::minimal("attacker", input));
    let about = || format!("{} got {}", input.escape_ascii(), response.escape_ascii());
    match RequestPayload::decode(input) {
        Ok(RequestPayload::Scan(_)) => match Response::decode(&response, RequestKind::Scan) {
            Ok(Response::Page(_)) => {}
            _ => assert_eq!(response, b"-ERR syntax error\r\n", "{}", about()),
        },
        Err(error) => {
            let expected = format!("-ERR {}\r\n", error.kind.refusal().text());
            assert_eq!(response, expected.as_bytes(), "{}", about());
        }
        Ok(RequestPayload::Command(command)) => {
            let reply = Reply::decode(&response, command.kind());
            let fits = match &reply {
                Ok(Reply::Error(error)) => {
                    let quota = format!("-ERR {}\r\n", Refusal::QuotaExceeded.text());
                    assert_eq!(response, quota.as_bytes(), "{error}: {}", about());
                    command.key().len() > 32 * 1024
                }
                Ok(_) => true,
                Err(_) => false,
            };
            assert!(fits, "{}", about());
            if command.kind() == RequestKind::Watch {
                raw.answer(&RawRequest::minimal(
                    "attacker",
                    array(&[b"KEYNOTIFY", command.key(), b"STOP"]),
                ));
            }
        }
        Ok(request) => panic!("not a request that this test knows: {request:?}"),
    }
}

/// Writes and reads its own keys until `stop` is set. Returns the number of rounds.
fn ordinary(mut raw: Raw, stop: &AtomicBool) -> u32 {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let value = rounds.to_string().into_bytes();
        let set = RawRequest::deployed("ordinary", array(&[b"SET", b"an ordinary key", &value]));
        assert_eq!(raw.answer(&set), b"+OK\r\n");
        let get = RawRequest::deployed("ordinary", array(&[b"GET", b"an ordinary key"]));
        assert_eq!(raw.answer(&get), blob(&value));
        rounds += 1;
    }
    rounds
}

fn every_fuzz_input_gets_a_response_while_others_are_served(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let (mut raw, ordinary_raw, stop) =
        (here.raw("attacker"), here.raw("ordinary"), AtomicBool::new(false));
    let rounds = thread::scope(|scope| {
        let other = scope.spawn(|| ordinary(ordinary_raw, &stop));
        let attacked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for input in inputs() {
                attack(&mut raw, &input);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let rounds = other.join().expect("the other client is served");
        attacked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        rounds
    });
    assert!(rounds > 10, "{rounds} rounds of the other client");
    here.run(&["get", "an ordinary key"]).is(0, &(rounds - 1).to_string());
}
