//! Notifications without a subscriber: they silence the registration, but do not end it.

use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition};
use statestore_proto::store::{Durability, Principal, Record, Store, StoreConfig};
use statestore_proto::transport::{PublishToken, ReasonCode, Transmit};
use statestore_testkit::process::memory::live_bytes;

use super::durability::all_records;
use super::{OK, Rig, del, error, set, set_if, stop, watch};

const NOT_WATCHED: &str = r":0\r\n";
const DAY: u64 = 24 * 60 * 60 * 1_000;

fn quota() -> String {
    error("the quota has been exceeded").0
}

/// The same request under an unverified client id, as a store gets it from an external broker.
fn unverified(rig: &mut Rig, client: &str, command: &Command<&[u8]>) -> String {
    let mut request = rig.request(client, command);
    request.verified = None;
    rig.all(&request).1.0
}

/// Polls all packets; returns the tokens of the notifications.
fn tokens(store: &mut Store) -> Vec<PublishToken> {
    let sent = std::iter::from_fn(|| store.poll_transmit());
    let tokens = sent.filter_map(|transmit| match transmit {
        Transmit::Publish(publish) => publish.token,
        _ => None,
    });
    tokens.collect()
}

/// Writes a key; none of its notifications has a subscriber. Returns the number of notifications.
fn write_unheard(rig: &mut Rig, key: &str) -> usize {
    let request = rig.request("writer", &set(key, "v"));
    request.submit_to(rig.now(), &mut rig.store);
    let tokens = tokens(&mut rig.store);
    for token in &tokens {
        rig.store.handle(rig.now(), Input::Published(*token, ReasonCode::NO_MATCHING_SUBSCRIBERS));
    }
    tokens.len()
}

fn notified(rig: &mut Rig, key: &str) -> Vec<String> {
    rig.notified(&set(key, "v")).into_iter().map(|sent| sent.0).collect()
}

/// Registrations, silenced ones, and the counters of silenced and lost ones.
fn state(rig: &Rig) -> (usize, usize, u64, u64) {
    let counters = rig.store.counters();
    (
        rig.store.registrations(),
        rig.store.silenced_registrations(),
        counters.registrations_silenced,
        counters.registrations_lost,
    )
}

/// A client that acquires a lock, subscribes to another topic, and accepts only `+OK` for its STOP.
#[test]
fn stop_of_a_silenced_registration_gets_ok() {
    let mut rig = Rig::new();
    assert_eq!(unverified(&mut rig, "a", &watch("lock")), OK);
    let lock = rig.request("a", &set_if("lock", "a", Condition::IfAbsentOrEqual, 10_000));
    lock.submit_to(rig.now(), &mut rig.store);
    let unheard = tokens(&mut rig.store);
    assert_eq!(unheard.len(), 1);
    rig.store.handle(rig.now(), Input::Published(unheard[0], ReasonCode::NO_MATCHING_SUBSCRIBERS));
    assert_eq!(state(&rig), (1, 1, 1, 0));
    let end = rig.request("a", &stop("lock"));
    assert_eq!(rig.reply(&end).0, OK);
    assert_eq!(rig.reply(&end).0, OK, "a duplicate gets the same reply");
    assert_eq!(state(&rig), (0, 0, 1, 0));
    assert_eq!(unverified(&mut rig, "a", &stop("lock")), NOT_WATCHED);
}

