//! `data dump`: writes all keys of a directory or a store as lines of JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use statestore_server::archive::{Header, Source};

use super::file::{Output, parent};
use super::{keys, requests};
use crate::args::{Common, Dump};
use crate::escape::path_on_one_line;
use crate::failure::Failure;
use crate::output::notice;

pub(super) async fn run(args: Dump) -> Result<ExitCode, Failure> {
    let Dump { dir, output, store } = args;
    let output = output.filter(|output| output != Path::new("-"));
    let from = Origin::new(store.common(), dir)?;
    if let (Origin::Directory(dir), Some(to)) = (&from, &output) {
        check_outside(dir, to)?;
    }
    let mut output = Output::new(output, "--output")?;
    let count = match from {
        Origin::Broker(common) => requests::dump(&common, "*", &mut output).await?,
        Origin::Directory(dir) => dump_directory(&dir, &mut output).await?,
    };
    output.finish().await?;
    notice(format_args!("dumped {}", keys(count)));
    Ok(ExitCode::SUCCESS)
}

/// The origin of a dump.
enum Origin {
    Directory(PathBuf),
    Broker(Box<Common>),
}

impl Origin {
    fn new(common: Option<Common>, dir: Option<PathBuf>) -> Result<Self, Failure> {
        match (common, dir) {
            (Some(common), None) => Ok(Self::Broker(Box::new(common))),
            (None, Some(dir)) => Ok(Self::Directory(dir)),
            (Some(_), Some(dir)) => Err(super::directory_and_broker(&dir)),
            (None, None) => Err(super::no_source()),
        }
    }
}

/// Rejects an output file in the directory of the store: it could be one of the store's files.
fn check_outside(dir: &Path, to: &Path) -> Result<(), Failure> {
    // A missing path is reported when it is opened.
    let (Ok(dir), Ok(at)) = (fs::canonicalize(dir), fs::canonicalize(parent(to))) else {
        return Ok(());
    };
    if at.starts_with(&dir) {
        return Err(Failure::bad_input(format_args!(
            "--output {}: the file is in the directory of the store; use another directory",
            path_on_one_line(to)
        )));
    }
    Ok(())
}

async fn dump_directory(dir: &Path, output: &mut Output) -> Result<u64, Failure> {
    let contents = super::read(dir).await?.contents;
    let keys = u64::try_from(contents.entries.len()).unwrap_or(u64::MAX);
    let issued = contents.issued.clone();
    let header = Header { source: Source::Directory, issued, keys: Some(keys) };
    output.add(&header.encode()).await?;
    let progress = output.progress(keys);
    for entry in contents.into_entries() {
        output.add_entry(&entry).await?;
        progress.advance(1);
    }
    Ok(keys)
}
