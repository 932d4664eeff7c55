//! The client machine with those who wait for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use statestore_proto::client::{Client, Event, Outcome, Request, RequestId, SubmitError};
use statestore_proto::machine::{Input, Machine};
use statestore_proto::message::{Incarnation, Reply};
use statestore_proto::time::{Instant, Now};
use tokio::sync::{oneshot, watch};
use tracing::{Span, debug, warn};

use crate::diagnostics::nagle::{Latency, REMEDY};
use crate::error::Error;
use crate::stats::{ClientStats, lock};
use crate::task::{Task, subscription_refused};
use crate::watchers::{Started, WatcherId, Watchers};

/// Why the store has refused what it refused last, of 256 bytes at most; the drive loop puts it there.
pub(crate) type Reason = Arc<Mutex<Option<Arc<str>>>>;

/// What handles ask of the drive loop.
pub(crate) enum Op {
    Submit {
        key: u64,
        request: Request,
        /// Where the request stands in the caller's log.
        span: Span,
        answer: oneshot::Sender<Result<Outcome, Error>>,
    },
    Cancel {
        key: u64,
    },
    Watch {
        key: Bytes,
        answer: oneshot::Sender<Result<Started, SubmitError>>,
    },
    Unwatch {
        id: WatcherId,
    },
    /// A watcher that has lost something has taken all the rest.
    CatchUp,
}

/// One who waits for an outcome.
struct Waiter {
    key: u64,
    span: Span,
    since: Instant,
    answer: oneshot::Sender<Result<Outcome, Error>>,
}

/// A client and those who wait for it.
pub(crate) struct ClientTask {
    client: Client,
    waiters: BTreeMap<RequestId, Waiter>,
    by_key: BTreeMap<u64, RequestId>,
    watchers: Watchers,
    /// Whether an answer has arrived on this connection, to whatever.
    answered: bool,
    /// The request that has been the only one since it was submitted.
    lone: Option<RequestId>,
    latency: Latency,
    /// Tells locks that the store was replaced, and by which.
    replaced: watch::Sender<Option<Incarnation>>,
    stats: Arc<Mutex<ClientStats>>,
    /// Why a request was refused that completes next.
    explained: Option<(RequestId, Arc<str>)>,
    reason: Reason,
    /// Why no answer can arrive on this connection.
    refused: Option<String>,
}

impl ClientTask {
    pub(crate) fn new(
        client: Client,
        replaced: watch::Sender<Option<Incarnation>>,
        stats: Arc<Mutex<ClientStats>>,
        reason: Reason,
    ) -> Self {
        Self {
            client,
            waiters: BTreeMap::new(),
            by_key: BTreeMap::new(),
            watchers: Watchers::default(),
            answered: false,
            lone: None,
            latency: Latency::default(),
            replaced,
            stats,
            explained: None,
            reason,
            refused: None,
        }
    }

    fn submit(&mut self, now: Now, request: Request, waiter: Waiter) {
        match self.client.submit(now, request) {
            Ok(id) => {
                waiter.span.record("id", tracing::field::debug(id));
                let is_lone = self.waiters.is_empty() && self.client.is_ready();
                self.lone = is_lone.then_some(id);
                self.by_key.insert(waiter.key, id);
                self.waiters.insert(id, waiter);
            }
            Err(error) => {
                debug!(parent: &waiter.span, %error, "not accepted");
                let _ = waiter.answer.send(Err(Error::Invalid(error)));
            }
        }
    }

