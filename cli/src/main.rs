//! `statestore`: a state store beside any MQTT 5 broker, and a client for it.

mod args;
mod bench;
mod connection;
mod elect;
mod failure;
mod lock;
mod output;
mod requests;
mod serve;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Verb};
use failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("statestore: {failure}");
            failure.code()
        }
    }
}

fn run(args: Args) -> Result<ExitCode, Failure> {
    let Args { verb } = args;
    match verb {
        Verb::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut Args::command(),
                "statestore",
                &mut std::io::stdout(),
            );
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Args::command()).render(&mut page).map_err(Failure::output)?;
            std::io::stdout().write_all(&page).map_err(Failure::output)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("STATESTORE_LOG"))
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::output)?;
    runtime.block_on(async {
        match verb {
            Verb::Serve(serve) => serve::run(serve).await,
            Verb::Get(get) => requests::get(get).await,
            Verb::Set(set) => requests::set(set).await,
            Verb::Del(del) => requests::del(del).await,
            Verb::Vdel(vdel) => requests::vdel(vdel).await,
            Verb::Watch(watch) => watch::run(watch).await,
            Verb::Lock(lock) => lock::run(lock).await,
            Verb::Elect(elect) => elect::run(elect).await,
            Verb::Bench(bench) => bench::run(bench).await,
            Verb::Completions { .. } | Verb::Man => Ok(ExitCode::SUCCESS),
        }
    })
}
