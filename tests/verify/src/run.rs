//! One case after the other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::ask::{By, ask};
use crate::case::Case;
use crate::report::{CaseReport, Finding, Report, Verdict};
use crate::trial::{Stop, Trial};
use crate::wire::Place;

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What its keys begin with: text that no other run has, without a slash. No other key is set.
    pub run: String,
    /// What its client ids begin with, unless that is the same.
    pub client_id: Option<String>,
    /// How long to wait for an answer or a notification.
    pub timeout: Duration,
    /// True if to send every row of the golden vectors, rather than every third.
    pub is_thorough: bool,
}

impl Settings {
    /// With five seconds for each answer, and not thorough.
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

/// Why there is nothing to try.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// No connection to the broker, or none that may subscribe.
    Broker(String),
    /// No store answers, or not as a client could know, and why that is thought.
    Store(String),
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(reason) => write!(f, "no connection to the broker: {reason}"),
            Self::Store(reason) => write!(f, "no store answers on this broker: {reason}"),
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
    removed: usize,
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
            Ok(_) => Ok(Self { trial, cases: Vec::new(), removed: 0 }),
            Err(Stop::Lost(lost)) => Err(Unreachable::Broker(lost.0)),
            Err(Stop::Missing(what)) => Err(Unreachable::Store(what)),
            // It answers.
            Err(Stop::Skipped(_)) => Ok(Self { trial, cases: Vec::new(), removed: 0 }),
        }
    }

    /// Runs one case; skips it when the last requests had no answer. Its future may be dropped.
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

    /// Has a case in the report that is not run.
    pub fn skip(&mut self, case: &'static Case, why: &str) -> &CaseReport {
        let finding = Finding {
            verdict: Verdict::Skipped,
            text: why.to_owned(),
            asked: None,
            answered: None,
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

    /// Returns whether the last requests had no answer, so that no further case is run.
    #[must_use]
    pub const fn has_lost_its_store(&self) -> bool {
        self.trial.is_given_up()
    }

    /// Removes every key that was written, and disconnects. Its future may be dropped: the report says what is left.
    pub async fn clean_up(&mut self) {
        self.trial.clean_up(&mut self.removed).await;
    }

    /// [Cleans up](Self::clean_up), and tells what came of it all.
    pub async fn finish(mut self) -> Report {
        self.clean_up().await;
        self.report()
    }

    /// What came of it so far, without cleaning up.
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
