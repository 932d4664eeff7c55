//! A lock on a client: passes on what the one wants and the other tells.

use super::{Action, Lock, Ticket};
use crate::client::{Client, Event, RequestId, WatchId};
use crate::time::{Instant, Now};

/// A [`Lock`] that runs on a [`Client`], for a driver that has both in one place. It decides nothing.
///
/// After anything that may have moved the lock, call [`drive`](Self::drive) with the client; give each event of the client
/// to [`handle_event`](Self::handle_event); call `drive` again when [`poll_timeout`](Self::poll_timeout) says. The lock
/// watches its key at times, so the application cannot [watch](Client::watch) the same key on this client meanwhile, or the
/// lock relies on time alone.
#[derive(Clone, Debug)]
pub struct BoundLock {
    lock: Lock,
    request: Option<(RequestId, Ticket)>,
    watch: Option<WatchId>,
}

impl BoundLock {
    /// Binds a lock that has nothing outstanding.
    #[must_use]
    pub const fn new(lock: Lock) -> Self {
        Self { lock, request: None, watch: None }
    }

    /// The lock: ask it whether it is held.
    #[must_use]
    pub const fn lock(&self) -> &Lock {
        &self.lock
    }

    /// The lock, to acquire or release it and to take its events; [`drive`](Self::drive) it afterwards.
    #[must_use]
    pub const fn lock_mut(&mut self) -> &mut Lock {
        &mut self.lock
    }

    /// Has the client do what the lock wants done now.
    pub fn drive(&mut self, now: Now, client: &mut Client) {
        while let Some(action) = self.lock.poll_action(now.instant) {
            match action {
                Action::Submit { ticket, request } => match client.submit(now, request) {
                    Ok(id) => self.request = Some((id, ticket)),
                    Err(error) => self.lock.handle_outcome(now.instant, ticket, Err(error)),
                },
                Action::Watch(key) => self.watch = client.watch(now, key).ok(),
                Action::Unwatch => {
                    if let Some(id) = self.watch.take() {
                        client.unwatch(now, id);
                    }
                }
            }
        }
    }

    /// Handles an event of the client, and returns it when it is not for this lock alone.
    #[must_use = "other events are for the application, or for another lock"]
    pub fn handle_event(&mut self, now: Now, event: Event) -> Option<Event> {
        match event {
            Event::Completed { id, outcome } => {
                let Some((_, ticket)) = self.request.take_if(|(own, _)| *own == id) else {
                    return Some(Event::Completed { id, outcome });
                };
                self.lock.handle_outcome(now.instant, ticket, Ok(outcome));
                None
            }
            Event::Watch { id, event } if self.watch == Some(id) => {
                self.lock.handle_watch(now.instant, &event);
                None
            }
            Event::StoreReplaced { incarnation } => {
                self.lock.handle_incarnation(now.instant, incarnation);
                Some(Event::StoreReplaced { incarnation })
            }
            other => Some(other),
        }
    }

    /// When to call [`drive`](Self::drive) again; `None` when nothing is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.lock.poll_timeout()
    }
}
