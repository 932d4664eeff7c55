//! The share of one verified client, and the eviction of unverified registrations.

use core::time::Duration;

use statestore_models::machines::request::Sent;
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition};
use statestore_proto::store::{Durability, Principal, StoreConfig};
use statestore_proto::transport::{ReasonCode, Transmit};

use super::{OK, Rig, del, error, get, set, set_if, stop, vdel, watch};

const REMOVED: &str = r":1\r\n";

fn quota() -> String {
    error("the quota has been exceeded").0
}

/// The reply to a request from an unverified client.
fn unverified(rig: &mut Rig, client: &str, command: &Command<&[u8]>) -> String {
    let mut request = rig.request(client, command);
    request.verified = None;
    rig.all(&request).1.0
}

/// Keys, bytes, registrations and their bytes.
fn usage(rig: &Rig, client: &str) -> [usize; 4] {
    let usage = rig.store.usage_of(Principal::verified(client));
    [usage.keys, usage.bytes, usage.registrations, usage.registration_bytes]
}

#[test]
fn verified_client_may_use_only_its_share_of_keys() {
    let mut rig = Rig::limited(StoreLimits { keys_max: 5, ..StoreLimits::default() });
    for (client, command, expected) in [
        ("a", set("1", "v"), OK.into()),
        ("a", set("2", "v"), OK.into()),
        ("a", set("3", "v"), OK.into()),
        ("a", set("4", "v"), quota()),
        ("a", set("3", "a longer value"), OK.into()),
        ("b", set("4", "v"), OK.into()),
        ("a", set("4", "v"), quota()),
        ("b", set("3", "v"), OK.into()),
        ("a", set("5", "v"), OK.into()),
        ("a", vdel("5", "v"), REMOVED.into()),
        ("a", set_if("5", "v", Condition::IfAbsent, 10), OK.into()),
        ("a", set_if("6", "v", Condition::IfAbsent, 10), quota()),
        ("b", del("5"), REMOVED.into()),
        ("a", set("6", "v"), OK.into()),
    ] {
        assert_eq!(rig.answer(client, &command), expected, "{client} {command:?}");
    }
    assert_eq!((usage(&rig, "a"), usage(&rig, "b")), ([3, 6, 0, 0], [2, 4, 0, 0]));
}

#[test]
fn verified_client_may_use_only_its_share_of_bytes() {
    let mut rig = Rig::limited(StoreLimits { bytes_max: 19, ..StoreLimits::default() });
    for (client, command, expected) in [
        ("a", set("1", "12345678901"), quota()),
        ("a", set("1", "123456789"), OK.into()),
        ("a", set("2", ""), quota()),
        ("a", set("1", "12345678"), OK.into()),
        ("a", set("2", ""), OK.into()),
        ("a", set("1", "abcdefgh"), OK.into()),
        ("a", set("2", "1"), quota()),
        ("b", set("2", "12345678"), OK.into()),
        ("a", set("2", "1"), quota()),
        ("a", set("2", ""), OK.into()),
        ("a", set("2", "1"), quota()),
        ("a", set("1", ""), OK.into()),
        ("a", set("2", "12"), OK.into()),
    ] {
        assert_eq!(rig.answer(client, &command), expected, "{client} {command:?}");
        assert!(usage(&rig, client)[1] <= 10);
    }
    assert_eq!((usage(&rig, "a"), usage(&rig, "b")), ([2, 4, 0, 0], [0, 0, 0, 0]));
}

#[test]
fn verified_client_may_use_only_its_share_of_registrations() {
    let mut rig = Rig::limited(StoreLimits { registrations_max: 4, ..StoreLimits::default() });
    for (client, command, expected) in [
        ("a", watch("1"), OK.into()),
        ("a", watch("2"), OK.into()),
        ("a", watch("3"), quota()),
        ("a", watch("2"), OK.into()),
        ("b", watch("1"), OK.into()),
        ("b", watch("2"), OK.into()),
        ("c", watch("1"), quota()),
        ("a", stop("1"), OK.into()),
        ("a", watch("3"), OK.into()),
    ] {
        assert_eq!(rig.answer(client, &command), expected, "{client} {command:?}");
    }
    assert_eq!(usage(&rig, "a"), [0, 0, 2, 4]);
    rig.store.handle(rig.now(), Input::ClientGone("a"));
    assert_eq!(usage(&rig, "a"), [0; 4]);
    let mut rig =
        Rig::limited(StoreLimits { registration_bytes_max: 20, ..StoreLimits::default() });
    let long = "k".repeat(9);
    assert_eq!(rig.answer("a", &watch(&(long.clone() + "k"))), quota());
    assert_eq!(rig.answer("a", &watch(&long)), OK);
    assert_eq!(rig.answer("a", &watch("")), error("the key length is zero").0);
    assert_eq!(rig.answer("a", &watch("k")), quota());
    assert_eq!(rig.answer("b", &watch(&long)), OK);
}

