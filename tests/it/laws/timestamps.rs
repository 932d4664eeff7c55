//! The timestamps of a request: which are checked, their order, and the exact limit of a minute.

use proptest::prelude::*;
use statestore_models::generators::{kind, node_id};
use statestore_models::reference::clock::stamp;
use statestore_models::reference::timestamps;
use statestore_proto::hlc::{Hlc, HlcRef, HybridClock, NodeIdRef};
use statestore_proto::message::{Refusal, RequestKind};
use statestore_proto::rules::{ParsedTimestamps, RequestTimestamps};
use statestore_proto::time::UnixTime;

const NOW: u64 = 1_696_374_425_000;

/// Verifies timestamps for a store that has issued no version.
fn fresh<'a>(
    kind: RequestKind,
    ts: Option<&'a str>,
    ft: Option<&'a str>,
    now: u64,
) -> Result<RequestTimestamps<'a>, Refusal> {
    let nothing = HybridClock::new(NodeIdRef::STATE_STORE);
    RequestTimestamps::verify(kind, ts, ft, UnixTime::from_millis(now), nothing.last())
        .map_err(|error| error.refusal())
}

fn verify(kind: RequestKind, ts: Option<&str>, ft: Option<&str>) -> Result<(), Refusal> {
    fresh(kind, ts, ft, NOW).map(|_| ())
}

/// A property: absent, malformed, or a value near the limit.
fn property() -> impl Strategy<Value = Option<String>> {
    let wall = prop_oneof![
        (NOW + 59_998)..=(NOW + 60_002),
        (NOW - 2)..=(NOW + 2),
        Just(0),
        Just(u64::MAX)
    ];
    let counter = prop_oneof![0..3_u64, 65_535..65_540_u64, Just(u64::MAX)];
    let value = (wall, counter, node_id());
    let value = value.prop_map(|(wall, counter, node)| format!("{wall}:{counter}:{node}"));
    let long = format!("1:2:{}", "n".repeat(257));
    let malformed = ["", "1:2", "1:2:", "+1:2:n", "1:2:n:m", "x", &long].map(str::to_owned);
    let malformed = proptest::sample::select(malformed.to_vec());
    prop_oneof![
        1 => Just(None),
        1 => malformed.prop_map(Some),
        4 => value.prop_map(Some),
    ]
}

proptest! {
    #[test]
    fn timestamps_are_verified_as_in_the_reference(
        kind in kind(),
        timestamp in property(),
        token in property(),
        issued in ((NOW + 59_998)..=(NOW + 60_003), 0..3_u64),
    ) {
        let unix = UnixTime::from_millis(NOW);
        let last = Hlc::new(UnixTime::from_millis(issued.0), issued.1, NodeIdRef::STATE_STORE);
        let (ts, ft) = (timestamp.as_deref(), token.as_deref());
        let found = RequestTimestamps::verify(kind, ts, ft, unix, &last)
            .map_err(|error| error.refusal());
        let expected = timestamps::verify(kind, (ts, ft), NOW, issued);
        let tuples = found.map(|found| {
            let timestamp = found.timestamp.map(|timestamp| stamp(timestamp.hlc()));
            (timestamp, found.fencing_token.map(|token| stamp(token.hlc())))
        });
        prop_assert_eq!(&tuples, &expected);
        if let (Ok(found), Ok(expected)) = (found, expected) {
            let latest = found.latest().map(|latest| stamp(&latest));
            prop_assert_eq!(latest, expected.0.max(expected.1));
        }
    }
}

#[test]
fn exactly_one_minute_ahead_is_accepted() {
    let at = |ahead: u64| format!("{}:0:c", NOW + ahead);
    let (edge, past) = (at(60_000), at(60_001));
    assert_eq!(verify(RequestKind::Set, Some(&edge), Some(&edge)), Ok(()));
    assert_eq!(verify(RequestKind::Set, Some(&past), None), Err(Refusal::TimestampSkew));
    assert_eq!(verify(RequestKind::Set, Some(&edge), Some(&past)), Err(Refusal::FencingTokenSkew));
    for kind in [RequestKind::Del, RequestKind::VDel] {
        assert_eq!(verify(kind, None, Some(&edge)), Ok(()));
        assert_eq!(verify(kind, None, Some(&past)), Err(Refusal::FencingTokenSkew));
    }
}

