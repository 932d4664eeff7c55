//! What became of each request: told to whoever handed it over, and counted by verb.

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, CommandKind, Condition, Refusal};
use statestore_proto::mqtt::Qos;
use statestore_proto::store::{Ahead, DropReason, Handled, StoreConfig, Verdict};

use super::{EPOCH, Rig, del, get, set, set_if, vdel, watch};

fn handed(rig: &mut Rig, command: &Command<&[u8]>) -> Handled {
    let ask = rig.ask("c", command);
    ask.hand_to(rig.now(), &mut rig.store)
}

#[test]
fn each_verb_has_its_verdicts() {
    use CommandKind::{Del, Get, Set, Unwatch, VDel, Watch};
    use Verdict::{Absent, Applied, NotApplied};
    let stop = Command::Unwatch { key: b"k".as_slice() };
    let mut rig = Rig::new();
    for (command, verb, verdict) in [
        (get("k"), Get, Absent),
        (set("k", "v"), Set, Applied),
        (get("k"), Get, Applied),
        (set_if("k", "w", Condition::IfAbsent, 0), Set, NotApplied),
        (vdel("k", "w"), VDel, NotApplied),
        (vdel("k", "v"), VDel, Applied),
        (vdel("k", "v"), VDel, Absent),
        (del("k"), Del, Absent),
        (watch("k"), Watch, Applied),
        (stop, Unwatch, Applied),
        (stop, Unwatch, Absent),
    ] {
        let handled = Handled { verb: Some(verb), verdict, ahead: None };
        assert_eq!(handed(&mut rig, &command), handled, "{command:?}");
    }
    let counters = *rig.store.counters();
    let of = |verb| {
        let verdicts = counters.of(verb);
        (verdicts.applied, verdicts.not_applied, verdicts.absent)
    };
    assert_eq!((of(Get), of(Set), of(Del)), ((1, 0, 1), (1, 1, 0), (0, 0, 1)));
    assert_eq!((of(VDel), of(Watch), of(Unwatch)), ((1, 1, 1), (1, 0, 0), (1, 0, 1)));
    assert_eq!((counters.executed(), counters.refused(), counters.dropped()), (11, 0, 0));
}

#[test]
fn refusals_are_counted_by_verb_and_reason() {
    let mut rig = Rig::limited(StoreLimits { keys_max: 1, ..StoreLimits::default() });
    handed(&mut rig, &set("k", "v"));
    let quota = handed(&mut rig, &set("l", "v"));
    assert_eq!(quota.verdict, Verdict::Refused(Refusal::QuotaExceeded));
    let mut again = rig.ask("c", &set("k", "w"));
    again.token = Some(format!("{EPOCH}:5:c"));
    again.hand_to(rig.now(), &mut rig.store);
    let repeated = again.hand_to(rig.now(), &mut rig.store);
    assert_eq!(
        repeated,
        Handled { verb: Some(CommandKind::Set), verdict: Verdict::Repeated, ahead: None }
    );
    let fenced = handed(&mut rig, &del("k"));
    assert_eq!(fenced.verdict, Verdict::Refused(Refusal::FencingTokenRequired));
    let mut nonsense = rig.ask("c", &get("k"));
    nonsense.payload = "nonsense".into();
    let mut hasty = rig.ask("c", &get("k"));
    hasty.qos = Qos::AtMostOnce;
    for (ask, refusal) in [(nonsense, Refusal::Syntax), (hasty, Refusal::NotQos1)] {
        let handled = ask.hand_to(rig.now(), &mut rig.store);
        assert_eq!(
            handled,
            Handled { verb: None, verdict: Verdict::Refused(refusal), ahead: None }
        );
        assert_eq!(rig.store.counters().unreadable().refused_for(refusal), 1);
    }
    let counters = rig.store.counters();
    assert_eq!(counters.of(CommandKind::Set).refused_for(Refusal::QuotaExceeded), 1);
    assert_eq!(counters.of(CommandKind::Del).refused_for(Refusal::FencingTokenRequired), 1);
    assert_eq!(counters.refused_for(Refusal::QuotaExceeded), 1);
    assert_eq!(counters.refused_for(Refusal::MissingTimestamp), 0);
    assert_eq!((counters.executed(), counters.refused(), counters.repeated()), (2, 4, 1));
}

#[test]
fn what_is_not_answered_says_why() {
    let mut rig = Rig::new();
    let mut nameless = rig.ask("c", &get("k"));
    nameless.response_topic = None;
    let mut forbidden = rig.ask("c", &get("k"));
    forbidden.response_topic = Some("a/#".into());
    let mut stranger = rig.ask("c", &get("k"));
    stranger.topic = "elsewhere".into();
    for (ask, reason) in [
        (nameless, DropReason::Unanswerable),
        (forbidden, DropReason::Forbidden),
        (stranger, DropReason::NotARequest),
    ] {
        let handled = ask.hand_to(rig.now(), &mut rig.store);
        assert_eq!(handled, Handled { verb: None, verdict: Verdict::Dropped(reason), ahead: None });
    }
    assert_eq!(rig.store.counters().dropped(), 3);
}

