//! `statestore`: a key-value store over MQTT 5 with an embedded or external broker, and its
//! clients.
#![forbid(unsafe_code)]
// These macros panic if the reader of the output has closed it.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod bench;
mod certificates;
#[cfg(feature = "etcd")]
mod cluster_status;
mod connection;
mod data;
mod dev;
mod doctor;
mod elect;
mod escape;
#[cfg(feature = "etcd")]
mod etcd;
mod exit;
mod export;
mod failure;
mod import;
mod job;
mod junit;
mod keys;
mod kv;
mod lock;
mod log;
mod metrics_client;
mod output;
mod passwd;
mod policy;
mod progress;
mod replay;
mod secret;
mod serve;
mod signals;
mod sources;
mod status;
mod supervisor;
mod tls;
#[cfg(feature = "top")]
mod top;
mod verify;
mod watch;

use std::process::ExitCode;

use clap::CommandFactory;
use tracing::level_filters::LevelFilter;

use args::{Args, Verb};
use failure::Failure;

/// Returns memory of deleted values to the operating system. The allocator of glibc would keep it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = args::parse();
    let code = run(args).unwrap_or_else(|failure| {
        output::notice(&failure);
        failure.exit().into()
    });
    log::flush();
    code
}

fn run(args: Args) -> Result<ExitCode, Failure> {
    let Args { verb } = args;
    match verb {
        Verb::Completions { shell } => {
            // Into memory first: `generate` panics if the reader of the output has closed it.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "statestore", &mut script);
            output::raw(&script)?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Man { command } => {
            output::raw(&manual(&command)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Passwd(passwd) => return passwd::run(&passwd),
        Verb::Certificates(args) => return certificates::run(&args),
        Verb::Policy { verb } => return policy::run(&verb),
        Verb::Replay(args) => return replay::run(&args),
        _ => {}
    }
    log::start(match verb {
        // A service logs warnings by default.
        Verb::Serve(_) | Verb::Dev(_) => LevelFilter::WARN,
        // Log lines would overwrite the screen.
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
            Verb::Dev(dev) => dev::run(*dev).await,
            Verb::Get(get) => kv::get(get).await,
            Verb::Set(set) => kv::set(set).await,
            Verb::Del(del) => kv::del(del).await,
            Verb::Vdel(vdel) => kv::vdel(vdel).await,
            Verb::Keys(keys) => keys::run(keys).await,
            Verb::Watch(watch) => watch::run(watch).await,
            Verb::Export(export) => export::run(export).await,
            Verb::Import(import) => import::run(import).await,
            Verb::Lock(lock) => lock::run(lock).await,
            Verb::Elect(elect) => elect::run(elect).await,
            Verb::Bench(bench) => bench::run(bench).await,
            Verb::Status(status) => status::run(status).await,
            #[cfg(feature = "top")]
            Verb::Top(top) => top::run(top).await,
            #[cfg(not(feature = "top"))]
            Verb::Top(_) => Err(Failure::bad_input(
                "top: this command was built without the feature `top`; in a checkout, run \
                 `cargo install --path cli --features top`, or use `statestore keys`, `get` and \
                 `watch`",
            )),
            Verb::Doctor(doctor) => doctor::run(doctor).await,
            Verb::Verify(verify) => verify::run(verify).await,
            Verb::Data { verb } => data::run(*verb).await,
            Verb::Completions { .. }
            | Verb::Man { .. }
            | Verb::Passwd(_)
            | Verb::Certificates(_)
            | Verb::Policy { .. }
            | Verb::Replay(_) => Ok(ExitCode::SUCCESS),
        }
    });
    // A blocked write to standard output must not delay the end.
    runtime.shutdown_background();
    ended
}

/// The manual page of a subcommand, by its path.
fn manual(names: &[String]) -> Result<Vec<u8>, Failure> {
    let mut all = Args::command();
    all.build();
    let mut command = &all;
    for name in names {
        command = command.find_subcommand(name).ok_or_else(|| {
            Failure::bad_input(format_args!("{name}: unknown command; see statestore --help"))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(Failure::system)?;
    Ok(page)
}
