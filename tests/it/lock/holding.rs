//! Acquiring, holding, renewing and losing a lock.

use super::*;
use statestore_proto::client::{RequestError, WatchEnd};
use statestore_proto::lock::{AcquireError, LockState, LossReason, NotAcquired};
use statestore_proto::transport::ReasonCode;

#[test]
fn lease_counts_from_sending_and_ends_a_margin_early() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(90), None).unwrap();
    assert_eq!(rig.lock.state(), LockState::Waiting);
    let ticket = rig.expect_set(100);
    assert!(!rig.lock.is_held(at(100)));
    rig.reply(340, ticket, done(5));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
    assert_eq!(rig.lock.held_until(), Some(at(1_000)));
    assert!(rig.lock.is_held(at(999)) && !rig.lock.is_held(at(1_000)));
    assert_eq!(rig.lock.token(at(999)), Some(&token(5)));
    assert_eq!(rig.lock.token(at(1_000)), None);
    assert_eq!(rig.lock.state(), LockState::Held, "the lock was not driven since");
    rig.lock.handle_timeout(at(1_000));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Expired)]);
    assert_eq!((rig.lock.state(), rig.lock.held_until()), (LockState::Lost, None));
}

#[test]
fn holding_ends_one_margin_before_the_lease_rounded_to_milliseconds() {
    let config =
        |margin| LockConfig::new("lock", "me", [0; 8], Duration::from_micros(9_100)).margin(margin);
    for (margin, until) in [(Duration::ZERO, 10), (Duration::from_micros(1), 9), (millis(9), 1)] {
        let mut rig = Rig::new(config(margin));
        rig.lock.acquire(at(0), None).unwrap();
        let (ticket, request) = rig.expect_request(0);
        let Some(Command::Set { expiry, .. }) = request.command() else { panic!("{request:?}") };
        assert_eq!(*expiry, Expiry::from_millis(10));
        rig.reply(0, ticket, done(5));
        assert_eq!(rig.lock.held_until(), Some(at(until)), "{margin:?}");
    }
}

#[test]
fn reply_after_the_lease_does_not_acquire() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.expect_set(0);
    rig.reply(900, ticket, done(5));
    assert_eq!((rig.lock.state(), rig.events()), (LockState::Waiting, vec![]));
    // The next SET renews the stored value.
    let due = rig.lock.poll_timeout().unwrap().as_millis();
    assert!((940..=980).contains(&due), "{due}");
    let ticket = rig.expect_set(due);
    rig.reply(due + 899, ticket, done(6));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(6) }]);
}

#[test]
fn renewal_extends_the_lease_and_returns_a_newer_token() {
    let mut rig = Rig::held();
    rig.idle_until(10, 300);
    let ticket = rig.expect_set(310);
    assert_eq!(rig.lock.token(at(320)), Some(&token(5)));
    rig.reply(330, ticket, done(6));
    assert_eq!(rig.events(), [LockEvent::Renewed { token: token(6) }]);
    assert_eq!(rig.lock.held_until(), Some(at(1_210)));
    rig.idle_until(330, 610);
}

#[test]
fn fenced_write_carries_the_newest_token_and_a_read_none() {
    let mut rig = Rig::held();
    let write = || Request::del("data");
    let fenced = |lock: &Lock, now| lock.fence(now, write()).map(Request::from);
    assert_eq!(fenced(&rig.lock, at(10)).unwrap().fencing_token(), Some(&token(5)));
    let ticket = rig.expect_set(300);
    rig.reply(310, ticket, done(6));
    let set = Request::from(rig.lock.fence(at(310), Request::set("data", "v")).unwrap());
    let vdel = Request::from(rig.lock.fence(at(310), Request::vdel("data", "v")).unwrap());
    for request in [fenced(&rig.lock, at(310)).unwrap(), set, vdel] {
        assert_eq!(request.fencing_token(), Some(&token(6)));
    }
    assert!(fenced(&rig.lock, at(1_200)).is_none());
    rig.lock.release(at(320));
    assert!(fenced(&rig.lock, at(320)).is_none());
}

