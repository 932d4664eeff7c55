//! Findings as text and as JSON.

use serde_json::{Value, json};
use statestore_tokio::diagnostics::text::on_one_line;

/// Names and descriptions of the checks, in order.
pub(crate) const CHECKS: &[(&str, &str)] = &[
    ("address", "the name of the broker has an address"),
    ("port", "a server listens on the port"),
    ("tls", "the broker speaks TLS, and its certificate is trusted"),
    ("login", "the broker accepts this client"),
    ("limits", "the limits of the broker allow requests and values of each size"),
    ("responses", "this client receives responses"),
    ("request", "this client may send requests"),
    ("store", "a store responds"),
    ("one-store", "only one store responds"),
    ("dialect", "responses have the properties that deployed clients need"),
    ("read", "this client may read"),
    ("write", "this client may write"),
    ("clock", "the clocks of store and client agree"),
    ("notifications", "this client receives notifications"),
    ("latency", "no delay by Nagle's algorithm"),
];

/// Outcome of an examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No problem.
    Healthy,
    /// Warnings only.
    Warnings,
    /// The first problem remains until the operator changes something.
    Failed,
    /// The first problem is a missing response. Another attempt may succeed.
    NoResponse,
}

/// Maximum number of characters of a detail. Texts from the network may be long.
const DETAIL_CHARS_MAX: usize = 400;

/// Maximum number of characters of a remedy. It may contain a topic with the client id.
const REMEDY_CHARS_MAX: usize = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Warning,
    Failed,
    /// No response. Another attempt may succeed.
    NoResponse,
    /// Not requested.
    Skipped,
    /// Not possible because of the first problem. The text is one line for all of these.
    Impossible,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Failed | Self::NoResponse => "failed",
            Self::Skipped | Self::Impossible => "skipped",
        }
    }
}

#[derive(Debug)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    detail: String,
    remedy: String,
}

/// The findings so far.
pub(crate) struct Findings<'a> {
    findings: Vec<Finding>,
    on_check: &'a (dyn Fn() + Sync),
}

/// Findings of an examination: one for each check.
#[derive(Debug)]
pub(crate) struct Report {
    /// In the order of [`CHECKS`].
    findings: Vec<Finding>,
    /// Position of the problem that was found first.
    problem: Option<usize>,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(on_check: &'a (dyn Fn() + Sync)) -> Self {
        Self { findings: Vec::new(), on_check }
    }

    pub(crate) fn pass(&mut self, check: &'static str, detail: impl Into<String>) {
        self.add(check, Verdict::Passed, detail.into(), String::new());
    }

    pub(crate) fn warn(
        &mut self,
        check: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Warning, detail.into(), remedy.into());
    }

    pub(crate) fn fail(
        &mut self,
        check: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Failed, detail.into(), remedy.into());
    }

    pub(crate) fn no_response(
        &mut self,
        check: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::NoResponse, detail.into(), remedy.into());
    }

    pub(crate) fn skip(&mut self, check: &'static str, reason: impl Into<String>) {
        self.add(check, Verdict::Skipped, reason.into(), String::new());
    }

    fn add(&mut self, check: &'static str, verdict: Verdict, detail: String, remedy: String) {
        debug_assert!(CHECKS.iter().any(|(name, _)| *name == check));
        let (detail, remedy) = (cut(detail, DETAIL_CHARS_MAX), cut(remedy, REMEDY_CHARS_MAX));
        if self.findings.iter().all(|finding| finding.check != check) {
            self.findings.push(Finding { check, verdict, detail, remedy });
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
        let cause = problem(&self.findings).map(|finding| format!("depends on {}", finding.check));
        let order = |name: &str| CHECKS.iter().position(|(check, _)| *check == name);
        let is_missing = |check: &&str| !self.has(check);
        let missing: Vec<_> = CHECKS.iter().map(|(check, _)| *check).filter(is_missing).collect();
        let problem = problem(&self.findings).map(|finding| order(finding.check));
        let problem = problem.flatten();
        for check in missing {
            let detail = cause.clone().unwrap_or_default();
            self.add(check, Verdict::Impossible, detail, String::new());
        }
        self.findings.sort_by_key(|finding| order(finding.check));
        Report { findings: self.findings, problem }
    }
}

