//! Duplicates: a redelivered request gets the first reply and is applied once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::Condition;
use statestore_proto::store::{Durability, Record, StoreConfig};
use statestore_proto::time::Instant;
use statestore_proto::transport::{ReasonCode, Transmit};

use super::{OK, Rig, del, error, get, set, set_if, stop, version, watch};

#[test]
fn duplicate_gets_the_first_reply_and_has_no_effect() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    let take = rig.request("c", &set_if("k", "v", Condition::IfAbsent, 0));
    let (sent, first) = rig.all(&take);
    assert_eq!((sent.len(), &first), (1, &(OK.into(), Some(version(0, 1)))));
    rig.notified(&set("k", "w"));
    assert_eq!(rig.reply(&take), first, "byte for byte, despite the later write");
    let remove = rig.request("c", &del("k"));
    let (sent, first) = rig.all(&remove);
    assert_eq!((sent.len(), first.0.as_str()), (1, r":1\r\n"));
    rig.notified(&set("k", "x"));
    assert_eq!(rig.reply(&remove), first);
    assert_eq!(rig.answer("c", &get("k")), r"$1\r\nx\r\n");
    assert_eq!(rig.store.counters().duplicates(), 2);
}

/// The owner of a client without a user is its network.
#[test]
fn client_that_redelivers_from_another_network_gets_the_first_response() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &del("k"));
    rig.answer("w", &set("k", "v"));
    for owner in [Some("address:192.0.2.1"), Some("address:198.51.100.1"), None] {
        request.owner = owner.map(Into::into);
        assert_eq!(rig.reply(&request).0, r":1\r\n", "{owner:?}");
    }
    assert_eq!(rig.store.counters().duplicates(), 2);
}

#[test]
fn redelivered_get_is_executed_again() {
    let mut rig = Rig::new();
    let read = rig.request("a", &get("k"));
    assert_eq!(rig.reply(&read).0, r"$-1\r\n");
    rig.answer("c", &set("k", "v"));
    assert_eq!(rig.reply(&read).0, r"$1\r\nv\r\n");
}

#[test]
fn redelivered_keynotify_reregisters() {
    type End = fn(&mut Rig);
    let gone: End = |rig| rig.store.handle(rig.now(), Input::ClientGone("a"));
    let undeliverable: End = |rig| {
        let request = rig.request("w", &set("k", "v"));
        request.submit_to(rig.now(), &mut rig.store);
        let tokens = std::iter::from_fn(|| rig.store.poll_transmit());
        let tokens = tokens.filter_map(|transmit| match transmit {
            Transmit::Publish(publish) => publish.token,
            _ => None,
        });
        let tokens: Vec<_> = tokens.collect();
        rig.store
            .handle(rig.now(), Input::Published(tokens[0], ReasonCode::NO_MATCHING_SUBSCRIBERS));
    };
    for end in [gone, undeliverable] {
        let mut rig = Rig::new();
        let start = rig.request("a", &watch("k"));
        assert_eq!(rig.reply(&start).0, OK);
        end(&mut rig);
        let active = rig.store.registrations() - rig.store.silenced_registrations();
        assert_eq!(active, 0);
        // The client reconnects with its session and resends what was not acknowledged.
        assert_eq!(rig.reply(&start).0, OK);
        assert_eq!((rig.store.registrations(), rig.store.silenced_registrations()), (1, 0));
        assert_eq!(rig.notified(&set("k", "w")).len(), 1);
    }
}

/// A client resends unacknowledged requests in order: the tail of what it sent.
#[test]
fn redelivered_stop_ends_no_registration_requested_after_it() {
    let mut rig = Rig::new();
    let (start, end) = (rig.request("a", &watch("k")), rig.request("a", &stop("k")));
    assert_eq!((rig.reply(&start).0.as_str(), rig.reply(&end).0.as_str()), (OK, OK));
    assert_eq!((rig.reply(&start).0.as_str(), rig.store.registrations()), (OK, 1));
    assert_eq!((rig.reply(&end).0.as_str(), rig.store.registrations()), (OK, 0));
    let later = rig.request("a", &watch("k"));
    assert_eq!((rig.reply(&later).0.as_str(), rig.store.registrations()), (OK, 1));
    assert_eq!(rig.reply(&end).0, OK);
    assert_eq!(rig.store.registrations(), 1, "a STOP does not end a later registration");
    assert_eq!(rig.reply(&start).0, OK);
    assert_eq!(rig.reply(&later).0, OK);
    assert_eq!(rig.store.registrations(), 1);
    assert_eq!(rig.answer("a", &stop("k")), OK);
    assert_eq!(rig.answer("a", &stop("k")), r":0\r\n");
}