#[test]
fn the_greatest_skew_is_kept_of_what_was_refused_too() {
    let mut rig = Rig::new();
    let skew = |rig: &Rig| {
        let counters = rig.store.counters();
        (counters.ahead_max_ms, counters.behind_max_ms)
    };
    let mut tell = |timestamp: u64, token: Option<u64>, expected: (u64, u64)| {
        let mut ask = rig.ask("c", &set("k", "v"));
        ask.timestamp = Some(format!("{timestamp}:0:c"));
        ask.token = token.map(|token| format!("{token}:0:c"));
        ask.hand_to(rig.now(), &mut rig.store);
        assert_eq!(skew(&rig), expected, "{timestamp} {token:?}");
    };
    tell(EPOCH, None, (0, 0));
    tell(EPOCH + 7, None, (7, 0));
    tell(EPOCH - 9, None, (7, 9));
    // A token is as old as its lock.
    tell(EPOCH, Some(EPOCH - 5_000), (7, 9));
    tell(EPOCH, Some(EPOCH + 61_000), (61_000, 9));
    tell(EPOCH + 90_000, Some(EPOCH), (90_000, 9));
    assert_eq!(rig.store.counters().refused_for(Refusal::TimestampSkew), 1);
    // What is not looked at does not count.
    let mut read = rig.ask("c", &get("k"));
    (read.timestamp, read.token) = (Some("1:0:c".into()), Some("99999999999999:0:c".into()));
    read.hand_to(rig.now(), &mut rig.store);
    let mut removal = rig.ask("c", &del("k"));
    removal.timestamp = Some("1:0:c".into());
    removal.hand_to(rig.now(), &mut rig.store);
    assert_eq!(skew(&rig), (90_000, 9));
}

#[test]
fn counters_are_a_list_that_can_be_printed() {
    let mut rig = Rig::limited(StoreLimits { keys_max: 1, ..StoreLimits::default() });
    assert_eq!(rig.store.counters().to_string(), "nothing");
    let all = rig.store.counters().iter().count();
    handed(&mut rig, &set("k", "v"));
    handed(&mut rig, &set("l", "v"));
    handed(&mut rig, &Command::Unwatch { key: b"k".as_slice() });
    let counters = rig.store.counters();
    assert_eq!(
        counters.to_string(),
        "SET applied 1, SET refused (the quota has been exceeded) 1, KEYNOTIFY STOP absent 1"
    );
    let sum = |name| counters.iter().filter(|of| of.name == name).map(|of| of.value).sum::<u64>();
    assert_eq!((sum("applied"), sum("refused"), sum("absent")), (1, 1, 1));
    assert_eq!((counters.iter().count(), all), (all, 8 * (4 + Refusal::ALL.len()) + 12));
}

#[test]
fn a_store_may_allow_less_skew_and_never_more() {
    for (drift, furthest) in [(5, 5_000), (60, 60_000), (61, 60_000)] {
        let drift = core::time::Duration::from_secs(drift);
        let mut rig = Rig::with(StoreConfig::new(7).clock_drift_max(drift));
        let mut tell = |ahead: (u64, u64)| {
            let mut ask = rig.ask("c", &set("k", "v"));
            ask.timestamp = Some(format!("{}:0:c", EPOCH + ahead.0));
            ask.token = Some(format!("{}:0:c", EPOCH + ahead.1));
            ask.hand_to(rig.now(), &mut rig.store).verdict
        };
        assert_eq!(tell((furthest + 1, 0)), Verdict::Refused(Refusal::TimestampSkew));
        assert_eq!(tell((0, furthest + 1)), Verdict::Refused(Refusal::FencingTokenSkew));
        assert_eq!(tell((furthest, furthest)), Verdict::Applied);
        assert_eq!(rig.store.counters().refused_for(Refusal::TimestampSkew), 1);
        assert_eq!(rig.store.counters().refused_for(Refusal::FencingTokenSkew), 1);
    }
}

#[test]
fn who_sets_the_versions_ahead_is_told_and_counted() {
    let mut rig = Rig::new();
    let mut tell = |millis: u64, timestamp: u64, token: Option<u64>| {
        rig.millis = millis;
        let mut ask = rig.ask("c", &set("k", "v"));
        ask.timestamp = Some(format!("{}:0:c", EPOCH + timestamp));
        ask.token = token.map(|token| format!("{}:0:c", EPOCH + token));
        let handled = ask.hand_to(rig.now(), &mut rig.store);
        handled.ahead.map(|ahead| (ahead.by.as_millis(), ahead.is_fence))
    };
    for (millis, timestamp, token, expected) in [
        (0, 5_000, None, None),
        (0, 5_001, None, Some((5_001, false))),
        // They follow the versions that there are.
        (0, 5_001, None, None),
        (0, 3_000, Some(5_001), None),
        (0, 0, Some(5_002), Some((5_002, true))),
        (0, 7_000, Some(6_000), Some((7_000, false))),
        // Refused, here for the token, it sets nothing.
        (0, 8_000, Some(4_000), None),
        (0, 60_001, Some(70_000), None),
        // The clock has caught up.
        (2_001, 7_001, Some(7_001), None),
        (2_001, 9_000, Some(9_000), Some((6_999, true))),
    ] {
        let case = format!("{millis} {timestamp} {token:?}");
        assert_eq!(tell(millis, timestamp, token), expected, "{case}");
    }
    let counters = rig.store.counters();
    assert_eq!((counters.set_ahead, counters.fenced_ahead), (4, 2));
    // A read sets nothing, whatever it says.
    let mut read = rig.ask("c", &get("k"));
    (read.timestamp, read.token) = (Some(format!("{}:0:c", EPOCH + 30_000)), None);
    assert_eq!(read.hand_to(rig.now(), &mut rig.store).ahead, None::<Ahead>);
}
