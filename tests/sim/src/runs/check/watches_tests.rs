//! Valid and invalid watches, written by hand.

use bytes::Bytes;
use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_proto::hlc::Version;

use super::{Allowance, Follower};
use crate::runs::{Change, Delivery, Effect, Moment, Note, Watched, What};

const KEY: Bytes = Bytes::from_static(b"k");

/// A key that is "a" from 10, "b" from 20, deleted at 30, "c" from 40. Messages take at most 2.
fn log() -> Vec<Change> {
    let change = |at, effect, wall: u64| Change {
        at,
        key: KEY,
        effect,
        version: format!("{wall}:0:s").parse().unwrap(),
        by: None,
    };
    let set = |value: &'static str| Effect::Set(value.into());
    vec![
        change(10, set("a"), 1),
        change(20, set("b"), 2),
        change(30, Effect::Deleted, 2),
        change(40, set("c"), 3),
    ]
}

fn changed(value: &'static str, wall: u64) -> What {
    let value = (!value.is_empty()).then(|| value.into());
    let version = (wall > 0).then(|| Version::new(format!("{wall}:0:s").parse().unwrap()));
    What::Event(WatchEvent::Changed { value, version })
}

const LIVE: What = What::Event(WatchEvent::Live);
const GAP: What = What::Event(WatchEvent::Gap);
const ENDED: What = What::Event(WatchEvent::Ended(WatchEnd::Stopped));

fn verdict(delivery: Delivery, notes: &[(u64, What)]) -> Result<(), String> {
    let note = |(at, what): &(u64, What)| Note {
        moment: Moment { order: *at, at: *at },
        after: *at,
        what: what.clone(),
    };
    let watched =
        Watched { client: 0, key: KEY, notes: notes.iter().map(note).collect(), outdated: false };
    let log = log();
    let log: Vec<&Change> = log.iter().collect();
    Follower::new(
        &log,
        &[],
        &[],
        Allowance { delivery, transit_max: 2, reconnect_after: 0, quota: false },
    )
    .check(&watched)
}

fn is_valid(notes: &[(u64, What)]) -> bool {
    verdict(Delivery::InOrder, notes).is_ok()
}

#[test]
fn watch_that_reports_every_change_is_valid() {
    assert!(is_valid(&[
        (5, LIVE),
        (11, changed("a", 1)),
        (22, changed("b", 2)),
        (30, changed("", 2)),
        (41, changed("c", 3)),
    ]));
    assert!(is_valid(&[
        (11, changed("a", 1)),
        (11, LIVE),
        (15, GAP),
        (16, What::Ready),
        (45, changed("c", 3)),
        (45, LIVE),
        (50, What::Unwatched),
        (51, ENDED),
    ]));
}

#[test]
fn missing_changes_are_detected() {
    assert!(!is_valid(&[
        (5, LIVE),
        (22, changed("b", 2)),
        (30, changed("", 2)),
        (41, changed("c", 3))
    ]));
    assert!(!is_valid(&[
        (11, changed("a", 1)),
        (11, LIVE),
        (25, GAP),
        (45, changed("c", 3)),
        (45, LIVE)
    ]));
    assert!(!is_valid(&[(11, changed("a", 1)), (11, LIVE), (41, changed("c", 3))]));
    assert!(!is_valid(&[(11, changed("a", 1)), (11, LIVE), (25, What::Unwatched), (26, ENDED)]));
}

#[test]
fn watch_must_end_live_and_up_to_date() {
    assert!(is_valid(&[(45, changed("c", 3)), (45, LIVE)]));
    assert!(!is_valid(&[(45, changed("c", 3))]));
    assert!(!is_valid(&[(45, changed("c", 3)), (45, LIVE), (50, GAP)]));
    assert!(!is_valid(&[(35, LIVE)]));
    assert!(!is_valid(&[(50, ENDED)]));
    assert!(!is_valid(&[(50, What::Unwatched), (51, ENDED), (52, LIVE)]));
}

#[test]
fn invented_and_repeated_changes_are_detected() {
    assert!(!is_valid(&[(45, changed("x", 3)), (45, LIVE)]));
    assert!(!is_valid(&[(45, changed("c", 4)), (45, LIVE)]));
    assert!(!is_valid(&[(39, changed("c", 3)), (45, LIVE)]));
    assert!(!is_valid(&[(45, changed("c", 0)), (45, LIVE)]));
    assert!(!is_valid(&[(31, changed("", 1)), (31, LIVE), (41, changed("c", 3))]));
    assert!(!is_valid(&[
        (21, changed("b", 2)),
        (21, changed("a", 1)),
        (45, changed("c", 3)),
        (45, LIVE)
    ]));
}

#[test]
fn live_must_mean_current() {
    assert!(is_valid(&[
        (21, changed("a", 1)),
        (22, LIVE),
        (22, changed("b", 2)),
        (22, GAP),
        (45, changed("c", 3)),
        (45, LIVE)
    ]));
    assert!(!is_valid(&[
        (21, changed("a", 1)),
        (25, LIVE),
        (25, changed("b", 2)),
        (25, GAP),
        (45, changed("c", 3)),
        (45, LIVE)
    ]));
    assert!(!is_valid(&[(15, LIVE), (16, GAP), (45, changed("c", 3)), (45, LIVE)]));
}

#[test]
fn reconnect_without_a_gap_is_detected() {
    assert!(!is_valid(&[(5, LIVE), (6, What::Ready), (7, GAP), (45, changed("c", 3)), (45, LIVE)]));
}

#[test]
fn late_changes_are_allowed_only_if_indistinguishable_from_new_ones() {
    let late = [(32, LIVE), (32, changed("b", 2)), (32, changed("", 2)), (41, changed("c", 3))];
    assert!(verdict(Delivery::Reordered, &late).is_ok());
    assert!(verdict(Delivery::InOrder, &late).is_err());
    let hole = [(32, LIVE), (32, changed("a", 1)), (32, changed("", 2)), (41, changed("c", 3))];
    assert!(verdict(Delivery::Reordered, &hole).is_err());
    assert!(verdict(Delivery::Broken, &hole).is_ok());
    let invented = [(32, LIVE), (32, changed("x", 2)), (41, changed("c", 3))];
    assert!(verdict(Delivery::Broken, &invented).is_err());
}
