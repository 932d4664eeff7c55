//! Waiting for another holder.

use super::*;
use statestore_proto::client::WatchEnd;
use statestore_proto::lock::{LockState, LossReason, NotAcquired};

/// A lock that found another holder at 10 and watches the key.
fn waiting(deadline: Option<u64>) -> Rig {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), deadline.map(at)).unwrap();
    let ticket = rig.expect_set(0);
    rig.reply(10, ticket, not_applied());
    rig.expect_watch(10);
    rig
}

#[test]
fn waiter_retries_after_the_longest_lease() {
    let mut rig = waiting(None);
    rig.idle_until(10, 1_010);
    let ticket = rig.expect_set(1_010);
    rig.reply(1_020, ticket, not_applied());
    rig.idle_until(1_020, 2_020);
    rig.expect_set(2_020);
}

#[test]
fn max_lease_sets_the_time_of_the_retry() {
    let mut rig = Rig::new(config().max_lease(millis(7_000)));
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.expect_set(0);
    rig.reply(10, ticket, not_applied());
    rig.expect_watch(10);
    rig.idle_until(10, 7_010);
}

#[test]
fn waiter_retries_at_once_when_the_key_is_gone() {
    for event in [changed(None, Some(3)), changed(None, None)] {
        let mut rig = waiting(None);
        rig.lock.handle_watch(at(400), &event);
        let ticket = rig.expect_set(400);
        rig.reply(410, ticket, done(5));
        assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
    }
}

#[test]
fn watch_of_a_waiter_continues_after_acquisition() {
    let mut rig = waiting(None);
    rig.lock.handle_watch(at(400), &changed(None, Some(3)));
    let ticket = rig.expect_set(400);
    rig.reply(410, ticket, done(5));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
    rig.idle_until(410, 700);
    rig.lock.handle_watch(at(420), &changed(None, Some(6)));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::Deleted)]);
    assert!(matches!(rig.lock.poll_action(at(420)), Some(LockAction::Unwatch)));
    rig.expect_vdel(420);
}

#[test]
fn key_absent_at_the_start_of_the_watch_is_free() {
    let mut rig = waiting(None);
    rig.lock.handle_watch(at(400), &WatchEvent::Live);
    rig.expect_set(400);
    let mut rig = waiting(None);
    rig.lock.handle_watch(at(400), &changed(Some("other"), Some(3)));
    rig.lock.handle_watch(at(400), &WatchEvent::Live);
    rig.idle_until(400, 1_400);
}

#[test]
fn renewal_by_the_holder_defers_the_retry() {
    let mut rig = waiting(None);
    rig.lock.handle_watch(at(700), &changed(Some("other"), Some(3)));
    rig.idle_until(700, 1_700);
}

#[test]
fn deletion_during_a_try_causes_another_try() {
    let mut rig = waiting(None);
    let ticket = rig.expect_set(1_010);
    rig.lock.handle_watch(at(1_015), &changed(None, Some(3)));
    assert!(rig.lock.poll_action(at(1_015)).is_none(), "one request at a time");
    rig.reply(1_020, ticket, not_applied());
    let ticket = rig.expect_set(1_020);
    rig.reply(1_030, ticket, not_applied());
    rig.idle_until(1_030, 2_030);
}

#[test]
fn next_try_renews_a_try_whose_reply_was_lost() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.expect_set(0);
    rig.reply(250, ticket, lost());
    let due = rig.lock.poll_timeout().unwrap().as_millis();
    assert!((290..=330).contains(&due), "{due}");
    let ticket = rig.expect_set(due);
    rig.reply(due + 10, ticket, done(5));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
    assert_eq!(rig.lock.held_until(), Some(at(due + 900)));
}

#[test]
fn a_waiter_that_sees_its_own_value_claims_it_at_once() {
    let mut rig = waiting(None);
    let ticket = rig.expect_set(1_010);
    rig.reply(1_260, ticket, lost());
    rig.lock.handle_watch(at(1_270), &changed(Some(VALUE), Some(4)));
    rig.expect_set(1_270);
}

