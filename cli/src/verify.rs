//! `verify`: the conformance kit as a command.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use statestore_verify::over_client::{Broker, Options};
use statestore_verify::{
    CASES, Case, CaseReport, Report, Run, Settings, Source, Unreachable, Verdict,
};

use crate::args::{ReportFormat, Verify};
use crate::connection::{client_id, options};
use crate::escape::printable;
use crate::exit::Exit;
use crate::failure::{Failure, check_settings};
use crate::junit::{self, Outcome, Test};
use crate::output::{notice, notice_lines, raw};
use crate::progress::Progress;
use crate::signals::{self, Signals};
use crate::sources::{TOKEN_FILE, setting_name};

/// Maximum number of remaining keys that are printed.
const LEFT_SHOWN: usize = 10;

/// The rule with a timestamp that is ahead, from which the store continues to issue versions.
const MOVES_VERSIONS: &str = "clock/nearly-ahead";

/// Printed after a run with that rule.
const VERSIONS_MOVED: &str = "the rule clock/nearly-ahead has moved the versions of this store up \
    to 40 s ahead, until the time of day has caught up\n";

pub(crate) async fn run(args: Verify) -> Result<ExitCode, Failure> {
    let cases = chosen(&args.cases, &args.skip)?;
    if args.list {
        raw(list(&cases, args.output).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let connection = &args.connection;
    // The keys are unique to this run, with any client ids.
    let name = client_id(&connection.login, "verify");
    if connection.login.service_account_token_file.is_some() {
        return Err(Failure::bad_input(format_args!(
            "{}: verify does not support tokens; use --user or --tls-cert",
            setting_name(TOKEN_FILE)
        )));
    }
    let options = options(&connection.broker, &connection.login, &name)?;
    let mut settings = Settings::new(&name);
    settings.client_id = Some(options.client_id.clone());
    (settings.timeout, settings.is_thorough) = (args.time_limit.timeout, args.thorough);
    let mut signals = Signals::new()?.with_hangup()?;
    let mut run = tokio::select! {
        started = start(&options, &settings, &connection.broker) => started?,
        signal = signals.received() => return Ok(signals::exit_code(signal)),
    };
    let (mut stopped_by, mut printed) = (None, Ok(()));
    // Printed lines already show the progress.
    let total = u64::try_from(cases.len()).unwrap_or_default();
    let progress = Progress::cases("verifying", total).unless_printed(true);
    for case in &cases {
        progress.advance(1);
        let report = match stopped_by {
            None => tokio::select! {
                report = run.case(case) => report,
                signal = signals.received() => {
                    stopped_by = Some(signal);
                    notice("stopping: deleting the keys of this run; a second signal skips that");
                    run.skip(case, "not run: stopped before")
                }
            },
            Some(_) => run.skip(case, "not run: stopped before"),
        };
        if stopped_by.is_none() && printed.is_ok() {
            printed = show(report, args.output);
            stopped_by = printed.is_err().then_some(Signal::HUP);
        }
    }
    drop(progress);
    let has_lost_its_store = run.has_lost_its_store();
    // Test keys are deleted after every outcome.
    tokio::select! {
        () = run.clean_up() => {}
        signal = signals.received() => stopped_by = Some(signal),
    }
    let report = run.report();
    report_left_keys(&report, &name);
    printed?;
    raw(summary(&report, &name, args.output).as_bytes())?;
    Ok(match stopped_by {
        Some(stopped_by) => signals::exit_code(stopped_by),
        None if has_lost_its_store => {
            return Err(Failure::unreachable(
                "the store has stopped responding, or its responses are malformed; the remaining \
                 rules were not checked",
            ));
        }
        None if report.is_conformant() && report.not_allowed() > 0 => {
            return Err(Failure::bad_input(format_args!(
                "{} rules were not checked: a policy refuses their requests; allow this client \
                 (--client-id, --user) ReadWrite, and Fence if a rule of the policy has it, for \
                 the keys `{name}/*`",
                report.not_allowed()
            )));
        }
        None if report.is_conformant() && report.left.is_empty() => ExitCode::SUCCESS,
        None => Exit::Negative.into(),
    })
}

/// A run with the first broker whose store responds. All connections use that broker.
async fn start(options: &Options, settings: &Settings, urls: &[String]) -> Result<Run, Failure> {
    let mut failures = Vec::new();
    for at in options.addresses() {
        let mut options = options.clone();
        (options.host, options.port) = (at.host.clone(), at.port);
        match Run::start(Arc::new(Broker(options)), settings.clone()).await {
            Ok(run) => return Ok(run),
            Err(reason) => failures.push((at, reason)),
        }
    }
    match (&*failures, urls) {
        ([(_, reason)], [url, ..]) => Err(unreachable(reason, url)),
        _ => {
            let each = failures.iter().map(|(at, reason)| format!("{at}: {reason}"));
            Err(Failure::unreachable(format_args!(
                "no store responds at any of {} brokers: {}; check that one runs \
                 (`statestore serve`); {}, and try a longer --timeout",
                failures.len(),
                each.collect::<Vec<_>>().join("; "),
                check_settings()
            )))
        }
    }
}

fn report_left_keys(report: &Report, name: &str) {
    if report.left.is_empty() {
        return;
    }
    let count = report.left.len();
    notice(format_args!(
        "{count} keys below {name}/ may be left: their deletion was not confirmed"
    ));
    for key in report.left.iter().take(LEFT_SHOWN) {
        let shown = key.get(..100).unwrap_or(key).escape_ascii();
        notice(format_args!("  {shown}{}", if key.len() > 100 { "..." } else { "" }));
    }
}

fn unreachable(reason: &Unreachable, broker: &str) -> Failure {
    match reason {
        Unreachable::Broker(reason) => Failure::unreachable(format_args!(
            "no usable connection to {broker}: {reason}; check that it is an MQTT 5 broker; {}, \
             and try a longer --timeout",
            check_settings()
        )),
        Unreachable::Store(reason) => Failure::unreachable(format_args!(
            "no store responds at this broker: {reason}; check that one runs (`statestore serve`), \
             that it responds to the response topic with the correlation data of the request, that \
             this client may publish and subscribe to these topics, and --timeout"
        )),
        other => Failure::unreachable(other),
    }
}

/// Selects cases by name, or all of them, without the skipped ones.
fn chosen(names: &[String], skip: &[String]) -> Result<Vec<&'static Case>, Failure> {
    let is_unknown = |name: &&String| !CASES.iter().any(|case| case.is_named(name));
    if let Some(name) = names.iter().chain(skip).find(is_unknown) {
        return Err(Failure::bad_input(format_args!(
            "{name}: unknown rule or section; `statestore verify --list` lists them"
        )));
    }
    let is_in = |names: &[String], case: &Case| names.iter().any(|name| case.is_named(name));
    let is_wanted = |case: &&Case| (names.is_empty() || is_in(names, case)) && !is_in(skip, case);
    Ok(CASES.iter().filter(is_wanted).collect())
}

fn list(cases: &[&Case], form: ReportFormat) -> String {
    let mut text = String::new();
    for case in cases {
        let Case { name, source, rule, .. } = case;
        let _ = match form {
            ReportFormat::Json => {
                writeln!(text, "{}", json!({"case": name, "source": source.name(), "rule": rule}))
            }
            _ => writeln!(text, "{name:<26} {:<7} {rule}", source.name()),
        };
    }
    text
}

/// Prints the result of a case.
fn show(report: &CaseReport, form: ReportFormat) -> Result<(), Failure> {
    match form {
        ReportFormat::Text => raw(lines(report).as_bytes()),
        ReportFormat::Json => {
            raw(format!("{}\n", printable(&object(report).to_string())).as_bytes())
        }
        // The document is printed at the end.
        ReportFormat::Junit => {
            if matches!(report.verdict, Verdict::Fail | Verdict::Differs) {
                notice_lines(lines(report).trim_end());
            }
            Ok(())
        }
    }
}

fn lines(report: &CaseReport) -> String {
    let CaseReport { case, verdict, findings, elapsed, .. } = report;
    let mut text = format!("{:<8} {:<26} {:>7.1} ms", verdict.name(), case.name, millis(*elapsed));
    if let (Verdict::Skipped, [finding]) = (verdict, &findings[..]) {
        let _ = writeln!(text, "  {}", finding.text);
        return printable(&text);
    }
    text.push('\n');
    if *verdict == Verdict::Fail || *verdict == Verdict::Differs {
        let of = match case.source {
            Source::Spec => "the specification",
            Source::Wire => "what deployed clients need",
            Source::Choice => "a choice that stores have",
        };
        let _ = writeln!(text, "         {} ({of})", case.rule);
    }
    for finding in findings {
        let _ = writeln!(text, "         {}: {}", finding.verdict.name(), finding.text);
        for (name, bytes) in [("request", &finding.request), ("response", &finding.response)] {
            if let Some(bytes) = bytes {
                let _ = writeln!(text, "           {name:<8} {bytes}");
            }
        }
    }
    printable(&text)
}

fn object(report: &CaseReport) -> serde_json::Value {
    let CaseReport { case, verdict, findings, requests, elapsed, .. } = report;
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "verdict": finding.verdict.name(), "text": finding.text,
                "request": finding.request, "response": finding.response,
            })
        })
        .collect();
    json!({
        "case": case.name, "source": case.source.name(), "rule": case.rule,
        "verdict": verdict.name(), "findings": findings, "requests": requests,
        "ms": millis(*elapsed),
    })
}

