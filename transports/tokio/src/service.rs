//! A store behind a link.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine};
use statestore_proto::message::{Command, KeyPreview, Refusal};
use statestore_proto::mqtt::Incoming;
use statestore_proto::store::recording::RecordedStore;
use statestore_proto::store::{
    Authorizer, Durability, Explanation, Handled, Principal, StoreConfig, Verdict,
};
use statestore_proto::time::Now;
use statestore_proto::topic;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{Level, debug, field, warn};

use crate::backoff::{Backoff, Pauses};
use crate::clock::Clock;
use crate::drive::Driver;
use crate::error::StoreClosed;
use crate::journal::{Journal, Keeper};
use crate::keeping::Keeping;
use crate::link::Link;
use crate::recording::Recording;
use crate::stats::{StatsHandle, StoreStats, lock};
use crate::status::{Status, StatusWatch};
use crate::task::{Task, subscription_refused};
use crate::traffic::TrafficHandle;

/// A running store. Dropping it stops the store.
#[derive(Debug)]
pub struct StoreService {
    stop: watch::Sender<bool>,
    status: StatusWatch,
    stats: Arc<Mutex<StoreStats>>,
    traffic: Option<TrafficHandle>,
    task: JoinHandle<()>,
    // Its end would end the drive loop.
    _commands: mpsc::Sender<Never>,
}

/// Makes a [`StoreService`].
#[derive(Debug)]
#[must_use = "nothing is served before `spawn`"]
pub struct ServiceBuilder {
    config: StoreConfig,
    journal: Option<Hidden>,
    recording: Option<Recording>,
    traffic: bool,
    backoff: Backoff,
    runtime: Option<Handle>,
}

/// A journal has nothing to show.
struct Hidden(Box<dyn Keeper>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("journal")
    }
}

/// A service without a journal has nowhere to write records, so it refuses a store whose answers would wait for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a durable store needs a journal: give one first, or leave out `StoreConfig::durability`")]
pub struct NotDurable;

impl ServiceBuilder {
    /// Another configuration of the store machine: limits, authorizer, dialect. A store without an incarnation gets one
    /// drawn at random when it starts. With a [`journal`](Self::journal) a store keeps what requesters ask for, unless this
    /// says that it keeps everything.
    ///
    /// # Errors
    /// [`NotDurable`] for a configuration with [`StoreConfig::durability`], unless a [`journal`](Self::journal) was given.
    pub fn config(mut self, config: StoreConfig) -> Result<Self, NotDurable> {
        self.config = match (config.is_durable(), &self.journal) {
            (true, None) => return Err(NotDurable),
            // It would give out versions again, and what it removes would come back.
            (false, Some(_)) => config.durability(Durability::Requested),
            _ => config,
        };
        Ok(self)
    }

    /// Keeps what must survive in this journal, and begins with what it has: values whose requesters ask for that
    /// (`aio-persistence`), and the answers about them. A [configuration](Self::config) that comes after it may say
    /// by its [durability](StoreConfig::durability) that everything is kept.
    ///
    /// Beside a broker that is not this store's own, let the configuration keep
    /// [registrations](StoreConfig::durable_watches) too.
    pub fn journal(mut self, journal: impl Journal) -> Self {
        self.config = self.config.durability(Durability::Requested);
        self.journal = Some(Hidden(Box::new(journal)));
        self
    }

    /// Records everything that the store is told and gives out, from its beginning on; see [`recording`](crate::recording()).
    pub fn record(mut self, recording: Recording) -> Self {
        self.recording = Some(recording);
        self
    }

    /// Counts requests by client and by key, for [`StoreService::traffic`], which costs a second look at each request and some
    /// 200 KiB. It does not unless this says so.
    pub const fn traffic(mut self, is_counted: bool) -> Self {
        self.traffic = is_counted;
        self
    }

