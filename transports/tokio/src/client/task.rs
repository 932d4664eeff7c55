//! The task behind a handle: the client machine, the callers that wait for outcomes, and the
//! watchers.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use statestore_proto::client::{Client, Event, Outcome, Request, RequestId, SubmitError};
use statestore_proto::hlc::Version;
use statestore_proto::machine::{Input, Machine};
use statestore_proto::message::{Incarnation, Reply, RequestKind, Response};
use statestore_proto::time::{Instant, Now};
use statestore_proto::transport::{SubscribeToken, Transmit};
use tokio::sync::{oneshot, watch};
use tracing::{Span, debug, warn};

use crate::client::error::Error;
use crate::client::watchers::{WatchReceiver, WatcherId, Watchers};
use crate::diagnostics::nagle::{Latency, REMEDY};
use crate::drive::task::{Task, subscription_refused};
use crate::link::LinkError;
use crate::metrics::stats::{ClientStats, lock_mutex};

/// The outcome of a request, for its caller.
pub(crate) struct Completion {
    pub(crate) outcome: Outcome,
    /// The reason of a refusal, if the store explains it; at most 256 bytes.
    pub(crate) reason: Option<Arc<str>>,
}

/// A command of a handle for the drive loop.
pub(crate) enum Command {
    Submit {
        /// Number of the call, for [`Cancel`](Self::Cancel).
        call: u64,
        request: Request,
        /// The span of the caller's log.
        span: Span,
        answer: oneshot::Sender<Result<Completion, Error>>,
    },
    Cancel {
        call: u64,
    },
    Watch {
        key: Bytes,
        /// The version that the application has processed.
        since: Option<Version>,
        answer: oneshot::Sender<Result<WatchReceiver, SubmitError>>,
    },
    Unwatch {
        id: WatcherId,
    },
    /// A lagging watcher has received all its queued events.
    CatchUp,
}

/// A caller that waits for an outcome.
struct Waiter {
    call: u64,
    span: Span,
    since: Instant,
    answer: oneshot::Sender<Result<Completion, Error>>,
}

/// A client machine and the callers that wait for it.
pub(crate) struct ClientTask {
    client: Client,
    waiters: BTreeMap<RequestId, Waiter>,
    by_call: BTreeMap<u64, RequestId>,
    watchers: Watchers,
    /// Set once a response to any request has arrived on this connection.
    has_response: bool,
    /// Requests that have timed out, also those of watches, when this was last checked.
    timed_out: u64,
    /// The request that has been the only one in flight since it was submitted.
    lone: Option<RequestId>,
    latency: Latency,
    /// Informs locks that the store was replaced, and of the new incarnation.
    replaced: watch::Sender<Option<Incarnation>>,
    stats: Arc<Mutex<ClientStats>>,
    /// The reason of a refusal whose request completes next.
    explained: Option<(RequestId, Arc<str>)>,
    /// The error that prevents responses on this connection.
    connection_error: Option<LinkError>,
    /// The error of the last connection or of the last attempt.
    last_error: Option<LinkError>,
}

impl ClientTask {
    pub(crate) fn new(
        client: Client,
        replaced: watch::Sender<Option<Incarnation>>,
        stats: Arc<Mutex<ClientStats>>,
    ) -> Self {
        Self {
            client,
            waiters: BTreeMap::new(),
            by_call: BTreeMap::new(),
            watchers: Watchers::default(),
            has_response: false,
            timed_out: 0,
            lone: None,
            latency: Latency::default(),
            replaced,
            stats,
            explained: None,
            connection_error: None,
            last_error: None,
        }
    }

    fn submit(&mut self, now: Now, request: Request, waiter: Waiter) {
        match self.client.submit(now, request) {
            Ok(id) => {
                waiter.span.record("id", tracing::field::debug(id));
                let is_lone = self.waiters.is_empty() && self.client.is_ready();
                self.lone = is_lone.then_some(id);
                self.by_call.insert(waiter.call, id);
                self.waiters.insert(id, waiter);
            }
            Err(error) => {
                debug!(parent: &waiter.span, %error, "request not accepted");
                let _ = waiter.answer.send(Err(Error::Invalid(error)));
            }
        }
    }

    fn complete(&mut self, now: Now, id: RequestId, outcome: Outcome) {
        let Some(Waiter { call, span, since, answer }) = self.waiters.remove(&id) else { return };
        self.by_call.remove(&call);
        let took = now.instant.duration_since(since);
        let (outcome_name, elapsed_ms) = (outcome_name(&outcome), took.as_millis());
        debug!(parent: &span, outcome = outcome_name, elapsed_ms, "completed");
        let is_reply = matches!(outcome, Outcome::Responded { .. });
        if self.lone == Some(id) && is_reply && self.latency.record(took) {
            warn!("sequential requests take about {} ms: {REMEDY}", took.as_millis());
        }
        let explained = self.explained.take().filter(|(explained, _)| *explained == id);
        let reason = explained.map(|(_, reason)| reason);
        let completion = match outcome {
            Outcome::TimedOut { sent: true } if !self.has_response => {
                let response_topic = Arc::clone(self.client.response_topic());
                Err(Error::Unanswered { response_topic })
            }
            Outcome::TimedOut { sent: false } => {
                Err(Error::NotSent { last_error: self.last_error.clone() })
            }
            outcome => Ok(Completion { outcome, reason }),
        };
        // Fails if the caller has dropped the future.
        let _ = answer.send(completion);
    }