/// Cuts a text to this number of characters.
fn cut(text: String, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{} ...", text.get(..end).unwrap_or_default()),
        None => text,
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
    pub(crate) fn outcome(&self) -> Outcome {
        let is_warning = |finding: &Finding| finding.verdict == Verdict::Warning;
        match self.problem().map(|finding| finding.verdict) {
            Some(Verdict::NoResponse) => Outcome::NoResponse,
            Some(_) => Outcome::Failed,
            None if self.findings.iter().any(is_warning) => Outcome::Warnings,
            None => Outcome::Healthy,
        }
    }

    fn summary(&self) -> String {
        let warnings =
            self.findings.iter().filter(|finding| finding.verdict == Verdict::Warning).count();
        match (self.problem(), warnings) {
            (Some(finding), _) => format!("{}: {}", finding.check, finding.detail),
            (None, 0) => "no problem found".to_owned(),
            (None, 1) => "no problem found, 1 warning".to_owned(),
            (None, warnings) => format!("no problem found, {warnings} warnings"),
        }
    }

    /// The report about this broker as text, one line for each finding and its remedy.
    #[must_use]
    pub(crate) fn text(&self, broker: &str) -> String {
        let mut text = format!("{broker}: {}\n", on_one_line(&self.summary()));
        // These share one line.
        let is_impossible = |finding: &&Finding| finding.verdict == Verdict::Impossible;
        for Finding { check, verdict, detail, remedy } in
            self.findings.iter().filter(|it| !is_impossible(it))
        {
            let detail = on_one_line(detail);
            text += format!("{:<8} {check:<14} {detail}", verdict.word()).trim_end();
            text.push('\n');
            if !remedy.is_empty() {
                text += &format!("{:<23} → {}\n", "", on_one_line(remedy));
            }
        }
        let mut impossible = self.findings.iter().filter(is_impossible);
        if let Some(Finding { verdict, detail, .. }) = impossible.next() {
            let checks = match impossible.count() {
                0 => "1 check".to_owned(),
                others => format!("{} checks", others + 1),
            };
            text += &format!("{:<8} {checks:<14} {detail}\n", verdict.word());
        }
        text
    }

    /// The report about this broker as JSON, with an object for each check.
    #[must_use]
    pub(crate) fn json(&self, broker: &str) -> Value {
        let checks = self.findings.iter().map(|Finding { check, verdict, detail, remedy }| {
            let description =
                CHECKS.iter().find(|(name, _)| name == check).map(|(_, description)| *description);
            json!({"check": check, "description": description, "verdict": verdict.word(), "detail": detail, "remedy": remedy})
        });
        json!({"broker": broker, "summary": self.summary(), "checks": checks.collect::<Vec<_>>()})
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
        let passed = report(&|findings| {
            for (check, _) in CHECKS {
                findings.pass(check, "works");
            }
        });
        assert_eq!(passed.outcome(), Outcome::Healthy);
        let warned = report(&|findings| findings.warn("latency", "slow", "set TCP_NODELAY"));
        assert_eq!(warned.outcome(), Outcome::Warnings);
        let failed = report(&|findings| {
            findings.warn("latency", "slow", "set TCP_NODELAY");
            findings.fail("read", "not authorized", "allow it");
            findings.no_response("store", "no response", "start a store");
        });
        assert_eq!(failed.outcome(), Outcome::Failed, "it was found first");
        assert!(failed.text("mqtt://h").starts_with("mqtt://h: read: not authorized\n"));
        assert_eq!(failed.json("mqtt://h")["checks"][0]["detail"], "depends on read");
        let unreachable = report(&|findings| findings.no_response("port", "refused", "start it"));
        assert_eq!(unreachable.outcome(), Outcome::NoResponse);
        let rows = "failed   port           refused\n                        → start it\nskipped  14 checks      depends on port\n";
        assert_eq!(unreachable.text("mqtt://h"), format!("mqtt://h: port: refused\n{rows}"));
        let checks = unreachable.json("mqtt://h")["checks"].as_array().map(Vec::len);
        assert_eq!(checks, Some(CHECKS.len()), "JSON has an object for each check");
    }

    #[test]
    fn texts_from_the_network_are_cut_and_stay_on_one_line() {
        let report = |detail: &str, remedy: &str| {
            let mut findings = Findings::new(&|| {});
            findings.fail("login", detail, remedy);
            findings.complete().text("mqtt://h")
        };
        let text = report("a\nok       everything", "b\n\u{1b}[2J");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.contains('\u{1b}'));
        let long = "\u{202e}".repeat(60_000);
        assert!(report(&long, &long).len() < 10_000, "texts are cut before they are escaped");
    }
}