    /// Asks this about every request; see [`StoreConfig::authorizer`].
    pub fn authorizer(mut self, authorizer: Authorizer) -> Self {
        self.config = self.config.authorizer(authorizer);
        self
    }

    /// Other limits.
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        self.config = self.config.limits(limits);
        self
    }

    /// Other pauses between tries to connect.
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The runtime that the drive loop runs on; by default the one that [`spawn`](Self::spawn) is called on.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Starts the drive loop. It reads the [journal](Self::journal), if there is one, and connects; and again whenever the
    /// connection is lost; the values are kept meanwhile.
    ///
    /// # Panics
    /// When there is no [`runtime`](Self::runtime): called outside of one, and without having been given one.
    #[track_caller]
    pub fn spawn(self, link: impl Link) -> StoreService {
        let (commands, receiver) = mpsc::channel(1);
        let (stop, stopped) = watch::channel(false);
        let (status, status_of) = watch::channel(Status::Offline { reason: None });
        let stats = Arc::new(Mutex::new(StoreStats::default()));
        let traffic = self.traffic.then(|| TrafficHandle::new(Instant::now()));
        let mut rng = fastrand::Rng::new();
        let config = match self.config {
            config if config.has_incarnation() => config,
            config => config.incarnation(rng.u64(..)),
        };
        let store = match &self.recording {
            Some(recording) => RecordedStore::recording(config, recording.redaction()),
            None => RecordedStore::new(config),
        };
        let driver = Driver {
            task: StoreTask {
                store,
                recording: self.recording,
                stats: Arc::clone(&stats),
                traffic: traffic.clone(),
                is_news: false,
                refused: None,
                unread: self.journal,
                keeping: None,
                handed: 0,
                unanswered: BTreeMap::new(),
            },
            link,
            commands: receiver,
            stop: stopped,
            status,
            pauses: Pauses::new(self.backoff, rng),
            clock: Clock::new(),
        };
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::current(),
        };
        let task = runtime.spawn(driver.run());
        let status = StatusWatch::new(status_of);
        StoreService { stop, status, stats, traffic, task, _commands: commands }
    }
}

impl StoreService {
    /// A store with the default configuration, and a hash seed and an incarnation drawn at random.
    pub fn builder() -> ServiceBuilder {
        ServiceBuilder {
            config: StoreConfig::new(fastrand::Rng::new().u64(..)),
            journal: None,
            recording: None,
            traffic: false,
            backoff: Backoff::default(),
            runtime: None,
        }
    }

    /// Waits until requests reach the store: connected, and subscribed to them.
    ///
    /// # Errors
    /// [`StoreClosed`] when that will never be.
    pub async fn connected(&self) -> Result<(), StoreClosed> {
        self.status.clone().online().await
    }

    /// How the store stands with its broker, and what becomes of that.
    #[must_use]
    pub fn status(&self) -> StatusWatch {
        self.status.clone()
    }

