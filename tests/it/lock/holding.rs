//! Acquiring, holding, renewing, losing.

use super::*;
use statestore_proto::lock::{AcquireError, LockState, LossReason, NotAcquired};
use statestore_proto::mqtt::ReasonCode;

#[test]
fn a_lease_counts_from_the_sending_and_ends_a_margin_early() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(90), None).unwrap();
    assert_eq!(rig.lock.state(), LockState::Waiting);
    let ticket = rig.takes(100);
    assert!(!rig.lock.is_held(at(100)));
    rig.answer(340, ticket, done(5));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
    assert_eq!(rig.lock.held_until(), Some(at(1_000)));
    assert!(rig.lock.is_held(at(999)) && !rig.lock.is_held(at(1_000)));
    assert_eq!(rig.lock.token(at(999)), Some(&token(5)));
    assert_eq!(rig.lock.token(at(1_000)), None);
    assert_eq!(rig.lock.state(), LockState::Held, "nobody has told the time");
    rig.lock.handle_timeout(at(1_000));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Expired)]);
    assert_eq!((rig.lock.state(), rig.lock.held_until()), (LockState::Lost, None));
}

#[test]
fn the_margin_is_less_than_the_lease_and_times_are_whole() {
    let config =
        |margin| LockConfig::new("lock", "me", [0; 8], Duration::from_micros(9_100)).margin(margin);
    for (margin, until) in [
        (Duration::ZERO, 10),
        (Duration::from_micros(1), 9),
        (millis(9), 1),
        (millis(10), 1),
        (Duration::MAX, 1),
    ] {
        let mut rig = Rig::new(config(margin));
        rig.lock.acquire(at(0), None).unwrap();
        let (ticket, request) = rig.submits(0);
        let Some(Command::Set { expiry, .. }) = request.command() else { panic!("{request:?}") };
        assert_eq!(*expiry, Expiry::from_millis(10));
        rig.answer(0, ticket, done(5));
        assert_eq!(rig.lock.held_until(), Some(at(until)), "{margin:?}");
    }
}

#[test]
fn an_answer_that_comes_too_late_is_no_holding() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.takes(0);
    rig.answer(900, ticket, done(5));
    assert_eq!((rig.lock.state(), rig.events()), (LockState::Waiting, vec![]));
    // The next one renews what is there.
    let due = rig.lock.poll_timeout().unwrap().as_millis();
    assert!((940..=980).contains(&due), "{due}");
    let ticket = rig.takes(due);
    rig.answer(due + 899, ticket, done(6));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(6) }]);
}

#[test]
fn renewal_extends_the_lease_and_brings_a_newer_token() {
    let mut rig = Rig::held();
    rig.idle_until(10, 300);
    let ticket = rig.takes(310);
    assert_eq!(rig.lock.token(at(320)), Some(&token(5)));
    rig.answer(330, ticket, done(6));
    assert_eq!(rig.events(), [LockEvent::Renewed { token: token(6) }]);
    assert_eq!(rig.lock.held_until(), Some(at(1_210)));
    rig.idle_until(330, 610);
}

#[test]
fn a_guarded_write_carries_the_newest_token_and_reads_go_without() {
    let mut rig = Rig::held();
    let write = || Request::new(Command::Del { key: Bytes::from_static(b"data") });
    assert_eq!(rig.lock.guard(at(10), write()).unwrap().token(), Some(&token(5)));
    let ticket = rig.takes(300);
    rig.answer(310, ticket, done(6));
    assert_eq!(rig.lock.guard(at(310), write()).unwrap().token(), Some(&token(6)));
    assert_eq!(rig.lock.guard(at(310), Holder::query("data")).unwrap().token(), None);
    assert!(rig.lock.guard(at(1_200), write()).is_none());
    rig.lock.release(at(320));
    assert!(rig.lock.guard(at(320), write()).is_none());
}

