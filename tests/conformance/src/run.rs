//! A run of several cases, one at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::case::Case;
use crate::report::{CaseReport, Finding, Report, Verdict};
use crate::request::{By, request};
use crate::trial::{Stop, Trial};
use crate::wire::Connector;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Prefix of all keys: text without a slash that is unique to this run.
    pub run: String,
    /// Prefix of all client ids, if it differs from the prefix of the keys.
    pub client_id: Option<String>,
    /// Maximum time to wait for a reply or a notification.
    pub timeout: Duration,
    /// True to send every row of the golden vectors, rather than every third.
    pub is_thorough: bool,
}

impl Settings {
    /// Settings with a timeout of five seconds, and not thorough.
    #[must_use]
    pub fn new(run: impl Into<String>) -> Self {
        Self {
            run: run.into(),
            client_id: None,
            timeout: Duration::from_secs(5),
            is_thorough: false,
        }
    }
}

/// The reason why a run cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// No connection to the broker, or the broker refuses the subscriptions.
    Broker(String),
    /// The store does not respond, or its responses are unusable.
    Store(String),
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(reason) => write!(f, "no connection to the broker: {reason}"),
            Self::Store(reason) => write!(f, "no response from a store on this broker: {reason}"),
        }
    }
}

impl std::error::Error for Unreachable {}

/// A run against one store.
///
/// ```no_run
/// use std::sync::Arc;
/// use statestore_verify::{CASES, Run, Settings, Verdict};
/// # use statestore_verify::wire::Connector;
///
/// # use statestore_verify::Unreachable;
/// # async fn example(connector: Arc<dyn Connector>) -> Result<(), Unreachable> {
/// let mut run = Run::start(connector, Settings::new("verify-7f3a")).await?;
/// for case in CASES {
///     let report = run.case(case).await;
///     if report.verdict == Verdict::Fail {
///         println!("{}: {}", case.name, report.findings[0].text);
///     }
/// }
/// assert!(run.finish().await.is_conformant());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Run {
    trial: Trial,
    cases: Vec<CaseReport>,
    removed: usize,
}

impl Run {
    /// Connects, and checks that a store responds.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub async fn start(
        connector: Arc<dyn Connector>,
        settings: Settings,
    ) -> Result<Self, Unreachable> {
        let mut trial = Trial::new(connector, settings);
        let nothing = trial.key("absent");
        match trial.request(&request!["GET", nothing].by(By::A)).await {
            Ok(_) => Ok(Self { trial, cases: Vec::new(), removed: 0 }),
            Err(Stop::Lost(lost)) => Err(Unreachable::Broker(lost.0)),
            Err(Stop::Missing(what)) => Err(Unreachable::Store(what)),
            // A refusal is a response too.
            Err(Stop::Skipped(_)) => Ok(Self { trial, cases: Vec::new(), removed: 0 }),
        }
    }

    /// Runs one case. Skips it if the store has stopped responding. The future may be dropped.
    pub async fn case(&mut self, case: &'static Case) -> &CaseReport {
        if self.trial.is_given_up() {
            return self
                .skip(case, "the store has stopped responding, or its responses are malformed");
        }
        let (since, before) = (Instant::now(), self.trial.requests);
        self.trial.begin(case.name).await;
        let done = (case.run)(&mut self.trial).await;
        let findings = self.trial.end(done);
        let requests = self.trial.requests - before;
        self.add(case, findings, requests, since.elapsed())
    }

    /// Reports a case as skipped.
    pub fn skip(&mut self, case: &'static Case, why: &str) -> &CaseReport {
        let finding = Finding {
            verdict: Verdict::Skipped,
            text: why.to_owned(),
            request: None,
            response: None,
        };
        self.add(case, vec![finding], 0, Duration::ZERO)
    }

    fn add(
        &mut self,
        case: &'static Case,
        findings: Vec<Finding>,
        requests: u64,
        elapsed: Duration,
    ) -> &CaseReport {
        let verdict = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Pass);
        self.cases.push(CaseReport { case, verdict, findings, requests, elapsed });
        &self.cases[self.cases.len() - 1]
    }

    /// Returns whether the store has stopped responding, so that the remaining cases are skipped.
    #[must_use]
    pub const fn has_lost_its_store(&self) -> bool {
        self.trial.is_given_up()
    }

    /// Removes all written keys and disconnects. If the future is dropped, the report lists the keys
    /// that remain.
    pub async fn clean_up(&mut self) {
        self.trial.clean_up(&mut self.removed).await;
    }

    /// [Cleans up](Self::clean_up) and returns the report.
    pub async fn finish(mut self) -> Report {
        self.clean_up().await;
        self.report()
    }

    /// Returns the report so far, without cleaning up.
    #[must_use]
    pub fn report(self) -> Report {
        let mut times = self.trial.times;
        times.sort_unstable();
        Report {
            cases: self.cases,
            requests: self.trial.requests,
            median: times.get(times.len() / 2).copied().unwrap_or_default(),
            longest: times.last().copied().unwrap_or_default(),
            dialects: self.trial.dialects,
            removed: self.removed,
            left: self.trial.written.into_keys().collect(),
        }
    }
}