#[test]
fn pauses_double_up_to_the_longest_and_a_reply_resets_them() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let mut now = 0;
    for longest in [80, 160, 160, 160] {
        let ticket = rig.expect_set(now);
        rig.reply(now, ticket, Ok(Outcome::TimedOut { sent: false }));
        let due = rig.lock.poll_timeout().unwrap().as_millis();
        assert!((longest / 2..=longest).contains(&(due - now)), "{} of {longest}", due - now);
        now = due;
    }
    let ticket = rig.expect_set(now);
    rig.reply(now, ticket, not_applied());
    rig.expect_watch(now);
    now += 1_000;
    let ticket = rig.expect_set(now);
    rig.reply(now, ticket, lost());
    let due = rig.lock.poll_timeout().unwrap().as_millis();
    assert!((40..=80).contains(&(due - now)));
}

#[test]
fn different_nonces_pause_differently() {
    let pauses = |nonce: u8| {
        let config = LockConfig::new("lock", "me", [nonce; 8], millis(1_000_000));
        let mut rig = Rig::new(config);
        rig.lock.acquire(at(0), None).unwrap();
        let (ticket, _) = rig.expect_request(0);
        rig.reply(0, ticket, lost());
        rig.lock.poll_timeout().unwrap()
    };
    let mut all: Vec<Instant> = (0..20).map(pauses).collect();
    all.sort_unstable();
    all.dedup();
    assert!(all.len() >= 18, "{all:?}");
}

#[test]
fn waiting_ends_at_the_deadline() {
    let mut rig = waiting(Some(600));
    rig.idle_until(10, 600);
    rig.lock.handle_timeout(at(600));
    assert_eq!(rig.events(), [LockEvent::AcquireFailed(NotAcquired::Deadline)]);
    assert!(!rig.lock.is_settled(), "the watch must still be ended");
    assert!(matches!(rig.lock.poll_action(at(600)), Some(LockAction::Unwatch)));
    assert!(rig.lock.poll_action(at(600)).is_none() && rig.lock.is_settled());
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(600), Some(at(600))).unwrap();
    assert_eq!(rig.events(), [LockEvent::AcquireFailed(NotAcquired::Deadline)]);
    assert!(rig.lock.poll_action(at(600)).is_none());
}

#[test]
fn deadline_limits_the_timeout_of_a_try() {
    for (deadline, expected) in [(Some(1_000), 250), (Some(100), 90), (None, 250)] {
        let mut rig = Rig::new(config());
        rig.lock.acquire(at(0), deadline.map(at)).unwrap();
        let (_, request) = rig.expect_request(10);
        assert_eq!(request.timeout(), Some(millis(expected)));
    }
}

#[test]
fn refused_watch_leaves_retries_to_time() {
    let mut rig = waiting(None);
    let refused = ServiceError::Known(Refusal::QuotaExceeded);
    rig.lock.handle_watch(at(20), &WatchEvent::Ended(WatchEnd::Refused(refused)));
    rig.idle_until(20, 1_010);
    // The next acquisition requests a watch again.
    rig.lock.release(at(30));
    rig.lock.acquire(at(40), None).unwrap();
    let ticket = rig.expect_set(40);
    rig.reply(50, ticket, not_applied());
    rig.expect_watch(50);
}

#[test]
fn refusal_ends_waiting_at_once() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.expect_set(0);
    rig.reply(10, ticket, refused(Refusal::NotAuthorized));
    let reason = NotAcquired::Refused(Refusal::NotAuthorized.into());
    assert_eq!(rig.events(), [LockEvent::AcquireFailed(reason)]);
    assert!(rig.lock.is_settled());
    rig.lock.acquire(at(20), None).unwrap();
    let ticket = rig.expect_set(20);
    rig.reply(20, ticket, Err(SubmitError::KeyTooLong));
    assert_eq!(
        rig.events(),
        [LockEvent::AcquireFailed(NotAcquired::NotAccepted(SubmitError::KeyTooLong))]
    );
    // A full client does not end waiting.
    rig.lock.acquire(at(30), None).unwrap();
    let ticket = rig.expect_set(30);
    rig.reply(30, ticket, Err(SubmitError::Full));
    assert_eq!((rig.events(), rig.lock.state()), (vec![], LockState::Waiting));
}

