//! `data dump`: writes all keys of a directory or a store as lines of JSON.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use statestore_server::archive::{Entry, Header, LINE_BYTES_MAX, Source};

use super::{keys, requests};
use crate::args::{Common, Dump};
use crate::connection::unique_id;
use crate::escape::{one_line, path_on_one_line, printable};
use crate::failure::Failure;
use crate::output::{line, notice};
use crate::progress::Progress;

/// Bytes that are written at once; more if a single line is longer.
const CHUNK: usize = 256 << 10;

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

/// The output of a dump.
pub(crate) struct Output {
    waiting: String,
    file: Option<Partial>,
}

/// A file that is written under another name. Dropping it removes it, unless it was finished.
struct Partial {
    file: File,
    /// `None` once it was renamed to `to`.
    at: Option<PathBuf>,
    to: PathBuf,
}

impl Output {
    /// An output to a file, which `option` names, or to standard output.
    pub(crate) fn new(file: Option<PathBuf>, option: &str) -> Result<Self, Failure> {
        let file = file.map(|file| Partial::new(file, option)).transpose()?;
        Ok(Self { waiting: String::new(), file })
    }

    /// The progress of a dump of this number of keys; 0 if it is unknown.
    pub(super) fn progress(&self, keys: u64) -> Progress {
        Progress::keys("dumping", keys).unless_printed(self.file.is_none())
    }

    /// Adds the line of an entry.
    pub(super) async fn add_entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        let line = entry.encode();
        if line.len() > LINE_BYTES_MAX {
            return Err(Failure::bad_input(format_args!(
                "key {}: the value is too large for a line of a dump; copy the directory instead, \
                 while no store has it open",
                one_line(&entry.key)
            )));
        }
        self.add(&line).await
    }

    /// Adds a line.
    pub(super) async fn add(&mut self, line: &str) -> Result<(), Failure> {
        self.waiting.push_str(line);
        if self.waiting.len() < CHUNK { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        let chunk = std::mem::take(&mut self.waiting);
        match &mut self.file {
            None if io::stdout().is_terminal() => line(printable(&chunk)).await,
            None => line(chunk).await,
            Some(partial) => {
                // So that a signal can end this.
                tokio::task::yield_now().await;
                partial.file.write_all(chunk.as_bytes()).map_err(|error| partial.failure(&error))
            }
        }
    }

    pub(crate) async fn finish(mut self) -> Result<(), Failure> {
        self.flush().await?;
        self.file.map_or(Ok(()), Partial::finish)
    }
}

impl Partial {
    fn new(to: PathBuf, option: &str) -> Result<Self, Failure> {
        if fs::metadata(&to).is_ok_and(|meta| !meta.is_file()) {
            return Err(Failure::bad_input(format_args!(
                "{option} {}: not a file; leave out {option} for standard output",
                path_on_one_line(&to)
            )));
        }
        let at = parent(&to).join(unique_id("dump"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&at);
        let file = file.map_err(|error| Failure::path(path_on_one_line(&to), &error))?;
        Ok(Self { file, at: Some(at), to })
    }

    fn finish(mut self) -> Result<(), Failure> {
        let Some(at) = &self.at else { return Ok(()) };
        let put = || {
            self.file.sync_all()?;
            fs::rename(at, &self.to)
        };
        put().map_err(|error| self.failure(&error))?;
        self.at = None;
        File::open(parent(&self.to)).and_then(|parent| parent.sync_all()).map_err(|error| {
            Failure::Storage(format!(
                "{} is complete, but the disk did not confirm its name: {error}",
                path_on_one_line(&self.to)
            ))
        })
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::path(path_on_one_line(&self.to), error)
    }
}

/// The directory that contains a path.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(at) = &self.at {
            let _ = fs::remove_file(at);
        }
    }
}
