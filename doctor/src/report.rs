//! Findings as text and as JSON.

use serde_json::{Value, json};
use statestore_tokio::diagnostics::text::on_one_line;

/// Names and descriptions of the checks, in order.
pub const CHECKS: &[(&str, &str)] = &[
    ("address", "the name of the broker has an address"),
    ("port", "a server listens on the port"),
    ("tls", "the connection is encrypted if it should be"),
    ("login", "the broker accepts this client"),
    ("limits", "the limits of the broker suffice"),
    ("responses", "this client receives responses"),
    ("request", "this client may send requests"),
    ("answer", "a store responds"),
    ("one-store", "only one store responds"),
    ("dialect", "responses have the format of deployed clients"),
    ("read", "this client may read"),
    ("write", "this client may write"),
    ("clock", "the clocks of store and client agree"),
    ("notifications", "this client receives notifications"),
    ("latency", "responses are fast"),
];

/// Outcome of an examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No problem.
    Healthy,
    /// Warnings only.
    Warnings,
    /// The first problem remains until the operator changes something.
    Failed,
    /// The first problem is a missing response. Another attempt may succeed.
    NoResponse,
}

/// Characters of what was seen that are shown.
const SEEN_MAX: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Warning,
    Failed,
    /// No response. Another attempt may succeed.
    Lost,
    /// Not requested.
    Skipped,
    /// Not possible because of the first problem.
    Impossible,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Failed | Self::NoResponse => "wrong",
            Self::Skipped | Self::Impossible => "skipped",
        }
    }
}

#[derive(Debug)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    seen: String,
    remedy: String,
}

/// The findings so far.
pub(crate) struct Findings<'a> {
    findings: Vec<Finding>,
    on_check: &'a (dyn Fn() + Sync),
}

/// Findings of an examination: one for each check.
#[derive(Debug)]
pub struct Report {
    /// In the order of [`CHECKS`].
    findings: Vec<Finding>,
    /// Position of the problem that was found first.
    problem: Option<usize>,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(on_check: &'a (dyn Fn() + Sync)) -> Self {
        Self { findings: Vec::new(), on_check }
    }

    pub(crate) fn pass(&mut self, check: &'static str, seen: impl Into<String>) {
        self.add(check, Verdict::Passed, seen.into(), String::new());
    }

    pub(crate) fn warn(
        &mut self,
        check: &'static str,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Warning, seen.into(), remedy.into());
    }

    pub(crate) fn fail(
        &mut self,
        check: &'static str,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Failed, seen.into(), remedy.into());
    }

    pub(crate) fn no_response(
        &mut self,
        check: &'static str,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::NoResponse, seen.into(), remedy.into());
    }

    pub(crate) fn skip(&mut self, check: &'static str, why: impl Into<String>) {
        self.add(check, Verdict::Skipped, why.into(), String::new());
    }

    fn add(&mut self, check: &'static str, verdict: Verdict, seen: String, remedy: String) {
        debug_assert!(CHECKS.iter().any(|(name, _)| *name == check));
        // Texts from the network may be long.
        let seen = match seen.char_indices().nth(SEEN_MAX) {
            Some((end, _)) => format!("{} ...", seen.get(..end).unwrap_or_default()),
            None => seen,
        };
        if self.findings.iter().all(|finding| finding.check != check) {
            self.findings.push(Finding { check, verdict, seen, remedy });
            (self.on_check)();
        }
    }

    /// Removes a finding that a later observation contradicts.
    pub(crate) fn withdraw(&mut self, check: &str) {
        self.findings.retain(|finding| finding.check != check);
    }

    /// Returns whether the check has a finding.
    pub(crate) fn has(&self, check: &str) -> bool {
        self.findings.iter().any(|finding| finding.check == check)
    }

    /// Marks all other checks as impossible, and sorts the findings.
    pub(crate) fn complete(mut self) -> Report {
        // The first problem that was found, which need not be the first in the order of checks.
        let cause = problem(&self.findings).map(|finding| format!("because of {}", finding.check));
        let order = |name: &str| CHECKS.iter().position(|(check, _)| *check == name);
        let is_missing = |check: &&str| !self.has(check);
        let missing: Vec<_> = CHECKS.iter().map(|(check, _)| *check).filter(is_missing).collect();
        let problem = problem(&self.findings).map(|finding| order(finding.check));
        let problem = problem.flatten();
        for check in missing {
            let seen = cause.clone().unwrap_or_default();
            self.add(check, Verdict::Impossible, seen, String::new());
        }
        self.findings.sort_by_key(|finding| order(finding.check));
        Report { findings: self.findings, problem }
    }
}

/// The first finding that is a problem.
fn problem(findings: &[Finding]) -> Option<&Finding> {
    findings.iter().find(|finding| matches!(finding.verdict, Verdict::Failed | Verdict::NoResponse))
}

