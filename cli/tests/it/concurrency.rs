//! Many requests and many clients at once.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use statestore_testkit::wire::raw::{Raw, RawRequest, array, blob, property};

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(
    five_hundred_requests_in_flight_get_responses,
    bench_keeps_five_hundred_in_flight,
    fifty_clients_see_consistent_results,
);

fn five_hundred_requests_in_flight_get_responses(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut raw = here.raw("raw");
    for turn in 0..3_u32 {
        let mut expected = BTreeMap::new();
        for number in 0..512_u32 {
            let (key, value) = (format!("key {}", number / 2), format!("{turn} {}", number / 2));
            // Sends the SET of a key, then its GET, without waiting for a response.
            let (elements, reply) = if number % 2 == 0 {
                (vec![&b"SET"[..], key.as_bytes(), value.as_bytes()], b"+OK\r\n".to_vec())
            } else {
                (vec![&b"GET"[..], key.as_bytes()], blob(value.as_bytes()))
            };
            let ask = RawRequest::deployed("raw", array(&elements));
            expected.insert(ask.correlation.clone(), reply);
            raw.send(&ask);
        }
        while !expected.is_empty() {
            let received = raw.reply();
            let data = received.properties.as_ref().and_then(|all| all.correlation_data.clone());
            let reply =
                expected.remove(&data.map(|data| data.to_vec())).expect("each reply arrives once");
            assert_eq!(received.payload, reply);
        }
    }
    assert!(raw.receives_nothing_more());
}

fn bench_keeps_five_hundred_in_flight(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let options = ["--in-flight", "512", "--requests", "3000", "--output", "json"];
    assert_eq!(here.run(&[&["bench"][..], &options].concat()).json()["requests"], 3_000);
    let options = ["--in-flight", "1000", "--requests", "3000", "--output", "json"];
    assert_eq!(here.run(&[&["bench"][..], &options].concat()).json()["requests"], 3_000);
}

/// Number of rounds of each client.
const ROUNDS: u32 = 6;

/// Results of one client: the versions that it received, and the rounds in which it set first,
/// renewed or deleted.
#[derive(Default)]
struct Seen {
    versions: Vec<String>,
    won: Vec<u32>,
    deleted: Vec<u32>,
}

/// Runs one client. Its own keys contain the values that it wrote. It competes with the others to
/// set each shared key first.
fn member(mut raw: Raw, id: &str) -> Seen {
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        let shared = format!("shared {round}");
        let ask = |elements: &[&[u8]]| RawRequest::deployed(id, array(elements));
        let set = raw.ask(&ask(&[b"SET", id.as_bytes(), round.to_string().as_bytes()]));
        assert_eq!(set.payload, &b"+OK\r\n"[..]);
        seen.versions.extend(property(&set, "__ts").map(str::to_owned));
        let found = raw.ask(&ask(&[b"GET", id.as_bytes()]));
        assert_eq!(found.payload, blob(round.to_string().as_bytes()));
        assert_eq!(property(&found, "__ts"), property(&set, "__ts"));

        let first = raw.ask(&ask(&[b"SET", shared.as_bytes(), id.as_bytes(), b"NX"]));
        let holder = raw.answer(&ask(&[b"GET", shared.as_bytes()]));
        let renewed = raw.answer(&ask(&[b"SET", shared.as_bytes(), id.as_bytes(), b"NEX"]));
        if first.payload == b"+OK\r\n"[..] {
            seen.won.push(round);
            seen.versions.extend(property(&first, "__ts").map(str::to_owned));
            assert_eq!((holder, renewed), (blob(id.as_bytes()), b"+OK\r\n".to_vec()));
        } else {
            assert_eq!(first.payload, &b":-1\r\n"[..]);
            assert_eq!(renewed, b":-1\r\n");
            assert_ne!(holder, blob(id.as_bytes()));
        }
        // A key that is not written again can be deleted only once.
        let doomed = format!("doomed {round}");
        if raw.answer(&ask(&[b"DEL", doomed.as_bytes()])) == b":1\r\n" {
            seen.deleted.push(round);
        }
    }
    seen
}

fn fifty_clients_see_consistent_results(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut raw = here.raw("raw");
    for round in 0..ROUNDS {
        let doomed = format!("doomed {round}");
        raw.answer(&RawRequest::minimal("raw", array(&[b"SET", doomed.as_bytes(), b"v"])));
    }
    let members: Vec<(String, Raw)> = (0..50)
        .map(|number| format!("member {number}"))
        .map(|id| (id.clone(), here.raw(&id)))
        .collect();
    let seen: Vec<Seen> = thread::scope(|scope| {
        let threads: Vec<_> =
            members.into_iter().map(|(id, raw)| scope.spawn(move || member(raw, &id))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a member is served")).collect()
    });
    let sorted = |rounds: fn(&Seen) -> &Vec<u32>| {
        let mut all: Vec<u32> = seen.iter().flat_map(|seen| rounds(seen).clone()).collect();
        all.sort_unstable();
        all
    };
    let once: Vec<u32> = (0..ROUNDS).collect();
    assert_eq!(sorted(|seen| &seen.won), once, "one winner per round");
    assert_eq!(sorted(|seen| &seen.deleted), once, "one deletion per round");
    let versions: Vec<&String> = seen.iter().flat_map(|seen| &seen.versions).collect();
    let distinct: BTreeSet<_> =
        versions.iter().map(|version| crate::dialects::order(version)).collect();
    assert_eq!(versions.len(), distinct.len(), "no version is issued twice");
    assert_eq!(u32::try_from(versions.len()), Ok(51 * ROUNDS));
}
