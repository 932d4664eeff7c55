//! What one client may hold, where somebody vouches for its name, and how long registrations last where nobody does.

use core::time::Duration;

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Condition};
use statestore_proto::mqtt::{ReasonCode, Transmit};
use statestore_proto::store::{Durability, StoreConfig};
use statestore_tests::ask::Told;

use super::{OK, Rig, del, error, get, set, set_if, stop, vdel, watch};

const REMOVED: &str = r":1\r\n";

fn quota() -> String {
    error("the quota has been exceeded").0
}

/// The answer to a request in a name that nobody vouches for.
fn claimed(rig: &mut Rig, client: &str, command: &Command<&[u8]>) -> String {
    let mut ask = rig.ask(client, command);
    ask.verified = None;
    rig.all(&ask).1.0
}

/// Keys, bytes, registrations and their bytes.
fn held(rig: &Rig, client: &str) -> [usize; 4] {
    let held = rig.store.held_by(client);
    [held.keys, held.bytes, held.watches, held.watch_bytes]
}

#[test]
fn one_verified_client_leaves_keys_to_others() {
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
    assert_eq!((held(&rig, "a"), held(&rig, "b")), ([3, 6, 0, 0], [2, 4, 0, 0]));
}

#[test]
fn one_verified_client_leaves_bytes_to_others() {
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
        assert!(held(&rig, client)[1] <= 10);
    }
    assert_eq!((held(&rig, "a"), held(&rig, "b")), ([2, 4, 0, 0], [0, 0, 0, 0]));
}

#[test]
fn one_verified_client_leaves_registrations_to_others() {
    let mut rig = Rig::limited(StoreLimits { watches_max: 4, ..StoreLimits::default() });
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
    assert_eq!(held(&rig, "a"), [0, 0, 2, 4]);
    rig.store.handle_client_gone("a");
    assert_eq!(held(&rig, "a"), [0; 4]);
    let mut rig = Rig::limited(StoreLimits { watch_bytes_max: 20, ..StoreLimits::default() });
    let long = "k".repeat(9);
    assert_eq!(rig.answer("a", &watch(&(long.clone() + "k"))), quota());
    assert_eq!(rig.answer("a", &watch(&long)), OK);
    assert_eq!(rig.answer("a", &watch("")), error("the key length is zero").0);
    assert_eq!(rig.answer("a", &watch("k")), quota());
    assert_eq!(rig.answer("b", &watch(&long)), OK);
}

