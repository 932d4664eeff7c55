//! `statestore`: a state store with a broker of its own or beside any MQTT 5 broker, and a client for it.
#![forbid(unsafe_code)]
// They panic when nobody reads any more, and with them whatever depends on this process.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod bench;
mod connection;
mod data;
mod decode;
mod doctor;
mod elect;
mod escape;
#[cfg(feature = "etcd")]
mod etcd;
mod failure;
mod host;
mod job;
mod keys;
mod lock;
mod log;
mod metrics;
mod output;
mod own_broker;
mod policy;
mod progress;
mod proxy;
mod ready;
mod recording;
mod replay;
mod requests;
mod scrape;
mod secret;
mod serve;
mod signals;
#[cfg(feature = "etcd")]
mod standby;
mod supervisor;
#[cfg(feature = "etcd")]
mod survey;
mod top;
mod traffic;
mod verify;
mod watch;

use std::process::ExitCode;

use clap::CommandFactory;
use tracing::level_filters::LevelFilter;

use args::{Args, Verb};
use failure::Failure;

fn main() -> ExitCode {
    let args = args::parse();
    let code = run(args).unwrap_or_else(|failure| {
        output::say(&failure);
        failure.code()
    });
    log::flush();
    code
}

fn run(args: Args) -> Result<ExitCode, Failure> {
    let Args { verb } = args;
    match verb {
        Verb::Completions { shell } => {
            // Into memory first: written directly, it panics when its reader is gone.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "statestore", &mut script);
            output::raw(&script)?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Man { command } => {
            output::raw(&manual(&command)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Passwd(passwd) => return own_broker::passwd(&passwd),
        Verb::Policy { verb } => return policy::run(&verb),
        Verb::Decode(args) => return decode::run(&args),
        Verb::Replay(args) => return replay::run(&args),
        _ => {}
    }
    log::start(match verb {
        // Nobody asks it anything, so it has to speak up.
        Verb::Serve(_) => LevelFilter::WARN,
        // It would be written across the screen.
        Verb::Top(_) => LevelFilter::OFF,
        _ => LevelFilter::ERROR,
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::system)?;
    let ended = runtime.block_on(async {
        match verb {
            Verb::Serve(serve) => serve::run(*serve).await,
            Verb::Get(get) => requests::get(get).await,
            Verb::Set(set) => requests::set(set).await,
            Verb::Del(del) => requests::del(del).await,
            Verb::Vdel(vdel) => requests::vdel(vdel).await,
            Verb::Keys(keys) => keys::run(keys).await,
            Verb::Watch(watch) => watch::run(watch).await,
            Verb::Lock(lock) => lock::run(lock).await,
            Verb::Elect(elect) => elect::run(elect).await,
            Verb::Bench(bench) => bench::run(bench).await,
            Verb::Top(top) => top::run(top).await,
            Verb::Ready(ready) => ready::run(ready).await,
            Verb::Doctor(doctor) => doctor::run(doctor).await,
            Verb::Proxy(proxy) => proxy::run(proxy).await,
            Verb::Verify(verify) => verify::run(verify).await,
            #[cfg(feature = "etcd")]
            Verb::Status(status) => survey::run(status).await,
            Verb::Data { verb } => data::run(*verb).await,
            Verb::Completions { .. }
            | Verb::Man { .. }
            | Verb::Passwd(_)
            | Verb::Policy { .. }
            | Verb::Decode(_)
            | Verb::Replay(_) => Ok(ExitCode::SUCCESS),
        }
    });
    // A line that nobody takes may still be waited for.
    runtime.shutdown_background();
    ended
}

/// The page of a command, by the names that lead to it.
fn manual(names: &[String]) -> Result<Vec<u8>, Failure> {
    let mut all = Args::command();
    all.build();
    let mut command = &all;
    for name in names {
        command = command.find_subcommand(name).ok_or_else(|| {
            Failure::bad_input(format_args!(
                "{name}: there is no such command; see statestore --help"
            ))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(Failure::system)?;
    Ok(page)
}
