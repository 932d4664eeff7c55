//! What a store keeps in a directory: whether it is whole, as lines of JSON, out of such lines, and compacted.

mod compact;
mod contents;
mod directory;
mod dump;
mod format;
mod input;
mod requests;
mod restore;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::args::Data;
use crate::failure::Failure;
use crate::output;
use crate::progress;
use crate::signals::Signals;

pub(crate) async fn run(verb: Data) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?.with_hangup()?;
    let (work, left): (std::pin::Pin<Box<dyn Future<Output = _>>>, _) = match verb {
        Data::Check { dir } => (Box::pin(check(dir)), "nothing was changed"),
        Data::Dump(args) => (Box::pin(dump::run(args)), "the dump is not whole"),
        Data::Restore(args) => {
            let left = match args.through.broker.is_empty() {
                false => "some keys may be set: run it again",
                true => "nothing was restored",
            };
            (Box::pin(restore::run(args)), left)
        }
        Data::Compact { dir } => {
            (Box::pin(compact::run(dir)), "the directory has all that it had: run it again")
        }
    };
    tokio::select! {
        ended = work => ended,
        asked = signals.received() => {
            output::say(format_args!("stopped: {left}"));
            Ok(asked.code())
        }
    }
}

async fn check(dir: std::path::PathBuf) -> Result<ExitCode, Failure> {
    let (read, on_disk) = {
        let read = directory::read(&dir).await?;
        (read, directory::bytes_on_disk(&dir)?)
    };
    output::raw(report(&read, on_disk).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn report(read: &directory::Read, on_disk: u64) -> String {
    let directory::Read { contents, status } = read;
    let stored = || contents.keys.values();
    let expires = stored().filter_map(|stored| stored.expires);
    let (expire, leases) = expires.fold((0_u64, 0_u64), |(all, leases), expires| {
        (all + 1, leases + u64::from(expires.is_lease))
    });
    let fenced = stored().filter(|stored| stored.fencing_token.is_some()).count();
    let mut text = String::new();
    let mut line = |what: &str, is: String| _ = writeln!(text, "{what:<15}{is}");
    line(
        "keys",
        format!(
            "{}: {expire} expire, {leases} of them leases; {fenced} fenced",
            contents.keys.len()
        ),
    );
    line("values", format!("{} with their keys", progress::bytes(contents.bytes())));
    line("answers", contents.answers.len().to_string());
    line("registrations", contents.registrations.len().to_string());
    let issued = contents.issued.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    line("last version", crate::escape::on_one_line(&issued));
    let snapshot = status.snapshot.map_or_else(
        || "none".to_owned(),
        |snapshot| format!("{} in {} parts", progress::bytes(snapshot.bytes), snapshot.parts),
    );
    line("snapshot", snapshot);
    line("log", format!("{} in {} batches", progress::bytes(status.log_bytes), status.log_commits));
    line("on disk", progress::bytes(on_disk));
    text
}

/// Why a directory and a broker are too much.
fn both(dir: &Path) -> Failure {
    Failure::bad_input(format_args!(
        "choose one: a directory, as {}, or a store with --broker",
        named(dir)
    ))
}

fn neither() -> Failure {
    Failure::bad_input("name a directory, or a store with --broker")
}

/// The name of something, as it stands in a sentence.
fn named(path: &Path) -> String {
    crate::escape::on_one_line(&path.display().to_string())
}
