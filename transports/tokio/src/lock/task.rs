//! The task behind a lock: it passes on what the machine wants and what becomes of it, and decides nothing.

use std::future::Future;
use std::pin::Pin;

use statestore_proto::client::{Outcome, SubmitError, WatchEvent};
use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{Action, Lock, LockConfig, LockEvent, Ticket};
use statestore_proto::message::Incarnation;
use statestore_proto::time::Instant;
use tokio::sync::{mpsc, watch};
use tracing::{debug, debug_span, warn};

use super::LeasedLock;
use crate::clock::Clock;
use crate::error::{Error, StoreClosed};
use crate::fence::{End, LockStatus};
use crate::handle::StateStore;
use crate::releases::Release;
use crate::watch::Watch;

type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A lock and what it has outstanding.
pub(super) struct LockTask {
    lock: Lock,
    store: StateStore,
    clock: Clock,
    request: Option<(Ticket, Task<Result<Outcome, Error>>)>,
    watching: Watching,
    replacements: watch::Receiver<Option<Incarnation>>,
    over: bool,
}

/// How far the watch of the key is.
enum Watching {
    Off,
    Starting(Task<Result<Watch, Error>>),
    On(Watch),
}

/// What happened.
enum News {
    Outcome(Ticket, Result<Outcome, Error>),
    Watching(Result<Watch, Error>),
    Watch(Option<WatchEvent>),
    FencedOut(FencingToken),
    /// Another store has taken the place of the one before.
    Replaced,
    Stop,
    Time,
}

impl LockTask {
    /// The task of a lock that is wanted from now on.
    pub(super) fn new(wanted: &LeasedLock, config: LockConfig, clock: Clock, once: bool) -> Self {
        let mut lock = Lock::new(config);
        let now = clock.now().instant;
        // A new lock is neither held nor waited for.
        let _ = if once {
            lock.try_acquire(now)
        } else {
            lock.acquire(now, wanted.wait.map(|wait| now + wait))
        };
        let store = wanted.store.clone();
        let replacements = store.replacements();
        let watching = Watching::Off;
        Self { lock, store, clock, request: None, watching, replacements, over: false }
    }

    /// Runs until the lock is over and leaves nothing behind.
    pub(super) async fn run(
        mut self,
        status: watch::Sender<LockStatus>,
        mut fenced_out: mpsc::Receiver<FencingToken>,
        mut stop: watch::Receiver<Option<Release>>,
    ) {
        let mut stopping = false;
        loop {
            self.dispatch();
            self.tell(&status);
            if self.over && self.lock.is_settled() {
                return;
            }
            let news = tokio::select! {
                (ticket, outcome) = requested(&mut self.request) => News::Outcome(ticket, outcome),
                news = watched(&mut self.watching) => news,
                Some(token) = fenced_out.recv() => News::FencedOut(token),
                Ok(()) = self.replacements.changed() => News::Replaced,
                // A guard that is gone has said so, or its runtime ends.
                _ = stop.wait_for(Option::is_some), if !stopping => News::Stop,
                () = self.clock.sleep_until(self.lock.poll_timeout()) => News::Time,
            };
            stopping |= matches!(news, News::Stop);
            if let Err(closed) = self.take(news) {
                // Nothing can be asked any more: what the store still has ends with its lease.
                if !self.over {
                    status.send_replace(LockStatus::Over(End::Closed(closed)));
                }
                return;
            }
        }
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }

    /// Does what the lock wants done.
    fn dispatch(&mut self) {
        while let Some(action) = self.lock.poll_action(self.clock.now().instant) {
            match action {
                Action::Submit { ticket, request } => {
                    let store = self.store.clone();
                    let verb = request.kind();
                    let span = debug_span!("lock", ?verb, id = tracing::field::Empty);
                    let outcome = async move { store.outcome(request, span).await };
                    self.request = Some((ticket, Box::pin(outcome)));
                }
                Action::Watch(key) => {
                    let store = self.store.clone();
                    let watch = async move { store.watch(key).await };
                    self.watching = Watching::Starting(Box::pin(watch));
                }
                Action::Unwatch => self.watching = Watching::Off,
                other => warn!(?other, "an unknown wish of a lock"),
            }
        }
    }

    /// Passes on what the lock tells.
    fn tell(&mut self, status: &watch::Sender<LockStatus>) {
        while let Some(event) = self.lock.poll_event() {
            debug!(?event, "lock");
            let end = match event {
                LockEvent::GaveUp(reason) => End::GaveUp(reason),
                LockEvent::Lost(loss) => End::Lost(loss),
                LockEvent::Released { confirmed } => End::Released { confirmed },
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
            self.over = true;
            status.send_replace(LockStatus::Over(end));
        }
    }

    fn take(&mut self, news: News) -> Result<(), StoreClosed> {
        let now = self.now();
        // It may have been said before whatever else there is to take now; after that does no harm.
        if matches!(news, News::Replaced) || self.replacements.has_changed().unwrap_or(false) {
            let incarnation = *self.replacements.borrow_and_update();
            self.lock.handle_incarnation(now, incarnation);
        }
        match news {
            News::Outcome(ticket, outcome) => {
                let outcome = told(outcome)?;
                self.lock.handle_outcome(now, ticket, outcome);
            }
            // One that cannot watch goes by time.
            News::Watching(watch) => {
                self.watching = watch.map_or(Watching::Off, Watching::On);
            }
            News::Watch(Some(event)) => self.lock.handle_watch(now, &event),
            News::Watch(None) => self.watching = Watching::Off,
            News::FencedOut(token) => self.lock.handle_fenced_out(now, &token),
            News::Stop => _ = self.lock.release(now),
            News::Replaced | News::Time => self.lock.handle_timeout(now),
        }
        Ok(())
    }
}

/// The outcome of a request as the machine knows it.
fn told(outcome: Result<Outcome, Error>) -> Result<Result<Outcome, SubmitError>, StoreClosed> {
    match outcome {
        Ok(outcome) => Ok(Ok(outcome)),
        Err(Error::Invalid(error)) => Ok(Err(error)),
        Err(Error::Closed(closed)) => Err(closed),
        // All others are outcomes in words.
        Err(_) => Ok(Ok(Outcome::TimedOut { sent: true })),
    }
}

async fn requested(
    request: &mut Option<(Ticket, Task<Result<Outcome, Error>>)>,
) -> (Ticket, Result<Outcome, Error>) {
    let Some((ticket, task)) = request else { return std::future::pending().await };
    let done = (*ticket, task.await);
    *request = None;
    done
}

async fn watched(watching: &mut Watching) -> News {
    match watching {
        Watching::Off => std::future::pending().await,
        Watching::Starting(task) => News::Watching(task.await),
        Watching::On(watch) => News::Watch(watch.next().await),
    }
}
