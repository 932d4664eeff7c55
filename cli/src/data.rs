//! `data`: checks, dumps and restores data directories.

pub(crate) mod dump;
pub(crate) mod file;
pub(crate) mod requests;
pub(crate) mod restore;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use statestore_proto::time::UnixTime;
use statestore_server::archive::{self, ArchiveError, Directory};

use crate::args::Data;
use crate::escape::{on_one_line, path_on_one_line};
use crate::failure::Failure;
use crate::output;
use crate::policy::counted;
use crate::progress::{Progress, bytes};
use crate::signals::{self, Signals};

pub(crate) async fn run(verb: Data) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?.with_hangup()?;
    let (work, state): (Pin<Box<dyn Future<Output = _>>>, _) = match verb {
        Data::Check { dir } => (Box::pin(check(dir)), "nothing was changed"),
        Data::Dump(args) => (Box::pin(dump::run(args)), "the dump is incomplete"),
        Data::Restore(args) => {
            let state = match args.store.broker.is_empty() {
                false => "some keys may be set: run it again",
                true => "nothing was restored",
            };
            (Box::pin(restore::run(args)), state)
        }
    };
    tokio::select! {
        ended = work => ended,
        signal = signals.received() => {
            output::notice(format_args!("stopped: {state}"));
            Ok(signals::exit_code(signal))
        }
    }
}

async fn check(dir: PathBuf) -> Result<ExitCode, Failure> {
    let (directory, on_disk) = {
        let read = read(&dir).await?;
        (read, archive::bytes_on_disk(&dir)?)
    };
    output::raw(report(&directory, on_disk).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a data directory. The progress line ends with this future, even if the thread continues.
async fn read(dir: &Path) -> Result<Directory, ArchiveError> {
    let progress = Progress::records("reading");
    let advanced = progress.clone();
    archive::read(dir, move |records| advanced.advance(records)).await
}

fn report(directory: &Directory, on_disk: u64) -> String {
    let Directory { contents, status, .. } = directory;
    let stored = || contents.entries.values();
    let expires = stored().filter_map(|stored| stored.expires);
    let (expire, leases) = expires.fold((0_u64, 0_u64), |(all, leases), expires| {
        (all + 1, leases + u64::from(expires.is_lease))
    });
    let fenced = stored().filter(|stored| stored.fencing_token.is_some()).count();
    let mut text = String::new();
    let mut line = |name: &str, value: String| _ = writeln!(text, "{name:<15}{value}");
    line(
        "keys",
        format!(
            "{}: {expire} expire, {leases} of them leases; {fenced} fenced",
            contents.entries.len()
        ),
    );
    line("values", format!("{} with their keys", bytes(contents.bytes())));
    line("responses", contents.responses.len().to_string());
    line("registrations", contents.registrations.len().to_string());
    let issued = contents.issued.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    line("last version", on_one_line(&issued));
    let snapshot = status.snapshot.map_or_else(
        || "none".to_owned(),
        |snapshot| format!("{} in {}", bytes(snapshot.bytes), number(snapshot.parts, "part")),
    );
    line("snapshot", snapshot);
    let commits = number(status.log_commits, "commit");
    line("log", format!("{} in {commits}", bytes(status.log_bytes)));
    line("on disk", bytes(on_disk));
    text
}

fn number(count: u64, what: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), what)
}

/// The time of the wall clock.
pub(crate) fn unix_now() -> UnixTime {
    #[expect(clippy::disallowed_methods, reason = "the command reads the clock for the library")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_epoch(since)
}

/// The error of a directory and a broker in one command line.
fn directory_and_broker(dir: &Path) -> Failure {
    Failure::bad_input(format_args!(
        "both a directory, {}, and --broker are given; leave one out",
        path_on_one_line(dir)
    ))
}

fn no_source() -> Failure {
    Failure::bad_input("neither a directory nor --broker is given; give one")
}

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        match &error {
            ArchiveError::Directory(error) => Self::directory(error),
            ArchiveError::Path { path, source } => Self::path(path_on_one_line(path), source),
            ArchiveError::Journal(_) | ArchiveError::NotSynced { .. } => {
                Self::Storage(error.to_string())
            }
            ArchiveError::Task(error) => Self::system(error),
            ArchiveError::Future { .. } => {
                Self::bad_input(format_args!("{error} with --allow-future-versions"))
            }
            _ => Self::bad_input(error),
        }
    }
}

/// A number of keys as text.
pub(crate) fn keys(count: u64) -> String {
    format!("{count} {}", if count == 1 { "key" } else { "keys" })
}