#[test]
fn failed_renewal_is_retried_within_the_lease() {
    for failure in [
        lost(),
        Ok(Outcome::ConnectionLost),
        Ok(Outcome::Undelivered(ReasonCode::NO_MATCHING_SUBSCRIBERS)),
        Err(SubmitError::Full),
        refused(Refusal::TimestampSkew),
        refused(Refusal::QuotaExceeded),
    ] {
        let mut rig = Rig::held();
        let mut now = 300;
        let mut tries = 0;
        while now < 900 {
            let (ticket, request) = rig.expect_request(now);
            let limit = request.timeout().unwrap();
            assert_eq!(limit, millis(250).min(at(900).duration_since(at(now))), "at {now}");
            tries += 1;
            rig.reply((now + 5).min(899), ticket, failure.clone());
            assert_eq!(rig.events(), [], "{failure:?}");
            now = rig.lock.poll_timeout().unwrap().as_millis();
        }
        assert!(tries >= 6 && now == 900, "{tries} tries until {now} after {failure:?}");
        rig.lock.handle_timeout(at(900));
        assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Expired)]);
    }
}

#[test]
fn late_failed_renewal_is_retried_within_half_of_the_remaining_lease() {
    for (failed, latest) in [(860, 880), (898, 899), (899, 900)] {
        let mut rig = Rig::held();
        let ticket = rig.expect_set(300);
        rig.reply(failed, ticket, lost());
        let due = rig.lock.poll_timeout().unwrap().as_millis();
        assert!(failed < due && due <= latest, "failed at {failed}, due at {due}");
    }
}

#[test]
fn unpolled_renewals_are_merged_per_holding() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.expect_set(0);
    rig.reply(10, ticket, done(5));
    for (now, wall) in [(310, 6), (620, 7)] {
        let ticket = rig.expect_set(now);
        rig.reply(now, ticket, done(wall));
    }
    rig.lock.release(at(630));
    let ticket = rig.expect_vdel(630);
    rig.reply(640, ticket, replied(Reply::Removed, Some(7)));
    rig.lock.acquire(at(650), None).unwrap();
    for (now, wall) in [(650, 8), (950, 9), (1_250, 10)] {
        let ticket = rig.expect_set_of(now, "me/3132333435363738/2");
        rig.reply(now, ticket, done(wall));
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
fn final_failure_of_a_renewal_loses_the_lock_at_once() {
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
        let ticket = rig.expect_set(300);
        rig.reply(310, ticket, outcome.clone());
        assert_eq!(rig.events(), [LockEvent::Lost(loss.clone())]);
        assert!(!rig.lock.is_held(at(310)));
        // A value of another holder needs no removal.
        if loss == LossReason::Taken {
            assert!(rig.lock.is_settled() && rig.lock.poll_action(at(310)).is_none());
        } else {
            rig.expect_vdel(310);
        }
    }
}

#[test]
fn renewal_confirmed_after_the_loss_is_released() {
    let mut rig = Rig::held();
    let ticket = rig.expect_set(890);
    rig.reply(900, ticket, done(6));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Expired)], "the loss comes first");
    rig.expect_vdel(900);
}

#[test]
fn refusal_of_the_newest_token_loses_the_lock() {
    let mut rig = Rig::held();
    let ticket = rig.expect_set(300);
    rig.reply(310, ticket, done(6));
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
fn newer_change_by_another_holder_loses_the_lock() {
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
        // The watch has read the key as absent.
        (WatchEvent::Live, Some(LossReason::Deleted)),
    ] {
        let mut rig = Rig::new(config().watch_holder(true));
        rig.lock.acquire(at(0), None).unwrap();
        rig.expect_watch(0);
        let ticket = rig.expect_set(0);
        rig.reply(10, ticket, done(5));
        rig.events();
        rig.lock.handle_watch(at(20), &event);
        let reported: Vec<LockEvent> = rig.events();
        let lost = reported.iter().find_map(|event| match event {
            LockEvent::Lost(loss) => Some(loss.clone()),
            _ => None,
        });
        assert_eq!(lost, loss, "{event:?}");
        assert_eq!(rig.lock.is_held(at(20)), loss.is_none());
        // The notification may be false: the value is removed if the store still contains it.
        match loss {
            Some(_) => _ = rig.expect_vdel(20),
            None => assert!(rig.lock.poll_action(at(20)).is_none()),
        }
    }
}

