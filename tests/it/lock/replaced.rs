//! Another store takes the place of the one that a lock was acquired at.

use std::collections::BTreeMap;

use super::*;
use statestore_loopback::{ClientIndex, Clock, Faults, World};
use statestore_proto::client::Event;
use statestore_proto::lock::{LockState, LossReason, NotAcquired};
use statestore_proto::message::Incarnation;
use statestore_proto::store::StoreConfig;

const ONE: Option<Incarnation> = Some(Incarnation::new(1));
const TWO: Option<Incarnation> = Some(Incarnation::new(2));

/// The answer of a store.
fn by(
    incarnation: Option<Incarnation>,
    reply: Reply<Bytes>,
    wall: Option<u64>,
) -> Result<Outcome, SubmitError> {
    Ok(Outcome::Replied { reply, version: wall.map(version), incarnation })
}

fn done_by(incarnation: Option<Incarnation>, wall: u64) -> Result<Outcome, SubmitError> {
    by(incarnation, Reply::Done, Some(wall))
}

/// As [`Rig::held`], at this store.
fn held_at(incarnation: Option<Incarnation>) -> Rig {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.takes(0);
    rig.answer(10, ticket, done_by(incarnation, 5));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
    rig
}

#[test]
fn a_renewal_at_another_store_is_a_loss_and_is_given_back() {
    for (before, after) in [(ONE, TWO), (ONE, None), (None, TWO)] {
        let mut rig = held_at(before);
        let ticket = rig.takes(300);
        rig.answer(310, ticket, done_by(after, 6));
        assert_eq!(rig.events(), [LockEvent::Lost(LossReason::StoreReplaced)]);
        assert!(!rig.lock.is_held(at(310)));
        let ticket = rig.frees(310);
        rig.answer(320, ticket, by(after, Reply::Removed, Some(6)));
        assert!(rig.lock.is_settled());
    }
}

#[test]
fn a_renewal_at_the_same_store_is_one() {
    for store in [ONE, None] {
        let mut rig = held_at(store);
        let ticket = rig.takes(300);
        rig.answer(310, ticket, done_by(store, 6));
        rig.lock.handle_incarnation(at(310), store);
        assert_eq!(rig.events(), [LockEvent::Renewed { token: token(6) }]);
    }
}

#[test]
fn what_another_store_refuses_leaves_nothing_behind() {
    let mut rig = held_at(ONE);
    let ticket = rig.takes(300);
    rig.answer(310, ticket, by(TWO, Reply::NotApplied, Some(9)));
    assert_eq!(rig.events(), [LockEvent::Lost(LossReason::StoreReplaced)]);
    assert!(rig.lock.is_settled() && rig.lock.poll_action(at(310)).is_none());
}

#[test]
fn the_news_of_another_store_is_a_loss_at_once() {
    for under_way in [false, true] {
        let mut rig = held_at(ONE);
        let ticket = under_way.then(|| rig.takes(300));
        rig.lock.handle_incarnation(at(305), TWO);
        assert_eq!(rig.events(), [LockEvent::Lost(LossReason::StoreReplaced)]);
        assert_eq!(rig.lock.state(), LockState::Lost);
        if let Some(ticket) = ticket {
            assert!(rig.lock.poll_action(at(305)).is_none(), "one request at a time");
            rig.answer(310, ticket, done_by(ONE, 6));
        }
        rig.frees(310);
    }
}

#[test]
fn an_answer_of_a_store_that_is_gone_is_no_acquisition() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    let ticket = rig.takes(0);
    rig.lock.handle_incarnation(at(5), TWO);
    rig.answer(10, ticket, done_by(ONE, 9));
    assert_eq!((rig.events(), rig.lock.state()), (vec![], LockState::Waiting));
    // As far as the lock can tell the other may be the newer one: two answers in a row decide, at once.
    let ticket = rig.takes(10);
    rig.answer(20, ticket, done_by(TWO, 5));
    let due = rig.lock.poll_timeout().unwrap().as_millis();
    assert!((60..=100).contains(&due), "then with a pause: {due}");
    let ticket = rig.takes(due);
    rig.answer(due + 10, ticket, done_by(TWO, 6));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(6) }]);
}

#[test]
fn a_lock_that_is_wanted_anew_finds_its_way_to_the_new_store() {
    // The news comes before the answers, between them, after them, or not at all.
    for news in 0..4 {
        let mut rig = held_at(ONE);
        rig.lock.release(at(20));
        let ticket = rig.frees(20);
        rig.answer(30, ticket, by(ONE, Reply::Removed, Some(5)));
        rig.events();
        rig.lock.acquire(at(40), None).unwrap();
        let tell = |rig: &mut Rig, when, now| {
            if news == when {
                rig.lock.handle_incarnation(at(now), TWO);
            }
        };
        tell(&mut rig, 0, 40);
        let ticket = rig.takes_as(40, "me/3132333435363738/2");
        // The clock of the new store is behind.
        rig.answer(50, ticket, done_by(TWO, 2));
        tell(&mut rig, 1, 50);
        if news != 0 {
            let ticket = rig.takes_as(50, "me/3132333435363738/2");
            rig.answer(60, ticket, done_by(TWO, 3));
        }
        tell(&mut rig, 2, 60);
        let token = token(if news == 0 { 2 } else { 3 });
        assert_eq!(rig.events(), [LockEvent::Acquired { token }], "{news}");
        assert!(rig.lock.is_held(at(70)));
    }
}