fn summary(report: &Report, name: &str, form: ReportFormat) -> String {
    let [pass, fail, differs, skipped] =
        [Verdict::Pass, Verdict::Fail, Verdict::Differs, Verdict::Skipped]
            .map(|verdict| report.count(verdict));
    let Report { cases, requests, median, longest, removed, left, .. } = report;
    let (median, longest, dialect) = (millis(*median), millis(*longest), report.dialect());
    let took: Duration = cases.iter().map(|case| case.elapsed).sum();
    match form {
        ReportFormat::Text => format!(
            "\n{} rules: {pass} pass, {fail} fail, {differs} differ, {skipped} skipped\n\
             {requests} requests in {:.1} s; time to a response: median {median:.1} ms, maximum \
             {longest:.1} ms\n\
             dialect: {dialect}; keys removed: {removed}, left: {}\n{}",
            cases.len(),
            took.as_secs_f64(),
            left.len(),
            if moves_versions(report) { VERSIONS_MOVED } else { "" },
        ),
        ReportFormat::Json => {
            let object = json!({
                "summary": {
                    "rules": cases.len(), "pass": pass, "fail": fail, "differs": differs,
                    "skipped": skipped, "requests": requests, "ms": millis(took),
                    "latency_ms": {"median": median, "longest": longest},
                    "dialect": dialect,
                    "keys": {"prefix": name, "removed": removed, "left": left.len()},
                    "moves_versions": moves_versions(report),
                }
            });
            format!("{object}\n")
        }
        ReportFormat::Junit => junit(report),
    }
}

