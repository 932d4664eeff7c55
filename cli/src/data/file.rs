//! The file of a dump, or standard input and output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use statestore_proto::time::UnixTime;
use statestore_server::archive::{DumpReader, Entry, LINE_BYTES_MAX};

use crate::connection::unique_id;
use crate::escape::{one_line, path_on_one_line, printable};
use crate::failure::Failure;
use crate::output::line;
use crate::progress::Progress;

/// Bytes that are written at once; more if a single line is longer.
const CHUNK: usize = 256 << 10;

/// Opens a dump. `-` is standard input.
pub(crate) async fn open(
    file: Option<PathBuf>,
    now: Option<UnixTime>,
) -> Result<DumpReader, Failure> {
    let file = file.filter(|file| file != Path::new("-"));
    Ok(DumpReader::open(file, now).await?)
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
pub(super) fn parent(path: &Path) -> &Path {
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
