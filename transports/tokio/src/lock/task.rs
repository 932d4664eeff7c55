//! The task behind a lock: it executes the actions of the machine and passes on their outcomes, and
//! decides nothing.

use std::future::Future;
use std::pin::Pin;

use statestore_proto::client::{Outcome, RequestError, SubmitError, WatchEvent};
use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{Lock, LockAction, LockEvent, LockRequestId, NotAcquired};
use statestore_proto::message::Incarnation;
use statestore_proto::time::Instant;
use tokio::sync::{mpsc, watch};
use tracing::{debug, debug_span, warn};

use super::LeasedLock;
use crate::client::error::Error;
use crate::client::fence::{LockEnd, LockStatus};
use crate::client::handle::StateStore;
use crate::client::releases::Release;
use crate::client::watch::Watch;
use crate::closed::StoreClosed;
use crate::drive::clock::Clock;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A lock machine with its request and its watch.
pub(super) struct LockTask {
    lock: Lock,
    store: StateStore,
    clock: Clock,
    request: Option<(LockRequestId, BoxFuture<Result<Outcome, Error>>)>,
    watching: Watching,
    replacements: watch::Receiver<Option<Incarnation>>,
    is_over: bool,
    /// The failure of the last request; none after a response. Before the first outcome, no store
    /// has answered.
    failure: Option<NotAcquired>,
}

/// State of the watch of the key.
enum Watching {
    Off,
    Starting(BoxFuture<Result<Watch, Error>>),
    On(Watch),
}

/// The reason why the task has woken.
enum Wakeup {
    Outcome(LockRequestId, Result<Outcome, Error>),
    Watching(Result<Watch, Error>),
    Watch(Option<WatchEvent>),
    FencedOut(FencingToken),
    /// The store was restarted or replaced.
    Replaced,
    Stop,
    Time,
}

impl LockTask {
    /// The task of a lock that begins to acquire its key.
    pub(super) fn new(settings: &LeasedLock, mut lock: Lock, clock: Clock, once: bool) -> Self {
        let now = clock.now().instant;
        // A new lock is idle, so this cannot fail.
        let _ = if once {
            lock.try_acquire(now)
        } else {
            lock.acquire(now, settings.acquire_timeout.map(|timeout| now + timeout))
        };
        let store = settings.store.clone();
        let replacements = store.incarnations();
        let watching = Watching::Off;
        let failure = Some(NotAcquired::NoAnswer);
        Self { lock, store, clock, request: None, watching, replacements, is_over: false, failure }
    }

    /// Runs until the lock is over and has no requests in flight.
    pub(super) async fn run(
        mut self,
        status: watch::Sender<LockStatus>,
        mut fenced_out: mpsc::Receiver<FencingToken>,
        mut stop: watch::Receiver<Option<Release>>,
    ) {
        let mut stopping = false;
        loop {
            self.dispatch();
            self.publish_events(&status);
            if self.is_over && self.lock.is_settled() {
                return;
            }
            let wakeup = tokio::select! {
                (id, outcome) = next_outcome(&mut self.request) => Wakeup::Outcome(id, outcome),
                wakeup = next_watch_event(&mut self.watching) => wakeup,
                Some(token) = fenced_out.recv() => Wakeup::FencedOut(token),
                Ok(()) = self.replacements.changed() => Wakeup::Replaced,
                // A dropped guard has sent its release; otherwise the runtime is ending.
                _ = stop.wait_for(Option::is_some), if !stopping => Wakeup::Stop,
                () = self.clock.sleep_until(self.lock.poll_timeout()) => Wakeup::Time,
            };
            stopping |= matches!(wakeup, Wakeup::Stop);
            if let Err(closed) = self.handle(wakeup) {
                // No request can be sent any more. If the store still holds the lock, its lease
                // runs out.
                if !self.is_over {
                    status.send_replace(LockStatus::Over(LockEnd::Closed(closed)));
                }
                return;
            }
        }
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }

    /// Executes the actions of the machine.
    fn dispatch(&mut self) {
        while let Some(action) = self.lock.poll_action(self.clock.now().instant) {
            match action {
                LockAction::Submit { ticket, request } => {
                    let store = self.store.clone();
                    let verb = request.kind();
                    let span = debug_span!("lock", ?verb, id = tracing::field::Empty);
                    let outcome = async move { store.outcome(request, span).await };
                    self.request = Some((ticket, Box::pin(outcome)));
                }
                LockAction::Watch(key) => {
                    let store = self.store.clone();
                    let watch = async move { store.watch(key).await };
                    self.watching = Watching::Starting(Box::pin(watch));
                }
                LockAction::Unwatch => self.watching = Watching::Off,
                other => warn!(?other, "unsupported action of a lock"),
            }
        }
    }

