//! Known attacks on `statestore serve`, over real sockets, beside an honest client that must not notice.
//!
//! Each attack has a store of its own, a process with little memory. An honest client asks it at a steady pace, alone at
//! first and then beside the attack, and a watcher must hear each change once and in order. What the store takes at most is
//! compared with its limits, and the slowest hundredth of requests with that from before. Attackers have one thread of low
//! priority, and those that would only measure how the system shares its processors are paced.
#![forbid(unsafe_code)]

mod attacks;
mod clock;
mod honest;
mod judge;
mod packets;
mod place;
mod rank;
mod run;
mod scene;
mod server;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Known attacks on `statestore serve`, over real sockets, beside an honest client that must not notice. `STATESTORE_BIN` names
/// the command; otherwise cargo builds it in the profile of this program.
#[derive(Parser)]
struct Args {
    /// Only this attack; can be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Time that the honest client has alone, and beside each attack
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// A second for each attack, and no comparison of latencies but with two seconds
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// The attacks
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let all = attacks::all();
    if args.list {
        for attack in &all {
            say(format_args!("{:<22} {}", attack.name, attack.about));
        }
        return ExitCode::SUCCESS;
    }
    if let Some(name) = args.only.iter().find(|name| all.iter().all(|other| other.name != **name)) {
        say(format_args!("there is no attack {name}; --list has those there are"));
        return ExitCode::from(2);
    }
    raise_files();
    let program = match server::program() {
        Ok(program) => program,
        Err(error) => {
            say(error);
            return ExitCode::from(2);
        }
    };
    let length = if args.quick {
        run::Length {
            alone: Duration::from_millis(200),
            beside: Duration::from_secs(1),
            ratio: false,
        }
    } else {
        let time = Duration::from_secs(args.seconds);
        run::Length { alone: time, beside: time, ratio: true }
    };
    run::say_header();
    let chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut failed = Vec::new();
    for attack in all.iter().filter(|attack| chosen(attack.name)) {
        if !run::attack(&program, attack, length) {
            failed.push(attack.name);
        }
    }
    if failed.is_empty() {
        say("no attack succeeds");
        return ExitCode::SUCCESS;
    }
    say(format_args!("these succeed: {}", failed.join(", ")));
    ExitCode::FAILURE
}

/// Attackers take many files.
fn raise_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Prints a line, at once.
fn say(line: impl std::fmt::Display) {
    // A closed output does not change the exit code.
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
