//! Locks on clients, by the adapter that a plain loop uses: in a whole world, and call by call.

use std::collections::BTreeMap;

use statestore_loopback::{ClientIndex, Clock, Faults, World};
use statestore_proto::client::{ClientConfig, Event, Request, SubmitError};
use statestore_proto::limits::ClientLimits;
use statestore_proto::lock::{BoundLock, Lock, LockConfig, LockEvent, LossReason, NotAcquired};
use statestore_proto::store::StoreConfig;

use super::millis;

struct Here {
    world: World,
    locks: BTreeMap<usize, BoundLock>,
}

impl Here {
    fn new(names: &[&str]) -> Self {
        let mut world = World::new(0, Faults::default(), StoreConfig::new(0));
        let locks = names.iter().zip(0..).map(|(name, nonce)| {
            let index = world.add_client(name, Clock::default()).expect("a free name");
            let config = LockConfig::new("lock", name, [nonce; 8], millis(1_000));
            (index.0, BoundLock::new(Lock::new(config)))
        });
        let locks = locks.collect();
        let mut here = Self { world, locks };
        here.pass(10);
        here
    }

    fn acquire(&mut self, who: usize) {
        let now = self.world.now();
        let lock = self.locks.get_mut(&who).expect("it is one of them").lock_mut();
        lock.acquire(now, None).expect("it is free to");
        self.drive();
    }

    /// Drives each lock as its documentation says. The clocks of the clients are the world's.
    fn drive(&mut self) {
        for (index, bound) in &mut self.locks {
            let index = ClientIndex(*index);
            while let Some(event) = self.world.poll_event(index) {
                let (_, now) = self.world.client(index).expect("it is there");
                let _ = bound.handle_event(now, event);
            }
            let (client, now) = self.world.client(index).expect("it is there");
            bound.drive(now, client);
        }
    }

    fn pass(&mut self, millis_more: u64) {
        let end = self.world.now() + millis(millis_more);
        loop {
            self.drive();
            let due = self.locks.values().filter_map(BoundLock::poll_timeout).min();
            let limit = due.map_or(end, |due| due.min(end)).max(self.world.now());
            if !self.world.step(limit) && self.world.now() >= end {
                return self.drive();
            }
        }
    }

    fn told(&mut self, who: usize) -> Vec<LockEvent> {
        let lock = self.locks.get_mut(&who).expect("it is one of them").lock_mut();
        std::iter::from_fn(|| lock.poll_event()).collect()
    }
}

#[test]
fn locks_take_turns() {
    let mut here = Here::new(&["a", "b"]);
    here.acquire(0);
    here.acquire(1);
    here.pass(5_000);
    let told = here.told(0);
    let first = |told: &[LockEvent]| match &told[0] {
        LockEvent::Acquired { token } => token.clone(),
        other => panic!("{other:?}"),
    };
    let earlier = first(&told);
    assert!(matches!(told.last(), Some(LockEvent::Renewed { .. })), "{told:?}");
    assert_eq!(here.told(1), [], "it waits");
    let now = here.world.now();
    assert!(here.locks.get_mut(&0).expect("it is there").lock_mut().release(now));
    here.pass(10);
    assert_eq!(here.told(0), [LockEvent::Released { confirmed: true }]);
    let told = here.told(1);
    assert!(first(&told) > earlier, "told at once, by the watch of the key");
    assert!(here.locks[&1].lock().is_held(here.world.now()));
    let now = here.world.now();
    here.locks.get_mut(&1).expect("it is there").lock_mut().release(now);
    here.pass(2_000);
    assert!(here.locks.values().all(|bound| bound.lock().is_settled()));
}

#[test]
fn another_store_is_told_on() {
    let mut here = Here::new(&["a"]);
    here.acquire(0);
    here.pass(10);
    assert_eq!(here.told(0).len(), 1);
    here.world.replace_store(StoreConfig::new(0));
    here.pass(500);
    let told = here.told(0);
    assert!(told.contains(&LockEvent::Lost(LossReason::StoreReplaced)), "{told:?}");
}

#[test]
fn what_is_not_the_lock_s_comes_back() {
    let mut here = Here::new(&["a"]);
    here.acquire(0);
    here.pass(10);
    let (client, now) = here.world.client(ClientIndex(0)).expect("it is there");
    let id = client.submit(now, Request::get("other")).expect("there is room");
    here.world.run_for(millis(1));
    let event = here.world.poll_event(ClientIndex(0)).expect("it is answered");
    let bound = here.locks.get_mut(&0).expect("it is there");
    let back = bound.handle_event(now, event);
    assert!(matches!(back, Some(Event::Completed { id: of, .. }) if of == id), "{back:?}");
    let replaced = Event::StoreReplaced { incarnation: None };
    assert_eq!(bound.handle_event(now, replaced.clone()), Some(replaced), "others need it too");
}

#[test]
fn a_lock_takes_the_events_of_its_own_watch_and_leaves_the_others() {
    let mut here = Here::new(&["a", "b"]);
    here.acquire(0);
    here.pass(10);
    here.acquire(1);
    here.pass(10);
    let (client, now) = here.world.client(ClientIndex(1)).expect("it is there");
    let other = client.watch(now, "other").expect("there is room");
    let now = here.world.now();
    assert!(here.locks.get_mut(&0).expect("it is there").lock_mut().release(now));
    let (first, index) = (ClientIndex(0), ClientIndex(1));
    let (mut own, mut others) = (0, 0);
    for _ in 0..20 {
        let (client, now) = here.world.client(first).expect("it is there");
        here.locks.get_mut(&0).expect("it is there").drive(now, client);
        here.world.run_for(millis(1));
        while let Some(event) = here.world.poll_event(index) {
            let is_watch = matches!(event, Event::Watch { .. });
            let is_other = matches!(event, Event::Watch { id, .. } if id == other);
            let (_, now) = here.world.client(index).expect("it is there");
            let back = here.locks.get_mut(&1).expect("it is there").handle_event(now, event);
            assert_eq!(back.is_some(), is_other || !is_watch, "{back:?}");
            own += u32::from(is_watch && !is_other);
            others += u32::from(is_other);
        }
    }
    assert!(own >= 1 && others >= 1, "{own} and {others}");
    let now = here.world.now();
    let bound = &here.locks[&1];
    assert!(bound.poll_timeout().is_none_or(|due| due <= now), "it tries at once");
}

#[test]
fn a_client_that_is_full_is_told_to_the_lock() {
    let limits = ClientLimits { pending_max: 0, ..ClientLimits::default() };
    let config = ClientConfig::new("a", [0; 8]).expect("a name").limits(limits);
    let mut client = statestore_proto::client::Client::new(config);
    let mut lock = BoundLock::new(Lock::new(LockConfig::new("lock", "a", [0; 8], millis(1_000))));
    let now = statestore_proto::time::Now::default();
    lock.lock_mut().try_acquire(now.instant).expect("it is free to");
    lock.drive(now, &mut client);
    let told = lock.lock_mut().poll_event();
    assert_eq!(told, Some(LockEvent::GaveUp(NotAcquired::NotAccepted(SubmitError::Full))));
}
