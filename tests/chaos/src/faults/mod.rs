//! Faults of stores that fail over through etcd, under load, with a checker of client histories.
//!
//! Each run starts three members of etcd and three stores as processes. In the form `embedded`,
//! clients connect to the embedded brokers of the stores. In the form `mosquitto`, stores and
//! clients connect to one mosquitto. Clients of this project send requests, watch keys and hold a
//! lock, while a fault occurs at a random moment and is repaired. The observations of all clients
//! must then be possible with a single store that loses nothing.
//!
//! With `--histories`, there is one store, and `statestore-chaos proxy` injects faults into the
//! connections.

mod catalog;
mod cluster;
mod histories;
mod load;
mod recorder;
mod run;
mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::args::Faults;
use crate::faults::catalog::{Fault, Step};
use crate::faults::cluster::Form;
use crate::faults::run::{Report, Settings};
use crate::output::print_line;
use crate::program;

pub(crate) fn run(args: &Faults) -> ExitCode {
    if args.list {
        for fault in &catalog::ALL {
            print_line(format_args!("{:<16} {}", fault.name, fault.about));
        }
        return ExitCode::SUCCESS;
    }
    if let Some(name) =
        args.only.iter().find(|name| catalog::ALL.iter().all(|other| other.name != **name))
    {
        print_line(format_args!("unknown fault {name}; --list shows all faults"));
        return ExitCode::from(2);
    }
    let program = match program::path(&["--features", "etcd"]) {
        Ok(program) => program,
        Err(error) => {
            print_line(error);
            return ExitCode::from(2);
        }
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(async {
            match args.histories {
                Some(count) => histories(args, count, &program).await,
                None => all(args, &program).await,
            }
        }),
        Err(error) => {
            print_line(error);
            ExitCode::from(2)
        }
    }
}

/// The runs in order.
fn plan(args: &Faults) -> Vec<(&'static Fault, Form)> {
    if args.quick {
        return vec![(&catalog::QUICK, Form::Embedded)];
    }
    let is_chosen = |fault: &&Fault| {
        if args.twin {
            return fault.steps == [Step::KillLeader];
        }
        args.only.is_empty() || args.only.iter().any(|only| only == fault.name)
    };
    let forms = [Form::Embedded, Form::External];
    let forms = forms
        .into_iter()
        .filter(|form| args.form.as_deref().is_none_or(|only| only == form.name()));
    let forms = if args.twin { vec![Form::Twin] } else { forms.collect() };
    let each = catalog::ALL.iter().filter(is_chosen);
    let each: Vec<_> =
        each.flat_map(|fault| forms.iter().map(move |form| (fault, *form))).collect();
    let runs = args.runs.unwrap_or(each.len());
    each.into_iter().cycle().take(runs).collect()
}

async fn all(args: &Faults, program: &Path) -> ExitCode {
    let plan = plan(args);
    let lease = Duration::from_secs(args.lease);
    let mut rows = Vec::new();
    let mut failed = 0;
    for (number, (fault, form)) in plan.iter().enumerate() {
        let seed = args.seed.wrapping_add(number as u64);
        let Fault { name, .. } = fault;
        print_line(format_args!(
            "{:>3}/{} {name}, {}, seed {seed}",
            number + 1,
            plan.len(),
            form.name()
        ));
        let report = match run::run(
            program,
            fault,
            *form,
            Settings { lease, seed, logs: args.logs },
        )
        .await
        {
            Ok(Some(report)) => report,
            // `run` has printed the reason.
            Ok(None) => continue,
            Err(error) => {
                print_line(format_args!("    cannot run: {error}"));
                failed += 1;
                continue;
            }
        };
        for complaint in &report.complaints {
            print_line(format_args!("    {complaint}"));
        }
        let is_right = report.complaints.is_empty() != args.twin;
        failed += usize::from(!is_right);
        rows.push(row(fault, *form, &report));
    }
    print_line(format_args!(
        "\n{:<16} {:<10} {:>8} {:>10} {:>12} {:>13}  verdict",
        "fault", "form", "requests", "unanswered", "silence (ms)", "served (ms)"
    ));
    let is_empty = rows.is_empty();
    for row in rows {
        print_line(row);
    }
    if failed > 0 {
        print_line(format_args!("{failed} of {} runs fail", plan.len()));
        return ExitCode::FAILURE;
    }
    if is_empty {
        print_line("no run was possible");
        return ExitCode::SUCCESS;
    }
    print_line(if args.twin {
        "the checker detected the lost writes"
    } else {
        "no acknowledged write was lost"
    });
    ExitCode::SUCCESS
}

async fn histories(args: &Faults, count: usize, program: &Path) -> ExitCode {
    let length = Duration::from_secs(args.seconds);
    let mut failed = 0;
    let (mut requests, mut unanswered, mut faults) = (0, 0, BTreeMap::<String, u64>::new());
    for number in 0..count {
        let seed = args.seed.wrapping_add(number as u64);
        let form = match args.form.as_deref() {
            Some(name) if name == Form::Embedded.name() => Form::Embedded,
            Some(_) => Form::External,
            None if number % 2 == 0 => Form::External,
            None => Form::Embedded,
        };
        let history =
            histories::Settings { form, seed, length, forgets: args.twin, logs: args.logs };
        let report = match histories::run(program, history).await {
            Ok(Some(report)) => report,
            // `run` has printed the reason.
            Ok(None) => continue,
            Err(error) => {
                print_line(format_args!("seed {seed}: cannot run: {error}"));
                failed += 1;
                continue;
            }
        };
        let is_right = report.complaints.is_empty() != args.twin;
        let verdict = if report.complaints.is_empty() { "correct" } else { "VIOLATED" };
        print_line(format_args!(
            "{:>3}/{count} {}, seed {seed}: {} requests, {} unanswered; {}: {verdict}",
            number + 1,
            form.name(),
            report.requests,
            report.unanswered,
            listed(&report.faults)
        ));
        // The expected violation is printed as an example.
        let shown = if args.twin { 2 } else { usize::MAX };
        for complaint in report.complaints.iter().take(shown) {
            print_line(format_args!("    {complaint}"));
        }
        failed += usize::from(!is_right);
        requests += report.requests;
        unanswered += report.unanswered;
        report
            .faults
            .into_iter()
            .for_each(|(name, count)| *faults.entry(name).or_default() += count);
    }
    print_line(format_args!("{requests} requests, {unanswered} unanswered; {}", listed(&faults)));
    if failed > 0 {
        print_line(format_args!("{failed} of {count} histories fail"));
        return ExitCode::FAILURE;
    }
    print_line(match (requests, args.twin) {
        (0, _) => "no run was possible",
        (_, true) => "the checker detected the lost writes",
        (_, false) => "no acknowledged write was lost",
    });
    ExitCode::SUCCESS
}

fn listed(faults: &BTreeMap<String, u64>) -> String {
    let each: Vec<_> = faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if each.is_empty() { "no faults".to_owned() } else { each.join(", ") }
}

fn row(fault: &Fault, form: Form, report: &Report) -> String {
    let Report { requests, unanswered, silence, served, complaints } = report;
    let served = served.map_or_else(|| "-".to_owned(), |served| served.as_millis().to_string());
    let verdict = if complaints.is_empty() { "correct" } else { "VIOLATED" };
    format!(
        "{:<16} {:<10} {requests:>8} {unanswered:>10} {:>12} {served:>13}  {verdict}",
        fault.name,
        form.name(),
        silence.as_millis()
    )
}