#[test]
fn stores_that_answer_in_turn_do_not_make_a_lock_run_in_circles() {
    let mut rig = Rig::new(config());
    rig.lock.acquire(at(0), None).unwrap();
    rig.lock.handle_incarnation(at(0), TWO);
    let (mut now, mut tries) = (0, 0);
    while now < 3_000 && tries < 100 {
        let ticket = rig.takes(now);
        rig.answer(now, ticket, done_by([ONE, TWO][tries % 2], 5 + now));
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
        let ticket = rig.takes(0);
        rig.answer(0, ticket, done_by(store, 5));
    }
    assert_eq!(rig.events(), [LockEvent::GaveUp(NotAcquired::NoAnswer)], "one try has an end");
    let ticket = rig.frees(0);
    // Each try begins without doubts, and what is removed says which store there is too.
    rig.answer(10, ticket, by(ONE, Reply::Removed, Some(5)));
    rig.lock.try_acquire(at(20)).unwrap();
    for store in [TWO, TWO] {
        let ticket = rig.takes_as(20, "me/3132333435363738/2");
        rig.answer(30, ticket, done_by(store, 6));
    }
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(6) }]);
}

#[test]
fn the_answer_to_a_removal_says_which_store_there_is() {
    let mut rig = held_at(ONE);
    rig.lock.release(at(20));
    let ticket = rig.frees(20);
    rig.answer(30, ticket, by(TWO, Reply::NothingRemoved, None));
    rig.lock.acquire(at(40), None).unwrap();
    let ticket = rig.takes_as(40, "me/3132333435363738/2");
    rig.answer(50, ticket, done_by(TWO, 2));
    let released = LockEvent::Released { confirmed: true };
    assert_eq!(rig.events(), [released, LockEvent::Acquired { token: token(2) }]);
}

#[test]
fn a_single_try_is_enough_when_another_store_answers() {
    let mut rig = Rig::new(config());
    rig.lock.try_acquire(at(0)).unwrap();
    rig.lock.handle_incarnation(at(0), ONE);
    let ticket = rig.takes(0);
    rig.answer(10, ticket, done_by(TWO, 5));
    let ticket = rig.takes(10);
    rig.answer(20, ticket, done_by(TWO, 6));
    assert_eq!(rig.events(), [LockEvent::Acquired { token: token(6) }]);
}

/// A lock and its client in a world, driven as the documentation says.
struct Driven {
    lock: Lock,
    client: ClientIndex,
    tickets: BTreeMap<statestore_proto::client::RequestId, Ticket>,
    /// Whether the driver passes on what the client says of another store.
    tells: bool,
}

impl Driven {
    fn step(&mut self, world: &mut World) -> Vec<LockEvent> {
        while let Some(action) = self.lock.poll_action(world.now()) {
            if let Action::Submit { ticket, request } = action {
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
                Event::StoreReplaced { incarnation } if self.tells => {
                    self.lock.handle_incarnation(now, incarnation);
                }
                _ => {}
            }
        }
        self.lock.handle_timeout(now);
        std::iter::from_fn(|| self.lock.poll_event()).collect()
    }
}

/// What a holder is told whose store is replaced while it holds the lock, and another has taken it there and given it
/// back before the next renewal. Beside the event how many milliseconds after the replacement it came.
fn over_a_new_store(says_which: bool, tells: bool) -> (LockEvent, u128) {
    let mut world = World::new(7, Faults::default(), StoreConfig::new(7));
    if !says_which {
        // A store that does not know the question.
        let name = statestore_proto::message::property::INCARNATION;
        world.set_tamper(Box::new(move |message| {
            message.user_properties.retain(|(other, _)| *other != name);
        }));
    }
    let a = world.add_client("a", Clock::default()).unwrap();
    let b = world.add_client("b", Clock::default()).unwrap();
    world.run_for(millis(200));
    let config =
        LockConfig::new("lock", "a", *b"aaaaaaaa", millis(10_000)).renew_after(millis(5_000));
    let mut holder = Driven { lock: Lock::new(config), client: a, tickets: BTreeMap::new(), tells };
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
        assert!(outcomes.any(applied), "the other takes it and gives it back");
    }
    // The holder's application asks something else.
    let (client, now) = world.client(a).unwrap();
    client.submit(now, Holder::query("other")).unwrap();
    loop {
        if let [event] = &holder.step(&mut world)[..] {
            return (event.clone(), world.now().duration_since(replaced).as_millis());
        }
    }
}

#[test]
fn a_holder_whose_store_is_started_anew_is_told_that_its_lock_is_lost() {
    let (event, after) = over_a_new_store(true, true);
    assert_eq!(event, LockEvent::Lost(LossReason::StoreReplaced));
    assert!(after < 500, "at the next answer: {after}");
    let (event, after) = over_a_new_store(true, false);
    assert_eq!(event, LockEvent::Lost(LossReason::StoreReplaced));
    assert!((4_800..5_200).contains(&after), "at the renewal: {after}");
}

#[test]
fn a_store_that_does_not_say_which_it_is_renews_what_another_held() {
    let (event, _) = over_a_new_store(false, true);
    assert!(matches!(event, LockEvent::Renewed { .. }), "as the documentation says: {event:?}");
}