    /// What the store holds and has done, as of its last step.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        *lock(&self.stats)
    }

    /// Reads the same from elsewhere, and when this service has ended.
    #[must_use]
    pub fn stats_handle(&self) -> StatsHandle {
        StatsHandle(Arc::clone(&self.stats))
    }

    /// Reads who asks, and for which keys, where that is [counted](ServiceBuilder::traffic).
    #[must_use]
    pub fn traffic(&self) -> Option<TrafficHandle> {
        self.traffic.clone()
    }

    /// Waits until the store has stopped by itself, because its link or its journal failed for good.
    pub async fn stopped(&mut self) -> StoreClosed {
        let _ = (&mut self.task).await;
        self.status.closed()
    }

    /// Stops the store after it has sent and kept what it has to. Returns when it has.
    pub async fn shutdown(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

/// Nothing is ever asked of a store.
#[derive(Debug)]
enum Never {}

/// Requests whose answers are timed at once; the oldest gives way. They take some 2 MiB.
const UNANSWERED_MAX: usize = 1 << 16;

/// A store and its stats.
struct StoreTask {
    store: RecordedStore,
    recording: Option<Recording>,
    stats: Arc<Mutex<StoreStats>>,
    traffic: Option<TrafficHandle>,
    /// Whether they may have moved since they were put there.
    is_news: bool,
    /// Why no request can arrive on this connection.
    refused: Option<String>,
    /// The journal, until it was read.
    unread: Option<Hidden>,
    keeping: Option<Keeping>,
    /// Messages that were handed to the store.
    handed: u64,
    /// When each request arrived whose answer the link has not taken, by its number: [`UNANSWERED_MAX`] at most.
    unanswered: BTreeMap<u64, Instant>,
}

impl StoreTask {
    /// Puts what there is now where it can be read.
    fn tell(&self) {
        let stats = &mut *lock(&self.stats);
        stats.keys = self.store.len();
        stats.bytes = self.store.bytes();
        stats.watches = self.store.watches();
        stats.counters = *self.store.counters();
        self.tell_waiting(stats);
        #[cfg(feature = "metrics")]
        crate::metrics::holds(stats);
    }

    fn tell_waiting(&self, stats: &mut StoreStats) {
        stats.unanswered = self.unanswered.len();
        stats.waiting = self.store.waiting();
        stats.waiting_bytes = self.store.waiting_bytes();
    }

    fn request(&mut self, now: Now, incoming: &Incoming<'_>) {
        let from = Principal::of(incoming);
        let since = Instant::now();
        let handled = self.store.handle_publish(now, from, incoming);
        self.handed += 1;
        if !matches!(handled.verdict, Verdict::Dropped(_)) {
            self.unanswered.insert(self.handed, since);
            // Of an answer that was given up nobody tells.
            if self.unanswered.len() > UNANSWERED_MAX {
                self.unanswered.pop_first();
            }
        }
        if let Some(traffic) = &self.traffic {
            traffic.count(since, now.unix, from, incoming, &handled);
        }
        #[cfg(feature = "metrics")]
        crate::metrics::handled(&handled);
        say_of_refusal(from, incoming, &handled, self.store.explanation());
        say_of_stamps(from, incoming, &handled);
        let Handled { verb, verdict, .. } = handled;
        if tracing::enabled!(Level::DEBUG) {
            let client = from.client_id().map(|id| KeyPreview(id.as_bytes()));
            let (verified, elapsed_us) = (from.is_verified(), since.elapsed().as_micros());
            let (verb, client) = (verb.map(field::debug), client.map(field::debug));
            debug!(verb, client, verified, ?verdict, elapsed_us, "request");
        }
    }
}

/// Says who was refused, and which rule did that; each kind at a place of its own, since a log that counts what is said over
/// and over does so by the place.
fn say_of_refusal(
    from: Principal<'_>,
    incoming: &Incoming<'_>,
    handled: &Handled,
    why: Option<&Explanation>,
) {
    let (Verdict::Refused(refusal), Some(rule)) = (handled.verdict, why) else { return };
    let client = field::debug(KeyPreview(from.client_id().unwrap_or_default().as_bytes()));
    let (verified, verb) = (from.is_verified(), handled.verb.map(field::debug));
    let command = Command::decode(incoming.payload).ok();
    let key = command.as_ref().map(|command| field::debug(KeyPreview(command.key())));
    macro_rules! line {
        ($text:literal) => {
            // Quoted, since a node id that a client chooses may be in it.
            warn!(client, verified, verb, key, reason = ?refusal, rule = ?rule.to_string(), $text)
        };
    }
    match refusal {
        Refusal::TimestampSkew | Refusal::FencingTokenSkew => {
            line!("a write was refused that is ahead of the clock here");
        }
        Refusal::FencingTokenRequired | Refusal::FencingTokenLower => {
            line!("a write was refused that the fence of its key keeps out");
        }
        Refusal::QuotaExceeded => line!("a request was refused for which there is no room"),
        Refusal::NotAuthorized => line!("a request was refused that its client may not make"),
        _ => line!("a request was refused that is malformed"),
    }
}

/// Says who was ahead of the clock here, so that all have to follow.
fn say_of_stamps(from: Principal<'_>, incoming: &Incoming<'_>, handled: &Handled) {
    let client = field::debug(KeyPreview(from.client_id().unwrap_or_default().as_bytes()));
    let verified = from.is_verified();
    let Some(ahead) = handled.ahead else { return };
    let ahead_s = ahead.by.as_secs();
    if ahead.is_fence
        && let Ok(command) = Command::decode(incoming.payload)
    {
        let key = field::debug(KeyPreview(command.key()));
        warn!(
            client,
            verified,
            ahead_s,
            key,
            "a key was fenced ahead of the clock here: earlier tokens are refused"
        );
    }
    warn!(
        client,
        verified, ahead_s, "a write has set the versions of all keys ahead of the clock here"
    );
}

impl Drop for StoreTask {
    fn drop(&mut self) {
        if let Some(recording) = &self.recording {
            self.store.end_recording("the store has ended");
            recording.pass_on(&mut self.store);
        }
    }
}

impl Task for StoreTask {
    type Machine = RecordedStore;
    type Op = Never;

    fn machine(&mut self) -> &mut RecordedStore {
        &mut self.store
    }

    async fn prepare(&mut self, clock: &Clock) -> Result<(), String> {
        let Some(Hidden(journal)) = self.unread.take() else { return Ok(()) };
        let recording = self.recording.as_ref();
        let keeping = Keeping::load(journal, &mut self.store, recording, || clock.now()).await;
        self.keeping = Some(keeping.map_err(|error| error.to_string())?);
        self.is_news = true;
        Ok(())
    }

    async fn work(&mut self) -> Result<(), String> {
        let Some(keeping) = &mut self.keeping else { return core::future::pending().await };
        let (batch, took) = keeping.done().await.map_err(|error| error.to_string())?;
        lock(&self.stats).commits.record(took);
        #[cfg(feature = "metrics")]
        crate::metrics::committed(took);
        self.is_news = true;
        batch.into_iter().for_each(|batch| self.store.handle_persisted(batch));
        Ok(())
    }

    fn end_soon(&mut self) {
        self.keeping.iter_mut().for_each(Keeping::end_snapshot);
    }

    fn is_done(&self) -> bool {
        self.keeping.as_ref().is_none_or(Keeping::is_idle)
    }

    fn input(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Message(incoming) => self.request(now, incoming),
            input => self.store.handle(now, input),
        }
        if let Input::Published(_, reason) = input
            && reason.is_error()
        {
            warn!(%reason, "the broker refuses a notification: let the store write notification topics");
        }
        if let Input::Subscribed(_, reason) = input
            && reason.is_error()
        {
            self.refused = Some(subscription_refused(topic::REQUEST, reason));
        }
        self.is_news = true;
    }

    fn op(&mut self, _: Now, op: Never) {
        match op {}
    }

    fn wants_ops(&self) -> bool {
        true
    }

    fn sent(&mut self, answers: Option<u64>) {
        let Some(since) = answers.and_then(|number| self.unanswered.remove(&number)) else {
            return;
        };
        let took = since.elapsed();
        #[cfg(feature = "metrics")]
        crate::metrics::answered(took);
        let stats = &mut *lock(&self.stats);
        stats.requests.record(took);
        self.tell_waiting(stats);
    }

    fn refused(&mut self) -> Option<String> {
        self.refused.take()
    }

    fn settle(&mut self, now: Now) {
        if let Some(keeping) = &mut self.keeping {
            keeping.begin(now, &mut self.store);
        }
        if let Some(recording) = &self.recording {
            recording.pass_on(&mut self.store);
        }
        if !core::mem::take(&mut self.is_news) {
            return;
        }
        self.tell();
    }
}
