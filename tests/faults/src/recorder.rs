//! The history of a run as it is made.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use statestore_client::Error;
use statestore_proto::hlc::Hlc;
use tokio::time::Instant;

use crate::history::{Action, History, Operation, Outcome, Told, Watched};

/// Requests of one run: past that the run ends early, rather than take all memory.
pub(crate) const OPERATIONS_MAX: usize = 400_000;

/// Clones write to one history.
#[derive(Clone)]
pub(crate) struct Recorder {
    begun: Instant,
    history: Arc<Mutex<History<Hlc>>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), history: Arc::default() }
    }

    /// Time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History<Hlc>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request from before it is sent to after its answer; gives that as it was recorded.
    pub(crate) async fn request(
        &self,
        client: &str,
        key: &str,
        action: Action<Hlc>,
        ask: impl Future<Output = Result<Outcome<Hlc>, Error>>,
    ) -> Outcome<Hlc> {
        let at = {
            let mut history = self.history();
            history.operations.push(Operation {
                client: client.to_owned(),
                key: key.to_owned(),
                action,
                invoked: self.now(),
                completed: None,
                outcome: Outcome::Unknown,
            });
            history.operations.len() - 1
        };
        let outcome = ask.await.unwrap_or_else(|error| {
            if error.may_be_applied() { Outcome::Unknown } else { Outcome::Refused }
        });
        let now = self.now();
        if let Some(operation) = self.history().operations.get_mut(at) {
            operation.completed = Some(now);
            operation.outcome = outcome.clone();
        }
        outcome
    }

    /// A watch begins; its number.
    pub(crate) fn watches(&self, key: &str) -> usize {
        let mut history = self.history();
        history.watches.push(Watched { key: key.to_owned(), events: Vec::new() });
        history.watches.len() - 1
    }

    pub(crate) fn heard(&self, watch: usize, told: Told<Hlc>) {
        let now = self.now();
        if let Some(watch) = self.history().watches.get_mut(watch) {
            watch.events.push((now, told));
        }
    }

    /// Whether it has taken as much as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.history().operations.len() >= OPERATIONS_MAX
    }
}