    /// Publishes the events of the machine.
    fn publish_events(&mut self, status: &watch::Sender<LockStatus>) {
        while let Some(event) = self.lock.poll_event() {
            debug!(?event, "lock");
            let end = match event {
                // Without a store, nobody knows whether the lock is free.
                LockEvent::AcquireFailed(NotAcquired::Deadline) => {
                    LockEnd::AcquireFailed(self.failure.take().unwrap_or(NotAcquired::Deadline))
                }
                LockEvent::AcquireFailed(reason) => LockEnd::AcquireFailed(reason),
                LockEvent::Lost(loss) => LockEnd::Lost(loss),
                LockEvent::Released { confirmed } => LockEnd::Released { confirmed },
                _ => {
                    let now = self.now();
                    let (token, until) = (self.lock.token(now), self.lock.held_until());
                    if let (Some(token), Some(until)) = (token.cloned(), until) {
                        let until = self.clock.at(until);
                        status.send_replace(LockStatus::Held { token, until });
                    }
                    continue;
                }
            };
            self.is_over = true;
            status.send_replace(LockStatus::Over(end));
        }
    }

    fn handle(&mut self, wakeup: Wakeup) -> Result<(), StoreClosed> {
        let now = self.now();
        // The replacement may have preceded this event, so handle it first. Handling it twice is
        // harmless.
        if matches!(wakeup, Wakeup::Replaced) || self.replacements.has_changed().unwrap_or(false) {
            let incarnation = *self.replacements.borrow_and_update();
            self.lock.handle_incarnation(now, incarnation);
        }
        match wakeup {
            Wakeup::Outcome(ticket, outcome) => {
                let outcome = machine_outcome(outcome)?;
                self.failure = failure_of(&outcome);
                self.lock.handle_outcome(now, ticket, outcome);
            }
            // Without a watch, the machine retries by time.
            Wakeup::Watching(watch) => {
                self.watching = watch.map_or(Watching::Off, Watching::On);
            }
            Wakeup::Watch(Some(event)) => self.lock.handle_watch(now, &event),
            Wakeup::Watch(None) => self.watching = Watching::Off,
            Wakeup::FencedOut(token) => self.lock.handle_fenced_out(now, &token),
            Wakeup::Stop => _ = self.lock.release(now),
            Wakeup::Replaced | Wakeup::Time => self.lock.handle_timeout(now),
        }
        Ok(())
    }
}

/// The reason why a request got no response.
fn failure_of(outcome: &Result<Outcome, SubmitError>) -> Option<NotAcquired> {
    match outcome {
        Ok(Outcome::Undelivered(reason)) => {
            Some(NotAcquired::Unreachable(RequestError::Undelivered(*reason)))
        }
        Ok(Outcome::TimedOut { sent: false }) => {
            Some(NotAcquired::Unreachable(RequestError::NotSent))
        }
        Ok(Outcome::TimedOut { sent: true } | Outcome::ConnectionLost) => {
            Some(NotAcquired::NoAnswer)
        }
        _ => None,
    }
}

/// Converts the outcome of a request for the machine.
fn machine_outcome(
    outcome: Result<Outcome, Error>,
) -> Result<Result<Outcome, SubmitError>, StoreClosed> {
    match outcome {
        Ok(outcome) => Ok(Ok(outcome)),
        Err(Error::Invalid(error)) => Ok(Err(error)),
        Err(Error::Closed(closed)) => Err(closed),
        Err(Error::NotSent { .. }) => Ok(Ok(Outcome::TimedOut { sent: false })),
        Err(Error::Undelivered(reason)) => Ok(Ok(Outcome::Undelivered(reason))),
        // The other errors are timeouts.
        Err(_) => Ok(Ok(Outcome::TimedOut { sent: true })),
    }
}

async fn next_outcome(
    request: &mut Option<(LockRequestId, BoxFuture<Result<Outcome, Error>>)>,
) -> (LockRequestId, Result<Outcome, Error>) {
    let Some((ticket, task)) = request else { return std::future::pending().await };
    let done = (*ticket, task.await);
    *request = None;
    done
}

async fn next_watch_event(watching: &mut Watching) -> Wakeup {
    match watching {
        Watching::Off => std::future::pending().await,
        Watching::Starting(task) => Wakeup::Watching(task.await),
        Watching::On(watch) => Wakeup::Watch(watch.next().await),
    }
}
