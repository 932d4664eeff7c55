//! The client machine with those who wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use statestore_proto::client::{
    Client, Event, Outcome, Request, RequestId, SubmitError, WatchEvent, WatchId,
};
use statestore_proto::mqtt::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};
use statestore_proto::time::{Instant, Now};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use crate::machine::Machine;

/// Changes that wait for one observer; one that takes none for longer loses some and is told a gap.
const UPDATES_MAX: usize = 256;

/// What an observation needs: its watch, its changes, and whether some were lost.
pub(crate) type Started = (WatchId, mpsc::Receiver<WatchEvent>, Arc<AtomicBool>);

/// What handles ask of the drive loop.
pub(crate) enum Ask {
    Submit { key: u64, request: Request, answer: oneshot::Sender<Result<Outcome, SubmitError>> },
    Cancel { key: u64 },
    Observe { key: Bytes, answer: oneshot::Sender<Result<Started, SubmitError>> },
    Unobserve { id: WatchId },
    Refresh { id: WatchId },
}

/// One who waits for an outcome.
struct Waiter {
    key: u64,
    answer: oneshot::Sender<Result<Outcome, SubmitError>>,
}

/// One who observes.
struct Observer {
    updates: mpsc::Sender<WatchEvent>,
    lagged: Arc<AtomicBool>,
}

/// A client and those who wait for it.
pub(crate) struct Application {
    client: Client,
    waiters: BTreeMap<RequestId, Waiter>,
    by_key: BTreeMap<u64, RequestId>,
    observers: BTreeMap<WatchId, Observer>,
}

impl Application {
    pub(crate) const fn new(client: Client) -> Self {
        Self {
            client,
            waiters: BTreeMap::new(),
            by_key: BTreeMap::new(),
            observers: BTreeMap::new(),
        }
    }

    fn observe(&mut self, now: Now, key: Bytes) -> Result<Started, SubmitError> {
        let id = self.client.observe(now, key)?;
        let (updates, receiver) = mpsc::channel(UPDATES_MAX);
        let lagged = Arc::new(AtomicBool::new(false));
        self.observers.insert(id, Observer { updates, lagged: Arc::clone(&lagged) });
        Ok((id, receiver, lagged))
    }

    fn complete(&mut self, id: RequestId, outcome: Outcome) {
        if let Some(waiter) = self.waiters.remove(&id) {
            self.by_key.remove(&waiter.key);
            // Nobody to tell when the future was dropped.
            let _ = waiter.answer.send(Ok(outcome));
        }
    }

    /// Passes a change on. An observer that has no room for it is told nothing more until it has caught up, asks for a
    /// refresh, and is then told a gap.
    fn update(&mut self, now: Now, id: WatchId, event: WatchEvent) {
        let ended = matches!(event, WatchEvent::Ended(_));
        let Some(observer) = self.observers.get(&id) else { return };
        let lags = observer.lagged.load(Ordering::Acquire);
        let sent = if lags && !ended { Ok(()) } else { observer.updates.try_send(event) };
        match sent {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => observer.lagged.store(true, Ordering::Release),
            Err(TrySendError::Closed(_)) => {
                self.client.unobserve(now, id);
            }
        }
        if ended {
            self.observers.remove(&id);
        }
    }
}

impl Machine for Application {
    type Command = Ask;

    fn connected(&mut self, now: Now, session_present: bool) {
        self.client.handle_connected(now, session_present);
    }

    fn disconnected(&mut self, now: Now) {
        self.client.handle_disconnected(now);
    }

    fn subscribed(&mut self, now: Now, token: SubscribeToken, reason: ReasonCode) {
        self.client.handle_subscribed(now, token, reason);
    }

    fn published(&mut self, now: Now, token: PublishToken, reason: ReasonCode) {
        self.client.handle_published(now, token, reason);
    }

    fn message(&mut self, now: Now, incoming: &Incoming<'_>) {
        self.client.handle_publish(now, incoming);
    }

    fn client_gone(&mut self, _: &str) {}

    fn command(&mut self, now: Now, command: Ask) {
        match command {
            Ask::Submit { key, request, answer } if !answer.is_closed() => {
                match self.client.submit(now, request) {
                    Ok(id) => {
                        self.by_key.insert(key, id);
                        self.waiters.insert(id, Waiter { key, answer });
                    }
                    Err(error) => _ = answer.send(Err(error)),
                }
            }
            Ask::Submit { .. } => {}
            Ask::Cancel { key } => {
                if let Some(id) = self.by_key.get(&key) {
                    self.client.cancel(*id);
                }
            }
            Ask::Observe { key, answer } => {
                if let Err(Ok((id, ..))) = answer.send(self.observe(now, key)) {
                    self.client.unobserve(now, id);
                }
            }
            Ask::Unobserve { id } => _ = self.client.unobserve(now, id),
            Ask::Refresh { id } => _ = self.client.refresh(now, id),
        }
    }

    fn timeout(&mut self, now: Now) {
        self.client.handle_timeout(now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.client.poll_transmit()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    fn is_ready(&self) -> bool {
        self.client.is_ready()
    }

    fn wants_messages(&self) -> bool {
        true
    }

    fn wants_commands(&self) -> bool {
        self.client.has_room()
    }

    fn settle(&mut self, now: Now) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Completed { id, outcome } => self.complete(id, outcome),
                Event::Watch { id, event } => self.update(now, id, event),
                Event::SubscribeFailed { filter, reason } => {
                    warn!(%filter, %reason, "subscription refused")
                }
                Event::ClockDrift(drift) => warn!(%drift, "the store's clock is ahead"),
                other => debug!(?other, "event"),
            }
        }
    }
}
