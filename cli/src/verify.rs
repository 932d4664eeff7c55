//! `verify`: the conformance suite as a command.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde_json::json;
use statestore_verify::over_client::{Broker, Options};
use statestore_verify::{
    CASES, Case, CaseReport, Report, Run, Settings, Source, Unreachable, Verdict,
};

use crate::args::{ReportForm, Verify};
use crate::connection::{client_id, options};
use crate::escape::printable;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{notice, raw, say_lines};
use crate::progress::Progress;
use crate::signals::{Received, Signals};

/// Maximum number of remaining keys that are named.
const LEFT_SHOWN: usize = 10;

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
        return Err(Failure::bad_input(
            "--service-account-token-file: verify cannot log in by a token; give --user or --tls-cert",
        ));
    }
    let options = options(&connection.broker, &connection.login, &name)?;
    let mut settings = Settings::new(&name);
    settings.client_id = Some(options.client_id.clone());
    (settings.timeout, settings.is_thorough) = (args.timeout, args.thorough);
    let mut signals = Signals::new()?.with_hangup()?;
    let mut run = tokio::select! {
        started = start(&options, &settings, &connection.broker) => started?,
        asked = signals.received() => return Ok(asked.code()),
    };
    let (mut asked, mut printed) = (None, Ok(()));
    // Printed lines already show the progress.
    let total = u64::try_from(cases.len()).unwrap_or_default();
    let progress = Progress::cases("verifying", total).unless_printed(true);
    for case in &cases {
        progress.advance(1);
        let report = match asked {
            None => tokio::select! {
                report = run.case(case) => report,
                signal = signals.received() => {
                    asked = Some(signal);
                    notice("stopping; the keys of this run are deleted first; interrupt again to skip that");
                    run.skip(case, "stopped before")
                }
            },
            Some(_) => run.skip(case, "stopped before"),
        };
        if asked.is_none() && printed.is_ok() {
            printed = show(report, args.output);
            asked = printed.is_err().then_some(Received::Hangup);
        }
    }
    drop(progress);
    let has_lost_its_store = run.has_lost_its_store();
    // Test keys are deleted after every outcome.
    tokio::select! {
        () = run.clean_up() => {}
        signal = signals.received() => asked = Some(signal),
    }
    let report = run.report();
    tell_of_left(&report, &name);
    printed?;
    raw(summary(&report, &name, args.output)?.as_bytes())?;
    Ok(match asked {
        Some(asked) => asked.code(),
        None if has_lost_its_store => {
            return Err(Failure::unreachable(
                "the store has stopped responding, or its responses are malformed; the remaining rules were not tried",
            ));
        }
        None if report.is_conformant() && report.not_allowed() > 0 => {
            return Err(Failure::bad_input(format_args!(
                "{} rules could not be judged, since the store does not allow this client what they take: for this run it \
                 needs ReadWrite, and Fence where there is any, for the keys `{name}/*`; --client-id and --user say who it is",
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
                "no store answers at any of {} brokers: {}; is one running (`statestore serve`)? Check --broker, --user, \
                 --tls-ca and --timeout",
                failures.len(),
                each.collect::<Vec<_>>().join("; ")
            )))
        }
    }
}

