//! Section 11: what is delivered again is answered again, and done once.

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::Condition;
use statestore_proto::mqtt::{ReasonCode, Transmit};
use statestore_proto::time::Instant;
use statestore_tests::ask::Told;

use super::{OK, Rig, del, error, get, set, set_if, stop, version, watch};

#[test]
fn a_duplicate_gets_the_first_answer_and_has_no_effect() {
    let mut rig = Rig::new();
    rig.answer("a", &watch("k"));
    let take = rig.ask("c", &set_if("k", "v", Condition::IfAbsent, 0));
    let (told, first) = rig.all(&take);
    assert_eq!((told.len(), &first), (1, &(OK.into(), Some(version(0, 1)))));
    rig.notified(&set("k", "w"));
    assert_eq!(rig.reply(&take), first, "byte for byte, whatever happened since");
    let remove = rig.ask("c", &del("k"));
    let (told, first) = rig.all(&remove);
    assert_eq!((told.len(), first.0.as_str()), (1, r":1\r\n"));
    rig.notified(&set("k", "x"));
    assert_eq!(rig.reply(&remove), first);
    assert_eq!(rig.answer("c", &get("k")), r"$1\r\nx\r\n");
    assert_eq!(rig.store.counters().repeated(), 2);
}

#[test]
fn reads_are_read_again() {
    let mut rig = Rig::new();
    let read = rig.ask("a", &get("k"));
    assert_eq!(rig.reply(&read).0, r"$-1\r\n");
    rig.answer("c", &set("k", "v"));
    assert_eq!(rig.reply(&read).0, r"$1\r\nv\r\n");
}

#[test]
fn who_is_told_that_it_watches_does() {
    type End = fn(&mut Rig);
    let gone: End = |rig| rig.store.handle_client_gone("a");
    let undeliverable: End = |rig| {
        let ask = rig.ask("w", &set("k", "v"));
        ask.hand_to(rig.now(), &mut rig.store);
        let tokens = std::iter::from_fn(|| rig.store.poll_transmit());
        let tokens = tokens.filter_map(|transmit| match transmit {
            Transmit::Publish(publish) => publish.token,
            _ => None,
        });
        let tokens: Vec<_> = tokens.collect();
        rig.store.handle_published(tokens[0], ReasonCode::NO_MATCHING_SUBSCRIBERS);
    };
    for end in [gone, undeliverable] {
        let mut rig = Rig::new();
        let start = rig.ask("a", &watch("k"));
        assert_eq!(rig.reply(&start).0, OK);
        end(&mut rig);
        assert_eq!(rig.store.watches(), 0);
        // The client connects again with its session and sends what was not acknowledged.
        assert_eq!(rig.reply(&start).0, OK);
        assert_eq!(rig.store.watches(), 1);
        assert_eq!(rig.notified(&set("k", "w")).len(), 1);
    }
}

/// A client sends again what was not acknowledged, in order: the tail of what it sent.
#[test]
fn registrations_stand_as_the_last_request_left_them() {
    let mut rig = Rig::new();
    let (start, end) = (rig.ask("a", &watch("k")), rig.ask("a", &stop("k")));
    assert_eq!((rig.reply(&start).0.as_str(), rig.reply(&end).0.as_str()), (OK, OK));
    assert_eq!((rig.reply(&start).0.as_str(), rig.store.watches()), (OK, 1));
    assert_eq!((rig.reply(&end).0.as_str(), rig.store.watches()), (OK, 0));
    let anew = rig.ask("a", &watch("k"));
    assert_eq!((rig.reply(&anew).0.as_str(), rig.store.watches()), (OK, 1));
    assert_eq!(rig.reply(&end).0, OK);
    assert_eq!(rig.store.watches(), 1, "a STOP ends nothing that was asked for after it");
    assert_eq!(rig.reply(&start).0, OK);
    assert_eq!(rig.reply(&anew).0, OK);
    assert_eq!(rig.store.watches(), 1);
    assert_eq!(rig.answer("a", &stop("k")), OK);
    assert_eq!(rig.answer("a", &stop("k")), r":0\r\n");
}