#[test]
fn a_percentage_is_rounded_up_and_a_hundred_is_no_share() {
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
fn a_name_that_is_only_claimed_has_no_share() {
    let limits = StoreLimits { keys_max: 4, watches_max: 4, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    for key in ["1", "2", "3"] {
        assert_eq!(claimed(&mut rig, "a", &set(key, "v")), OK);
        assert_eq!(claimed(&mut rig, "a", &watch(key)), OK);
    }
    assert_eq!(held(&rig, "a"), [0; 4], "and takes none of who has the name");
    assert_eq!(rig.answer("a", &set("4", "v")), OK);
    assert_eq!(rig.answer("a", &watch("1")), OK);
    assert_eq!(held(&rig, "a"), [1, 2, 1, 2], "renewed by who has the name, it counts");
    assert_eq!(claimed(&mut rig, "b", &set("4", "v")), OK);
    assert_eq!(held(&rig, "a"), [0, 0, 1, 2]);
}

#[test]
fn a_value_that_expires_is_given_back_and_a_refused_write_takes_nothing() {
    let mut rig = Rig::limited(StoreLimits { keys_max: 2, ..StoreLimits::default() });
    assert_eq!(rig.answer("a", &set_if("1", "v", Condition::Always, 100)), OK);
    assert_eq!(rig.answer("a", &set("2", "v")), quota());
    assert_eq!(rig.answer("a", &set_if("1", "w", Condition::IfAbsent, 0)), r":-1\r\n");
    assert_eq!(held(&rig, "a"), [1, 2, 0, 0]);
    rig.millis = 100;
    assert_eq!(rig.answer("a", &set("2", "v")), OK, "what has expired takes none of a share");
    assert_eq!(rig.answer("b", &get("1")), r"$-1\r\n");
    assert_eq!(held(&rig, "a"), [1, 2, 0, 0]);
}

#[test]
fn a_restored_value_is_of_nobodys_share_until_it_is_written() {
    let limits = StoreLimits { keys_max: 4, ..StoreLimits::default() };
    let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
    for key in ["1", "2"] {
        let ask = rig.ask("a", &set(key, "v"));
        ask.hand_to(rig.now(), &mut rig.store);
    }
    let records = rig.store.poll_records().unwrap().records;
    let mut rig = Rig::limited(limits);
    records.iter().for_each(|record| rig.store.restore(rig.now(), record));
    assert_eq!((rig.store.len(), held(&rig, "a")), (2, [0; 4]));
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
    assert_eq!(held(&rig, "a"), [2, 6, 0, 0]);
}

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// The tokens of the notifications that the next write causes.
fn publish(rig: &mut Rig, key: &str, reason: ReasonCode) {
    let ask = rig.ask("writer", &set(key, "v"));
    ask.hand_to(rig.now(), &mut rig.store);
    while let Some(transmit) = rig.store.poll_transmit() {
        if let Transmit::Publish(publish) = transmit
            && let Some(token) = publish.token
        {
            rig.store.handle_published(token, reason);
        }
    }
}

#[test]
fn claimed_registrations_give_way_where_there_is_no_room_and_a_day_has_passed() {
    let mut rig = Rig::limited(StoreLimits { watches_max: 3, ..StoreLimits::default() });
    for (millis, client, key) in [(0, "quiet", "k"), (1, "quiet", "l"), (2, "later", "k")] {
        rig.millis = millis;
        assert_eq!(claimed(&mut rig, client, &watch(key)), OK);
    }
    rig.millis = DAY;
    assert_eq!(claimed(&mut rig, "new", &watch("k")), quota(), "not a whole day");
    assert_eq!((rig.store.watches(), rig.timer().len()), (3, 0), "and no timer ends them");
    rig.millis = 1 + DAY;
    assert_eq!(rig.answer("later", &watch("k")), OK, "a renewal takes nobody's place");
    assert_eq!(rig.store.watches(), 3);
    assert_eq!(claimed(&mut rig, "new", &watch("k")), OK);
    assert_eq!((rig.store.watches(), rig.store.counters().watches_lost), (2, 2));
    let told: Vec<_> = rig.notified(&set("k", "v")).into_iter().map(|told| told.0).collect();
    assert_eq!(told, ["later", "new"], "all of the one that is gone, and nothing of others");
}

#[test]
fn a_verified_registration_never_gives_way() {
    let limits = StoreLimits { watches_max: 1, client_percent: 100, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    assert_eq!(rig.answer("a", &watch("k")), OK);
    rig.millis = 10 * DAY;
    assert_eq!(claimed(&mut rig, "b", &watch("k")), quota());
    assert_eq!(rig.answer("b", &watch("k")), quota());
}

#[test]
fn a_sign_of_life_is_a_renewal_or_a_notification_that_arrived() {
    for (sign, gives_way) in
        [("none", true), ("renewal", false), ("puback", false), ("refused puback", true)]
    {
        let mut rig = Rig::limited(StoreLimits { watches_max: 2, ..StoreLimits::default() });
        for key in ["k", "l"] {
            assert_eq!(claimed(&mut rig, "listener", &watch(key)), OK);
        }
        rig.millis = 1;
        match sign {
            "renewal" => assert_eq!(claimed(&mut rig, "listener", &watch("k")), OK),
            "puback" => publish(&mut rig, "k", ReasonCode::SUCCESS),
            "refused puback" => publish(&mut rig, "k", ReasonCode::NOT_AUTHORIZED),
            _ => {}
        }
        rig.millis = DAY;
        let expected = if gives_way { OK.into() } else { quota() };
        assert_eq!(claimed(&mut rig, "new", &watch("k")), expected, "{sign}");
    }
}

/// A value that expires is told without a request; the PUBACK of that counts from then.
#[test]
fn what_a_timer_tells_is_a_sign_of_life_at_its_time() {
    let mut rig = Rig::limited(StoreLimits { watches_max: 1, ..StoreLimits::default() });
    assert_eq!(claimed(&mut rig, "listener", &watch("k")), OK);
    assert_eq!(rig.answer("w", &set_if("k", "v", Condition::Always, DAY)), OK);
    rig.millis = DAY;
    rig.store.handle_timeout(rig.now());
    let Some(Transmit::Publish(publish)) = rig.store.poll_transmit() else { panic!("it is told") };
    rig.store.handle_published(publish.token.unwrap(), ReasonCode::SUCCESS);
    rig.millis = 2 * DAY - 1;
    assert_eq!(claimed(&mut rig, "new", &watch("k")), quota());
    rig.millis = 2 * DAY;
    assert_eq!(claimed(&mut rig, "new", &watch("k")), OK);
}

#[test]
fn a_key_that_the_gone_crowd_makes_room_for_others() {
    let limits = StoreLimits {
        watches_per_key_max: 2,
        claimed_watches_kept: Duration::from_secs(1),
        ..StoreLimits::default()
    };
    let mut rig = Rig::limited(limits);
    for (client, key) in [("b", "k"), ("a", "k"), ("older", "elsewhere"), ("b", "elsewhere")] {
        assert_eq!(claimed(&mut rig, client, &watch(key)), OK);
        rig.millis += 10;
    }
    rig.millis = 1_009;
    assert_eq!(rig.answer("new", &watch("k")), quota());
    rig.millis = 1_010;
    assert_eq!(rig.answer("new", &watch("k")), OK);
    let told: Vec<_> = rig.notified(&set("k", "v")).into_iter().map(|told| told.0).collect();
    assert_eq!(told, ["b", "new"], "only the oldest of this key");
    assert_eq!(rig.store.watches(), 4, "though others elsewhere are older");
}

#[test]
fn nobody_gives_way_to_what_is_refused_anyway() {
    let limits = StoreLimits {
        watches_max: 2,
        key_bytes_max: 4,
        client_percent: 50,
        ..StoreLimits::default()
    };
    let mut rig = Rig::limited(limits);
    assert_eq!(claimed(&mut rig, "quiet", &watch("k")), OK);
    assert_eq!(rig.answer("a", &watch("k")), OK);
    rig.millis = 2 * DAY;
    assert_eq!(rig.answer("a", &watch("more")), quota(), "it has its share");
    assert_eq!(rig.answer("b", &watch("too long")), quota());
    assert_eq!(rig.store.watches(), 2);
    assert_eq!(claimed(&mut rig, "quiet", &watch("l")), quota(), "nor does who asks");
    let told = Told::drain(&mut rig.store);
    assert_eq!((rig.store.watches(), told), (2, vec![]));
}