#[test]
fn client_percent_is_rounded_up_and_100_is_unlimited() {
    for (client_percent, keys_max, mine) in
        [(0, 7, 0), (1, 7, 1), (50, 7, 4), (50, 1, 1), (99, 100, 99), (100, 7, 7), (255, 7, 7)]
    {
        let limits = StoreLimits { keys_max, client_percent, ..StoreLimits::default() };
        let mut rig = Rig::limited(limits);
        for key in 0..keys_max {
            let expected = if key < mine { OK.into() } else { quota() };
            let answer = rig.answer("a", &set(&key.to_string(), "v"));
            assert_eq!(answer, expected, "{key} of {keys_max} at {client_percent} %");
        }
    }
}

#[test]
fn unverified_client_id_has_no_share() {
    let limits = StoreLimits { keys_max: 4, registrations_max: 4, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    for key in ["1", "2", "3"] {
        assert_eq!(unverified(&mut rig, "a", &set(key, "v")), OK);
        assert_eq!(unverified(&mut rig, "a", &watch(key)), OK);
    }
    assert_eq!(usage(&rig, "a"), [0; 4], "and uses none of the verified client's share");
    assert_eq!(rig.answer("a", &set("4", "v")), OK);
    assert_eq!(rig.answer("a", &watch("1")), OK);
    assert_eq!(usage(&rig, "a"), [1, 2, 1, 2], "once renewed by the verified client, it counts");
    assert_eq!(unverified(&mut rig, "b", &set("4", "v")), OK);
    assert_eq!(usage(&rig, "a"), [0, 0, 1, 2]);
}

/// The reply to a request of a client that belongs to a user.
fn of_user(rig: &mut Rig, (client, user): (&str, &str), command: &Command<&[u8]>) -> String {
    let mut request = rig.request(client, command);
    request.owner = Some(user.into());
    rig.all(&request).1.0
}

#[test]
fn clients_of_one_user_share_its_quota() {
    let limits = StoreLimits { keys_max: 4, registrations_max: 4, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    for (client, command, expected) in [
        (("a-1", "a"), set("1", "v"), OK.into()),
        (("a-2", "a"), set("2", "v"), OK.into()),
        (("a-3", "a"), set("3", "v"), quota()),
        (("a-3", "a"), set("1", "w"), OK.into()),
        (("b-1", "b"), set("3", "v"), OK.into()),
        (("a-1", "a"), watch("1"), OK.into()),
        (("a-2", "a"), watch("1"), OK.into()),
        (("a-3", "a"), watch("1"), quota()),
        (("b-1", "b"), watch("1"), OK.into()),
        (("a-1", "a"), stop("1"), OK.into()),
        (("a-3", "a"), watch("1"), OK.into()),
    ] {
        assert_eq!(of_user(&mut rig, client, &command), expected, "{client:?} {command:?}");
    }
    let of = |owner| rig.store.usage_of(Principal::verified("any").with_owner(Some(owner)));
    assert_eq!((of("a").keys, of("a").registrations), (2, 2));
    assert_eq!((of("b").keys, of("b").registrations), (1, 1));
    // A client that is named like a user has its own quota.
    assert_eq!(usage(&rig, "a"), [0; 4]);
    rig.store.handle(rig.now(), Input::ClientGone("a-2"));
    let user = Principal::verified("any").with_owner(Some("a"));
    assert_eq!(rig.store.usage_of(user).registrations, 1);
}

#[test]
fn expiry_frees_the_share_and_a_refused_write_uses_none() {
    let mut rig = Rig::limited(StoreLimits { keys_max: 2, ..StoreLimits::default() });
    assert_eq!(rig.answer("a", &set_if("1", "v", Condition::Always, 100)), OK);
    assert_eq!(rig.answer("a", &set("2", "v")), quota());
    assert_eq!(rig.answer("a", &set_if("1", "w", Condition::IfAbsent, 0)), r":-1\r\n");
    assert_eq!(usage(&rig, "a"), [1, 2, 0, 0]);
    rig.millis = 100;
    assert_eq!(rig.answer("a", &set("2", "v")), OK, "expired values do not count");
    assert_eq!(rig.answer("b", &get("1")), r"$-1\r\n");
    assert_eq!(usage(&rig, "a"), [1, 2, 0, 0]);
}

#[test]
fn restored_value_counts_for_no_client_until_it_is_written() {
    let limits = StoreLimits { keys_max: 4, ..StoreLimits::default() };
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    for key in ["1", "2"] {
        let request = rig.request("a", &set(key, "v"));
        request.submit_to(rig.now(), &mut rig.store);
    }
    let records = rig.store.poll_records().unwrap().records;
    let mut rig = Rig::limited(limits);
    records.iter().for_each(|record| rig.store.restore(rig.now(), record));
    assert_eq!((rig.store.len(), usage(&rig, "a")), (2, [0; 4]));
    for (command, expected) in [
        (set("3", "v"), OK.into()),
        (set("4", "v"), OK.into()),
        (set("5", "v"), quota()),
        (set("1", "longer"), OK.into()),
        (set("2", "w"), OK.into()),
        (del("1"), REMOVED.into()),
        (set("5", "v"), quota()),
        (del("2"), REMOVED.into()),
        (del("3"), REMOVED.into()),
        (set("5", "v"), OK.into()),
    ] {
        assert_eq!(rig.answer("a", &command), expected, "{command:?}");
    }
    let limits = StoreLimits { bytes_max: 10, ..limits };
    let mut rig = Rig::limited(limits);
    records.iter().for_each(|record| rig.store.restore(rig.now(), record));
    for (key, value, expected) in [
        ("3", "vwx", OK.into()),
        ("1", "vw", quota()),
        ("1", "w", OK.into()),
        ("1", "vw", quota()),
        ("1", "v", OK.into()),
    ] {
        assert_eq!(rig.answer("a", &set(key, value)), expected, "{key} {value}");
    }
    assert_eq!(usage(&rig, "a"), [2, 6, 0, 0]);
}

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// Writes a key and acknowledges its notifications with `reason`.
fn publish(rig: &mut Rig, key: &str, reason: ReasonCode) {
    let request = rig.request("writer", &set(key, "v"));
    request.submit_to(rig.now(), &mut rig.store);
    while let Some(transmit) = rig.store.poll_transmit() {
        if let Transmit::Publish(publish) = transmit
            && let Some(token) = publish.token
        {
            rig.store.handle(rig.now(), Input::Published(token, reason));
        }
    }
}

#[test]
fn unverified_registrations_silent_for_a_day_are_evicted_when_full() {
    let mut rig = Rig::limited(StoreLimits { registrations_max: 3, ..StoreLimits::default() });
    for (millis, client, key) in [(0, "quiet", "k"), (1, "quiet", "l"), (2, "later", "k")] {
        rig.millis = millis;
        assert_eq!(unverified(&mut rig, client, &watch(key)), OK);
    }
    rig.millis = DAY;
    assert_eq!(unverified(&mut rig, "new", &watch("k")), quota(), "less than a day");
    assert_eq!((rig.store.registrations(), rig.timer().len()), (3, 0), "no timer ends them");
    rig.millis = 1 + DAY;
    assert_eq!(rig.answer("later", &watch("k")), OK, "a renewal evicts nothing");
    assert_eq!(rig.store.registrations(), 3);
    assert_eq!(unverified(&mut rig, "new", &watch("k")), OK);
    assert_eq!((rig.store.registrations(), rig.store.counters().registrations_lost), (2, 2));
    let sent: Vec<_> = rig.notified(&set("k", "v")).into_iter().map(|sent| sent.0).collect();
    assert_eq!(sent, ["later", "new"], "all of the evicted client, none of others");
}

#[test]
fn full_key_evicts_only_registrations_for_this_key() {
    let limits = StoreLimits { registrations_per_key_max: 1, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    for key in ["k", "l"] {
        assert_eq!(unverified(&mut rig, "quiet", &watch(key)), OK);
    }
    rig.millis = DAY;
    assert_eq!(unverified(&mut rig, "new", &watch("k")), OK);
    let watchers = |rig: &mut Rig, key| -> Vec<String> {
        rig.notified(&set(key, "v")).into_iter().map(|sent| sent.0).collect()
    };
    assert_eq!(watchers(&mut rig, "k"), ["new"]);
    assert_eq!(watchers(&mut rig, "l"), ["quiet"]);
}

#[test]
fn at_most_64_registrations_of_a_client_are_evicted_for_one_keynotify() {
    const MADE: usize = 100;
    let mut rig = Rig::limited(StoreLimits { registrations_max: MADE, ..StoreLimits::default() });
    for number in 0..MADE {
        assert_eq!(unverified(&mut rig, "quiet", &watch(&format!("k{number}"))), OK);
    }
    rig.millis = DAY;
    assert_eq!(unverified(&mut rig, "new", &watch("k")), OK);
    let lost = rig.store.counters().registrations_lost;
    assert_eq!((rig.store.registrations(), lost), (MADE - 64 + 1, 64));
}

#[test]
fn verified_registration_is_never_evicted() {
    let limits =
        StoreLimits { registrations_max: 1, client_percent: 100, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    assert_eq!(rig.answer("a", &watch("k")), OK);
    rig.millis = 10 * DAY;
    assert_eq!(unverified(&mut rig, "b", &watch("k")), quota());
    assert_eq!(rig.answer("b", &watch("k")), quota());
}

#[test]
fn renewal_or_delivered_notification_protects_from_eviction() {
    for (sign, gives_way) in
        [("none", true), ("renewal", false), ("puback", false), ("refused puback", true)]
    {
        let mut rig = Rig::limited(StoreLimits { registrations_max: 2, ..StoreLimits::default() });
        for key in ["k", "l"] {
            assert_eq!(unverified(&mut rig, "listener", &watch(key)), OK);
        }
        rig.millis = 1;
        match sign {
            "renewal" => assert_eq!(unverified(&mut rig, "listener", &watch("k")), OK),
            "puback" => publish(&mut rig, "k", ReasonCode::SUCCESS),
            "refused puback" => publish(&mut rig, "k", ReasonCode::NOT_AUTHORIZED),
            _ => {}
        }
        rig.millis = DAY;
        let expected = if gives_way { OK.into() } else { quota() };
        assert_eq!(unverified(&mut rig, "new", &watch("k")), expected, "{sign}");
    }
}

/// An expiry is notified without a request; its PUBACK counts from the time of the timer.
#[test]
fn delivered_expiry_notification_protects_from_eviction() {
    let mut rig = Rig::limited(StoreLimits { registrations_max: 1, ..StoreLimits::default() });
    assert_eq!(unverified(&mut rig, "listener", &watch("k")), OK);
    assert_eq!(rig.answer("w", &set_if("k", "v", Condition::Always, DAY)), OK);
    rig.millis = DAY;
    rig.store.handle(rig.now(), Input::Timeout);
    let Some(Transmit::Publish(publish)) = rig.store.poll_transmit() else {
        panic!("no notification")
    };
    rig.store.handle(rig.now(), Input::Published(publish.token.unwrap(), ReasonCode::SUCCESS));
    rig.millis = 2 * DAY - 1;
    assert_eq!(unverified(&mut rig, "new", &watch("k")), quota());
    rig.millis = 2 * DAY;
    assert_eq!(unverified(&mut rig, "new", &watch("k")), OK);
}

#[test]
fn full_key_evicts_its_oldest_unverified_registration() {
    let limits = StoreLimits {
        registrations_per_key_max: 2,
        unverified_registrations_kept: Duration::from_secs(1),
        ..StoreLimits::default()
    };
    let mut rig = Rig::limited(limits);
    for (client, key) in [("b", "k"), ("a", "k"), ("older", "elsewhere"), ("b", "elsewhere")] {
        assert_eq!(unverified(&mut rig, client, &watch(key)), OK);
        rig.millis += 10;
    }
    rig.millis = 1_009;
    assert_eq!(rig.answer("new", &watch("k")), quota());
    rig.millis = 1_010;
    assert_eq!(rig.answer("new", &watch("k")), OK);
    let sent: Vec<_> = rig.notified(&set("k", "v")).into_iter().map(|sent| sent.0).collect();
    assert_eq!(sent, ["b", "new"], "only the oldest registration for this key is evicted");
    assert_eq!(rig.store.registrations(), 4, "an older one for another key stays");
}

#[test]
fn refused_registration_evicts_nothing() {
    let limits = StoreLimits {
        registrations_max: 2,
        key_bytes_max: 4,
        client_percent: 50,
        ..StoreLimits::default()
    };
    let mut rig = Rig::limited(limits);
    assert_eq!(unverified(&mut rig, "quiet", &watch("k")), OK);
    assert_eq!(rig.answer("a", &watch("k")), OK);
    rig.millis = 2 * DAY;
    assert_eq!(rig.answer("a", &watch("more")), quota(), "its share is full");
    assert_eq!(rig.answer("b", &watch("too long")), quota());
    assert_eq!(rig.store.registrations(), 2);
    assert_eq!(
        unverified(&mut rig, "quiet", &watch("l")),
        quota(),
        "the requester is not evicted either"
    );
    let sent = Sent::drain(&mut rig.store);
    assert_eq!((rig.store.registrations(), sent), (2, vec![]));
}