#[test]
fn refusals_are_remembered_too() {
    let limits = StoreLimits { keys_max: 0, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let ask = rig.ask("c", &set("k", "v"));
    let refused = rig.reply(&ask);
    assert_eq!(refused, error("the quota has been exceeded"));
    assert_eq!((rig.reply(&ask), rig.store.counters().repeated()), (refused, 1));
}

/// Scripts that always send the same correlation data are not deployed clients, and are served all the same.
#[test]
fn another_request_with_the_same_correlation_data_is_no_duplicate() {
    let mut rig = Rig::new();
    let first = rig.ask("c", &set("k", "v"));
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
    assert_eq!(rig.reply(&first), (OK.into(), Some(version(0, 1))), "and is still a duplicate");
}

#[test]
fn requester_topic_and_correlation_together_name_a_request() {
    let mut rig = Rig::new();
    let ask = rig.ask("c", &del("k"));
    rig.reply(&ask);
    let mut others = [ask.clone(), ask.clone(), ask.clone()];
    others[0].verified = Some("d".into());
    others[1].response_topic = Some("elsewhere".into());
    others[2].correlation = Some(vec![1]);
    for other in others {
        rig.answer("w", &set("k", "v"));
        assert_eq!(rig.reply(&other).0, r":1\r\n", "{other:?} was taken for a duplicate");
    }
}

#[test]
fn an_answer_is_kept_as_long_as_its_request_may_come_again() {
    let times = [(None, 60_000), (Some(3), 6_000), (Some(90), 180_000), (Some(0), 1_000)];
    for (expiry, kept) in times {
        let mut rig = Rig::new();
        let mut ask = rig.ask("c", &set_if("k", "v", Condition::IfAbsent, 0));
        ask.expiry = expiry;
        assert_eq!(rig.reply(&ask).0, OK);
        rig.millis = kept - 1;
        assert_eq!(rig.reply(&ask).0, OK);
        rig.millis = kept;
        assert_eq!(rig.reply(&ask).0, r":-1\r\n", "{expiry:?}");
    }
}

/// It arrives before its time is over and then waits for the store for as long once more.
#[test]
fn a_duplicate_that_waited_is_one_still() {
    let mut rig = Rig::new();
    let mut take = rig.ask("c", &set_if("k", "v", Condition::IfAbsent, 0));
    take.expiry = Some(1);
    assert_eq!(rig.reply(&take).0, OK);
    rig.answer("d", &del("k"));
    (take.arrived, rig.millis) = (Some(Instant::from_millis(999)), 1_998);
    assert_eq!(rig.reply(&take).0, OK);
    assert_eq!(rig.answer("d", &get("k")), r"$-1\r\n", "it was not set again");
}

#[test]
fn the_cache_is_bounded_by_count_and_bytes() {
    let size = |rig: &Rig| rig.store.counters().repeated();
    for limits in [
        StoreLimits { replies_max: 2, ..StoreLimits::default() },
        StoreLimits { reply_bytes_max: 200, ..StoreLimits::default() },
    ] {
        let mut rig = Rig::limited(limits);
        let asks: Vec<_> = (0..3).map(|_| rig.ask("c", &del("k"))).collect();
        asks.iter().for_each(|ask| _ = rig.reply(ask));
        rig.reply(&asks[1]);
        rig.reply(&asks[2]);
        assert_eq!(size(&rig), 2);
        rig.reply(&asks[0]);
        assert_eq!(size(&rig), 2, "the oldest was forgotten");
    }
}

#[test]
fn whoever_floods_the_cache_forgets_its_own_answers() {
    for limits in [
        StoreLimits { replies_max: 16, ..StoreLimits::default() },
        StoreLimits { reply_bytes_max: 2_000, ..StoreLimits::default() },
    ] {
        let mut rig = Rig::limited(limits);
        rig.answer("w", &set("k", "old"));
        let del = rig.ask("victim", &del("k"));
        assert_eq!(rig.reply(&del).0, r":1\r\n");
        let flood: Vec<_> = (0..1_000).map(|_| rig.ask("flood", &stop("k"))).collect();
        flood.iter().for_each(|ask| _ = rig.reply(ask));
        rig.answer("w", &set("k", "new"));
        assert_eq!(rig.reply(&del).0, r":1\r\n");
        assert_eq!(rig.answer("w", &get("k")), r"$3\r\nnew\r\n", "not deleted by a duplicate");
        let repeated = rig.store.counters().repeated();
        rig.reply(flood.last().unwrap());
        assert_eq!(rig.store.counters().repeated(), repeated + 1);
        rig.reply(&flood[0]);
        assert_eq!(rig.store.counters().repeated(), repeated + 1);
    }
}

#[test]
fn whoever_floods_the_cache_is_known_among_many() {
    let mut rig = Rig::limited(StoreLimits { replies_max: 240, ..StoreLimits::default() });
    let mut ask = |client: &str| {
        let ask = rig.ask(client, &stop("k"));
        rig.reply(&ask);
        ask
    };
    let flood: Vec<_> = (0..40).map(|_| ask("flood")).collect();
    for n in 0..100 {
        ask(&format!("other{n}"));
    }
    let rival: Vec<_> = (0..60).map(|_| ask("rival")).collect();
    for _ in 0..40 {
        ask("flood");
    }
    // There is room for no other, and eighty are more than sixty.
    ask("newcomer");
    rig.reply(&rival[0]);
    assert_eq!(rig.store.counters().repeated(), 1);
    rig.reply(&flood[0]);
    assert_eq!(rig.store.counters().repeated(), 1, "that was forgotten");
}

#[test]
fn an_answer_takes_a_place_beside_its_bytes() {
    let limits =
        StoreLimits { replies_max: 15, reply_bytes_max: 150_000, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let mut ask = |client: &str, topic: String| {
        let mut ask = rig.ask(client, &stop("k"));
        ask.response_topic = Some(topic);
        rig.reply(&ask);
        ask
    };
    // Ten thousand bytes are as much as a place: eight short answers are more than seven of a thousand bytes.
    let short: Vec<_> = (0..8).map(|_| ask("short", "t".into())).collect();
    let long: Vec<_> = (0..7).map(|_| ask("long", "t".repeat(1_000))).collect();
    ask("newcomer", "t".into());
    rig.reply(&long[0]);
    assert_eq!(rig.store.counters().repeated(), 1);
    rig.reply(&short[0]);
    assert_eq!(rig.store.counters().repeated(), 1, "that was forgotten");
}

#[test]
fn acknowledgements_follow_their_answers_in_order_of_arrival() {
    let mut rig = Rig::new();
    let asks: Vec<_> = (0..3).map(|_| rig.ask("c", &set("k", "v"))).collect();
    for ask in &asks {
        ask.hand_to(rig.now(), &mut rig.store);
    }
    let told = Told::drain(&mut rig.store);
    let answered = |ask: &statestore_tests::ask::Ask| {
        let is_answer = |told: &Told| matches!(told, Told::Reply { correlation, .. } if *correlation == ask.correlation);
        (
            told.iter().position(is_answer).unwrap(),
            told.iter().position(|told| *told == Told::Acknowledge(ask.delivery.unwrap())).unwrap(),
        )
    };
    let places: Vec<usize> =
        asks.iter().flat_map(|ask| [answered(ask).0, answered(ask).1]).collect();
    assert_eq!(places, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_answer_is_forgotten_at_the_very_end_of_its_time_behind_older_ones_too() {
    let mut rig = Rig::new();
    rig.answer("c", &set("old", "kept for a minute"));
    let mut ask = rig.ask("c", &del("k"));
    ask.expiry = Some(1);
    assert_eq!(rig.answer("c", &set("k", "1")), OK);
    assert_eq!(rig.all(&ask).1.0, r":1\r\n");
    assert_eq!(rig.answer("c", &set("k", "2")), OK);
    rig.millis += 1_999;
    ask.arrived = Some(Instant::from_millis(rig.millis));
    assert_eq!(rig.all(&ask).1.0, r":1\r\n", "the first answer");
    assert_eq!(rig.answer("c", &get("k")), r"$1\r\n2\r\n");
    rig.millis += 1;
    ask.arrived = Some(Instant::from_millis(rig.millis));
    assert_eq!(rig.all(&ask).1.0, r":1\r\n", "done again");
    assert_eq!(rig.answer("c", &get("k")), r"$-1\r\n");
}

/// However many answers were forgotten, those that are kept are counted as before.
#[test]
fn answers_stay_within_their_bytes() {
    let limits = StoreLimits { reply_bytes_max: 2_000, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let asks: Vec<_> = (0..200).map(|_| rig.ask("c", &del("k"))).collect();
    asks.iter().for_each(|ask| _ = rig.reply(ask));
    asks.iter().rev().for_each(|ask| _ = rig.reply(ask));
    let repeated = rig.store.counters().repeated();
    assert!((1..=40).contains(&repeated), "{repeated} are remembered");
}
