//! Known attacks on `statestore serve` over real sockets, while an honest client must not notice.
//!
//! Each attack runs against a new process with little memory. An honest client sends requests at a
//! steady pace, first alone and then during the attack. A watcher must receive each change once and
//! in order. The memory of the process is compared with its limits, and the 99th percentile of
//! latencies with that before the attack. Attackers have one thread of low priority. Attacks that
//! would only measure the scheduling of the system are paced.

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

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::Abuse;
use crate::output::print_line;
use crate::program;

pub(crate) fn run(args: &Abuse) -> ExitCode {
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
    let program = match program::path(&[]) {
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
