//! Section 11: what is delivered again is answered again, and done once.

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::Condition;
use statestore_tests::ask::Told;

use super::{OK, Rig, del, get, observe, set, set_if, stop, version};

#[test]
fn a_duplicate_gets_the_first_answer_and_has_no_effect() {
    let mut rig = Rig::new();
    rig.answer("a", &observe("k"));
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
fn registrations_are_repeated_like_writes_and_reads_are_read_again() {
    let mut rig = Rig::new();
    let (start, end, read) =
        (rig.ask("a", &observe("k")), rig.ask("a", &stop("k")), rig.ask("a", &get("k")));
    assert_eq!(rig.reply(&start).0, OK);
    assert_eq!(rig.reply(&end).0, OK);
    assert_eq!(rig.reply(&start).0, OK);
    assert_eq!((rig.store.watches(), rig.reply(&end).0.as_str()), (0, OK));
    assert_eq!(rig.reply(&read).0, r"$-1\r\n");
    rig.answer("c", &set("k", "v"));
    assert_eq!(rig.reply(&read).0, r"$1\r\nv\r\n");
}

#[test]
fn refusals_are_remembered_too() {
    let mut rig = Rig::new();
    let mut ask = rig.ask("c", &set("k", "v"));
    ask.timestamp = None;
    let refused = rig.reply(&ask);
    ask.timestamp = Some("1:0:c".into());
    assert_eq!(rig.reply(&ask), refused);
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
    for (expiry, kept) in [(None, 60_000), (Some(3), 3_000), (Some(90), 90_000)] {
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
