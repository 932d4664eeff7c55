//! Results of cases and of a run.

use std::time::Duration;

use crate::Dialect;
use crate::case::Case;

/// Text of a finding that skips a case because of the access rules of the store.
pub(crate) const NOT_ALLOWED: &str = "the store does not authorize the requests of this rule";

/// Result of a case, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The store follows the rule.
    Pass,
    /// The case could not run.
    Skipped,
    /// The behaviour is legal, but differs from this project's store.
    Differs,
    /// The store breaks the rule.
    Fail,
}

impl Verdict {
    /// The verdict as one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skipped => "skipped",
            Self::Differs => "differs",
            Self::Fail => "fail",
        }
    }
}

/// A deviation from the rule, or the reason why a case was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Severity.
    pub verdict: Verdict,
    /// The expected and the actual behaviour.
    pub text: String,
    /// The preceding request: its payload, escaped and truncated, with its timestamp and token.
    pub request: Option<String>,
    /// The response to it, in the same form.
    pub response: Option<String>,
}

/// Result of one case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaseReport {
    /// The case.
    pub case: &'static Case,
    /// The worst verdict of the findings.
    pub verdict: Verdict,
    /// Findings, oldest first.
    pub findings: Vec<Finding>,
    /// Number of requests.
    pub requests: u64,
    /// Duration.
    pub elapsed: Duration,
}

/// Result of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Results of the cases, in the order in which they ran.
    pub cases: Vec<CaseReport>,
    /// Number of requests, including those that removed keys.
    pub requests: u64,
    /// Median time from request to response.
    pub median: Duration,
    /// Longest time from request to response.
    pub longest: Duration,
    /// Dialect of the responses to a client of the specification, and to a deployed client, if
    /// observed.
    pub dialects: [Option<Dialect>; 2],
    /// Number of keys that were removed at the end.
    pub removed: usize,
    /// Keys that may remain: they were set, or may have been set, and their removal is not
    /// confirmed.
    pub left: Vec<Vec<u8>>,
}

impl Report {
    /// Number of cases with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// Returns whether no rule was broken.
    #[must_use]
    pub fn is_conformant(&self) -> bool {
        self.count(Verdict::Fail) == 0
    }

    /// Number of cases without a verdict because the store does not authorize their requests.
    #[must_use]
    pub fn not_allowed(&self) -> usize {
        let is_refused =
            |case: &&CaseReport| case.findings.iter().any(|finding| finding.text == NOT_ALLOWED);
        self.cases.iter().filter(|case| case.verdict == Verdict::Skipped).filter(is_refused).count()
    }

    /// Describes the dialects of the responses.
    #[must_use]
    pub const fn dialect(&self) -> &'static str {
        match self.dialects {
            [Some(Dialect::Spec), Some(Dialect::Deployed)] => "each client in its own",
            [Some(Dialect::Spec), Some(Dialect::Spec)] => "always the specified one",
            [Some(Dialect::Deployed), Some(Dialect::Deployed)] => "always the deployed one",
            [Some(Dialect::Deployed), Some(Dialect::Spec)] => "each client in the other one",
            _ => "not seen",
        }
    }
}

/// Escapes control characters of a text from the network, and shortens it to 600 characters.
pub(crate) fn one_line(text: &str) -> String {
    const SHOWN: usize = 600;
    let mut line = String::new();
    for char in text.chars().take(SHOWN) {
        if char.is_control() {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line
}
