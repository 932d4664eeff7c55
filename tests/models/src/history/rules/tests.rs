//! Valid histories, and one that violates each rule.

use statestore_proto::message::Condition;

use super::check;
use crate::history::{
    Action, Clocks, History, Moment, Operation, Outcome, Remove, Reported, Set, Watched,
};

const CLOCKS: Clocks<'static> = Clocks { early: 100, may_be_late: true, restarts: &[] };

/// An event at this time; an invocation and a completion at one time are concurrent.
const fn moment(at: u64, completes: bool) -> Moment {
    Moment { order: 2 * at + completes as u64, at }
}

#[derive(Default)]
struct Written(History<u32>);

impl Written {
    fn did(mut self, time: (u64, u64), action: Action<u32>, outcome: Outcome<u32>) -> Self {
        self.0.operations.push(Operation {
            client: "c".to_owned(),
            key: "k".into(),
            action,
            invoked: moment(time.0, false),
            completed: Some(moment(time.1, true)),
            outcome,
        });
        self
    }

    fn set(self, time: (u64, u64), value: &str, version: u32) -> Self {
        self.did(time, set(value), Outcome::Applied(version))
    }

    fn get(self, time: (u64, u64), found: Option<(&str, u32)>) -> Self {
        let found = found.map(|(value, version)| (value.to_owned().into(), version));
        self.did(time, Action::Get, Outcome::Found(found))
    }

    fn reports(mut self, events: &[Reported<u32>]) -> Self {
        let events = events.iter().map(|reported| (moment(100, true), reported.clone())).collect();
        self.0.watches.push(Watched { key: "k".into(), events });
        self
    }

    fn holds(self) {
        assert_eq!(check(&self.0, CLOCKS), Vec::<String>::new());
    }

    #[track_caller]
    fn breaks(self, complaint: &str) {
        let complaints = check(&self.0, CLOCKS);
        assert!(complaints.iter().any(|found| found.contains(complaint)), "{complaints:?}");
    }
}

fn write(value: &str) -> Set<u32> {
    Set { value: value.to_owned().into(), condition: Condition::Always, expires: None, token: None }
}

fn set(value: &str) -> Action<u32> {
    Action::Set(write(value))
}

fn if_absent(value: &str) -> Action<u32> {
    Action::Set(Set { condition: Condition::IfAbsent, ..write(value) })
}

fn expiring(value: &str, expires: u64) -> Action<u32> {
    Action::Set(Set { condition: Condition::IfAbsent, expires: Some(expires), ..write(value) })
}

fn guarded(value: &str, token: u32) -> Action<u32> {
    Action::Set(Set { token: Some(token), ..write(value) })
}

fn changed(value: &str, version: u32) -> Reported<u32> {
    Reported::Changed(value.to_owned().into(), version)
}

fn del_action() -> Action<u32> {
    Action::Remove(Remove { value: None, token: None })
}

fn start() -> Written {
    Written::default()
}

#[test]
fn concurrent_requests_may_take_effect_in_any_order() {
    start().set((0, 10), "a", 2).set((0, 10), "b", 1).get((5, 9), None).holds();
    start().set((0, 10), "a", 2).set((1, 9), "b", 1).get((11, 12), Some(("a", 2))).holds();
}

#[test]
fn a_write_without_a_reply_takes_effect_once_or_never() {
    let unknown = || start().set((0, 1), "a", 1).did((2, 3), set("b"), Outcome::Unknown);
    unknown().get((5, 6), Some(("a", 1))).holds();
    unknown().get((5, 6), Some(("a", 1))).get((7, 8), Some(("b", 2))).holds();
    unknown().get((5, 6), Some(("b", 2))).get((7, 8), Some(("a", 1))).breaks("was known before");
}

#[test]
fn a_write_with_two_versions_is_found() {
    start().set((0, 1), "a", 1).get((2, 3), Some(("a", 2))).breaks("two versions");
    start().set((0, 1), "a", 1).set((2, 3), "b", 1).breaks("is the version of");
    start().set((0, 1), "a", 1).reports(&[changed("a", 2)]).breaks("two versions");
}

#[test]
fn a_value_that_was_never_written_is_found() {
    start().get((0, 1), Some(("a", 1))).breaks("never written");
    start().get((0, 1), Some(("a", 1))).set((2, 3), "a", 1).breaks("before it was written");
    let refused = start().did((0, 1), set("a"), Outcome::Refused);
    refused.get((2, 3), Some(("a", 1))).breaks("was refused");
}

#[test]
fn a_lost_acknowledged_write_is_found() {
    let written = || start().set((0, 1), "a", 1).set((2, 3), "b", 2);
    written().get((4, 5), Some(("b", 2))).holds();
    written().get((4, 5), Some(("a", 1))).breaks("was known before");
    written().get((4, 5), None).breaks("which nothing has removed");
    written().set((4, 5), "c", 1).breaks("for a SET");
}

#[test]
fn a_value_that_vanishes_after_a_read_is_found() {
    let written = start().did((0, 50), set("a"), Outcome::Unknown);
    written.get((2, 3), Some(("a", 1))).get((4, 5), None).breaks("which nothing has removed");
}

