//! Findings as text and as JSON.

use serde_json::{Value, json};

use crate::escape::on_one_line;
use crate::exit::Exit;
use crate::policy::counted;
use crate::progress::Progress;

/// Names and descriptions of the checks, in order.
pub(super) const CHECKS: [(&str, &str); 15] = [
    ("address", "the name of the broker has an address"),
    ("port", "something listens there"),
    ("tls", "the connection is encrypted as it should be"),
    ("login", "the broker lets this client in"),
    ("limits", "what the broker takes is enough"),
    ("responses", "replies can reach this client"),
    ("request", "this client may ask"),
    ("answer", "a store answers"),
    ("one-store", "and no other"),
    ("dialect", "in which form"),
    ("read", "this client may read"),
    ("write", "and write"),
    ("clock", "the clocks of store and client agree"),
    ("notifications", "changes are told"),
    ("latency", "requests are as fast as they should be"),
];

/// Characters of what was seen that are shown.
const SEEN_MAX: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    Warning,
    Wrong,
    /// No response. Another attempt may succeed.
    Lost,
    Skipped,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Warning => "warning",
            Self::Wrong | Self::Lost => "wrong",
            Self::Skipped => "skipped",
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

/// Findings: one line per check, followed by a line with advice.
#[derive(Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
    progress: Option<Progress>,
}

impl Report {
    /// A report that shows its progress.
    pub(super) fn shown() -> Self {
        let progress = Progress::checks("looking", CHECKS.len() as u64);
        Self { findings: Vec::new(), progress: Some(progress) }
    }

    pub(super) fn fine(&mut self, check: &'static str, seen: impl Into<String>) {
        self.add(check, Verdict::Fine, seen.into(), String::new());
    }

    pub(super) fn warn(
        &mut self,
        check: &'static str,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Warning, seen.into(), remedy.into());
    }

    pub(super) fn wrong(
        &mut self,
        check: &'static str,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Wrong, seen.into(), remedy.into());
    }

    pub(super) fn lost(
        &mut self,
        check: &'static str,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(check, Verdict::Lost, seen.into(), remedy.into());
    }

    pub(super) fn skip(&mut self, check: &'static str, why: impl Into<String>) {
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
            self.progress.iter().for_each(|progress| progress.advance(1));
        }
    }

    /// Removes a finding that a later observation contradicts.
    pub(super) fn withdraw(&mut self, check: &str) {
        self.findings.retain(|finding| finding.check != check);
    }

    /// Returns whether the check has a finding.
    pub(super) fn has(&self, check: &str) -> bool {
        self.findings.iter().any(|finding| finding.check == check)
    }

    /// Marks all other checks as skipped, and sorts the findings.
    pub(super) fn complete(&mut self) {
        self.progress = None;
        let cause = self.worst().map(|finding| finding.check);
        for (check, _) in CHECKS {
            if !self.has(check) {
                let why = cause.map_or_else(String::new, because_of);
                self.skip(check, why);
            }
        }
        self.findings
            .sort_by_key(|finding| CHECKS.iter().position(|(check, _)| *check == finding.check));
    }

    /// The first finding that is wrong.
    fn worst(&self) -> Option<&Finding> {
        self.findings
            .iter()
            .find(|finding| matches!(finding.verdict, Verdict::Wrong | Verdict::Lost))
    }

    /// The exit code: decided by the first finding that is wrong, otherwise by warnings.
    pub(super) fn exit(&self) -> Exit {
        match self.worst().map(|finding| finding.verdict) {
            Some(Verdict::Lost) => Exit::Unreachable,
            Some(_) => Exit::Refused,
            None => {
                let is_warning = |finding: &Finding| finding.verdict == Verdict::Warning;
                Exit::done_if(!self.findings.iter().any(is_warning))
            }
        }
    }

    fn verdict(&self) -> String {
        let warnings =
            self.findings.iter().filter(|finding| finding.verdict == Verdict::Warning).count();
        match (self.worst(), warnings) {
            (Some(finding), _) => format!("{}: {}", finding.check, finding.seen),
            (None, 0) => "nothing is wrong".to_owned(),
            (None, 1) => "nothing is wrong, with one warning".to_owned(),
            (None, warnings) => format!("nothing is wrong, with {warnings} warnings"),
        }
    }

    pub(super) fn text(&self, broker: &str) -> String {
        let mut text = format!("{broker}: {}\n", on_one_line(&self.verdict()));
        // All checks that were skipped for the same cause share one line.
        let cause = self.worst().map(|finding| because_of(finding.check));
        let is_moot = |finding: &&Finding| {
            finding.verdict == Verdict::Skipped && Some(&finding.seen) == cause.as_ref()
        };
        for Finding { check, verdict, seen, remedy } in
            self.findings.iter().filter(|it| !is_moot(it))
        {
            let seen = on_one_line(seen);
            text += format!("{:<8} {check:<14} {seen}", verdict.word()).trim_end();
            text.push('\n');
            if !remedy.is_empty() {
                text += &format!("{:<23} → {}\n", "", on_one_line(remedy));
            }
        }
        let count = self.findings.iter().filter(is_moot).count();
        if let Some(cause) = cause.filter(|_| count > 0) {
            let checks = counted(count, "check");
            text += &format!("{:<8} {checks:<14} {cause}\n", Verdict::Skipped.word());
        }
        text
    }

    pub(super) fn json(&self, broker: &str) -> Value {
        let checks = self.findings.iter().map(|Finding { check, verdict, seen, remedy }| {
            let about = CHECKS.iter().find(|(name, _)| name == check).map(|(_, about)| *about);
            json!({"check": check, "about": about, "verdict": verdict.word(), "seen": seen, "remedy": remedy})
        });
        json!({"broker": broker, "verdict": self.verdict(), "checks": checks.collect::<Vec<_>>()})
    }
}

fn because_of(check: &str) -> String {
    format!("because of {check}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_wrong_finding_decides_the_exit_code() {
        let is = |report: &Report, number: u8| report.exit().number() == number;
        let mut report = Report::default();
        report.fine("address", "127.0.0.1");
        assert!(is(&report, 0));
        report.warn("latency", "slow", "hurry");
        assert!(is(&report, 1));
        report.wrong("read", "may not", "allow it");
        assert!(is(&report, 2));
        report.lost("answer", "silence", "start one");
        assert!(is(&report, 2), "it was found first");
        let mut other = Report::default();
        other.lost("port", "refused", "start it");
        assert!(is(&other, 3));
        other.complete();
        let text = other.text("mqtt://h");
        let rows = "wrong    port           refused\n                        → start it\nskipped  14 checks      because of port\n";
        assert_eq!(text, format!("mqtt://h: port: refused\n{rows}"));
        let checks = other.json("mqtt://h")["checks"].as_array().map(Vec::len);
        assert_eq!(checks, Some(CHECKS.len()), "for programs each has its own");
    }

    #[test]
    fn texts_from_the_network_stay_on_one_line() {
        let mut report = Report::default();
        report.wrong("login", "a\nok       everything", "b\n\u{1b}[2J");
        let text = report.text("mqtt://h");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains('\u{1b}'));
        report.fine("answer", "ü".repeat(60_000));
        assert!(report.text("mqtt://h").len() < 2_000, "and is cut");
    }
}