    fn complete(&mut self, now: Now, id: RequestId, outcome: Outcome) {
        let Some(Waiter { key, span, since, answer }) = self.waiters.remove(&id) else { return };
        self.by_key.remove(&key);
        let took = now.instant.duration_since(since);
        debug!(parent: &span, outcome = name(&outcome), elapsed_ms = took.as_millis(), "completed");
        let is_reply = matches!(outcome, Outcome::Replied { .. } | Outcome::Listed { .. });
        if self.lone == Some(id) && is_reply && self.latency.note(took) {
            warn!("requests made one at a time take some {} ms: {REMEDY}", took.as_millis());
        }
        if let Outcome::Replied { reply: Reply::Error(_), .. } = outcome {
            let explained = self.explained.take().filter(|(of, _)| *of == id);
            *lock(&self.reason) = explained.map(|(_, reason)| reason);
        }
        let outcome = match outcome {
            Outcome::TimedOut { sent: true } if !self.answered => {
                let response_topic = Arc::clone(self.client.response_topic());
                Err(Error::Unanswered { response_topic })
            }
            outcome => Ok(outcome),
        };
        // Nobody to tell when the future was dropped.
        let _ = answer.send(outcome);
    }

    fn watch(&mut self, now: Now, key: Bytes) -> Result<Started, SubmitError> {
        let watch = match self.watchers.watch_of(&key) {
            Some(watch) => watch,
            None => self.client.watch(now, key.clone())?,
        };
        self.watchers.join(watch, key).ok_or(SubmitError::Full)
    }

    fn unwatch(&mut self, now: Now, id: WatcherId) {
        if self.watchers.leave(id) {
            self.client.unwatch(now, id.watch());
        }
    }
}

impl Task for ClientTask {
    type Machine = Client;
    type Op = Op;

    fn machine(&mut self) -> &mut Client {
        &mut self.client
    }

    fn input(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Connected { .. } => {
                self.answered = false;
                self.lone = None;
                self.latency = Latency::default();
            }
            Input::Message(incoming) if *incoming.topic == **self.client.response_topic() => {
                self.answered = true;
            }
            _ => {}
        }
        self.client.handle(now, input);
    }

    fn op(&mut self, now: Now, op: Op) {
        match op {
            Op::Submit { key, request, span, answer } if !answer.is_closed() => {
                self.submit(now, request, Waiter { key, span, since: now.instant, answer });
            }
            Op::Submit { .. } => {}
            Op::Cancel { key } => {
                if let Some(id) = self.by_key.get(&key) {
                    self.client.cancel(*id);
                }
            }
            Op::Watch { key, answer } => {
                if let Err(Ok(started)) = answer.send(self.watch(now, key)) {
                    self.unwatch(now, started.id);
                }
            }
            Op::Unwatch { id } => self.unwatch(now, id),
            // Like everything else it is followed by `settle`, which does that.
            Op::CatchUp => {}
        }
    }

    fn wants_ops(&self) -> bool {
        self.client.has_room()
    }

    fn refused(&mut self) -> Option<String> {
        self.refused.take()
    }

    fn settle(&mut self, now: Now) {
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
                    warn!("another store answers than before: what it did not keep is gone");
                    self.replaced.send_replace(incarnation);
                }
                Event::SubscribeFailed { filter, reason } => {
                    warn!(%filter, %reason, "subscription refused");
                    if *filter == **self.client.response_topic() {
                        self.refused = Some(subscription_refused(&filter, reason));
                    }
                }
                Event::ClockDrift(drift) => warn!(%drift, "the store's clock is ahead"),
                other => debug!(?other, "event"),
            }
        }
        self.watchers.catch_up();
        *lock(&self.stats) = ClientStats {
            pending: self.client.pending(),
            watches: self.client.watches(),
            counters: *self.client.counters(),
        };
    }
}

/// What became of a request, in a word and without a value.
fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Replied { reply, .. } => match reply {
            Reply::Done => "done",
            Reply::NotApplied => "not applied",
            Reply::Value(_) => "found",
            Reply::Removed => "removed",
            Reply::Absent | Reply::NothingRemoved | Reply::NotWatched => "absent",
            Reply::Error(_) => "refused",
        },
        Outcome::Listed { .. } => "listed",
        Outcome::Rejected(_) => "undelivered",
        Outcome::TimedOut { .. } => "timed out",
        Outcome::Unknown => "unknown",
        Outcome::Cancelled { .. } => "given up",
        Outcome::Malformed(_) => "malformed",
        _ => "other",
    }
}
