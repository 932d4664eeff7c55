//! Replacement of the store at which a lock was acquired.

use std::collections::BTreeMap;

use super::*;
use statestore_proto::client::Event;
use statestore_proto::lock::{LockState, LossReason, NotAcquired};
use statestore_proto::message::Incarnation;
use statestore_proto::store::StoreConfig;
use statestore_sim::{ClientIndex, Clock, Faults, World};

const ONE: Option<Incarnation> = Some(Incarnation::new(1));
const TWO: Option<Incarnation> = Some(Incarnation::new(2));

/// The response of a store.
fn by(
    incarnation: Option<Incarnation>,
    reply: Reply<Bytes>,
    wall: Option<u64>,
) -> Result<Outcome, SubmitError> {
    Ok(Outcome::Responded {
        response: Response::Reply(reply),
        version: wall.map(version),
        incarnation,
    })
}

fn done_by(incarnation: Option<Incarnation>, wall: u64) -> Result<Outcome, SubmitError> {
    by(incarnation, Reply::Done, Some(wall))
}

/// [`Rig::held`] at this store.
fn held_at(incarnation: Option<Incarnation>) -> Rig {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.expect_set(0);
    rig.reply(10, ticket, done_by(incarnation, 5));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
    rig
}

#[test]
fn renewal_at_another_store_loses_and_releases_the_lock() {
    for (before, after) in [(ONE, TWO), (ONE, None), (None, TWO)] {
        let mut rig = held_at(before);
        let ticket = rig.expect_set(300);
        rig.reply(310, ticket, done_by(after, 6));
        assert_eq!(rig.events(), [LockEvent::Lost(LossReason::StoreReplaced)]);
        assert!(!rig.lock.is_held(at(310)));
        let ticket = rig.expect_vdel(310);
        rig.reply(320, ticket, by(after, Reply::Removed, Some(6)));
        assert!(rig.lock.is_settled());
    }
}

#[test]
fn renewal_at_the_same_store_renews() {
    for store in [ONE, None] {
        let mut rig = held_at(store);
        let ticket = rig.expect_set(300);
        rig.reply(310, ticket, done_by(store, 6));
        rig.lock.handle_incarnation(at(310), store);
        assert_eq!(rig.events(), [LockEvent::Renewed { token: token(6) }]);
    }
}

#[test]
fn set_not_applied_by_another_store_needs_no_removal() {
    let mut rig = held_at(ONE);
    let ticket = rig.expect_set(300);
    rig.reply(310, ticket, by(TWO, Reply::NotApplied, Some(9)));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::StoreReplaced)]);
    assert!(rig.lock.is_settled() && rig.lock.poll_action(at(310)).is_none());
}

#[test]
fn replaced_store_loses_the_lock_at_once() {
    for under_way in [false, true] {
        let mut rig = held_at(ONE);
        let ticket = under_way.then(|| rig.expect_set(300));
        rig.lock.handle_incarnation(at(305), TWO);
        assert_eq!(rig.events(), [LockEvent::Lost(LossReason::StoreReplaced)]);
        assert_eq!(rig.lock.state(), LockState::Lost);
        if let Some(ticket) = ticket {
            assert!(rig.lock.poll_action(at(305)).is_none(), "one request at a time");
            rig.reply(310, ticket, done_by(ONE, 6));
        }
        rig.expect_vdel(310);
    }
}

#[test]
fn reply_of_a_replaced_store_does_not_acquire() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.expect_set(0);
    rig.lock.handle_incarnation(at(5), TWO);
    rig.reply(10, ticket, done_by(ONE, 9));
    assert_eq!((rig.events(), rig.lock.state()), (vec![], LockState::Waiting));
    // Either store may be the newer one: two replies in a row from one store decide.
    let ticket = rig.expect_set(10);
    rig.reply(20, ticket, done_by(TWO, 5));
    let due = rig.lock.poll_timeout().unwrap().as_millis();
    assert!((60..=100).contains(&due), "a further retry is paused: {due}");
    let ticket = rig.expect_set(due);
    rig.reply(due + 10, ticket, done_by(TWO, 6));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(6) }]);
}

