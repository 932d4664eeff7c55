//! The task behind a service: the store machine, its journal, and statistics.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use statestore_capture::CapturedStore;
use statestore_proto::hlc::VersionRef;
use statestore_proto::limits::CLOCK_DRIFT_MAX;
use statestore_proto::machine::{Input, Machine};
use statestore_proto::message::{KeyPreview, Refusal};
use statestore_proto::store::{DropReason, Handled, Principal, RequestOutcome};
use statestore_proto::time::Now;
use statestore_proto::topic;
use statestore_proto::transport::{Incoming, ReasonCode};
use tokio::time::Instant;
use tracing::{Level, debug, field, warn};

use crate::drive::clock::Clock;
use crate::drive::task::{Task, subscription_refused};
use crate::journal::{DurableCommit, JournalError};
use crate::link::LinkError;
use crate::metrics::stats::{StoreStats, lock_mutex};
use crate::service::capture::Capture;
use crate::service::persistence::{Persistence, UnloadedJournal};
use crate::service::seed;
use crate::service::traffic::TrafficHandle;

/// Maximum number of requests whose response time is measured at once; the oldest is evicted. They
/// need about 2 MiB.
const UNANSWERED_MAX: usize = 1 << 16;

/// A store and its statistics.
pub(crate) struct StoreTask {
    store: CapturedStore,
    capture: Option<Capture>,
    stats: Arc<Mutex<StoreStats>>,
    traffic: Option<TrafficHandle>,
    /// Set if the published statistics may be outdated.
    are_stats_outdated: bool,
    /// The error that prevents requests on this connection.
    connection_error: Option<LinkError>,
    /// The journal until it is loaded.
    unloaded: Option<UnloadedJournal>,
    persistence: Option<Persistence>,
    /// Initial keys until they are set.
    seeds: Vec<(Bytes, Bytes)>,
    /// Arrival times, by request number, of requests whose response the link has not accepted: at
    /// most [`UNANSWERED_MAX`].
    unanswered: BTreeMap<u64, Instant>,
}

impl StoreTask {
    pub(crate) const fn new(
        store: CapturedStore,
        journal: Option<UnloadedJournal>,
        capture: Option<Capture>,
        stats: Arc<Mutex<StoreStats>>,
        traffic: Option<TrafficHandle>,
    ) -> Self {
        Self {
            store,
            capture,
            stats,
            traffic,
            are_stats_outdated: false,
            connection_error: None,
            unloaded: journal,
            persistence: None,
            seeds: Vec::new(),
            unanswered: BTreeMap::new(),
        }
    }

    /// Sets the initial keys.
    pub(crate) fn seed(mut self, seeds: Vec<(Bytes, Bytes)>) -> Self {
        self.seeds = seeds;
        self
    }

    fn update_stats(&self, stats: &mut StoreStats) {
        stats.keys = self.store.store().len();
        stats.bytes = self.store.store().bytes();
        stats.registrations = self.store.store().registrations();
        stats.silenced_registrations = self.store.store().silenced_registrations();
        stats.counters = *self.store.store().counters();
        self.update_waiting(stats);
    }

    fn update_waiting(&self, stats: &mut StoreStats) {
        stats.pending_requests = self.unanswered.len();
        stats.queued_outputs = self.store.store().waiting();
        stats.queued_bytes = self.store.store().waiting_bytes();
    }

    fn handle_request(&mut self, now: Now, incoming: &Incoming<'_>) {
        let from = Principal::of(incoming);
        let since = Instant::now();
        if let Some(persistence) = &mut self.persistence {
            persistence.measure_space(&mut self.store);
        }
        let handled = self.store.handle_publish(now, incoming);
        if !matches!(handled.outcome, RequestOutcome::Dropped(_)) {
            self.unanswered.insert(handled.number, since);
            // Responses that the store drops are not reported, so old entries are evicted.
            if self.unanswered.len() > UNANSWERED_MAX {
                self.unanswered.pop_first();
            }
        }
        if let Some(traffic) = &self.traffic {
            traffic.count(since, now.unix, from, incoming, &handled);
        }
        #[cfg(feature = "metrics")]
        crate::metrics::recorder::count_message(&handled);
        log_refusal(from, &handled);
        log_dropped_request(from, incoming, &handled);
        log_clock_advance(from, &handled);
        if tracing::enabled!(Level::DEBUG) {
            let client = from.client_id().map(|id| KeyPreview(id.as_bytes()));
            let (verified, elapsed_us) = (from.is_verified(), since.elapsed().as_micros());
            let (verb, client) = (handled.kind().map(field::debug), client.map(field::debug));
            let verdict = handled.outcome;
            debug!(verb, client, verified, ?verdict, elapsed_us, "request");
        }
    }
}

