//! `statestore-chaos`: attacks, faults and diagnosis of a state store, for its own tests. It is not
//! published.
#![forbid(unsafe_code)]
// These macros panic if standard output or standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod abuse;
mod args;
mod decode;
mod faults;
mod output;
mod program;
mod proxy;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Decode(args) => decode::run(&args),
        Command::Proxy(args) => proxy::run(&args),
        Command::Abuse(args) => return abuse::run(&args),
        Command::Faults(args) => return faults::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::report(&error);
            ExitCode::from(2)
        }
    }
}
