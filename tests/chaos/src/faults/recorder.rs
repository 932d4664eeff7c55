//! Records the history of a run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use statestore_client::Error;
use statestore_models::history::{
    Action, Clocks, History, Moment, Operation, Outcome, Reported, Watched, check,
};
use statestore_proto::hlc::Hlc;
use tokio::time::Instant;

/// Maximum number of requests of a run. At this limit the run ends early, to bound its memory.
pub(crate) const OPERATIONS_MAX: usize = 400_000;

/// Tolerances of expiry times. Stores round to milliseconds, and their clocks differ from that of
/// the history. A takeover restarts leases in full.
const CLOCKS: Clocks<'static> = Clocks { early: 100, may_be_late: true, restarts: &[] };

/// Records events. Clones write to one history.
#[derive(Clone)]
pub(crate) struct Recorder {
    begun: Instant,
    recorded: Arc<Mutex<Recorded>>,
}

#[derive(Default)]
struct Recorded {
    history: History<Hlc>,
    /// Number of events.
    events: u64,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), recorded: Arc::default() }
    }

    /// Time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Calls a function on the history so far.
    pub(crate) fn with_history<T>(&self, f: impl FnOnce(&History<Hlc>) -> T) -> T {
        f(&self.recorded().history)
    }

    /// Returns every violation in the history.
    pub(crate) fn check(&self) -> Vec<String> {
        self.with_history(|history| check(history, CLOCKS))
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment of a new event.
    fn moment(&self, recorded: &mut Recorded) -> Moment {
        recorded.events += 1;
        let at = u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX);
        Moment { order: recorded.events, at }
    }

    /// Records a request from before it is sent until after its reply; returns the recorded outcome.
    pub(crate) async fn request(
        &self,
        client: &str,
        key: &str,
        action: Action<Hlc>,
        request: impl Future<Output = Result<Outcome<Hlc>, Error>>,
    ) -> Outcome<Hlc> {
        let at = {
            let mut recorded = self.recorded();
            let invoked = self.moment(&mut recorded);
            recorded.history.operations.push(Operation {
                client: client.to_owned(),
                key: Bytes::copy_from_slice(key.as_bytes()),
                action,
                invoked,
                completed: None,
                outcome: Outcome::Unknown,
            });
            recorded.history.operations.len() - 1
        };
        let outcome = request.await.unwrap_or_else(|error| {
            if error.may_be_applied() { Outcome::Unknown } else { Outcome::Refused }
        });
        let mut recorded = self.recorded();
        let completed = self.moment(&mut recorded);
        if let Some(operation) = recorded.history.operations.get_mut(at) {
            operation.completed = Some(completed);
            operation.outcome = outcome.clone();
        }
        outcome
    }

    /// Records the start of a watch; returns its number.
    pub(crate) fn watches(&self, key: &str) -> usize {
        let watches = &mut self.recorded().history.watches;
        let key = Bytes::copy_from_slice(key.as_bytes());
        watches.push(Watched { key, events: Vec::new() });
        watches.len() - 1
    }

    pub(crate) fn reported(&self, watch: usize, reported: Reported<Hlc>) {
        let mut recorded = self.recorded();
        let now = self.moment(&mut recorded);
        if let Some(watch) = recorded.history.watches.get_mut(watch) {
            watch.events.push((now, reported));
        }
    }

    /// Returns whether the history has reached its limit.
    pub(crate) fn is_full(&self) -> bool {
        self.with_history(|history| history.operations.len() >= OPERATIONS_MAX)
    }
}