/// Logs a refused request with its client and the rule. Each kind of refusal has its own
/// call site, since logs that limit repeated messages do so by call site.
fn log_refusal(from: Principal<'_>, handled: &Handled<'_>) {
    let Some(rule) = handled.refused() else { return };
    let refusal = rule.refusal();
    let client = field::debug(KeyPreview(from.client_id().unwrap_or_default().as_bytes()));
    let (verified, verb) = (from.is_verified(), handled.kind().map(field::debug));
    let key = key_of(handled).map(|key| field::debug(KeyPreview(key)));
    macro_rules! line {
        ($text:literal) => {
            // Quoted, since it may contain a node id, which the client chooses.
            warn!(client, verified, verb, key, reason = ?refusal, rule = ?rule.to_string(), $text)
        };
    }
    match refusal {
        Refusal::TimestampSkew | Refusal::FencingTokenSkew => {
            line!("write refused: timestamp too far ahead of the store's clock");
        }
        Refusal::FencingTokenRequired | Refusal::FencingTokenLower => {
            line!("write refused by the fence of its key");
        }
        Refusal::QuotaExceeded => line!("request refused: limit exceeded"),
        Refusal::NotAuthorized => line!("request refused: not authorized"),
        _ => line!("request refused: malformed"),
    }
}

/// Logs a request that cannot get a response, since its client receives nothing that shows the
/// cause.
fn log_dropped_request(from: Principal<'_>, incoming: &Incoming<'_>, handled: &Handled<'_>) {
    let RequestOutcome::Dropped(reason) = handled.outcome else { return };
    let client = field::debug(KeyPreview(from.client_id().unwrap_or_default().as_bytes()));
    let verified = from.is_verified();
    match reason {
        DropReason::NoResponseTopic => {
            warn!(
                client,
                verified, "request dropped: its client must set the MQTT 5 property response topic"
            );
        }
        DropReason::ForbiddenResponseTopic(error) => {
            let topic = KeyPreview(incoming.response_topic.unwrap_or_default().as_bytes());
            let topic = field::debug(topic);
            warn!(client, verified, topic, %error, "request dropped: response topic forbidden");
        }
        // Not mistakes of a client.
        _ => {}
    }
}

/// Warns of restored versions that are ahead of the wall clock: it was set back, or a client with a
/// wrong clock had moved them.
fn warn_if_ahead(last: VersionRef<'_>, now: Now) {
    let ahead = last.hlc().wall().as_millis().saturating_sub(now.unix.as_millis());
    let ahead = Duration::from_millis(ahead);
    if ahead > CLOCK_DRIFT_MAX {
        warn!(
            ahead_s = ahead.as_secs(),
            "the versions of the store are ahead of the wall clock: correct the clock if it is \
             wrong; until it has caught up, versions do not show the time of a write"
        );
    }
}

/// Logs a client whose timestamp moved the store's clock ahead of the wall clock.
fn log_clock_advance(from: Principal<'_>, handled: &Handled<'_>) {
    let client = field::debug(KeyPreview(from.client_id().unwrap_or_default().as_bytes()));
    let verified = from.is_verified();
    let Some(advance) = handled.clock_advance else { return };
    let ahead_s = advance.by.as_secs();
    if advance.is_fence
        && let Some(key) = key_of(handled)
    {
        let key = field::debug(KeyPreview(key));
        warn!(
            client,
            verified,
            ahead_s,
            key,
            "fencing token ahead of the wall clock: the key refuses earlier tokens"
        );
    }
    warn!(
        client,
        verified, ahead_s, "write moved the versions of all keys ahead of the wall clock"
    );
}