#[test]
fn duplicate_of_a_refused_request_gets_the_same_refusal() {
    let limits = StoreLimits { keys_max: 0, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let request = rig.request("c", &set("k", "v"));
    let refused = rig.reply(&request);
    assert_eq!(refused, error("the quota has been exceeded"));
    assert_eq!((rig.reply(&request), rig.store.counters().duplicates()), (refused, 1));
}

/// Scripts that always send the same correlation data are not deployed clients, but they work.
#[test]
fn different_content_with_the_same_correlation_data_is_not_a_duplicate() {
    let mut rig = Rig::new();
    let first = rig.request("c", &set("k", "v"));
    assert_eq!(rig.reply(&first), (OK.into(), Some(version(0, 1))));
    let mut others = [first.clone(), first.clone(), first.clone(), first.clone()];
    others[0].payload = set("k", "w").encode().into();
    others[1].timestamp = Some("2:0:c".into());
    others[2].token = Some("2:0:c".into());
    others[3].persist = true;
    others[3].token = Some("3:0:c".into());
    for (number, other) in (2..).zip(others) {
        assert_eq!(rig.reply(&other), (OK.into(), Some(version(0, number))), "{other:?}");
        assert_eq!(rig.reply(&other), (OK.into(), Some(version(0, number))));
    }
    assert_eq!(
        rig.reply(&first),
        (OK.into(), Some(version(0, 1))),
        "the first request is still a duplicate"
    );
}

#[test]
fn duplicate_has_the_same_requester_response_topic_and_correlation_data() {
    let mut rig = Rig::new();
    let request = rig.request("c", &del("k"));
    rig.reply(&request);
    let mut others = [request.clone(), request.clone(), request.clone()];
    others[0].verified = Some("d".into());
    others[1].response_topic = Some("elsewhere".into());
    others[2].correlation = Some(vec![1]);
    for other in others {
        rig.answer("w", &set("k", "v"));
        assert_eq!(rig.reply(&other).0, r":1\r\n", "{other:?} was taken for a duplicate");
    }
}

#[test]
fn reply_is_cached_for_twice_the_message_expiry_up_to_an_hour_or_60_seconds() {
    let hour = 60 * 60 * 1_000;
    let times = [
        (None, 60_000),
        (Some(3), 6_000),
        (Some(90), 180_000),
        (Some(0), 1_000),
        (Some(u32::MAX), hour),
    ];
    for (expiry, kept) in times {
        let mut rig = Rig::new();
        let mut request = rig.request("c", &set_if("k", "v", Condition::IfAbsent, 0));
        request.expiry = expiry;
        assert_eq!(rig.reply(&request).0, OK);
        rig.millis = kept - 1;
        assert_eq!(rig.reply(&request).0, OK);
        rig.millis = kept;
        assert_eq!(rig.reply(&request).0, r":-1\r\n", "{expiry:?}");
    }
}

/// A duplicate may arrive just before its expiry and then wait for the store as long again.
#[test]
fn duplicate_that_waited_in_a_queue_is_still_recognised() {
    let mut rig = Rig::new();
    let mut take = rig.request("c", &set_if("k", "v", Condition::IfAbsent, 0));
    take.expiry = Some(1);
    assert_eq!(rig.reply(&take).0, OK);
    rig.answer("d", &del("k"));
    (take.arrived, rig.millis) = (Some(Instant::from_millis(999)), 1_998);
    assert_eq!(rig.reply(&take).0, OK);
    assert_eq!(rig.answer("d", &get("k")), r"$-1\r\n", "it was not set again");
}

#[test]
fn deduplication_cache_evicts_the_oldest_beyond_its_entries_or_bytes() {
    let size = |rig: &Rig| rig.store.counters().duplicates();
    for limits in [
        StoreLimits { dedup_entries_max: 2, ..StoreLimits::default() },
        StoreLimits { dedup_bytes_max: 200, ..StoreLimits::default() },
    ] {
        let mut rig = Rig::limited(limits);
        let requests: Vec<_> = (0..3).map(|_| rig.request("c", &del("k"))).collect();
        requests.iter().for_each(|request| _ = rig.reply(request));
        rig.reply(&requests[1]);
        rig.reply(&requests[2]);
        assert_eq!(size(&rig), 2);
        rig.reply(&requests[0]);
        assert_eq!(size(&rig), 2, "the oldest entry was evicted");
    }
}

#[test]
fn client_that_floods_the_deduplication_cache_evicts_only_its_own_entries() {
    for limits in [
        StoreLimits { dedup_entries_max: 16, ..StoreLimits::default() },
        StoreLimits { dedup_bytes_max: 2_000, ..StoreLimits::default() },
    ] {
        let mut rig = Rig::limited(limits);
        rig.answer("w", &set("k", "old"));
        let del = rig.request("victim", &del("k"));
        assert_eq!(rig.reply(&del).0, r":1\r\n");
        let flood: Vec<_> = (0..1_000).map(|_| rig.request("flood", &stop("k"))).collect();
        flood.iter().for_each(|request| _ = rig.reply(request));
        rig.answer("w", &set("k", "new"));
        assert_eq!(rig.reply(&del).0, r":1\r\n");
        assert_eq!(rig.answer("w", &get("k")), r"$3\r\nnew\r\n", "not deleted by a duplicate");
        let repeated = rig.store.counters().duplicates();
        rig.reply(flood.last().unwrap());
        assert_eq!(rig.store.counters().duplicates(), repeated + 1);
        rig.reply(&flood[0]);
        assert_eq!(rig.store.counters().duplicates(), repeated + 1);
    }
}

#[test]
fn deduplication_cache_evicts_from_the_client_with_the_most_entries() {
    let mut rig = Rig::limited(StoreLimits { dedup_entries_max: 240, ..StoreLimits::default() });
    let mut request = |client: &str| {
        let request = rig.request(client, &stop("k"));
        rig.reply(&request);
        request
    };
    let flood: Vec<_> = (0..40).map(|_| request("flood")).collect();
    for n in 0..100 {
        request(&format!("other{n}"));
    }
    let rival: Vec<_> = (0..60).map(|_| request("rival")).collect();
    for _ in 0..40 {
        request("flood");
    }
    // The cache is full, and eighty entries are more than sixty.
    request("newcomer");
    rig.reply(&rival[0]);
    assert_eq!(rig.store.counters().duplicates(), 1);
    rig.reply(&flood[0]);
    assert_eq!(rig.store.counters().duplicates(), 1, "its first entry was evicted");
}

#[test]
fn deduplication_entry_counts_its_slot_in_addition_to_its_bytes() {
    let limits =
        StoreLimits { dedup_entries_max: 15, dedup_bytes_max: 150_000, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let mut request = |client: &str, topic: String| {
        let mut request = rig.request(client, &stop("k"));
        request.response_topic = Some(topic);
        rig.reply(&request);
        request
    };
    // A slot counts as 10,000 bytes: eight short replies are more than seven with 1,000 bytes each.
    let short: Vec<_> = (0..8).map(|_| request("short", "t".into())).collect();
    let long: Vec<_> = (0..7).map(|_| request("long", "t".repeat(1_000))).collect();
    request("newcomer", "t".into());
    rig.reply(&long[0]);
    assert_eq!(rig.store.counters().duplicates(), 1);
    rig.reply(&short[0]);
    assert_eq!(rig.store.counters().duplicates(), 1, "its first entry was evicted");
}

#[test]
fn acknowledgements_follow_their_replies_in_order_of_arrival() {
    let mut rig = Rig::new();
    let requests: Vec<_> = (0..3).map(|_| rig.request("c", &set("k", "v"))).collect();
    for request in &requests {
        request.submit_to(rig.now(), &mut rig.store);
    }
    let sent = Sent::drain(&mut rig.store);
    let answered = |request: &StoreRequest| {
        let is_answer = |sent: &Sent| match sent {
            Sent::Reply { correlation, .. } => *correlation == request.correlation,
            _ => false,
        };
        (
            sent.iter().position(is_answer).unwrap(),
            sent.iter()
                .position(|sent| *sent == Sent::Acknowledge(request.delivery.unwrap()))
                .unwrap(),
        )
    };
    let places: Vec<usize> =
        requests.iter().flat_map(|request| [answered(request).0, answered(request).1]).collect();
    assert_eq!(places, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn cached_reply_expires_on_time_even_behind_older_entries() {
    let mut rig = Rig::new();
    rig.answer("c", &set("old", "cached for a minute"));
    let mut request = rig.request("c", &del("k"));
    request.expiry = Some(1);
    assert_eq!(rig.answer("c", &set("k", "1")), OK);
    assert_eq!(rig.all(&request).1.0, r":1\r\n");
    assert_eq!(rig.answer("c", &set("k", "2")), OK);
    rig.millis += 1_999;
    request.arrived = Some(Instant::from_millis(rig.millis));
    assert_eq!(rig.all(&request).1.0, r":1\r\n", "the cached reply");
    assert_eq!(rig.answer("c", &get("k")), r"$1\r\n2\r\n");
    rig.millis += 1;
    request.arrived = Some(Instant::from_millis(rig.millis));
    assert_eq!(rig.all(&request).1.0, r":1\r\n", "executed again");
    assert_eq!(rig.answer("c", &get("k")), r"$-1\r\n");
}

/// Evictions leave the count of cached bytes exact.
#[test]
fn deduplication_cache_stays_within_its_bytes() {
    let limits = StoreLimits { dedup_bytes_max: 2_000, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let requests: Vec<_> = (0..200).map(|_| rig.request("c", &del("k"))).collect();
    requests.iter().for_each(|request| _ = rig.reply(request));
    requests.iter().rev().for_each(|request| _ = rig.reply(request));
    let repeated = rig.store.counters().duplicates();
    assert!((1..=40).contains(&repeated), "{repeated} are cached");
}

/// A store that restores these records when its monotonic clock starts.
pub(super) fn restarted(records: &[Record], limits: StoreLimits) -> Rig {
    let config = StoreConfig::new(8).limits(limits).durability(Durability::All);
    let mut rig = Rig::with(config);
    let now = rig.now();
    records.iter().for_each(|record| rig.store.restore(now, record));
    rig
}

/// Hands over a request, persists its records, and returns the reply.
pub(super) fn persisted(rig: &mut Rig, request: &StoreRequest, disk: &mut Vec<Record>) -> String {
    request.submit_to(rig.now(), &mut rig.store);
    while let Some(batch) = rig.store.poll_records() {
        disk.extend(batch.records);
        rig.store.handle_persisted(batch.id);
    }
    let sent = Sent::drain(&mut rig.store);
    let reply = sent.into_iter().find_map(|sent| match sent {
        Sent::Reply { payload, .. } => Some(payload),
        _ => None,
    });
    reply.expect("a reply")
}

#[test]
fn restored_responses_keep_their_age() {
    let mut disk = Vec::new();
    let mut rig = Rig::with(StoreConfig::new(7).durability(Durability::All));
    let old = rig.request("c", &set_if("old", "v", Condition::IfAbsent, 0));
    persisted(&mut rig, &old, &mut disk);
    rig.millis = 59_000;
    let young = rig.request("c", &set_if("young", "v", Condition::IfAbsent, 0));
    persisted(&mut rig, &young, &mut disk);
    let snapshot: Vec<Record> = rig.store.snapshot(rig.now()).collect();
    for records in [&disk, &snapshot] {
        // Responses are cached for a minute: one second is left for the old one, a minute for the
        // new.
        for (millis, first) in [(0, OK), (999, OK), (1_000, r":-1\r\n")] {
            let mut next = restarted(records, StoreLimits::default());
            next.millis = millis;
            assert_eq!(persisted(&mut next, &old, &mut Vec::new()), first, "{millis}");
            assert_eq!(persisted(&mut next, &young, &mut Vec::new()), OK, "{millis}");
        }
    }
}

#[test]
fn time_before_a_restore_does_not_age_restored_responses() {
    let mut disk = Vec::new();
    let mut rig = Rig::with(StoreConfig::new(7).durability(Durability::All));
    let take = rig.request("c", &set_if("k", "v", Condition::IfAbsent, 0));
    persisted(&mut rig, &take, &mut disk);
    let later = rig.request("c", &set("other", "v"));
    rig.millis = 30_000;
    persisted(&mut rig, &later, &mut disk);
    // The clock of a standby shows any time when it restores, and it restores in portions.
    for (first, second) in [(0, 0), (600_000, 600_000), (0, 600_000), (5_000, 3_600_000)] {
        let mut next = Rig::with(StoreConfig::new(8).durability(Durability::All));
        let (head, tail) = disk.split_at(2);
        for (millis, records) in [(first, head), (second, tail)] {
            next.millis = millis;
            records.iter().for_each(|record| next.store.restore(next.now(), record));
        }
        assert_eq!(persisted(&mut next, &take, &mut Vec::new()), OK, "at {first} and {second}");
        next.millis += 29_999;
        assert_eq!(persisted(&mut next, &take, &mut Vec::new()), OK, "at {first} and {second}");
        next.millis += 1;
        assert_eq!(persisted(&mut next, &take, &mut Vec::new()), r":-1\r\n", "after a minute");
    }
}

#[test]
fn duplicate_is_authorized_again() {
    let allows = Arc::new(AtomicBool::new(true));
    let policy = Arc::clone(&allows);
    let config = StoreConfig::new(7);
    let config = config.authorizer(move |_, _, _| policy.load(Ordering::Relaxed));
    let mut rig = Rig::with(config);
    let first = rig.request("c", &set_if("k", "v", Condition::IfAbsent, 0));
    assert_eq!(rig.reply(&first).0, OK);
    allows.store(false, Ordering::Relaxed);
    assert_eq!(rig.reply(&first), error("not authorized"));
    let refused = rig.request("c", &set_if("l", "v", Condition::IfAbsent, 0));
    assert_eq!(rig.reply(&refused), error("not authorized"));
    allows.store(true, Ordering::Relaxed);
    assert_eq!(rig.reply(&first).0, OK, "the first response");
    assert_eq!(rig.reply(&refused), error("not authorized"), "a refusal is a response too");
    assert_eq!(rig.store.len(), 1);
}