impl Report {
    /// The problem that was found first.
    fn problem(&self) -> Option<&Finding> {
        self.findings.get(self.problem?)
    }

    /// The outcome: decided by the first problem, otherwise by warnings.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let is_warning = |finding: &Finding| finding.verdict == Verdict::Warning;
        match self.problem().map(|finding| finding.verdict) {
            Some(Verdict::NoResponse) => Outcome::NoResponse,
            Some(_) => Outcome::Failed,
            None if self.findings.iter().any(is_warning) => Outcome::Warnings,
            None => Outcome::Healthy,
        }
    }

    fn verdict(&self) -> String {
        let warnings =
            self.findings.iter().filter(|finding| finding.verdict == Verdict::Warning).count();
        match (self.problem(), warnings) {
            (Some(finding), _) => format!("{}: {}", finding.check, finding.seen),
            (None, 0) => "nothing is wrong".to_owned(),
            (None, 1) => "nothing is wrong, with one warning".to_owned(),
            (None, warnings) => format!("nothing is wrong, with {warnings} warnings"),
        }
    }

    /// The report about this broker as text, one line for each finding and its remedy.
    #[must_use]
    pub fn text(&self, broker: &str) -> String {
        let mut text = format!("{broker}: {}\n", on_one_line(&self.verdict()));
        // These share one line.
        let is_impossible = |finding: &&Finding| finding.verdict == Verdict::Impossible;
        for Finding { check, verdict, seen, remedy } in
            self.findings.iter().filter(|it| !is_impossible(it))
        {
            let seen = on_one_line(seen);
            text += format!("{:<8} {check:<14} {seen}", verdict.word()).trim_end();
            text.push('\n');
            if !remedy.is_empty() {
                text += &format!("{:<23} → {}\n", "", on_one_line(remedy));
            }
        }
        let mut impossible = self.findings.iter().filter(is_impossible);
        if let Some(Finding { verdict, seen, .. }) = impossible.next() {
            let checks = match impossible.count() {
                0 => "1 check".to_owned(),
                others => format!("{} checks", others + 1),
            };
            text += &format!("{:<8} {checks:<14} {seen}\n", verdict.word());
        }
        text
    }

    /// The report about this broker as JSON, with an object for each check.
    #[must_use]
    pub fn json(&self, broker: &str) -> Value {
        let checks = self.findings.iter().map(|Finding { check, verdict, seen, remedy }| {
            let about = CHECKS.iter().find(|(name, _)| name == check).map(|(_, about)| *about);
            json!({"check": check, "about": about, "verdict": verdict.word(), "seen": seen, "remedy": remedy})
        });
        json!({"broker": broker, "verdict": self.verdict(), "checks": checks.collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_problem_decides_the_outcome() {
        let report = |add: &dyn Fn(&mut Findings<'_>)| {
            let mut findings = Findings::new(&|| {});
            add(&mut findings);
            findings.complete()
        };
        let fine = report(&|findings| {
            for (check, _) in CHECKS {
                findings.pass(check, "as it should be");
            }
        });
        assert_eq!(fine.outcome(), Outcome::Healthy);
        let warned = report(&|findings| findings.warn("latency", "slow", "hurry"));
        assert_eq!(warned.outcome(), Outcome::Warnings);
        let wrong = report(&|findings| {
            findings.warn("latency", "slow", "hurry");
            findings.fail("read", "may not", "allow it");
            findings.no_response("answer", "silence", "start one");
        });
        assert_eq!(wrong.outcome(), Outcome::Failed, "it was found first");
        assert!(wrong.text("mqtt://h").starts_with("mqtt://h: read: may not\n"));
        assert_eq!(wrong.json("mqtt://h")["checks"][0]["seen"], "because of read");
        let lost = report(&|findings| findings.no_response("port", "refused", "start it"));
        assert_eq!(lost.outcome(), Outcome::NoResponse);
        let rows = "wrong    port           refused\n                        → start it\nskipped  14 checks      because of port\n";
        assert_eq!(lost.text("mqtt://h"), format!("mqtt://h: port: refused\n{rows}"));
        let checks = lost.json("mqtt://h")["checks"].as_array().map(Vec::len);
        assert_eq!(checks, Some(CHECKS.len()), "for programs each has its own");
    }

    #[test]
    fn texts_from_the_network_stay_on_one_line() {
        let report = |seen: &str, remedy| {
            let mut findings = Findings::new(&|| {});
            findings.fail("login", seen, remedy);
            findings.complete().text("mqtt://h")
        };
        let text = report("a\nok       everything", "b\n\u{1b}[2J");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(report(&"ü".repeat(60_000), "").len() < 3_000, "and are cut");
    }
}