#[test]
fn the_timestamp_is_checked_before_the_token() {
    let (past, good) = (format!("{}:0:c", NOW + 60_001), "5:0:c");
    let set = |ts, ft| verify(RequestKind::Set, ts, ft);
    assert_eq!(set(None, Some("x")), Err(Refusal::MissingTimestamp));
    assert_eq!(set(Some("x"), Some(&past)), Err(Refusal::MalformedTimestamp));
    assert_eq!(set(Some(&past), Some("x")), Err(Refusal::TimestampSkew));
    assert_eq!(set(Some(&past), Some(&past)), Err(Refusal::TimestampSkew));
    assert_eq!(set(Some(good), Some("x")), Err(Refusal::MalformedTimestamp));
    assert_eq!(set(Some(good), Some(&past)), Err(Refusal::FencingTokenSkew));
}

#[test]
fn properties_of_other_verbs_are_ignored() {
    for kind in [RequestKind::Get, RequestKind::Watch, RequestKind::Unwatch] {
        let unread = fresh(kind, Some("x"), Some("x"), NOW);
        assert_eq!(unread, Ok(RequestTimestamps::default()));
        assert_eq!(unread.unwrap().latest(), None);
    }
    for kind in [RequestKind::Del, RequestKind::VDel] {
        let timestamps = fresh(kind, Some("x"), Some("5:0:c"), NOW);
        assert_eq!(timestamps.map(|timestamps| timestamps.timestamp), Ok(None));
    }
}

#[test]
fn limit_does_not_overflow() {
    let most = format!("{}:0:c", u64::MAX);
    assert!(fresh(RequestKind::Set, Some(&most), Some(&most), u64::MAX).is_ok());
}

#[test]
fn version_issued_by_the_store_is_never_too_far_ahead() {
    let kind = RequestKind::Set;
    let issued = Hlc::new(UnixTime::from_millis(NOW + 90_000), 7, NodeIdRef::STATE_STORE);
    let at = |wall: u64, counter: u64| {
        let text = format!("{}:{counter}:c", NOW + wall);
        let now = UnixTime::from_millis(NOW);
        let timestamp = RequestTimestamps::verify(kind, Some(&text), None, now, &issued)
            .map(|_| ())
            .map_err(|error| error.refusal());
        let token = RequestTimestamps::verify(kind, Some("1:0:c"), Some(&text), now, &issued)
            .map(|_| ())
            .map_err(|error| error.refusal());
        (timestamp, token)
    };
    let refused = (Err(Refusal::TimestampSkew), Err(Refusal::FencingTokenSkew));
    for (wall, counter) in [(90_000, 7), (90_000, 7 + 65_536), (89_999, u64::MAX), (60_000, 9)] {
        assert_eq!(at(wall, counter), (Ok(()), Ok(())), "{wall}:{counter}");
    }
    for (wall, counter) in [(90_000, 8 + 65_536), (90_001, 0)] {
        assert_eq!(at(wall, counter), refused, "{wall}:{counter}");
    }
}

/// A lower limit applies to both timestamps. Only values derived from the store's own versions may
/// exceed it.
#[test]
fn store_can_allow_less_than_a_minute() {
    use Refusal::{FencingTokenSkew, TimestampSkew};
    let mut clock = HybridClock::new(NodeIdRef::STATE_STORE);
    let (now, within) = (UnixTime::from_millis(NOW), core::time::Duration::from_millis(5_000));
    let at = |wall: u64| format!("{}:0:c", NOW + wall);
    let verify = |clock: &HybridClock<_>, ts: &str, ft: &str| {
        let parsed = ParsedTimestamps::parse(RequestKind::Set, Some(ts), Some(ft));
        let verified = parsed.verify(within, now, clock.last());
        verified.map(|_| ()).map_err(|error| error.refusal())
    };
    assert_eq!(verify(&clock, &at(5_000), &at(5_000)), Ok(()));
    assert_eq!(verify(&clock, &at(5_001), &at(0)), Err(TimestampSkew));
    assert_eq!(verify(&clock, &at(0), &at(5_001)), Err(FencingTokenSkew));
    clock.advance_past(HlcRef::parse(&at(9_000)).unwrap());
    assert_eq!(verify(&clock, &at(9_000), &at(9_000)), Ok(()));
    assert_eq!(verify(&clock, &at(9_001), &at(0)), Err(TimestampSkew));
}