/// Returns whether the run has moved the versions of the store ahead of the time of day.
fn moves_versions(report: &Report) -> bool {
    let is_run = |case: &CaseReport| case.verdict != Verdict::Skipped;
    report.cases.iter().any(|case| case.case.name == MOVES_VERSIONS && is_run(case))
}

fn junit(report: &Report) -> String {
    let tests: Vec<Test<'_>> = report.cases.iter().map(test).collect();
    junit::document("statestore verify", &tests)
}

fn test(case: &CaseReport) -> Test<'_> {
    let (suite, name) = case.case.name.split_once('/').unwrap_or(("", case.case.name));
    let worst = case.findings.iter().find(|finding| finding.verdict == case.verdict);
    let message = printable(worst.map_or("", |finding| finding.text.as_str()));
    let outcome = match case.verdict {
        Verdict::Pass => Outcome::Passed { output: String::new() },
        Verdict::Differs => Outcome::Passed { output: lines(case) },
        Verdict::Skipped => Outcome::Skipped { message },
        Verdict::Fail => {
            let kind = case.case.source.name();
            Outcome::Failed { kind, message, description: lines(case) }
        }
    };
    Test { suite, name, elapsed: case.elapsed, outcome }
}

/// Rounds to a tenth.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_that_moves_versions_exists() {
        assert_eq!(CASES.iter().filter(|case| case.name == MOVES_VERSIONS).count(), 1);
        assert!(VERSIONS_MOVED.contains(MOVES_VERSIONS));
    }
}
