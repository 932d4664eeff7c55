//! A store behind a link.

use std::sync::{Arc, Mutex, PoisonError};

use statestore_proto::message::KeyPreview;
use statestore_proto::mqtt::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};
use statestore_proto::store::{Counters, Handled, Principal, Store, StoreConfig};
use statestore_proto::time::{Instant, Now};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{Level, debug, field};

use crate::backoff::{Backoff, Pauses};
use crate::clock::Clock;
use crate::drive::{Driver, Status};
use crate::error::StoreClosed;
use crate::link::Link;
use crate::machine::Machine;

/// A running store. Dropping it stops the store.
#[derive(Debug)]
pub struct StoreService {
    stop: watch::Sender<bool>,
    status: watch::Receiver<Status>,
    stats: Arc<Mutex<StoreStats>>,
    task: JoinHandle<()>,
    // Its end would end the drive loop.
    _commands: mpsc::Sender<Never>,
}

/// What a store holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Keys stored.
    pub keys: usize,
    /// Bytes of all keys and values.
    pub bytes: usize,
    /// Registrations for notifications.
    pub watches: usize,
    /// Requests and what became of them.
    pub counters: Counters,
}

/// Makes a [`StoreService`].
#[derive(Debug)]
pub struct ServiceBuilder {
    config: StoreConfig,
    backoff: Backoff,
}

impl ServiceBuilder {
    /// Another configuration of the store machine: limits, authorizer, dialect. A store without an incarnation gets one
    /// drawn at random when it starts.
    #[must_use]
    pub fn config(mut self, config: StoreConfig) -> Self {
        self.config = config;
        self
    }

    /// Other pauses between tries to connect.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Starts the drive loop on this runtime. It connects at once, and again whenever the connection is lost; the
    /// values are kept meanwhile.
    pub fn spawn(self, link: impl Link) -> StoreService {
        let (commands, receiver) = mpsc::channel(1);
        let (stop, stopped) = watch::channel(false);
        let (status, status_of) = watch::channel(Status::Offline(None));
        let stats = Arc::new(Mutex::new(StoreStats::default()));
        let mut rng = fastrand::Rng::new();
        let config = match self.config {
            config if config.has_incarnation() => config,
            config => config.incarnation(rng.u64(..)),
        };
        let driver = Driver {
            machine: StoreTask {
                store: Store::new(config),
                subscribed: false,
                stats: Arc::clone(&stats),
                is_news: false,
            },
            link,
            commands: receiver,
            stop: stopped,
            status,
            pauses: Pauses::new(self.backoff, rng),
            clock: Clock::new(),
        };
        let task = tokio::spawn(driver.run());
        StoreService { stop, status: status_of, stats, task, _commands: commands }
    }
}

impl StoreService {
    /// A store with the default configuration, and a hash seed and an incarnation drawn at random.
    #[must_use]
    pub fn builder() -> ServiceBuilder {
        ServiceBuilder {
            config: StoreConfig::new(fastrand::Rng::new().u64(..)),
            backoff: Backoff::default(),
        }
    }

    /// Waits until requests reach the store: connected, and subscribed to them.
    ///
    /// # Errors
    /// [`StoreClosed`] when that will never be.
    pub async fn connected(&self) -> Result<(), StoreClosed> {
        let mut status = self.status.clone();
        let reached =
            status.wait_for(|status| matches!(status, Status::Online | Status::Failed(_))).await;
        match reached.as_deref() {
            Ok(Status::Online) => Ok(()),
            Ok(Status::Failed(reason)) => Err(StoreClosed { reason: Some(reason.clone()) }),
            _ => Err(StoreClosed { reason: None }),
        }
    }

    /// What the store holds and has done, as of its last step.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the store has stopped by itself, because its link failed for good.
    pub async fn stopped(&mut self) -> StoreClosed {
        let _ = (&mut self.task).await;
        match &*self.status.borrow() {
            Status::Failed(reason) => StoreClosed { reason: Some(reason.clone()) },
            Status::Online | Status::Offline(_) => StoreClosed { reason: None },
        }
    }

    /// Stops the store after it has sent what it has to send. Returns when it has.
    pub async fn shutdown(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

/// Nothing is ever asked of a store.
#[derive(Debug)]
enum Never {}

/// A store and its stats.
struct StoreTask {
    store: Store,
    /// Whether requests arrive.
    subscribed: bool,
    stats: Arc<Mutex<StoreStats>>,
    /// Whether they may have moved since they were put there.
    is_news: bool,
}

impl Machine for StoreTask {
    type Command = Never;

    fn connected(&mut self, _: Now, _: bool) {
        self.store.handle_connected();
    }

    fn disconnected(&mut self, _: Now) {
        self.subscribed = false;
    }

    fn subscribed(&mut self, _: Now, _: SubscribeToken, reason: ReasonCode) {
        self.subscribed = !reason.is_error();
        if reason.is_error() {
            tracing::error!(%reason, "the broker refused the subscription to requests");
        }
    }

    fn published(&mut self, _: Now, token: PublishToken, reason: ReasonCode) {
        self.store.handle_published(token, reason);
        self.is_news = true;
    }

    fn message(&mut self, now: Now, incoming: &Incoming<'_>) {
        let from = incoming
            .verified_sender
            .map_or_else(|| Principal::claimed(incoming), Principal::verified);
        // A stopwatch is read only for those who look.
        let since = tracing::enabled!(Level::DEBUG).then(tokio::time::Instant::now);
        let Handled { verb, verdict } = self.store.handle_publish(now, from, incoming);
        self.is_news = true;
        if let Some(since) = since {
            let client = from.client_id().map(|id| KeyPreview(id.as_bytes()));
            let (verified, elapsed_us) = (from.is_verified(), since.elapsed().as_micros());
            let (verb, client) = (verb.map(field::debug), client.map(field::debug));
            debug!(verb, client, verified, ?verdict, elapsed_us, "request");
        }
    }

    fn client_gone(&mut self, client_id: &str) {
        self.store.handle_client_gone(client_id);
        self.is_news = true;
    }

    fn command(&mut self, _: Now, command: Never) {
        match command {}
    }

    fn timeout(&mut self, now: Now) {
        self.store.handle_timeout(now);
        self.is_news = true;
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.store.poll_transmit()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.store.poll_timeout()
    }

    fn is_ready(&self) -> bool {
        self.subscribed
    }

    fn wants_messages(&self) -> bool {
        self.store.is_ready()
    }

    fn wants_commands(&self) -> bool {
        true
    }

    fn settle(&mut self, _: Now) {
        if !core::mem::take(&mut self.is_news) {
            return;
        }
        let stats = StoreStats {
            keys: self.store.len(),
            bytes: self.store.bytes(),
            watches: self.store.watches(),
            counters: *self.store.counters(),
        };
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}
