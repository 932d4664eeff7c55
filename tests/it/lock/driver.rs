//! The lock driver: in a simulated world, and call by call.

use std::collections::BTreeMap;

use statestore_proto::client::{ClientConfig, Event, Request, SubmitError};
use statestore_proto::limits::ClientLimits;
use statestore_proto::lock::{Lock, LockConfig, LockDriver, LockEvent, LossReason, NotAcquired};
use statestore_proto::store::{Access, StoreConfig};
use statestore_sim::{ClientIndex, Clock, Faults, World};

use super::millis;

struct Here {
    world: World,
    locks: BTreeMap<usize, LockDriver>,
    /// The requests and watches whose events the drivers returned.
    returned: Vec<Event>,
}

impl Here {
    fn new(names: &[&str]) -> Self {
        Self::with_store(names, StoreConfig::new(0))
    }

    fn with_store(names: &[&str], store: StoreConfig) -> Self {
        let mut world = World::new(0, Faults::default(), store);
        let locks = names.iter().zip(0..).map(|(name, nonce)| {
            let index = world.add_client(name, Clock::default()).expect("a free name");
            let config = LockConfig::new("lock", name, [nonce; 8], millis(1_000));
            (index.0, LockDriver::new(Lock::new(config).expect("a valid configuration")))
        });
        let locks = locks.collect();
        let mut here = Self { world, locks, returned: Vec::new() };
        here.pass(10);
        here
    }

    fn acquire(&mut self, who: usize) {
        let now = self.world.now();
        let lock = self.locks.get_mut(&who).expect("it is one of them").lock_mut();
        lock.acquire(now, None).expect("it is free to");
        self.drive();
    }

    /// Drives each lock as documented. The clients use the clock of the world.
    fn drive(&mut self) {
        for (index, driver) in &mut self.locks {
            let index = ClientIndex(*index);
            while let Some(event) = self.world.poll_event(index) {
                let (_, now) = self.world.client(index).expect("it is there");
                let returned = driver.handle_event(now, event);
                self.returned.extend(returned.filter(|event| {
                    matches!(event, Event::Watch { .. } | Event::Completed { .. })
                }));
            }
            let (client, now) = self.world.client(index).expect("it is there");
            driver.drive(now, client);
        }
    }

    fn pass(&mut self, millis_more: u64) {
        let end = self.world.now() + millis(millis_more);
        loop {
            self.drive();
            let due = self.locks.values().filter_map(LockDriver::poll_timeout).min();
            let limit = due.map_or(end, |due| due.min(end)).max(self.world.now());
            if !self.world.step(limit) && self.world.now() >= end {
                return self.drive();
            }
        }
    }

    fn reported(&mut self, who: usize) -> Vec<LockEvent> {
        let lock = self.locks.get_mut(&who).expect("it is one of them").lock_mut();
        std::iter::from_fn(|| lock.poll_event()).collect()
    }
}

#[test]
fn released_lock_passes_to_the_waiting_lock_at_once() {
    let mut here = Here::new(&["a", "b"]);
    here.acquire(0);
    here.acquire(1);
    here.pass(5_000);
    let reported = here.reported(0);
    let first = |reported: &[LockEvent]| match &reported[0] {
        LockEvent::Acquired { token } => token.clone(),
        other => panic!("{other:?}"),
    };
    let earlier = first(&reported);
    assert!(matches!(reported.last(), Some(LockEvent::Renewed { .. })), "{reported:?}");
    assert_eq!(here.reported(1), [], "it waits");
    let now = here.world.now();
    assert!(here.locks.get_mut(&0).expect("it is there").lock_mut().release(now));
    here.pass(10);
    assert_eq!(here.reported(0), [LockEvent::Released { confirmed: true }]);
    let reported = here.reported(1);
    assert!(first(&reported) > earlier, "notified at once by the watch of the key");
    assert!(here.locks[&1].lock().is_held(here.world.now()));
    let now = here.world.now();
    here.locks.get_mut(&1).expect("it is there").lock_mut().release(now);
    here.pass(2_000);
    assert!(here.locks.values().all(|driver| driver.lock().is_settled()));
    assert_eq!(here.returned, [], "the application has made no request and no watch");
}