#[test]
fn lock_is_acquired_again_at_the_new_store() {
    // The store change is reported before the replies, between them, after them, or never.
    for news in 0..4 {
        let mut rig = held_at(ONE);
        rig.lock.release(at(20));
        let ticket = rig.expect_vdel(20);
        rig.reply(30, ticket, by(ONE, Reply::Removed, Some(5)));
        rig.events();
        rig.lock.acquire(at(40), None).unwrap();
        let report_at = |rig: &mut Rig, when, now| {
            if news == when {
                rig.lock.handle_incarnation(at(now), TWO);
            }
        };
        report_at(&mut rig, 0, 40);
        let ticket = rig.expect_set_of(40, "me/3132333435363738/2");
        // The clock of the new store is behind that of the old one.
        rig.reply(50, ticket, done_by(TWO, 2));
        report_at(&mut rig, 1, 50);
        if news != 0 {
            let ticket = rig.expect_set_of(50, "me/3132333435363738/2");
            rig.reply(60, ticket, done_by(TWO, 3));
        }
        report_at(&mut rig, 2, 60);
        let token = token(if news == 0 { 2 } else { 3 });
        assert_eq!(rig.events(), [LockEvent::Acquired { token }], "{news}");
        assert!(rig.lock.is_held(at(70)));
    }
}

#[test]
fn alternating_stores_do_not_make_a_lock_spin() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    rig.lock.handle_incarnation(at(0), TWO);
    let (mut now, mut tries) = (0, 0);
    while now < 3_000 && tries < 100 {
        let ticket = rig.expect_set(now);
        rig.reply(now, ticket, done_by([ONE, TWO][tries % 2], 5 + now));
        assert_eq!(rig.events(), []);
        tries += 1;
        now = rig.lock.poll_timeout().map_or(now, |due| due.as_millis());
    }
    assert!((20..60).contains(&tries), "{tries} tries");

    let mut rig = Rig::new(config());
    rig.lock.try_acquire(at(0)).unwrap();
    rig.lock.handle_incarnation(at(0), TWO);
    for store in [ONE, TWO] {
        assert_eq!(rig.events(), []);
        let ticket = rig.expect_set(0);
        rig.reply(0, ticket, done_by(store, 5));
    }
    assert_eq!(
        rig.events(),
        [LockEvent::AcquireFailed(NotAcquired::NoAnswer)],
        "one try has an end"
    );
    let ticket = rig.expect_vdel(0);
    // Each attempt may retry once more, and the reply to a removal updates the known store.
    rig.reply(10, ticket, by(ONE, Reply::Removed, Some(5)));
    rig.lock.try_acquire(at(20)).unwrap();
    for store in [TWO, TWO] {
        let ticket = rig.expect_set_of(20, "me/3132333435363738/2");
        rig.reply(30, ticket, done_by(store, 6));
    }
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(6) }]);
}

#[test]
fn reply_to_a_removal_updates_the_known_store() {
    let mut rig = held_at(ONE);
    rig.lock.release(at(20));
    let ticket = rig.expect_vdel(20);
    rig.reply(30, ticket, by(TWO, Reply::NothingRemoved, None));
    rig.lock.acquire(at(40), None).unwrap();
    let ticket = rig.expect_set_of(40, "me/3132333435363738/2");
    rig.reply(50, ticket, done_by(TWO, 2));
    let released = LockEvent::Released { confirmed: true };
    assert_eq!(rig.events(), [released, LockEvent::Acquired { token: token(2) }]);
}

#[test]
fn single_try_is_repeated_once_after_a_store_change() {
    let mut rig = Rig::new(config());
    rig.lock.try_acquire(at(0)).unwrap();
    rig.lock.handle_incarnation(at(0), ONE);
    let ticket = rig.expect_set(0);
    rig.reply(10, ticket, done_by(TWO, 5));
    let ticket = rig.expect_set(10);
    rig.reply(20, ticket, done_by(TWO, 6));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(6) }]);
}

/// A lock and its client in a world, driven as documented.
struct Driven {
    lock: Lock,
    client: ClientIndex,
    tickets: BTreeMap<statestore_proto::client::RequestId, LockRequestId>,
    /// The driver passes on store changes that the client reports.
    forwards: bool,
}

