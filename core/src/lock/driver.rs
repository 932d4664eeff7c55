//! Runs a lock on a client: carries actions to the client and events to the lock.

use alloc::vec::Vec;

use super::{Lock, LockAction, LockRequestId};
use crate::client::{Client, Event, RequestId, WatchEvent, WatchId};
use crate::time::{Instant, Now};

/// A [`Lock`] and its requests on a [`Client`], for programs that have both in one place. It
/// decides nothing.
///
/// After any call that may have changed the lock, call [`drive`](Self::drive) with the client. Pass
/// each event of the client to [`handle_event`](Self::handle_event). Call `drive` again at
/// [`poll_timeout`](Self::poll_timeout). The lock watches its key while it waits for another
/// holder, and after it has been held for a second. A client has one watch of a key. So if the
/// application or another lock [watches](Client::watch) the same key on this client, the lock
/// relies on time alone; and while the lock watches, the application cannot watch the key.
#[derive(Clone, Debug)]
pub struct LockDriver {
    lock: Lock,
    request: Option<(RequestId, LockRequestId)>,
    watch: Option<WatchId>,
    /// Earlier watches of the lock whose end was not polled yet.
    ending: Vec<WatchId>,
}

impl LockDriver {
    /// Drives a lock without outstanding requests.
    #[must_use]
    pub const fn new(lock: Lock) -> Self {
        Self { lock, request: None, watch: None, ending: Vec::new() }
    }

    /// The lock, to query its state.
    #[must_use]
    pub const fn lock(&self) -> &Lock {
        &self.lock
    }

    /// The lock, to acquire or release it and to poll its events; call [`drive`](Self::drive)
    /// afterwards.
    #[must_use]
    pub const fn lock_mut(&mut self) -> &mut Lock {
        &mut self.lock
    }

    /// Passes the lock's pending actions to the client.
    pub fn drive(&mut self, now: Now, client: &mut Client) {
        while let Some(action) = self.lock.poll_action(now.instant) {
            match action {
                LockAction::Submit { ticket, request } => match client.submit(now, request) {
                    Ok(id) => self.request = Some((id, ticket)),
                    Err(error) => self.lock.handle_outcome(now.instant, ticket, Err(error)),
                },
                LockAction::Watch(key) => self.watch = client.watch(now, key).ok(),
                LockAction::Unwatch => {
                    if let Some(id) = self.watch.take() {
                        // If the store has ended the watch, its end is still to be polled.
                        client.unwatch(now, id);
                        self.ending.push(id);
                    }
                }
            }
        }
    }

    /// Handles an event of the client. Returns the event unless it is only for this lock.
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
                self.watch = self.watch.filter(|_| !matches!(event, WatchEvent::Ended(_)));
                None
            }
            Event::Watch { id, event } if self.ending.contains(&id) => {
                if matches!(event, WatchEvent::Ended(_)) {
                    self.ending.retain(|ending| *ending != id);
                }
                None
            }
            Event::StoreReplaced { incarnation } => {
                self.lock.handle_incarnation(now.instant, incarnation);
                Some(Event::StoreReplaced { incarnation })
            }
            other => Some(other),
        }
    }

    /// The time to call [`drive`](Self::drive) again; `None` if no timer is set.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.lock.poll_timeout()
    }
}