#[test]
fn driver_consumes_the_end_of_its_own_watch() {
    let mut here = Here::new(&["a", "b"]);
    here.acquire(0);
    here.pass(10);
    // Each round begins before the watch of the one before has ended.
    for _ in 0..3 {
        here.acquire(1);
        here.pass(2);
        let now = here.world.now();
        assert!(here.locks.get_mut(&1).expect("it is there").lock_mut().release(now));
        here.drive();
    }
    here.pass(10);
    let (client, _) = here.world.client(ClientIndex(1)).expect("it is there");
    assert_eq!(client.watches(), 0, "each watch has ended");
    assert_eq!(here.returned, [], "the application has made no watch");
}

#[test]
fn driver_consumes_a_refusal_of_its_watch_that_is_polled_after_the_release() {
    let no_reads = StoreConfig::new(0).authorizer(|_, access, _| access != Access::Read);
    let mut here = Here::with_store(&["a", "b"], no_reads);
    here.acquire(0);
    here.pass(10);
    here.acquire(1);
    here.world.run_for(millis(1));
    here.drive();
    here.world.run_for(millis(1));
    let (client, now) = here.world.client(ClientIndex(1)).expect("it is there");
    assert_eq!(client.watches(), 0, "the store has refused the watch");
    let driver = here.locks.get_mut(&1).expect("it is there");
    assert!(driver.lock_mut().release(now.instant));
    driver.drive(now, client);
    here.drive();
    assert_eq!(here.returned, [], "the application has made no watch");
}

#[test]
fn driver_reports_a_replaced_store_to_the_lock() {
    let mut here = Here::new(&["a"]);
    here.acquire(0);
    here.pass(10);
    assert_eq!(here.reported(0).len(), 1);
    here.world.replace_store(StoreConfig::new(0));
    here.pass(500);
    let reported = here.reported(0);
    assert!(reported.contains(&LockEvent::Lost(LossReason::StoreReplaced)), "{reported:?}");
}

#[test]
fn driver_returns_events_that_are_not_for_its_lock() {
    let mut here = Here::new(&["a"]);
    here.acquire(0);
    here.pass(10);
    let (client, now) = here.world.client(ClientIndex(0)).expect("it is there");
    let id = client.submit(now, Request::get("other")).expect("there is room");
    here.world.run_for(millis(1));
    let event = here.world.poll_event(ClientIndex(0)).expect("it is answered");
    let driver = here.locks.get_mut(&0).expect("it is there");
    let back = driver.handle_event(now, event);
    assert!(matches!(back, Some(Event::Completed { id: of, .. }) if of == id), "{back:?}");
    let replaced = Event::StoreReplaced { incarnation: None };
    assert_eq!(
        driver.handle_event(now, replaced.clone()),
        Some(replaced),
        "other locks need it too"
    );
}

#[test]
fn driver_consumes_only_the_events_of_its_own_watch() {
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
    let driver = &here.locks[&1];
    assert!(driver.poll_timeout().is_none_or(|due| due <= now), "it tries at once");
}

#[test]
fn full_client_fails_a_single_try() {
    let limits = ClientLimits { pending_max: 0, ..ClientLimits::default() };
    let config = ClientConfig::new("a", [0; 8]).limits(limits);
    let mut client = statestore_proto::client::Client::new(config).expect("a name");
    let lock = Lock::new(LockConfig::new("lock", "a", [0; 8], millis(1_000)));
    let mut lock = LockDriver::new(lock.expect("a valid configuration"));
    let now = statestore_proto::time::Now::default();
    lock.lock_mut().try_acquire(now.instant).expect("it is free to");
    lock.drive(now, &mut client);
    let reported = lock.lock_mut().poll_event();
    assert_eq!(
        reported,
        Some(LockEvent::AcquireFailed(NotAcquired::NotAccepted(SubmitError::Full)))
    );
}