impl Driven {
    fn step(&mut self, world: &mut World) -> Vec<LockEvent> {
        while let Some(action) = self.lock.poll_action(world.now()) {
            if let LockAction::Submit { ticket, request } = action {
                let (client, now) = world.client(self.client).unwrap();
                self.tickets.insert(client.submit(now, request).unwrap(), ticket);
            }
        }
        world.run_for(millis(10));
        let now = world.now();
        while let Some(event) = world.poll_event(self.client) {
            match event {
                Event::Completed { id, outcome } => {
                    if let Some(ticket) = self.tickets.remove(&id) {
                        self.lock.handle_outcome(now, ticket, Ok(outcome));
                    }
                }
                Event::StoreReplaced { incarnation } if self.forwards => {
                    self.lock.handle_incarnation(now, incarnation);
                }
                _ => {}
            }
        }
        self.lock.handle_timeout(now);
        std::iter::from_fn(|| self.lock.poll_event()).collect()
    }
}

/// Replaces the store of a holder; another client acquires and releases the lock there before the
/// next renewal. Returns the holder's next event and the milliseconds since the replacement.
fn over_a_new_store(with_incarnation: bool, forwards: bool) -> (LockEvent, u128) {
    let mut world = World::new(7, Faults::default(), StoreConfig::new(7));
    if !with_incarnation {
        // A store that does not know incarnations.
        let name = statestore_proto::message::property::INCARNATION;
        world.set_interceptor(Box::new(move |message| {
            message.user_properties.retain(|(other, _)| *other != name);
        }));
    }
    let a = world.add_client("a", Clock::default()).unwrap();
    let b = world.add_client("b", Clock::default()).unwrap();
    world.run_for(millis(200));
    let config =
        LockConfig::new("lock", "a", *b"aaaaaaaa", millis(10_000)).renew_after(millis(5_000));
    let mut holder =
        Driven { lock: Lock::new(config).unwrap(), client: a, tickets: BTreeMap::new(), forwards };
    holder.lock.acquire(world.now(), None).unwrap();
    while !matches!(holder.step(&mut world)[..], [LockEvent::Acquired { .. }]) {}
    world.replace_store(StoreConfig::new(8));
    let replaced = world.now();
    world.run_for(millis(200));
    let (key, value) = (Bytes::from_static(b"lock"), Bytes::from_static(b"b"));
    let condition = Condition::IfAbsentOrEqual;
    let take = Command::Set { key: key.clone(), value: value.clone(), condition, expiry: None };
    for command in [take, Command::VDel { key, value }] {
        let (client, now) = world.client(b).unwrap();
        client.submit(now, Request::new(command)).unwrap();
        world.run_for(millis(100));
        let mut outcomes = std::iter::from_fn(|| world.poll_event(b));
        let applied =
            |event| matches!(event, Event::Completed { outcome, .. } if outcome.may_be_applied());
        assert!(outcomes.any(applied), "the other client acquires and releases it");
    }
    // The holder's application sends an unrelated request.
    let (client, now) = world.client(a).unwrap();
    client.submit(now, Request::get("other")).unwrap();
    loop {
        if let [event] = &holder.step(&mut world)[..] {
            return (event.clone(), world.now().duration_since(replaced).as_millis());
        }
    }
}

#[test]
fn restarted_store_loses_the_lock_of_its_holder() {
    let (event, after) = over_a_new_store(true, true);
    assert_eq!(event, LockEvent::Lost(LossReason::StoreReplaced));
    assert!(after < 500, "at the next reply: {after}");
    let (event, after) = over_a_new_store(true, false);
    assert_eq!(event, LockEvent::Lost(LossReason::StoreReplaced));
    assert!((4_800..5_200).contains(&after), "at the renewal: {after}");
}

#[test]
fn store_without_incarnation_renews_a_lock_held_by_another_since() {
    let (event, _) = over_a_new_store(false, true);
    assert!(matches!(event, LockEvent::Renewed { .. }), "as documented: {event:?}");
}