#[test]
fn watch_holder_reports_each_change_and_gap() {
    let mut rig = Rig::new(config().watch_holder(true));
    rig.expect_watch(0);
    let seen = |rig: &mut Rig, event: &WatchEvent| {
        rig.lock.handle_watch(at(1), event);
        let events = rig.events();
        assert!(events.len() <= 1, "{events:?}");
        events.into_iter().next().map(|event| match event {
            LockEvent::HolderChanged(HolderStatus::Held(holder)) => {
                String::from_utf8_lossy(holder.name()).into_owned()
            }
            LockEvent::HolderChanged(other) => format!("{other:?}"),
            other => panic!("{other:?}"),
        })
    };
    let other = || changed(Some("other/3132333435363738/4"), Some(3));
    assert_eq!(*rig.lock.holder(), HolderStatus::Unknown);
    assert_eq!(seen(&mut rig, &other()), None, "not yet known to be current");
    assert_eq!(seen(&mut rig, &WatchEvent::Live).as_deref(), Some("other"));
    assert_eq!(seen(&mut rig, &WatchEvent::Gap).as_deref(), Some("Unknown"));
    assert_eq!(seen(&mut rig, &WatchEvent::Live).as_deref(), Some("other"));
    assert_eq!(seen(&mut rig, &changed(None, Some(3))).as_deref(), Some("Free"));
    assert_eq!(*rig.lock.holder(), HolderStatus::Free);
    // Only the last of several unpolled changes is reported.
    rig.lock.handle_watch(at(2), &other());
    rig.lock.handle_watch(at(2), &changed(None, Some(3)));
    assert_eq!(rig.events(), [LockEvent::HolderChanged(HolderStatus::Free)]);
    assert!(rig.lock.is_settled() && rig.lock.poll_action(at(2)).is_none());
}

/// Pauses are spread evenly over their second half, so contenders that failed together retry apart.
#[test]
fn pauses_are_spread_evenly() {
    let mut quarters = [0_u32; 4];
    for number in 0..64_u64 {
        let config = LockConfig::new("lock", "me", number.to_be_bytes(), millis(1_000_000));
        let mut rig = Rig::new(config.retry(millis(8_000), millis(8_000)));
        rig.lock.acquire(at(0), None).unwrap();
        let mut now = 0;
        for _ in 0..50 {
            let (ticket, _) = rig.expect_request(now);
            rig.reply(now, ticket, Ok(Outcome::TimedOut { sent: false }));
            let due = rig.lock.poll_timeout().unwrap().as_millis();
            let quarter = (due - now - 4_000) / 1_000;
            quarters[usize::try_from(quarter.min(3)).unwrap()] += 1;
            now = due;
        }
    }
    assert!(quarters.iter().all(|count| (700..=900).contains(count)), "{quarters:?}");
}

#[test]
fn renewal_by_the_holder_during_a_try_sets_no_timer() {
    let mut rig = waiting(None);
    rig.expect_set(1_010);
    rig.lock.handle_watch(at(1_020), &changed(Some("other"), Some(4)));
    assert_eq!(rig.lock.poll_timeout(), None);
}

#[test]
fn deadline_at_the_last_instant_is_never_due() {
    for (deadline, due) in [(u64::MAX, None), (u64::MAX - 1, Some(at(u64::MAX - 1)))] {
        let mut lock = Lock::new(config()).unwrap();
        lock.acquire(at(0), Some(at(deadline))).expect("it is free to");
        assert!(matches!(lock.poll_action(at(0)), Some(LockAction::Submit { .. })));
        assert_eq!(lock.poll_timeout(), due);
    }
}

#[test]
fn release_before_the_first_request_sends_nothing() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    assert!(rig.lock.release(at(0)));
    assert!(rig.lock.poll_action(at(0)).is_none());
}

#[test]
fn reply_after_the_lease_fails_a_single_try() {
    let mut rig = Rig::new(config());
    rig.lock.try_acquire(at(0)).unwrap();
    let ticket = rig.expect_set(0);
    rig.lock.handle_outcome(at(1_500), ticket, done(5));
    assert_eq!(rig.events(), [LockEvent::AcquireFailed(NotAcquired::NoAnswer)]);
}
