//! One case after the other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::ask::{By, ask};
use crate::case::Case;
use crate::report::{CaseReport, Report, Verdict};
use crate::trial::{Stop, Trial};
use crate::wire::Place;

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What its client ids and keys begin with: text that no other run has, without a slash. Nothing else is written.
    pub run: String,
    /// How long to wait for an answer or a notification.
    pub timeout: Duration,
    /// Whether to send every row of the golden vectors, rather than every third.
    pub is_thorough: bool,
}

impl Settings {
    /// With five seconds for each answer, and not thorough.
    #[must_use]
    pub fn new(run: impl Into<String>) -> Self {
        Self { run: run.into(), timeout: Duration::from_secs(5), is_thorough: false }
    }
}

/// Why there is nothing to try.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// No connection to the broker, or none that may subscribe.
    Broker(String),
    /// The broker takes requests, and nobody answers.
    Store,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(reason) => write!(f, "no connection to the broker: {reason}"),
            Self::Store => f.write_str("no store answers on this broker"),
        }
    }
}

impl std::error::Error for Unreachable {}

/// A store that is being tried.
///
/// ```no_run
/// use std::sync::Arc;
/// use statestore_verify::{CASES, Run, Settings, Verdict};
/// # use statestore_verify::wire::Place;
///
/// # async fn example(place: Arc<dyn Place>) -> Result<(), statestore_verify::Unreachable> {
/// let mut run = Run::start(place, Settings::new("verify-7f3a")).await?;
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
}

impl Run {
    /// Connects, and asks whether there is a store.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub async fn start(place: Arc<dyn Place>, settings: Settings) -> Result<Self, Unreachable> {
        let mut trial = Trial::new(place, settings);
        let nothing = trial.key("nothing is here");
        match trial.ask(&ask!["GET", nothing].by(By::A)).await {
            Ok(_) => Ok(Self { trial, cases: Vec::new() }),
            Err(Stop::Lost(lost)) => Err(Unreachable::Broker(lost.0)),
            Err(Stop::Missing(_) | Stop::Skipped(_)) => Err(Unreachable::Store),
        }
    }

    /// Runs one case; skips it when the last requests had no answer. When its future is dropped, [`finish`](Self::finish) still removes what it wrote.
    pub async fn case(&mut self, case: &'static Case) -> &CaseReport {
        let (since, before) = (Instant::now(), self.trial.requests);
        self.trial.begin(case.name);
        let done = match self.trial.is_given_up() {
            true => Err(Stop::Skipped("nobody answers any more")),
            false => (case.run)(&mut self.trial).await,
        };
        let findings = self.trial.end(done);
        let verdict = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Pass);
        let requests = self.trial.requests - before;
        self.cases.push(CaseReport { case, verdict, findings, requests, elapsed: since.elapsed() });
        &self.cases[self.cases.len() - 1]
    }

    /// Removes every key that was written, and disconnects.
    pub async fn finish(mut self) -> Report {
        let (removed, left) = self.trial.clean_up().await;
        let mut times = self.trial.times;
        times.sort_unstable();
        Report {
            cases: self.cases,
            requests: self.trial.requests,
            median: times.get(times.len() / 2).copied().unwrap_or_default(),
            longest: times.last().copied().unwrap_or_default(),
            dialects: self.trial.dialects,
            removed,
            left,
        }
    }
}
