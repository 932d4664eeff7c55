//! Valid and invalid histories of one key, written by hand.

use bytes::Bytes;
use statestore_proto::client::Outcome;
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::message::{
    Command, Condition, Expiry, Refusal, Reply, Response, ServiceError,
};

use super::check;
use crate::runs::{History, Moment, Op, RequestName};

const KEY: Bytes = Bytes::from_static(b"k");

fn version(wall: u64) -> Version {
    Version::new(format!("{wall}:0:s").parse().unwrap())
}

fn op(command: Command<Bytes>, times: (u64, u64), outcome: Outcome) -> Op {
    let moment = |at| Moment { order: at, at };
    Op {
        name: RequestName::default(),
        command,
        token: None,
        invoked: moment(times.0),
        completed: Some((moment(times.1), outcome)),
        completions: 1,
    }
}

fn replied(reply: Reply<Bytes>, wall: u64) -> Outcome {
    let version = (wall > 0).then(|| version(wall));
    Outcome::Responded { response: Response::Reply(reply), version, incarnation: None }
}

fn put(value: &'static str, px: u64, condition: Condition<Bytes>) -> Command<Bytes> {
    Command::Set { key: KEY, value: value.into(), condition, expiry: Expiry::from_millis(px) }
}

fn set(value: &'static str, times: (u64, u64), wall: u64) -> Op {
    op(put(value, 0, Condition::Always), times, replied(Reply::Done, wall))
}

fn set_px(value: &'static str, px: u64, times: (u64, u64), wall: u64) -> Op {
    op(put(value, px, Condition::Always), times, replied(Reply::Done, wall))
}

fn lost_set(value: &'static str, times: (u64, u64)) -> Op {
    op(put(value, 0, Condition::Always), times, Outcome::ConnectionLost)
}

fn set_if_absent(value: &'static str, times: (u64, u64), wall: u64) -> Op {
    op(put(value, 0, Condition::IfAbsent), times, replied(Reply::Done, wall))
}

fn get(value: &'static str, times: (u64, u64), wall: u64) -> Op {
    op(Command::Get { key: KEY }, times, replied(Reply::Value(value.into()), wall))
}

fn miss(times: (u64, u64)) -> Op {
    op(Command::Get { key: KEY }, times, replied(Reply::Absent, 0))
}

fn del(times: (u64, u64), wall: u64) -> Op {
    op(Command::Del { key: KEY }, times, replied(Reply::Removed, wall))
}

fn with_token(mut op: Op, wall: u64) -> Op {
    op.token = Some(FencingToken::new(version(wall).hlc().clone()));
    op
}

fn refused(mut op: Op, refusal: Refusal) -> Op {
    let outcome = replied(Reply::Error(ServiceError::Known(refusal)), 0);
    op.completed = op.completed.map(|(at, _)| (at, outcome));
    op
}

fn is_linear(ops: Vec<Op>) -> bool {
    check(&History { ops, ..History::default() }, &[], &[]).is_ok()
}

#[test]
fn read_must_return_the_latest_write() {
    assert!(is_linear(vec![set("a", (1, 2), 10), get("a", (3, 4), 10)]));
    assert!(is_linear(vec![set("a", (1, 9), 10), miss((2, 3)), get("a", (4, 5), 10)]));
    assert!(!is_linear(vec![set("a", (1, 2), 10), miss((3, 4))]));
    assert!(!is_linear(vec![set("a", (1, 9), 10), get("a", (2, 3), 10), miss((4, 5))]));
    let overwritten = vec![set("a", (1, 2), 10), set("b", (3, 4), 11)];
    let stale = |times| [overwritten.clone(), vec![get("a", times, 10)]].concat();
    assert!(is_linear(stale((3, 9))));
    assert!(!is_linear(stale((5, 9))));
    assert!(!is_linear(vec![get("never written", (1, 2), 10)]));
    assert!(!is_linear(vec![set("a", (1, 2), 10), get("b", (3, 4), 10)]));
}

#[test]
fn order_of_versions_must_respect_real_time() {
    assert!(is_linear(vec![set("a", (1, 9), 11), set("b", (2, 9), 10)]));
    assert!(!is_linear(vec![set("a", (1, 2), 11), set("b", (3, 4), 10)]));
    assert!(!is_linear(vec![set("a", (1, 9), 10), set("b", (2, 9), 10)]));
}