#[test]
fn a_renewal_that_fails_is_tried_again_inside_the_lease() {
    for failure in [
        lost(),
        Ok(Outcome::Unknown),
        Ok(Outcome::Rejected(ReasonCode::NO_MATCHING_SUBSCRIBERS)),
        Err(SubmitError::Full),
        refused(Refusal::TimestampSkew),
        refused(Refusal::QuotaExceeded),
    ] {
        let mut rig = Rig::held();
        let mut now = 300;
        let mut tries = 0;
        while now < 900 {
            let (ticket, request) = rig.submits(now);
            let limit = request.time_limit().unwrap();
            assert_eq!(limit, millis(250).min(at(900).duration_since(at(now))), "at {now}");
            tries += 1;
            rig.answer((now + 5).min(899), ticket, failure.clone());
            assert_eq!(rig.events(), [], "{failure:?}");
            now = rig.lock.poll_timeout().unwrap().as_millis();
        }
        assert!(tries >= 6 && now == 900, "{tries} tries until {now} after {failure:?}");
        rig.lock.handle_timeout(at(900));
        assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Expired)]);
    }
}

#[test]
fn a_renewal_that_fails_late_is_tried_again_within_half_of_what_is_left() {
    for (failed, latest) in [(860, 880), (898, 899), (899, 900)] {
        let mut rig = Rig::held();
        let ticket = rig.takes(300);
        rig.answer(failed, ticket, lost());
        let due = rig.lock.poll_timeout().unwrap().as_millis();
        assert!(failed < due && due <= latest, "failed at {failed}, due at {due}");
    }
}

#[test]
fn renewals_that_were_not_polled_are_one_for_each_holding() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.takes(0);
    rig.answer(10, ticket, done(5));
    for (now, wall) in [(310, 6), (620, 7)] {
        let ticket = rig.takes(now);
        rig.answer(now, ticket, done(wall));
    }
    rig.lock.release(at(630));
    let ticket = rig.frees(630);
    rig.answer(640, ticket, replied(Reply::Removed, Some(7)));
    rig.lock.acquire(at(650), None).unwrap();
    for (now, wall) in [(650, 8), (950, 9), (1_250, 10)] {
        let ticket = rig.takes_as(now, "me/3132333435363738/2");
        rig.answer(now, ticket, done(wall));
    }
    let expected = [
        LockEvent::Acquired { token: token(5) },
        LockEvent::Renewed { token: token(7) },
        LockEvent::Released { confirmed: true },
        LockEvent::Acquired { token: token(8) },
        LockEvent::Renewed { token: token(10) },
    ];
    assert_eq!(rig.events(), expected);
}

#[test]
fn a_renewal_that_cannot_succeed_is_a_loss_at_once() {
    let unknown = ServiceError::from_text(Bytes::from_static(b"out of tea")).unwrap();
    for (outcome, loss) in [
        (not_applied(), LossReason::Taken),
        (done(5), LossReason::BadVersion),
        (done(4), LossReason::BadVersion),
        (replied(Reply::Done, None), LossReason::BadVersion),
        (refused(Refusal::NotAuthorized), LossReason::Refused(Refusal::NotAuthorized.into())),
        (replied(Reply::Error(unknown.clone()), None), LossReason::Refused(unknown)),
    ] {
        let mut rig = Rig::held();
        let ticket = rig.takes(300);
        rig.answer(310, ticket, outcome.clone());
        assert_eq!(rig.events(), [LockEvent::Lost(loss.clone())]);
        assert!(!rig.lock.is_held(at(310)));
        // What is another's needs no removal.
        if loss == LossReason::Taken {
            assert!(rig.lock.is_settled() && rig.lock.poll_action(at(310)).is_none());
        } else {
            rig.frees(310);
        }
    }
}

#[test]
fn a_renewal_whose_answer_comes_after_the_loss_is_given_back() {
    let mut rig = Rig::held();
    let ticket = rig.takes(890);
    rig.answer(900, ticket, done(6));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Expired)], "the loss comes first");
    rig.frees(900);
}

