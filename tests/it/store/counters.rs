//! The outcome of each request, as returned to the caller and counted by verb.

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Condition, Refusal, RequestKind};
use statestore_proto::store::{
    ClockAdvance, DropReason, Handled, Refused, RequestOutcome, StoreConfig,
};
use statestore_proto::topic::TopicError;
use statestore_proto::transport::Qos;

use super::{EPOCH, Rig, del, get, set, set_if, vdel, watch};

/// The kind and the outcome of a command.
fn submit(rig: &mut Rig, command: &Command<&[u8]>) -> (Option<RequestKind>, RequestOutcome) {
    let request = rig.request("c", command);
    let handled = request.submit_to(rig.now(), &mut rig.store);
    assert_eq!(handled.clock_advance, None);
    (handled.kind(), handled.outcome)
}

fn refusal(handled: &Handled<'_>) -> Option<Refusal> {
    handled.refused().map(Refused::refusal)
}

fn refusal_of(outcome: &RequestOutcome) -> Option<Refusal> {
    match outcome {
        RequestOutcome::Refused(refused) => Some(refused.refusal()),
        _ => None,
    }
}

#[test]
fn verdicts_are_returned_and_counted_by_verb() {
    use RequestKind::{Del, Get, Set, Unwatch, VDel, Watch};
    use RequestOutcome::{Absent, Applied, NotApplied};
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
        assert_eq!(submit(&mut rig, &command), (Some(verb), verdict), "{command:?}");
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
    submit(&mut rig, &set("k", "v"));
    let (_, quota) = submit(&mut rig, &set("l", "v"));
    assert_eq!(refusal_of(&quota), Some(Refusal::QuotaExceeded));
    let mut again = rig.request("c", &set("k", "w"));
    again.token = Some(format!("{EPOCH}:5:c"));
    again.submit_to(rig.now(), &mut rig.store);
    let repeated = again.submit_to(rig.now(), &mut rig.store);
    assert_eq!(
        (repeated.kind(), repeated.outcome),
        (Some(RequestKind::Set), RequestOutcome::Duplicate)
    );
    let (_, fenced) = submit(&mut rig, &del("k"));
    assert_eq!(refusal_of(&fenced), Some(Refusal::FencingTokenRequired));
    let mut nonsense = rig.request("c", &get("k"));
    nonsense.payload = "nonsense".into();
    let mut hasty = rig.request("c", &get("k"));
    hasty.qos = Qos::AtMostOnce;
    for (request, expected) in [(nonsense, Refusal::Syntax), (hasty, Refusal::NotQos1)] {
        let handled = request.submit_to(rig.now(), &mut rig.store);
        assert_eq!((handled.kind(), refusal(&handled)), (None, Some(expected)));
        assert_eq!(rig.store.counters().malformed().refused_for(expected), 1);
    }
    let counters = rig.store.counters();
    assert_eq!(counters.of(RequestKind::Set).refused_for(Refusal::QuotaExceeded), 1);
    assert_eq!(counters.of(RequestKind::Del).refused_for(Refusal::FencingTokenRequired), 1);
    assert_eq!(counters.refused_for(Refusal::QuotaExceeded), 1);
    assert_eq!(counters.refused_for(Refusal::MissingTimestamp), 0);
    assert_eq!((counters.executed(), counters.refused(), counters.duplicates()), (2, 4, 1));
}

#[test]
fn dropped_requests_return_their_reason() {
    let mut rig = Rig::new();
    let mut nameless = rig.request("c", &get("k"));
    nameless.response_topic = None;
    let mut forbidden = rig.request("c", &get("k"));
    forbidden.response_topic = Some("a/#".into());
    let mut stranger = rig.request("c", &get("k"));
    stranger.topic = "elsewhere".into();
    for (request, reason) in [
        (nameless, DropReason::NoResponseTopic),
        (forbidden, DropReason::ForbiddenResponseTopic(TopicError::Wildcard)),
        (stranger, DropReason::NotARequest),
    ] {
        let handled = request.submit_to(rig.now(), &mut rig.store);
        assert_eq!((handled.kind(), handled.outcome), (None, RequestOutcome::Dropped(reason)));
    }
    assert_eq!(rig.store.counters().dropped(), 3);
}

#[test]
fn greatest_clock_skew_includes_refused_requests() {
    let mut rig = Rig::new();
    let skew = |rig: &Rig| {
        let counters = rig.store.counters();
        (counters.ahead_max_ms, counters.behind_max_ms)
    };
    let mut send = |timestamp: u64, token: Option<u64>, expected: (u64, u64)| {
        let mut request = rig.request("c", &set("k", "v"));
        request.timestamp = Some(format!("{timestamp}:0:c"));
        request.token = token.map(|token| format!("{token}:0:c"));
        request.submit_to(rig.now(), &mut rig.store);
        assert_eq!(skew(&rig), expected, "{timestamp} {token:?}");
    };
    send(EPOCH, None, (0, 0));
    send(EPOCH + 7, None, (7, 0));
    send(EPOCH - 9, None, (7, 9));
    // A token is as old as its lock.
    send(EPOCH, Some(EPOCH - 5_000), (7, 9));
    send(EPOCH, Some(EPOCH + 61_000), (61_000, 9));
    send(EPOCH + 90_000, Some(EPOCH), (90_000, 9));
    assert_eq!(rig.store.counters().refused_for(Refusal::TimestampSkew), 1);
    // Timestamps that the verb ignores do not count.
    let mut read = rig.request("c", &get("k"));
    (read.timestamp, read.token) = (Some("1:0:c".into()), Some("99999999999999:0:c".into()));
    read.submit_to(rig.now(), &mut rig.store);
    let mut removal = rig.request("c", &del("k"));
    removal.timestamp = Some("1:0:c".into());
    removal.submit_to(rig.now(), &mut rig.store);
    assert_eq!(skew(&rig), (90_000, 9));
}