/// A lock with token 7 that was renewed at 310 and 900, and watches its key since 1,010.
fn held_and_watching() -> Rig {
    let mut rig = Rig::held();
    for (now, wall) in [(310, 6), (900, 7)] {
        let ticket = rig.expect_set(now);
        rig.reply(now, ticket, done(wall));
    }
    rig.expect_watch(1_010);
    rig.events();
    rig
}

#[test]
fn lock_held_for_a_second_watches_its_key_until_it_is_over() {
    let mut rig = Rig::held();
    for (now, wall) in [(310, 6), (620, 7), (930, 8)] {
        let ticket = rig.expect_set(now);
        rig.reply(now, ticket, done(wall));
    }
    assert_eq!(rig.lock.poll_timeout(), Some(at(1_010)));
    assert!(rig.lock.poll_action(at(1_009)).is_none());
    rig.expect_watch(1_010);
    rig.events();
    rig.lock.handle_watch(at(1_020), &changed(Some(VALUE), Some(8)));
    rig.lock.handle_watch(at(1_020), &WatchEvent::Live);
    assert_eq!((rig.lock.state(), rig.events()), (LockState::Held, vec![]));
    rig.lock.handle_watch(at(1_100), &changed(None, Some(9)));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Deleted)]);
    assert!(matches!(rig.lock.poll_action(at(1_100)), Some(LockAction::Unwatch)));
    let ticket = rig.expect_vdel(1_100);
    rig.reply(1_110, ticket, replied(Reply::NothingRemoved, None));
    assert!(rig.lock.is_settled());
}

#[test]
fn refused_watch_of_a_held_lock_is_not_repeated() {
    let mut rig = held_and_watching();
    let refusal = WatchEnd::Refused(Refusal::QuotaExceeded.into());
    rig.lock.handle_watch(at(1_020), &WatchEvent::Ended(refusal));
    assert!(rig.lock.poll_action(at(1_020)).is_none());
    assert_eq!(rig.lock.poll_timeout(), Some(at(1_200)), "the next renewal");
}

#[test]
fn held_lock_whose_key_is_read_as_absent_is_lost() {
    for events in
        [vec![changed(None, None)], vec![WatchEvent::Live], vec![WatchEvent::Gap, WatchEvent::Live]]
    {
        let mut rig = held_and_watching();
        for event in &events {
            rig.lock.handle_watch(at(1_020), event);
        }
        assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Deleted)], "{events:?}");
    }
}

#[test]
fn single_try_ends_with_its_outcome() {
    for (outcome, reason) in [
        (not_applied(), NotAcquired::Taken),
        (lost(), NotAcquired::NoAnswer),
        (Ok(Outcome::TimedOut { sent: false }), NotAcquired::Unreachable(RequestError::NotSent)),
        (Err(SubmitError::Full), NotAcquired::NotAccepted(SubmitError::Full)),
        (refused(Refusal::QuotaExceeded), NotAcquired::Refused(Refusal::QuotaExceeded.into())),
        (replied(Reply::Done, None), NotAcquired::BadVersion),
    ] {
        let mut rig = Rig::new(config());
        rig.lock.try_acquire(at(0)).unwrap();
        assert_eq!(rig.lock.try_acquire(at(0)), Err(AcquireError::Active));
        let ticket = rig.expect_set(0);
        rig.reply(10, ticket, outcome.clone());
        assert_eq!(rig.events(), [LockEvent::AcquireFailed(reason)]);
        assert_eq!(rig.lock.state(), LockState::Free);
        // Only a SET that may have been applied is removed.
        let applied = outcome.is_ok_and(|outcome| outcome.may_be_applied());
        assert_eq!(rig.lock.is_settled(), !applied);
        assert_eq!(rig.lock.poll_action(at(10)).is_some(), applied);
    }
}

#[test]
fn new_holding_requires_a_greater_token() {
    let mut rig = Rig::held();
    rig.lock.release(at(20));
    let ticket = rig.expect_vdel(20);
    rig.reply(30, ticket, replied(Reply::Removed, Some(5)));
    rig.lock.acquire(at(40), None).unwrap();
    let ticket = rig.expect_set_of(40, "me/3132333435363738/2");
    rig.reply(50, ticket, done(5));
    let expected = [
        LockEvent::Released { confirmed: true },
        LockEvent::AcquireFailed(NotAcquired::BadVersion),
    ];
    assert_eq!(rig.events(), expected);
}
