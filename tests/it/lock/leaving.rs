//! Release of held locks and of acquisitions that may have happened.

use super::*;
use statestore_proto::lock::{LockState, LossReason, NotAcquired};

#[test]
fn release_sends_one_vdel_and_reports_one_event() {
    for (reply, confirmed) in [
        (Reply::Removed, true),
        (Reply::NothingRemoved, true),
        (Reply::NotApplied, true),
        (Reply::Error(Refusal::NotAuthorized.into()), false),
    ] {
        let mut rig = Rig::held();
        assert!(rig.lock.release(at(20)));
        assert_eq!(rig.lock.state(), LockState::Released);
        assert!(!rig.lock.is_held(at(20)) && !rig.lock.is_settled());
        assert!(!rig.lock.release(at(20)), "once");
        let ticket = rig.expect_vdel(20);
        assert!(rig.lock.poll_action(at(20)).is_none());
        rig.reply(30, ticket, replied(reply, None));
        assert_eq!(rig.events(), [LockEvent::Released { confirmed }]);
        assert!(rig.lock.is_settled() && rig.lock.poll_timeout().is_none());
        rig.reply(40, ticket, replied(Reply::Removed, None));
        assert_eq!(rig.events(), []);
    }
}

#[test]
fn unanswered_release_is_retried_until_the_lease_ends() {
    for failure in [lost(), Ok(Outcome::ConnectionLost), Err(SubmitError::Full)] {
        let mut rig = Rig::held();
        rig.lock.release(at(20));
        let (mut now, mut tries) = (20, 0);
        while now < 1_010 {
            let ticket = rig.expect_vdel(now);
            tries += 1;
            assert!(rig.lock.poll_timeout() == Some(at(1_010)), "bounded while outstanding");
            rig.reply(now + 5, ticket, failure.clone());
            assert_eq!(rig.events(), []);
            now = rig.lock.poll_timeout().unwrap().as_millis();
        }
        assert!(tries >= 6, "{tries}");
        rig.lock.handle_timeout(at(1_010));
        assert_eq!(rig.events(), [LockEvent::Released { confirmed: false }]);
        assert!(rig.lock.is_settled() && rig.lock.poll_action(at(1_010)).is_none());
    }
}

#[test]
fn release_without_any_reply_ends_with_the_lease() {
    let mut rig = Rig::held();
    rig.lock.release(at(20));
    let ticket = rig.expect_vdel(20);
    rig.lock.handle_timeout(at(1_009));
    assert_eq!(rig.events(), []);
    rig.lock.handle_timeout(at(1_010));
    assert_eq!(rig.events(), [LockEvent::Released { confirmed: false }]);
    rig.reply(1_020, ticket, replied(Reply::Removed, None));
    assert_eq!(rig.events(), []);
}

#[test]
fn release_waits_for_an_outstanding_renewal() {
    for (outcome, frees) in [(done(6), true), (lost(), true), (not_applied(), false)] {
        let mut rig = Rig::held();
        let renewal = rig.expect_set(300);
        rig.lock.release(at(310));
        assert!(rig.lock.poll_action(at(310)).is_none(), "one request at a time");
        rig.reply(320, renewal, outcome);
        if frees {
            let ticket = rig.expect_vdel(320);
            rig.reply(330, ticket, replied(Reply::Removed, None));
        }
        assert_eq!(rig.events(), [LockEvent::Released { confirmed: true }]);
        assert!(rig.lock.is_settled() && rig.lock.poll_action(at(330)).is_none());
    }
}

#[test]
fn acquisition_confirmed_after_giving_up_is_released() {
    for outcome in [done(5), lost(), Ok(Outcome::ConnectionLost)] {
        for deadline in [Some(100), None] {
            let mut rig = Rig::new(config());
            rig.lock.acquire(at(0), deadline.map(at)).unwrap();
            let ticket = rig.expect_set(0);
            let reason = if deadline.is_some() {
                rig.lock.handle_timeout(at(100));
                NotAcquired::Deadline
            } else {
                assert!(rig.lock.release(at(100)));
                NotAcquired::Cancelled
            };
            assert_eq!(rig.events(), [LockEvent::AcquireFailed(reason)]);
            assert!(rig.lock.poll_action(at(100)).is_none() && !rig.lock.is_settled());
            rig.reply(110, ticket, outcome.clone());
            assert_eq!(rig.lock.state(), LockState::Free);
            let ticket = rig.expect_vdel(110);
            rig.reply(120, ticket, replied(Reply::Removed, None));
            assert!(rig.lock.is_settled());
            assert_eq!(rig.events(), [], "nothing was held");
        }
    }
}

#[test]
fn unapplied_try_is_not_released() {
    for outcome in [not_applied(), Ok(Outcome::TimedOut { sent: false }), Err(SubmitError::Full)] {
        let mut rig = Rig::new(config());
        rig.lock.acquire(at(0), None).unwrap();
        let ticket = rig.expect_set(0);
        rig.lock.release(at(100));
        rig.reply(110, ticket, outcome);
        assert!(rig.lock.is_settled() && rig.lock.poll_action(at(110)).is_none());
    }
}

#[test]
fn earlier_unanswered_try_is_released() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.expect_set(0);
    rig.reply(250, ticket, lost());
    rig.lock.release(at(260));
    rig.expect_vdel(260);
}

#[test]
fn lost_value_is_removed_and_never_reused() {
    let mut rig = Rig::held();
    rig.lock.handle_timeout(at(900));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Expired)]);
    rig.lock.acquire(at(900), None).unwrap();
    let ticket = rig.expect_vdel(900);
    assert!(rig.lock.poll_action(at(900)).is_none(), "first the old one");
    rig.reply(910, ticket, replied(Reply::Removed, None));
    let ticket = rig.expect_set_of(910, "me/3132333435363738/2");
    rig.reply(920, ticket, done(7));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(7) }]);
}

#[test]
fn unremoved_value_expires_before_the_next_try() {
    let mut rig = Rig::held();
    rig.lock.release(at(20));
    let ticket = rig.expect_vdel(20);
    rig.lock.acquire(at(30), None).unwrap();
    assert!(rig.lock.poll_action(at(1_009)).is_none());
    rig.lock.handle_timeout(at(1_010));
    assert_eq!(rig.events(), [LockEvent::Released { confirmed: false }]);
    rig.expect_set_of(1_010, "me/3132333435363738/2");
    rig.reply(1_015, ticket, replied(Reply::Removed, None));
    assert_eq!(rig.events(), [], "this reply is no longer expected");
}

#[test]
fn release_of_an_inactive_lock_does_nothing() {
    let mut rig = Rig::new(config());
    assert!(!rig.lock.release(at(0)) && rig.lock.is_settled());
    let mut rig = Rig::held();
    assert!(!rig.lock.release(at(900)), "the lease has run out");
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Expired)]);
}