fn key_of<'a>(handled: &Handled<'a>) -> Option<&'a [u8]> {
    handled.request.as_ref().and_then(|request| request.key()).copied()
}

impl Drop for StoreTask {
    fn drop(&mut self) {
        if let Some(capture) = &self.capture {
            self.store.end_capture("the store has ended");
            capture.try_send(&mut self.store);
        }
    }
}

impl Task for StoreTask {
    type Machine = CapturedStore;
    /// A service accepts no commands.
    type Command = Infallible;

    fn machine(&mut self) -> &mut CapturedStore {
        &mut self.store
    }

    async fn prepare(&mut self, clock: &Clock) -> Result<(), JournalError> {
        if let Some(journal) = self.unloaded.take() {
            let capture = self.capture.as_ref();
            let persistence = journal.load(&mut self.store, capture, || clock.now()).await;
            self.persistence = Some(persistence?);
            warn_if_ahead(self.store.store().last_version(), clock.now());
        }
        seed::restore_absent(&mut self.store, clock.now(), core::mem::take(&mut self.seeds));
        self.are_stats_outdated = true;
        Ok(())
    }

    async fn background_work(&mut self) -> Result<(), JournalError> {
        let Some(persistence) = &mut self.persistence else { return core::future::pending().await };
        for DurableCommit { last_batch, took } in persistence.wait_durable().await? {
            lock_mutex(&self.stats).commit_times.record(took);
            #[cfg(feature = "metrics")]
            crate::metrics::recorder::record_commit(took);
            last_batch.into_iter().for_each(|batch| self.store.handle_persisted(batch));
        }
        self.are_stats_outdated = true;
        Ok(())
    }

    fn can_receive(&mut self) -> bool {
        self.store.can_receive() && self.persistence.as_ref().is_none_or(Persistence::can_receive)
    }

    fn prepare_shutdown(&mut self) {
        self.persistence.iter_mut().for_each(Persistence::end_snapshot);
    }

    fn is_done(&self) -> bool {
        self.persistence.as_ref().is_none_or(Persistence::is_idle)
    }

    fn handle_input(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Message(incoming) => self.handle_request(now, incoming),
            input => self.store.handle(now, input),
        }
        if let Input::Published(_, reason) = input
            && reason.is_error()
        {
            if reason == ReasonCode::PACKET_TOO_LARGE {
                warn!(%reason, "notification not sent: it exceeds the broker's Maximum Packet Size");
            } else {
                warn!(
                    %reason,
                    "notification rejected by the broker: allow the store to publish to \
                     notification topics"
                );
            }
        }
        if let Input::Subscribed(_, reason) = input
            && reason.is_error()
        {
            self.connection_error = Some(subscription_refused(topic::REQUEST, reason));
        }
        self.are_stats_outdated = true;
    }

    fn handle_command(&mut self, _: Now, command: Infallible) {
        match command {}
    }

    fn can_accept_command(&self) -> bool {
        true
    }

    fn publish_stats(&mut self) {
        if self.are_stats_outdated {
            self.update_stats(&mut lock_mutex(&self.stats));
        }
    }

    fn handle_sent(&mut self, answers: Option<u64>) {
        let Some(since) = answers.and_then(|number| self.unanswered.remove(&number)) else {
            return;
        };
        let took = since.elapsed();
        #[cfg(feature = "metrics")]
        crate::metrics::recorder::record_response(took);
        let stats = &mut *lock_mutex(&self.stats);
        stats.response_times.record(took);
        self.update_waiting(stats);
    }

    fn take_connection_error(&mut self) -> Option<LinkError> {
        self.connection_error.take()
    }

    fn process_outputs(&mut self, now: Now) {
        if let Some(persistence) = &mut self.persistence {
            persistence.queue_commit(now, &mut self.store);
        }
        if let Some(capture) = &self.capture {
            capture.try_send(&mut self.store);
        }
        if !core::mem::take(&mut self.are_stats_outdated) {
            return;
        }
        let stats = &mut *lock_mutex(&self.stats);
        self.update_stats(stats);
        #[cfg(feature = "metrics")]
        crate::metrics::recorder::set_plain(stats);
    }
}