#[test]
fn being_fenced_out_is_a_loss_if_it_was_the_newest_token() {
    let mut rig = Rig::held();
    let ticket = rig.takes(300);
    rig.answer(310, ticket, done(6));
    rig.events();
    rig.lock.handle_fenced_out(at(320), &token(5));
    rig.lock.handle_fenced_out(at(320), &token(7));
    assert_eq!((rig.lock.state(), rig.events()), (LockState::Held, vec![]));
    rig.lock.handle_fenced_out(at(320), &token(6));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::FencedOut)]);
    rig.lock.handle_fenced_out(at(320), &token(6));
    assert_eq!(rig.events(), []);
}

#[test]
fn what_the_watch_tells_of_another_is_a_loss_if_it_is_news() {
    for (event, loss) in [
        (changed(Some("other"), Some(6)), Some(LossReason::Taken)),
        (changed(Some("other"), Some(5)), None),
        (changed(Some("other"), Some(4)), None),
        (changed(Some("other"), None), None),
        (changed(Some(VALUE), Some(6)), None),
        (changed(None, Some(6)), Some(LossReason::Deleted)),
        (changed(None, Some(5)), Some(LossReason::Deleted)),
        (changed(None, Some(4)), None),
        (WatchEvent::Gap, None),
        (WatchEvent::Live, None),
    ] {
        let mut rig = Rig::new(config().watch_holder(true));
        rig.lock.acquire(at(0), None).unwrap();
        rig.watches(0);
        let ticket = rig.takes(0);
        rig.answer(10, ticket, done(5));
        rig.events();
        rig.lock.handle_watch(at(20), &event);
        let told: Vec<LockEvent> = rig.events();
        let lost = told.iter().find_map(|event| match event {
            LockEvent::Lost(loss) => Some(loss.clone()),
            _ => None,
        });
        assert_eq!(lost, loss, "{event:?}");
        assert_eq!(rig.lock.is_held(at(20)), loss.is_none());
        assert!(rig.lock.poll_action(at(20)).is_none(), "nothing of ours is there");
    }
}

#[test]
fn a_key_read_as_absent_is_renewed_at_once() {
    let mut rig = Rig::new(config().watch_holder(true));
    rig.lock.acquire(at(0), None).unwrap();
    rig.watches(0);
    let ticket = rig.takes(0);
    rig.answer(10, ticket, done(5));
    rig.lock.handle_watch(at(20), &changed(None, None));
    rig.takes(20);
    assert!(rig.lock.is_held(at(20)));
}

#[test]
fn one_try_ends_with_its_answer() {
    for (outcome, reason) in [
        (not_applied(), NotAcquired::Taken),
        (lost(), NotAcquired::NoAnswer),
        (Ok(Outcome::TimedOut { sent: false }), NotAcquired::NoAnswer),
        (Err(SubmitError::Full), NotAcquired::NotAccepted(SubmitError::Full)),
        (refused(Refusal::QuotaExceeded), NotAcquired::Refused(Refusal::QuotaExceeded.into())),
        (replied(Reply::Done, None), NotAcquired::BadVersion),
    ] {
        let mut rig = Rig::new(config());
        rig.lock.try_acquire(at(0)).unwrap();
        assert_eq!(rig.lock.try_acquire(at(0)), Err(AcquireError::Active));
        let ticket = rig.takes(0);
        rig.answer(10, ticket, outcome.clone());
        assert_eq!(rig.events(), [LockEvent::GaveUp(reason)]);
        assert_eq!(rig.lock.state(), LockState::Free);
        // What may have been applied is given back, and nothing else.
        let applied = outcome.is_ok_and(|outcome| outcome.may_be_applied());
        assert_eq!(rig.lock.is_settled(), !applied);
        assert_eq!(rig.lock.poll_action(at(10)).is_some(), applied);
    }
}

#[test]
fn a_new_holding_needs_a_greater_token_too() {
    let mut rig = Rig::held();
    rig.lock.release(at(20));
    let ticket = rig.frees(20);
    rig.answer(30, ticket, replied(Reply::Removed, Some(5)));
    rig.lock.acquire(at(40), None).unwrap();
    let ticket = rig.takes_as(40, "me/3132333435363738/2");
    rig.answer(50, ticket, done(5));
    let expected =
        [LockEvent::Released { confirmed: true }, LockEvent::GaveUp(NotAcquired::BadVersion)];
    assert_eq!(rig.events(), expected);
}
