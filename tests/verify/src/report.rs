//! What came of it.

use std::time::Duration;

use crate::Dialect;
use crate::case::Case;

/// Why a case cannot be judged where the store has access rules.
pub(crate) const NOT_ALLOWED: &str = "the store does not allow this client what the rule takes";

/// What came of a case, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As the protocol says.
    Pass,
    /// It could not be tried here, and why.
    Skipped,
    /// Legal, and not as the implementation does it that this kit comes from.
    Differs,
    /// Against the protocol.
    Fail,
}

impl Verdict {
    /// One word.
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

/// Something that was not as expected, or why a case was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub verdict: Verdict,
    /// What was expected and what was seen.
    pub text: String,
    /// The request before, its payload escaped and cut short, with what else it carried.
    pub asked: Option<String>,
    /// The answer to it, likewise.
    pub answered: Option<String>,
}

/// What came of one case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaseReport {
    /// Which.
    pub case: &'static Case,
    /// The worst of the findings.
    pub verdict: Verdict,
    /// In the order in which they were made.
    pub findings: Vec<Finding>,
    /// Requests it took.
    pub requests: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// What came of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// In the order in which they were run.
    pub cases: Vec<CaseReport>,
    /// Requests in all, with those that removed keys.
    pub requests: u64,
    /// From request to answer: the median, of those that were answered.
    pub median: Duration,
    /// The longest.
    pub longest: Duration,
    /// In which form a client of the page is answered, and in which a deployed one, as far as a case has seen it.
    pub dialects: [Option<Dialect>; 2],
    /// Keys that were removed at the end.
    pub removed: usize,
    /// Keys that may be left: they were set, or asked to be, and that they are gone is not known.
    pub left: Vec<Vec<u8>>,
}

impl Report {
    /// Cases with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// Returns whether no rule was broken.
    #[must_use]
    pub fn is_conformant(&self) -> bool {
        self.count(Verdict::Fail) == 0
    }

    /// Cases that could not be judged, since the store does not allow this client what they take.
    #[must_use]
    pub fn not_allowed(&self) -> usize {
        let is_one = |case: &&CaseReport| case.findings.iter().any(|one| one.text == NOT_ALLOWED);
        self.cases.iter().filter(|case| case.verdict == Verdict::Skipped).filter(is_one).count()
    }

    /// Whom the store answers in which dialect, in words.
    #[must_use]
    pub const fn dialect(&self) -> &'static str {
        match self.dialects {
            [Some(Dialect::Page), Some(Dialect::Deployed)] => "each client in its own",
            [Some(Dialect::Page), Some(Dialect::Page)] => "always the page's",
            [Some(Dialect::Deployed), Some(Dialect::Deployed)] => "always the deployed one",
            [Some(Dialect::Deployed), Some(Dialect::Page)] => "each client in the other one",
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