#[test]
fn silenced_registration_is_not_notified_until_its_client_registers_again() {
    let mut rig = Rig::new();
    for (client, key) in [("a", "k"), ("b", "k"), ("a", "l")] {
        assert_eq!(rig.answer(client, &watch(key)), OK);
    }
    let request = rig.request("writer", &set("k", "v"));
    request.submit_to(rig.now(), &mut rig.store);
    let [of_a, of_b] = tokens(&mut rig.store)[..] else { panic!("two notifications") };
    rig.store.handle(rig.now(), Input::Published(of_a, ReasonCode::NO_MATCHING_SUBSCRIBERS));
    rig.store.handle(rig.now(), Input::Published(of_b, ReasonCode::SUCCESS));
    let before = rig.store.counters().notifications;
    assert_eq!(notified(&mut rig, "k"), ["b"]);
    assert_eq!(rig.store.counters().notifications, before + 1);
    assert_eq!(notified(&mut rig, "l"), ["a"], "only the registration without a subscriber");
    // Neither another failure nor a success of an earlier notification changes anything.
    for reason in [ReasonCode::NO_MATCHING_SUBSCRIBERS, ReasonCode::SUCCESS] {
        rig.store.handle(rig.now(), Input::Published(of_a, reason));
        assert_eq!((state(&rig), notified(&mut rig, "k")), ((3, 1, 1, 0), vec!["b".into()]));
    }
    assert_eq!(rig.answer("a", &watch("k")), OK);
    assert_eq!(
        (state(&rig), notified(&mut rig, "k")),
        ((3, 0, 1, 0), vec!["a".into(), "b".into()])
    );
    rig.store.handle(rig.now(), Input::Published(of_a, ReasonCode::NO_MATCHING_SUBSCRIBERS));
    assert_eq!(state(&rig), (3, 0, 1, 0), "a late PUBACK does not silence the renewed one");
    write_unheard(&mut rig, "k");
    assert_eq!(state(&rig), (3, 2, 3, 0));
    rig.store.handle(rig.now(), Input::ClientGone("a"));
    assert_eq!(state(&rig), (1, 1, 3, 2), "both registrations of the client end");
    assert_eq!(rig.answer("a", &stop("k")), NOT_WATCHED, "the client was known to be gone");
}

#[test]
fn expiries_and_deletions_do_not_notify_a_silenced_registration() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    assert_eq!(write_unheard(&mut rig, "k"), 1);
    assert_eq!(rig.notified(&del("k")), []);
    assert_eq!(rig.notified(&set_if("k", "v", Condition::Always, 100)), []);
    rig.millis = 100;
    assert_eq!((rig.timer(), rig.store.counters().notifications), (vec![], 1));
}