fn tell_of_left(report: &Report, name: &str) {
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
        Unreachable::Broker(told) => Failure::unreachable(format_args!(
            "no usable connection to {broker}: {told}; is it an MQTT 5 broker? Check --broker, --user, --tls-ca and --timeout"
        )),
        Unreachable::Store(told) => Failure::unreachable(format_args!(
            "no store answers on this broker: {told}; is one running (`statestore serve`), does it answer on the response \
             topic with the request's correlation data, may this client publish and read these topics, and is --timeout \
             long enough?"
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
    let is_of = |names: &[String], case: &Case| names.iter().any(|name| case.is_named(name));
    let is_wanted = |case: &&Case| (names.is_empty() || is_of(names, case)) && !is_of(skip, case);
    Ok(CASES.iter().filter(is_wanted).collect())
}

fn list(cases: &[&Case], form: ReportForm) -> String {
    let mut text = String::new();
    for case in cases {
        let Case { name, source, rule, .. } = case;
        let _ = match form {
            ReportForm::Json => {
                writeln!(text, "{}", json!({"case": name, "source": source.name(), "rule": rule}))
            }
            _ => writeln!(text, "{name:<26} {:<7} {rule}", source.name()),
        };
    }
    text
}

/// Prints the result of a case.
fn show(report: &CaseReport, form: ReportForm) -> Result<(), Failure> {
    match form {
        ReportForm::Text => raw(lines(report).as_bytes()),
        ReportForm::Json => raw(format!("{}\n", printable(&object(report).to_string())).as_bytes()),
        // The document is printed at the end.
        ReportForm::Junit => {
            if matches!(report.verdict, Verdict::Fail | Verdict::Differs) {
                say_lines(lines(report).trim_end());
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
        "case": case.name, "source": case.source.name(), "rule": case.rule, "verdict": verdict.name(),
        "findings": findings, "requests": requests, "ms": millis(*elapsed),
    })
}

fn summary(report: &Report, name: &str, form: ReportForm) -> Result<String, Failure> {
    let [pass, fail, differs, skipped] =
        [Verdict::Pass, Verdict::Fail, Verdict::Differs, Verdict::Skipped]
            .map(|verdict| report.count(verdict));
    let Report { cases, requests, median, longest, removed, left, .. } = report;
    let (median, longest, dialect) = (millis(*median), millis(*longest), report.dialect());
    let took: Duration = cases.iter().map(|case| case.elapsed).sum();
    Ok(match form {
        ReportForm::Text => format!(
            "\n{} rules: {pass} pass, {fail} fail, {differs} differ, {skipped} skipped\n\
             {requests} requests in {:.1} s; an answer takes {median:.1} ms, the longest took {longest:.1} ms\n\
             dialect: {dialect}; keys removed: {removed}, left: {}\n",
            cases.len(),
            took.as_secs_f64(),
            left.len(),
        ),
        ReportForm::Json => {
            let object = json!({
                "summary": {
                    "rules": cases.len(), "pass": pass, "fail": fail, "differs": differs, "skipped": skipped,
                    "requests": requests, "ms": millis(took), "answer_ms": {"median": median, "longest": longest},
                    "dialect": dialect, "keys": {"prefix": name, "removed": removed, "left": left.len()},
                }
            });
            format!("{object}\n")
        }
        ReportForm::Junit => junit(report)?,
    })
}

fn junit(report: &Report) -> Result<String, Failure> {
    let mut document = quick_junit::Report::new("statestore verify");
    let mut suite: Option<TestSuite> = None;
    for case in &report.cases {
        let (section, name) = case.case.name.split_once('/').unwrap_or(("", case.case.name));
        if suite.as_ref().is_none_or(|suite| suite.name.as_str() != section) {
            document.add_test_suites(suite.replace(TestSuite::new(section)));
        }
        let worst = case.findings.iter().find(|finding| finding.verdict == case.verdict);
        let first = printable(worst.map_or("", |finding| finding.text.as_str()));
        let status = match case.verdict {
            Verdict::Pass | Verdict::Differs => TestCaseStatus::success(),
            Verdict::Skipped => {
                let mut skipped = TestCaseStatus::skipped();
                skipped.set_message(first);
                skipped
            }
            Verdict::Fail => {
                let mut failure = TestCaseStatus::non_success(NonSuccessKind::Failure);
                failure.set_message(first).set_type(case.case.source.name());
                failure.set_description(lines(case));
                failure
            }
        };
        let mut test = TestCase::new(name, status);
        test.set_classname(section).set_time(case.elapsed);
        if case.verdict == Verdict::Differs {
            test.set_system_out(lines(case));
        }
        if let Some(suite) = &mut suite {
            suite.add_test_case(test);
        }
    }
    document.add_test_suites(suite);
    document.to_string().map_err(Failure::output)
}

/// Rounds to a tenth.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e4).round() / 10.0
}
