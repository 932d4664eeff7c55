//! What clients did and what they were told, in times since the start of the run.

use std::time::Duration;

/// Everything that was done and heard in one run. `V` orders the writes of a key.
#[derive(Debug)]
pub(crate) struct History<V> {
    pub(crate) operations: Vec<Operation<V>>,
    pub(crate) watches: Vec<Watched<V>>,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Operation<V> {
    pub(crate) client: String,
    pub(crate) key: String,
    pub(crate) action: Action<V>,
    pub(crate) invoked: Duration,
    /// `None` where its client ended first.
    pub(crate) completed: Option<Duration>,
    pub(crate) outcome: Outcome<V>,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) enum Action<V> {
    /// No two of a run have the same value.
    Set(Set<V>),
    Get,
    Del,
}

#[derive(Clone, Debug)]
pub(crate) struct Set<V> {
    pub(crate) value: String,
    pub(crate) if_absent: bool,
    pub(crate) expires: Option<Duration>,
    pub(crate) token: Option<V>,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<V> {
    /// Nothing: it may take effect at any time from when it was asked.
    Unknown,
    /// It has no effect, now or later.
    Refused,
    Applied(V),
    /// The condition of a SET was not met.
    NotApplied,
    Found(Option<(String, V)>),
    Removed(bool),
}

/// What one watch of a key told, in its order.
#[derive(Clone, Debug)]
pub(crate) struct Watched<V> {
    pub(crate) key: String,
    /// With when they were heard.
    pub(crate) events: Vec<(Duration, Told<V>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told<V> {
    Changed(String, V),
    Gone(Option<V>),
    Live,
    Gap,
    Ended,
}

impl<V> Default for History<V> {
    fn default() -> Self {
        Self { operations: Vec::new(), watches: Vec::new() }
    }
}

impl<V> Operation<V> {
    /// Whether it may have changed something, or may still.
    pub(crate) fn may_act(&self) -> bool {
        !matches!(self.outcome, Outcome::Refused | Outcome::NotApplied | Outcome::Removed(false))
            && !matches!(self.action, Action::Get)
    }

    /// When it had ended for certain.
    pub(crate) fn end(&self) -> Duration {
        match self.outcome {
            Outcome::Unknown => Duration::MAX,
            _ => self.completed.unwrap_or(Duration::MAX),
        }
    }
}