#[test]
fn counters_are_iterable_and_printable() {
    let mut rig = Rig::limited(StoreLimits { keys_max: 1, ..StoreLimits::default() });
    assert_eq!(rig.store.counters().to_string(), "nothing");
    let all = rig.store.counters().iter().count();
    submit(&mut rig, &set("k", "v"));
    submit(&mut rig, &set("l", "v"));
    submit(&mut rig, &Command::Unwatch { key: b"k".as_slice() });
    let counters = rig.store.counters();
    assert_eq!(
        counters.to_string(),
        "SET applied 1, SET refused (the quota has been exceeded) 1, KEYNOTIFY STOP absent 1"
    );
    let sum = |name| counters.iter().filter(|of| of.name == name).map(|of| of.value).sum::<u64>();
    assert_eq!((sum("applied"), sum("refused"), sum("absent")), (1, 1, 1));
    assert_eq!((counters.iter().count(), all), (all, 8 * (4 + Refusal::ALL.len()) + 13));
}

#[test]
fn clock_drift_max_may_be_lowered_but_not_raised_above_60_seconds() {
    for drift in [60_001, u64::MAX] {
        let drift = core::time::Duration::from_millis(drift);
        assert!(StoreConfig::new(7).clock_drift_max(drift).is_err());
    }
    for (drift, furthest) in [(5, 5_000), (60, 60_000)] {
        let drift = core::time::Duration::from_secs(drift);
        let config = StoreConfig::new(7).clock_drift_max(drift).expect("at most a minute");
        let mut rig = Rig::with(config);
        let mut send = |ahead: (u64, u64)| {
            let mut request = rig.request("c", &set("k", "v"));
            request.timestamp = Some(format!("{}:0:c", EPOCH + ahead.0));
            request.token = Some(format!("{}:0:c", EPOCH + ahead.1));
            let handled = request.submit_to(rig.now(), &mut rig.store);
            (refusal(&handled), handled.outcome == RequestOutcome::Applied)
        };
        assert_eq!(send((furthest + 1, 0)), (Some(Refusal::TimestampSkew), false));
        assert_eq!(send((0, furthest + 1)), (Some(Refusal::FencingTokenSkew), false));
        assert_eq!(send((furthest, furthest)), (None, true));
        assert_eq!(rig.store.counters().refused_for(Refusal::TimestampSkew), 1);
        assert_eq!(rig.store.counters().refused_for(Refusal::FencingTokenSkew), 1);
    }
}

#[test]
fn clock_advance_by_a_request_is_returned_and_counted() {
    let mut rig = Rig::new();
    let mut send = |millis: u64, timestamp: u64, token: Option<u64>| {
        rig.millis = millis;
        let mut request = rig.request("c", &set("k", "v"));
        request.timestamp = Some(format!("{}:0:c", EPOCH + timestamp));
        request.token = token.map(|token| format!("{}:0:c", EPOCH + token));
        let handled = request.submit_to(rig.now(), &mut rig.store);
        handled.clock_advance.map(|ahead| (ahead.by.as_millis(), ahead.is_fence))
    };
    for (millis, timestamp, token, expected) in [
        (0, 5_000, None, None),
        (0, 5_001, None, Some((5_001, false))),
        // No further than the versions already issued.
        (0, 5_001, None, None),
        (0, 3_000, Some(5_001), None),
        (0, 0, Some(5_002), Some((5_002, true))),
        (0, 7_000, Some(6_000), Some((7_000, false))),
        // A refused request advances nothing, here because of its token.
        (0, 8_000, Some(4_000), None),
        (0, 60_001, Some(70_000), None),
        // The wall clock has caught up.
        (2_001, 7_001, Some(7_001), None),
        (2_001, 9_000, Some(9_000), Some((6_999, true))),
    ] {
        let case = format!("{millis} {timestamp} {token:?}");
        assert_eq!(send(millis, timestamp, token), expected, "{case}");
    }
    let counters = rig.store.counters();
    assert_eq!((counters.clock_advances, counters.fence_advances), (4, 2));
    // A read advances nothing, whatever its timestamp.
    let mut read = rig.request("c", &get("k"));
    (read.timestamp, read.token) = (Some(format!("{}:0:c", EPOCH + 30_000)), None);
    assert_eq!(read.submit_to(rig.now(), &mut rig.store).clock_advance, None::<ClockAdvance>);
}