#[test]
fn deletion_happens_once() {
    assert!(is_linear(vec![set("a", (1, 2), 10), del((3, 4), 10), miss((5, 6))]));
    assert!(!is_linear(vec![set("a", (1, 2), 10), del((3, 4), 10), del((3, 4), 10)]));
    assert!(!is_linear(vec![set("a", (1, 2), 10), del((3, 4), 10), get("a", (5, 6), 10)]));
    assert!(!is_linear(vec![del((1, 2), 10)]));
}

#[test]
fn conditions_must_hold_when_the_set_is_applied() {
    let taken = vec![set("a", (1, 2), 10), set_if_absent("b", (3, 4), 11)];
    assert!(!is_linear(taken.clone()));
    let removed = op(Command::Del { key: KEY }, (2, 9), Outcome::TimedOut { sent: true });
    assert!(is_linear([taken, vec![removed]].concat()));
    let own = put("a", 0, Condition::IfAbsentOrEqual);
    let refused = op(own, (3, 4), replied(Reply::NotApplied, 10));
    assert!(!is_linear(vec![set("a", (1, 2), 10), refused.clone()]));
    assert!(is_linear(vec![set("b", (1, 2), 10), refused]));
}

#[test]
fn operation_without_reply_takes_effect_late_once_or_never() {
    assert!(is_linear(vec![lost_set("a", (1, 2)), miss((3, 4))]));
    assert!(is_linear(vec![lost_set("a", (1, 2)), miss((3, 4)), get("a", (5, 6), 10)]));
    assert!(!is_linear(vec![lost_set("a", (3, 4)), get("a", (1, 2), 10)]));
    let overwritten = vec![lost_set("a", (1, 2)), get("a", (3, 4), 10), set("b", (5, 6), 11)];
    let again = |wall| [overwritten.clone(), vec![get("a", (7, 8), wall)]].concat();
    assert!(!is_linear(again(10)));
    assert!(!is_linear(again(12)));
    let mut rejected = lost_set("a", (1, 2));
    rejected.completed = Some((
        Moment { order: 2, at: 2 },
        Outcome::Undelivered(statestore_proto::transport::ReasonCode::NO_MATCHING_SUBSCRIBERS),
    ));
    assert!(!is_linear(vec![rejected, get("a", (3, 4), 10)]));
}

#[test]
fn values_must_expire_on_time_and_not_earlier() {
    // Set between 10 and 20, so it expires somewhere in 60..=70.
    let set = || set_px("a", 50, (10, 20), 10);
    assert!(is_linear(vec![set(), get("a", (69, 80), 10)]));
    assert!(!is_linear(vec![set(), get("a", (70, 80), 10)]));
    assert!(is_linear(vec![set(), miss((21, 60))]));
    assert!(!is_linear(vec![set(), miss((21, 59))]));
    // An operation that still saw it at 65 implies that it was set after 15.
    assert!(is_linear(vec![set(), get("a", (65, 90), 10), miss((61, 66))]));
    assert!(!is_linear(vec![set(), get("a", (65, 90), 10), miss((61, 64))]));
    assert!(is_linear(vec![set(), set_if_absent("b", (61, 62), 11)]));
    assert!(!is_linear(vec![set(), set_if_absent("b", (41, 42), 11)]));
}

#[test]
fn fence_holds_while_the_value_exists() {
    let fenced = || with_token(set("a", (1, 2), 10), 5);
    let lower = |op| with_token(op, 4);
    assert!(is_linear(vec![fenced(), with_token(set("b", (3, 4), 11), 5)]));
    assert!(!is_linear(vec![fenced(), lower(set("b", (3, 4), 11))]));
    assert!(!is_linear(vec![fenced(), set("b", (3, 4), 11)]));
    assert!(!is_linear(vec![fenced(), lower(del((3, 4), 10))]));
    assert!(is_linear(vec![fenced(), get("a", (3, 4), 10)]));
    let refused = || refused(lower(set("b", (3, 4), 0)), Refusal::FencingTokenLower);
    assert!(is_linear(vec![fenced(), refused()]));
    assert!(!is_linear(vec![set("a", (1, 2), 10), refused()]));
    assert!(!is_linear(vec![refused()]));
    let gone = vec![fenced(), with_token(del((3, 4), 10), 5), set("b", (5, 6), 11)];
    assert!(is_linear(gone));
}