#[test]
fn an_absent_key_requires_a_removal() {
    let del = |time, outcome| start().set((0, 1), "a", 1).did(time, del_action(), outcome);
    del((2, 3), Outcome::Removed(None)).get((4, 5), None).holds();
    del((2, 3), Outcome::Unknown).get((40, 50), None).holds();
    del((2, 3), Outcome::Refused).get((4, 5), None).breaks("nothing has removed");
    del((2, 3), Outcome::NothingRemoved).breaks("removed nothing");
    del((6, 7), Outcome::Removed(None)).get((4, 5), None).breaks("nothing has removed");
    del((2, 3), Outcome::Removed(None)).get((4, 5), Some(("a", 1))).breaks("was removed");
    del((2, 5), Outcome::Removed(None)).get((4, 6), Some(("a", 1))).holds();
    // It was removed before it was written again.
    let again = del((2, 3), Outcome::Removed(None)).set((4, 5), "b", 2);
    again.get((6, 7), None).breaks("nothing has removed");
}

#[test]
fn a_value_must_not_expire_too_early() {
    let written = || start().did((0, 1), expiring("a", 500), Outcome::Applied(1));
    written().get((600, 601), None).holds();
    written().get((200, 201), None).breaks("nothing has removed");
    written().set((2, 3), "b", 2).get((700, 701), None).breaks("nothing has removed");
}

#[test]
fn one_of_several_if_absent_writes_is_applied() {
    let first = || start().did((0, 10), if_absent("a"), Outcome::Applied(1));
    first().did((0, 10), if_absent("b"), Outcome::NotApplied(None)).holds();
    first().did((0, 10), if_absent("b"), Outcome::Applied(2)).breaks("set as absent");
    first().did((11, 12), if_absent("b"), Outcome::Applied(2)).breaks("set it as absent");
    let alone = start().did((0, 10), if_absent("b"), Outcome::NotApplied(None));
    alone.breaks("nothing was there");
    let lost = start().did((0, 5), if_absent("a"), Outcome::Unknown);
    lost.did((6, 10), if_absent("b"), Outcome::NotApplied(None)).holds();
}

#[test]
fn a_write_with_an_older_token_after_a_newer_one_is_found() {
    let newer = || start().did((0, 1), guarded("a", 7), Outcome::Applied(10));
    newer().did((2, 3), guarded("b", 8), Outcome::Applied(11)).holds();
    newer().did((2, 3), guarded("b", 6), Outcome::Refused).holds();
    newer().did((2, 3), guarded("b", 6), Outcome::Applied(11)).breaks("after token 7");
    let late = newer().did((2, 3), guarded("b", 6), Outcome::Unknown);
    late.get((4, 5), Some(("b", 11))).breaks("after token 7");
}

#[test]
fn a_change_that_a_watch_omits_without_a_gap_is_found() {
    let written = || start().set((0, 1), "a", 1).set((2, 3), "b", 2).set((4, 5), "c", 3);
    let (a, b, c) = (changed("a", 1), changed("b", 2), changed("c", 3));
    let live = Reported::Live;
    written().reports(&[a.clone(), live.clone(), b.clone(), c.clone()]).holds();
    written().reports(&[a.clone(), live.clone(), Reported::Gap, c.clone(), live.clone()]).holds();
    written().reports(&[a.clone(), live.clone(), Reported::Gap]).holds();
    written().reports(&[a.clone(), live.clone(), c.clone()]).breaks("without 2");
    written().reports(&[a, live.clone(), b.clone()]).breaks("has not reported 3");
    written().reports(std::slice::from_ref(&live)).breaks("has not reported 3");
    written().reports(&[b.clone(), live, c.clone(), b.clone()]).breaks("reported 2 after 3");
    written().reports(&[c, Reported::Gap, b]).breaks("reported 2 after 3");
}

#[test]
fn changes_within_a_gap_may_be_missed() {
    let written = || {
        let written = start().set((0, 1), "a", 1).did((2, 3), del_action(), Outcome::Removed(None));
        let written = written.set((4, 5), "b", 2).did((6, 7), del_action(), Outcome::Removed(None));
        written.set((8, 9), "c", 3).set((10, 11), "d", 4)
    };
    let (a, c, d) = (changed("a", 1), changed("c", 3), changed("d", 4));
    let (live, gap) = (Reported::Live, Reported::Gap);
    let around = [a.clone(), live.clone(), gap.clone(), live.clone(), c, d.clone()];
    written().reports(&around).holds();
    written().reports(&[a.clone(), live.clone(), d.clone()]).breaks("without 2");
    let after = [a, live.clone(), gap, changed("b", 2), live, d];
    written().reports(&after).breaks("without 3");
}

#[test]
fn a_read_that_contradicts_an_earlier_notification_is_found() {
    let reports = || start().did((0, 1), set("a"), Outcome::Unknown).reports(&[changed("a", 5)]);
    reports().get((90, 120), None).holds();
    reports().get((110, 120), Some(("a", 5))).holds();
    reports().get((110, 120), None).breaks("nothing has removed");
    reports().set((110, 120), "b", 4).breaks("was known before");
}
