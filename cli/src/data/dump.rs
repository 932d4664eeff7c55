//! Everything that is kept, as lines.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::directory::{self, of_path, parent};
use super::format::{Entry, Header, LINE_BYTES_MAX, Source};
use super::{named, requests};
use crate::args::{Common, Dump};
use crate::connection::unique_id;
use crate::failure::Failure;
use crate::output::{line, say};
use crate::progress::Progress;

/// Bytes that are written at a time, or one line if that has more.
const CHUNK: usize = 256 << 10;

pub(super) async fn run(args: Dump) -> Result<ExitCode, Failure> {
    let Dump { dir, output, through } = args;
    let output = output.filter(|output| output != Path::new("-"));
    let from = Place::one(through.common(), dir)?;
    if let (Place::Directory(dir), Some(to)) = (&from, &output) {
        outside(dir, to)?;
    }
    let mut output = Output::new(output)?;
    let keys = match from {
        Place::Broker(common) => requests::dump(&common, &mut output).await?,
        Place::Directory(dir) => of_directory(&dir, &mut output).await?,
    };
    output.finish().await?;
    say(format_args!("dumped {keys} {}", if keys == 1 { "key" } else { "keys" }));
    Ok(ExitCode::SUCCESS)
}

/// Where a dump comes from.
enum Place {
    Directory(PathBuf),
    Broker(Box<Common>),
}

impl Place {
    fn one(common: Option<Common>, dir: Option<PathBuf>) -> Result<Self, Failure> {
        match (common, dir) {
            (Some(common), None) => Ok(Self::Broker(Box::new(common))),
            (None, Some(dir)) => Ok(Self::Directory(dir)),
            (Some(_), Some(dir)) => Err(super::both(&dir)),
            (None, None) => Err(super::neither()),
        }
    }
}

/// Refuses a file among those of a store: it could be one of them.
fn outside(dir: &Path, to: &Path) -> Result<(), Failure> {
    // What is not there is told by whoever needs it.
    let (Ok(dir), Ok(at)) = (fs::canonicalize(dir), fs::canonicalize(parent(to))) else {
        return Ok(());
    };
    if at.starts_with(&dir) {
        return Err(Failure::bad_input(format_args!(
            "--output {}: that is in the directory of the store; name a file elsewhere",
            named(to)
        )));
    }
    Ok(())
}

async fn of_directory(dir: &Path, output: &mut Output) -> Result<u64, Failure> {
    let contents = directory::read(dir).await?.contents;
    let keys = u64::try_from(contents.keys.len()).unwrap_or(u64::MAX);
    let header = Header { source: Source::Directory, issued: contents.issued, keys: Some(keys) };
    output.add(&header.encode()).await?;
    let progress = output.progress(keys);
    for (key, stored) in contents.keys {
        output.add_entry(&Entry { key, stored }).await?;
        progress.advance(1);
    }
    Ok(keys)
}

/// Where a dump goes.
pub(super) struct Output {
    waiting: String,
    file: Option<Partial>,
}

/// A file that is being written, beside where it is to be. Unless it is put there, it is removed.
struct Partial {
    file: File,
    /// `None` once it is there.
    at: Option<PathBuf>,
    to: PathBuf,
}

impl Output {
    fn new(file: Option<PathBuf>) -> Result<Self, Failure> {
        let file = file.map(Partial::new).transpose()?;
        Ok(Self { waiting: String::new(), file })
    }

    /// How far a dump of so many keys is; with 0 of an unknown number.
    pub(super) fn progress(&self, keys: u64) -> Progress {
        Progress::keys("dumping", keys).unless_printed(self.file.is_none())
    }

    /// Adds the line of an entry.
    pub(super) async fn add_entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        let line = entry.encode();
        if line.len() > LINE_BYTES_MAX {
            return Err(Failure::bad_input(format_args!(
                "the key {} has a value that is too large for a line of a dump: copy the directory instead, while no store \
                 has it open",
                crate::escape::one_line(&entry.key)
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
            None => line(chunk).await,
            Some(partial) => {
                // A signal is heard in between.
                tokio::task::yield_now().await;
                partial.file.write_all(chunk.as_bytes()).map_err(|error| partial.failure(&error))
            }
        }
    }

    async fn finish(mut self) -> Result<(), Failure> {
        self.flush().await?;
        self.file.map_or(Ok(()), Partial::finish)
    }
}

impl Partial {
    fn new(to: PathBuf) -> Result<Self, Failure> {
        if fs::metadata(&to).is_ok_and(|meta| !meta.is_file()) {
            return Err(Failure::bad_input(format_args!(
                "--output {}: that is no file; leave --output out for standard output",
                named(&to)
            )));
        }
        let at = parent(&to).join(unique_id("dump"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&at);
        let file = file.map_err(|error| of_path(&to, &error))?;
        Ok(Self { file, at: Some(at), to })
    }

    fn finish(mut self) -> Result<(), Failure> {
        let Some(at) = &self.at else { return Ok(()) };
        let put = || {
            self.file.sync_all()?;
            fs::rename(at, &self.to)?;
            File::open(parent(&self.to))?.sync_all()
        };
        put().map_err(|error| self.failure(&error))?;
        self.at = None;
        Ok(())
    }

    fn failure(&self, error: &std::io::Error) -> Failure {
        of_path(&self.to, error)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(at) = &self.at {
            let _ = fs::remove_file(at);
        }
    }
}
