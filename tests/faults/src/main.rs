//! Faults of stores that fail over through etcd, under load, with a checker of client histories.
//!
//! Each run starts three members of etcd and three stores as processes. In the form `embedded`,
//! clients connect to the embedded brokers of the stores. In the form `mosquitto`, stores and
//! clients connect to one mosquitto. Clients of this project send requests, watch keys and hold a
//! lock, while a fault occurs at a random moment and is repaired. The observations of all clients
//! must then be possible with a single store that loses nothing.
//!
//! With `--histories`, there is one store, and `statestore-tools proxy` injects faults into the
//! connections.
#![forbid(unsafe_code)]

mod cluster;
mod faults;
mod histories;
mod load;
mod proxy;
mod recorder;
mod run;
mod store;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cluster::Form;
use crate::faults::{Fault, Step};
use crate::run::{Report, Settings};

/// Faults of stores that fail over through etcd, under load, with a checker of client histories.
/// `STATESTORE_BIN` is the path of the command, built with `--features etcd`, and
/// `STATESTORE_TOOLS_BIN` that of `statestore-tools`; otherwise cargo builds both in the profile of
/// this program.
#[derive(Parser)]
struct Args {
    /// Run only this fault; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Use only this form: embedded or mosquitto
    #[arg(long, value_name = "NAME", value_parser = ["embedded", "mosquitto"])]
    form: Option<String>,
    /// Number of runs [default: one of each fault in each form]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Seed of the random choices of the first run; each run prints its seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Lease of the leader
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=60))]
    lease: u64,
    /// Run once with three faults, with embedded brokers
    #[arg(long, conflicts_with_all = ["only", "form", "runs", "twin"])]
    quick: bool,
    /// Test the checker with a defect that it must find: one run with stores that share nothing, or
    /// histories of a store without durability
    #[arg(long, conflicts_with_all = ["only", "runs"])]
    twin: bool,
    /// Run histories of one store instead: connections lose, repeat, delay and cut packets, while
    /// the store and clients are killed; each history has its own seed
    #[arg(long, value_name = "N", conflicts_with_all = ["only", "runs", "quick", "lease"])]
    histories: Option<usize>,
    /// Length of each history
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "histories", value_parser = clap::value_parser!(u64).range(5..=3_600))]
    seconds: u64,
    /// Print the output of the stores also after successful runs
    #[arg(long)]
    logs: bool,
    /// List the faults, and exit
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        for fault in &faults::ALL {
            print_line(format_args!("{:<16} {}", fault.name, fault.about));
        }
        return ExitCode::SUCCESS;
    }
    if let Some(name) =
        args.only.iter().find(|name| faults::ALL.iter().all(|other| other.name != **name))
    {
        print_line(format_args!("unknown fault {name}; --list shows all faults"));
        return ExitCode::from(2);
    }
    let program = match store::program() {
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
                Some(count) => histories(&args, count, &program).await,
                None => all(&args, &program).await,
            }
        }),
        Err(error) => {
            print_line(error);
            ExitCode::from(2)
        }
    }
}

/// The runs in order.
fn plan(args: &Args) -> Vec<(&'static Fault, Form)> {
    if args.quick {
        return vec![(&faults::QUICK, Form::Embedded)];
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
    let each = faults::ALL.iter().filter(is_chosen);
    let each: Vec<_> =
        each.flat_map(|fault| forms.iter().map(move |form| (fault, *form))).collect();
    let runs = args.runs.unwrap_or(each.len());
    each.into_iter().cycle().take(runs).collect()
}

async fn all(args: &Args, program: &Path) -> ExitCode {
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

async fn histories(args: &Args, count: usize, program: &Path) -> ExitCode {
    let tools = match store::tools() {
        Ok(tools) => tools,
        Err(error) => {
            print_line(error);
            return ExitCode::from(2);
        }
    };
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
        let report = match histories::run(program, &tools, history).await {
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

/// Prints a line without buffering.
fn print_line(line: impl std::fmt::Display) {
    // A closed output does not change the exit code.
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
