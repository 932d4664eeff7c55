//! A directory out of lines.

use std::path::Path;
use std::process::ExitCode;

use statestore_proto::store::Record;
use statestore_sqlite::SqliteJournal;
use statestore_tokio::service::{Commit, Journal as _};

use super::directory::Staged;
use super::format::Entry;
use super::input::Input;
use super::requests;
use crate::args::Restore;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(super) async fn run(args: Restore) -> Result<ExitCode, Failure> {
    let Restore { first, file, through } = args;
    let (keys, done) = match (through.common(), first, file) {
        (Some(_), Some(first), _) if first.is_dir() => return Err(super::both(&first)),
        (Some(_), Some(first), Some(_)) => return Err(super::both(&first)),
        (Some(common), file, _) => (requests::restore(&common, file).await?, "set"),
        (None, Some(dir), file) => (into_directory(&dir, file).await?, "restored"),
        (None, None, _) => return Err(super::neither()),
    };
    output::raw(format!("{done} {keys} {}\n", if keys == 1 { "key" } else { "keys" }).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

async fn into_directory(dir: &Path, file: Option<std::path::PathBuf>) -> Result<u64, Failure> {
    // First, since nothing is to be read for a directory that cannot be.
    let staged = Staged::new(dir)?;
    let mut input = Input::open(file).await?;
    let journal = SqliteJournal::open(staged.path());
    let mut journal = journal.map_err(|error| Failure::directory(&error))?;
    let progress = Progress::keys("restoring", input.header.keys.unwrap_or(0));
    let are_kept = input.header.are_kept();
    if are_kept {
        output::say(
            "the dump was made through a broker: it knows no fences and no expiries, nor which keys were kept, so all are",
        );
    }
    let said = input.header.issued.take().map(|version| Record::Issued { version });
    commit(&mut journal, said.into_iter().collect()).await?;
    let mut keys = 0_u64;
    while let Some(entries) = input.next().await? {
        progress.advance(entries.len());
        let mut records = Vec::with_capacity(entries.len());
        for mut entry in entries {
            keys += 1;
            entry.stored.persist |= are_kept;
            records.push(record(entry, keys)?);
        }
        commit(&mut journal, records).await?;
    }
    drop(journal);
    staged.finish()?;
    Ok(keys)
}

fn record(entry: Entry, number: u64) -> Result<Record, Failure> {
    entry.into_record().ok_or_else(|| {
        Failure::bad_input(format_args!(
            "key {number} of the dump has no version, so no directory can be made of it: set its keys with --broker URL"
        ))
    })
}

async fn commit(journal: &mut SqliteJournal, records: Vec<Record>) -> Result<(), Failure> {
    let commit = journal.commit(Commit { records, snapshot: None }).await;
    commit.map_err(|error| Failure::Storage(error.to_string()))
}
