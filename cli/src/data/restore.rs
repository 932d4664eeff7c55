//! `data restore`: creates a directory from a dump, or sets its keys in a store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use statestore_server::archive::NewDirectory;

use super::{file, keys, requests, unix_now};
use crate::args::Restore;
use crate::failure::Failure;
use crate::output::{self, notice};
use crate::progress::Progress;

pub(super) async fn run(args: Restore) -> Result<ExitCode, Failure> {
    let Restore { first, file, allow_future_versions, store } = args;
    let (count, done) = match (store.common(), first, file) {
        (Some(_), Some(first), _) if first.is_dir() => {
            return Err(super::directory_and_broker(&first));
        }
        (Some(_), Some(first), Some(_)) => return Err(super::directory_and_broker(&first)),
        (Some(common), file, _) => (requests::restore(&common, file).await?, "set"),
        (None, Some(dir), file) => {
            (restore_directory(&dir, file, allow_future_versions).await?, "restored")
        }
        (None, None, _) => return Err(super::no_source()),
    };
    output::raw(format!("{done} {}\n", keys(count)).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

async fn restore_directory(
    dir: &Path,
    file: Option<PathBuf>,
    allow_future_versions: bool,
) -> Result<u64, Failure> {
    // First, since a wrong path must not wait for standard input.
    let directory = NewDirectory::create(dir)?;
    let now = (!allow_future_versions).then(unix_now);
    let mut dump = file::open(file, now).await?;
    if dump.header().makes_all_keys_durable() {
        notice(
            "the dump was made through a broker: it contains neither fencing tokens nor expiries, \
             and all keys become durable",
        );
    }
    let progress = Progress::keys("restoring", dump.header().keys.unwrap_or(0));
    Ok(directory.restore(&mut dump, |keys| progress.advance(keys)).await?)
}
