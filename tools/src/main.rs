//! `statestore-tools`: tools for tests and diagnosis of a state store. They are not published.
#![forbid(unsafe_code)]
// These macros panic if standard output or standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod decode;
mod escape;
mod output;
mod proxy;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Decode(args) => decode::run(&args),
        Command::Proxy(args) => proxy::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::report(&error);
            ExitCode::from(2)
        }
    }
}