    fn watch(
        &mut self,
        now: Now,
        key: Bytes,
        since: Option<Version>,
    ) -> Result<WatchReceiver, SubmitError> {
        let watch = match self.watchers.watch_for_key(&key) {
            Some(watch) => watch,
            None => self.client.watch(now, key.clone())?,
        };
        self.watchers.join(watch, key, since).ok_or(SubmitError::Full)
    }

    fn timed_out(&self) -> u64 {
        RequestKind::ALL.iter().map(|kind| self.client.counters().of(*kind).timed_out).sum()
    }

    fn unwatch(&mut self, now: Now, id: WatcherId) {
        if self.watchers.leave(id) {
            self.client.unwatch(now, id.watch());
        }
    }
}

impl Task for ClientTask {
    type Machine = Client;
    type Command = Command;

    fn machine(&mut self) -> &mut Client {
        &mut self.client
    }

    fn handle_input(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Connected { .. } => {
                self.has_response = false;
                self.timed_out = self.timed_out();
                self.lone = None;
                self.latency = Latency::default();
            }
            Input::Message(incoming) if *incoming.topic == **self.client.response_topic() => {
                self.has_response = true;
            }
            _ => {}
        }
        self.client.handle(now, input);
    }

    fn handle_command(&mut self, now: Now, command: Command) {
        match command {
            Command::Submit { call, request, span, answer } if !answer.is_closed() => {
                self.submit(now, request, Waiter { call, span, since: now.instant, answer });
            }
            Command::Submit { .. } => {}
            Command::Cancel { call } => {
                if let Some(id) = self.by_call.get(&call) {
                    self.client.cancel(*id);
                }
            }
            Command::Watch { key, since, answer } => {
                if let Err(Ok(started)) = answer.send(self.watch(now, key, since)) {
                    self.unwatch(now, started.id);
                }
            }
            Command::Unwatch { id } => self.unwatch(now, id),
            // Every command is followed by `process_outputs`, which does this.
            Command::CatchUp => {}
        }
    }

    fn can_accept_command(&self) -> bool {
        self.client.can_submit()
    }

    fn take_connection_error(&mut self) -> Option<LinkError> {
        self.connection_error.take()
    }

    /// A second SUBSCRIBE for a filter changes nothing, and every MQTT library can send it. The
    /// machine ignores this token.
    fn take_probe(&mut self) -> Option<Transmit> {
        let timed_out = self.timed_out();
        (mem::replace(&mut self.timed_out, timed_out) != timed_out).then(|| Transmit::Subscribe {
            filter: Arc::clone(self.client.response_topic()),
            token: SubscribeToken::from_raw(u64::MAX),
        })
    }

    fn handle_link_error(&mut self, error: &LinkError) {
        self.last_error = Some(error.clone());
    }

    fn process_outputs(&mut self, now: Now) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Explained { id, reason } => self.explained = Some((id, reason)),
                Event::Completed { id, outcome } => self.complete(now, id, outcome),
                Event::Watch { id, event } => {
                    if self.watchers.update(id, event) {
                        self.client.unwatch(now, id);
                    }
                }
                Event::StoreReplaced { incarnation } => {
                    warn!(
                        "the store was restarted or replaced: state that was not durable is lost"
                    );
                    self.replaced.send_replace(incarnation);
                }
                Event::SubscribeFailed { filter, reason } => {
                    warn!(%filter, %reason, "the broker refused a subscription");
                    if *filter == **self.client.response_topic() {
                        self.connection_error = Some(subscription_refused(&filter, reason));
                    }
                }
                Event::ClockDrift(drift) => {
                    warn!(%drift, "the store's clock is too far ahead of the local clock")
                }
                other => debug!(?other, "event"),
            }
        }
        if self.client.is_ready() {
            self.last_error = None;
        }
        self.watchers.catch_up();
        *lock_mutex(&self.stats) = ClientStats {
            pending: self.client.pending(),
            watches: self.client.watches(),
            counters: *self.client.counters(),
        };
    }
}

/// The requests that were sent may have been applied. The others end as [`Error::Closed`].
impl Drop for ClientTask {
    fn drop(&mut self) {
        for id in self.waiters.keys() {
            self.client.cancel(*id);
        }
        while let Some(event) = self.client.poll_event() {
            if let Event::Completed { id, outcome: Outcome::Cancelled { sent: true } } = event
                && let Some(waiter) = self.waiters.remove(&id)
            {
                let _ = waiter.answer.send(Err(Error::ConnectionLost));
            }
        }
    }
}

/// Name of an outcome for the log, without a value.
fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Responded { response: Response::Reply(reply), .. } => match reply {
            Reply::Done => "done",
            Reply::NotApplied => "not applied",
            Reply::Value(_) => "found",
            Reply::Removed => "removed",
            Reply::Absent | Reply::NothingRemoved | Reply::NotWatched => "absent",
            Reply::Error(_) => "refused",
        },
        Outcome::Responded { response: Response::Page(_), .. } => "listed",
        Outcome::Undelivered(_) => "undelivered",
        Outcome::TimedOut { .. } => "timed out",
        Outcome::ConnectionLost => "connection lost",
        Outcome::Cancelled { .. } => "cancelled",
        Outcome::Malformed(_) => "malformed",
        _ => "other",
    }
}
