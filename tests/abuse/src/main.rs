//! Known attacks on `statestore serve` over real sockets, while an honest client must not notice.
//!
//! Each attack runs against a new process with little memory. An honest client sends requests at a
//! steady pace, first alone and then during the attack. A watcher must receive each change once and
//! in order. The memory of the process is compared with its limits, and the 99th percentile of
//! latencies with that before the attack. Attackers have one thread of low priority. Attacks that
//! would only measure the scheduling of the system are paced.
#![forbid(unsafe_code)]

mod attacks;
mod clock;
mod honest;
mod packets;
mod priority;
mod run;
mod scene;
mod server;
mod target;
mod verdict;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Known attacks on `statestore serve` over real sockets, while an honest client must not notice.
/// `STATESTORE_BIN` is the path of the command; otherwise cargo builds it in the profile of this
/// program.
#[derive(Parser)]
struct Args {
    /// Run only this attack; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Time without and with each attack
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Run each attack for one second, and limit each request to two seconds instead of comparing
    /// latencies
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// List the attacks, and exit
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let all = attacks::all();
    if args.list {
        for attack in &all {
            print_line(format_args!("{:<22} {}", attack.name, attack.about));
        }
        return ExitCode::SUCCESS;
    }
    if let Some(name) = args.only.iter().find(|name| all.iter().all(|other| other.name != **name)) {
        print_line(format_args!("unknown attack {name}; --list shows all attacks"));
        return ExitCode::from(2);
    }
    raise_files();
    let program = match server::program() {
        Ok(program) => program,
        Err(error) => {
            print_line(error);
            return ExitCode::from(2);
        }
    };
    let length = if args.quick {
        run::Length {
            alone: Duration::from_millis(200),
            attacked: Duration::from_secs(1),
            ratio: false,
        }
    } else {
        let time = Duration::from_secs(args.seconds);
        run::Length { alone: time, attacked: time, ratio: true }
    };
    run::print_header();
    let chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut failed = Vec::new();
    for attack in all.iter().filter(|attack| chosen(attack.name)) {
        if !run::attack(&program, attack, length) {
            failed.push(attack.name);
        }
    }
    if failed.is_empty() {
        print_line("the store withstands all attacks");
        return ExitCode::SUCCESS;
    }
    print_line(format_args!("successful attacks: {}", failed.join(", ")));
    ExitCode::FAILURE
}

/// Attackers need many file descriptors.
fn raise_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Prints a line without buffering.
fn print_line(line: impl std::fmt::Display) {
    // A closed output does not change the exit code.
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