/// A burst of writes queues notifications before the broker reports a missing subscriber.
#[test]
fn queued_notifications_of_a_silenced_registration_are_dropped() {
    let mut rig = Rig::new();
    for client in ["a", "b"] {
        rig.answer(client, &watch("k"));
    }
    for value in ["1", "2", "3"] {
        let request = rig.request("writer", &set("k", value));
        request.submit_to(rig.now(), &mut rig.store);
    }
    let Some(Transmit::Publish(first)) = rig.store.poll_transmit() else {
        panic!("a notification")
    };
    let token = first.token.expect("a token");
    rig.store.handle(rig.now(), Input::Published(token, ReasonCode::NO_MATCHING_SUBSCRIBERS));
    let sent = Sent::drain(&mut rig.store);
    let clients = sent.iter().filter_map(|sent| match sent {
        Sent::Notification { client, .. } => Some(client.as_str()),
        _ => None,
    });
    assert_eq!(clients.collect::<Vec<_>>(), ["b"; 3]);
    assert_eq!((rig.store.waiting(), rig.store.waiting_bytes()), (0, 0));
    // The same for what is sent again on the next connection.
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    for value in ["1", "2", "3"] {
        let request = rig.request("writer", &set("k", value));
        request.submit_to(rig.now(), &mut rig.store);
    }
    let sent = tokens(&mut rig.store);
    rig.store.handle(rig.now(), Input::Published(sent[0], ReasonCode::NO_MATCHING_SUBSCRIBERS));
    rig.store.handle(rig.now(), Input::Connected { session_present: false });
    assert!(matches!(rig.store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    assert_eq!((rig.store.poll_transmit(), rig.store.waiting_bytes()), (None, 0));
    rig.answer("a", &watch("k"));
    assert_eq!(notified(&mut rig, "k"), ["a"]);
}

#[test]
fn silenced_registrations_are_evicted_first_the_oldest_first() {
    let limits = StoreLimits {
        registrations_max: 4,
        registrations_per_key_max: 2,
        ..StoreLimits::default()
    };
    let mut rig = Rig::limited(limits);
    for (client, key) in [("a", "k"), ("b", "k"), ("c", "l"), ("d", "m")] {
        assert_eq!(unverified(&mut rig, client, &watch(key)), OK);
    }
    assert_eq!(unverified(&mut rig, "new", &watch("n")), quota(), "a day has not passed");
    write_unheard(&mut rig, "m");
    write_unheard(&mut rig, "k");
    assert_eq!((unverified(&mut rig, "a", &watch("k")), state(&rig).1), (OK.into(), 2));
    // The key is full: its silenced registration is evicted, not the older one of another key.
    assert_eq!(unverified(&mut rig, "new", &watch("k")), OK);
    assert_eq!(
        (state(&rig), notified(&mut rig, "k")),
        ((4, 1, 3, 1), vec!["a".into(), "new".into()])
    );
    assert_eq!(unverified(&mut rig, "new", &watch("l")), OK);
    assert_eq!(state(&rig), (4, 0, 3, 2));
    assert_eq!(notified(&mut rig, "m"), [""; 0]);
    assert_eq!(notified(&mut rig, "l"), ["c", "new"], "no registration with a subscriber is lost");
    assert_eq!(unverified(&mut rig, "other", &watch("m")), quota());
    rig.millis = DAY;
    assert_eq!(unverified(&mut rig, "other", &watch("m")), OK, "the limit in time still applies");
}

#[test]
fn silenced_registration_of_a_verified_client_counts_and_is_evicted() {
    let limits =
        StoreLimits { registrations_max: 2, client_percent: 100, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    for key in ["k", "l"] {
        assert_eq!(rig.answer("a", &watch(key)), OK);
    }
    write_unheard(&mut rig, "l");
    assert_eq!(
        rig.store.usage_of(Principal::verified("a")).registrations,
        2,
        "it counts against the share"
    );
    assert_eq!(rig.answer("b", &watch("k")), OK);
    assert_eq!(rig.store.usage_of(Principal::verified("a")).registrations, 1);
    assert_eq!(rig.answer("b", &watch("l")), quota(), "others of verified clients are not evicted");
}

/// Other registrations of a client without a subscriber may be of topics that it subscribes to.
#[test]
fn unverified_client_without_a_subscriber_may_be_evicted_at_once() {
    for (sign, gives_way) in [("none", true), ("renewal", false), ("puback", false)] {
        let mut rig = Rig::limited(StoreLimits { registrations_max: 3, ..StoreLimits::default() });
        for (client, key) in [("gone", "k"), ("gone", "l"), ("here", "m")] {
            assert_eq!(unverified(&mut rig, client, &watch(key)), OK);
        }
        rig.millis = 1;
        write_unheard(&mut rig, "k");
        rig.millis = 2;
        match sign {
            "renewal" => assert_eq!(unverified(&mut rig, "gone", &watch("l")), OK),
            "puback" => {
                let request = rig.request("writer", &set("l", "v"));
                request.submit_to(rig.now(), &mut rig.store);
                for token in tokens(&mut rig.store) {
                    rig.store.handle(rig.now(), Input::Published(token, ReasonCode::SUCCESS));
                }
            }
            _ => {}
        }
        assert_eq!(unverified(&mut rig, "one", &watch("x")), OK, "instead of the silenced one");
        let expected = if gives_way { OK.into() } else { quota() };
        assert_eq!(unverified(&mut rig, "two", &watch("x")), expected, "{sign}");
        assert_eq!(notified(&mut rig, "m"), ["here"]);
    }
}

#[test]
fn silence_of_a_registration_has_no_record() {
    let mut rig =
        Rig::with(StoreConfig::new(7).durability(Durability::All).durable_registrations(true));
    let mut disk: Vec<Record> = Vec::new();
    let mut send = |rig: &mut Rig, request: &StoreRequest| {
        request.submit_to(rig.now(), &mut rig.store);
        while let Some(batch) = rig.store.poll_records() {
            disk.extend(batch.records);
            rig.store.handle_persisted(batch.id);
        }
        tokens(&mut rig.store)
    };
    let requests = [rig.request("a", &watch("k")), rig.request("w", &set("k", "v"))];
    let unheard: Vec<_> = requests.iter().flat_map(|request| send(&mut rig, request)).collect();
    rig.store.handle(rig.now(), Input::Published(unheard[0], ReasonCode::NO_MATCHING_SUBSCRIBERS));
    assert_eq!((rig.store.poll_records(), state(&rig)), (None, (1, 1, 1, 0)));
    let snapshot: Vec<Record> = rig.store.snapshot(rig.now()).collect();
    for records in [&disk, &snapshot] {
        let mut next = Rig::new();
        records.iter().for_each(|record| next.store.restore(next.now(), record));
        next.number = 100;
        assert_eq!(state(&next), (1, 0, 0, 0));
        assert_eq!((write_unheard(&mut next, "k"), write_unheard(&mut next, "k")), (1, 0));
        assert_eq!(next.answer("a", &stop("k")), OK);
    }
}

/// An eviction is recorded, so that the registration does not come back after a restart.
#[test]
fn eviction_of_a_silenced_registration_is_recorded() {
    let limits =
        StoreLimits { registrations_max: 1, client_percent: 100, ..StoreLimits::default() };
    let config = StoreConfig::new(7).limits(limits).durability(Durability::All);
    let mut rig = Rig::with(config.durable_registrations(true));
    let persist = |rig: &mut Rig, request: &StoreRequest| {
        request.submit_to(rig.now(), &mut rig.store);
        let (id, records) = all_records(rig);
        rig.store.handle_persisted(id);
        (tokens(&mut rig.store), records)
    };
    let requests = [
        rig.request("a", &watch("k")),
        rig.request("w", &set("k", "v")),
        rig.request("b", &watch("l")),
    ];
    persist(&mut rig, &requests[0]);
    let (unheard, _) = persist(&mut rig, &requests[1]);
    rig.store.handle(rig.now(), Input::Published(unheard[0], ReasonCode::NO_MATCHING_SUBSCRIBERS));
    let (_, records) = persist(&mut rig, &requests[2]);
    let ended = |record: &&Record| matches!(record, Record::Unregistered { client_id, .. } if &**client_id == "a");
    assert_eq!(records.iter().filter(ended).count(), 1, "{records:?}");
}

/// Clients that are gone without the store's knowledge, as with an external broker.
#[test]
fn ten_thousand_silenced_registrations_take_bounded_memory_and_are_evicted_first() {
    const COUNT: usize = 10_000;
    let limits = StoreLimits { registrations_max: COUNT, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let key = |number: usize| format!("key-{number:04}");
    // Bytes in use when no cached response counts.
    let in_use = |rig: &mut Rig| {
        for _ in 0..2 {
            rig.millis += 120_000;
            rig.answer("writer", &del("k"));
        }
        live_bytes()
    };
    let write_all =
        |rig: &mut Rig| (0..COUNT).map(|it| write_unheard(rig, &key(it))).sum::<usize>();
    // Twice, so that the cache of responses has its greatest size.
    (0..2).for_each(|_| _ = write_all(&mut rig));
    let empty = in_use(&mut rig);
    let mut peaks = Vec::new();
    for round in 0..4 {
        for number in 0..COUNT {
            let client = format!("{round}-{number:04}");
            assert_eq!(unverified(&mut rig, &client, &watch(&key(number))), OK);
        }
        assert_eq!(rig.store.registrations(), COUNT);
        assert_eq!(rig.store.silenced_registrations(), 0, "all silenced ones were evicted");
        assert_eq!(unverified(&mut rig, "one-more", &watch("k")), quota(), "and no other");
        let active = in_use(&mut rig) - empty;
        assert_eq!(write_all(&mut rig), COUNT);
        assert_eq!(rig.store.silenced_registrations(), COUNT);
        assert_eq!(write_all(&mut rig), 0, "nothing is published for them");
        let silenced = in_use(&mut rig) - empty;
        println!(
            "round {round}: {active} bytes for {COUNT} registrations, {silenced} when silenced"
        );
        assert!(silenced < active + 64 * 10_000, "{active} bytes before, {silenced} afterwards");
        peaks.push(silenced);
    }
    assert!(peaks[3] < peaks[1] + peaks[1] / 20, "it grows with each round: {peaks:?}");
    assert!(peaks[3] < 20_000_000, "{peaks:?}");
    assert_eq!(state(&rig), (COUNT, COUNT, 4 * COUNT as u64, 3 * COUNT as u64));
}
