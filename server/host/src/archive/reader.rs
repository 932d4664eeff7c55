//! Reads a dump on a separate thread, so that the caller can be cancelled.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use statestore_proto::hlc::Hlc;
use statestore_proto::time::UnixTime;
use statestore_tokio::diagnostics::text::path_on_one_line;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::ArchiveError;
use super::line::{Entry, Header, HeaderError, LineError, Lines};

/// Maximum time that versions and fencing tokens of a dump may be ahead of the clock.
pub const FUTURE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes of lines that are handed over together; more if a single line is longer.
const PORTION_BYTES: usize = 512 << 10;

/// Portions that wait; the thread has one more.
const PORTIONS_MAX: usize = 1;

/// A dump that is being read.
pub struct DumpReader {
    header: Header,
    portions: mpsc::Receiver<Result<Vec<Entry>, ArchiveError>>,
    thread: Option<JoinHandle<()>>,
}

impl DumpReader {
    /// Opens a file, or standard input without a file, and reads the header.
    ///
    /// With `now`, a version or fencing token that is more than [`FUTURE_MAX`] later is an error: a
    /// store never issues an earlier version than one that it has restored.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn open(file: Option<PathBuf>, now: Option<UnixTime>) -> Result<Self, ArchiveError> {
        let name = file.as_deref().map_or_else(|| "standard input".to_owned(), path_on_one_line);
        let latest = now.map(|now| now + FUTURE_MAX);
        let open = move || Reading::open(name, file.as_deref(), latest);
        let (mut reading, header) = tokio::task::spawn_blocking(open).await??;
        let (sender, portions) = mpsc::channel(PORTIONS_MAX);
        let thread = tokio::task::spawn_blocking(move || {
            while let Some(portion) = reading.portion().transpose() {
                let is_last = portion.is_err();
                // The reader may have been dropped.
                if sender.blocking_send(portion).is_err() || is_last {
                    return;
                }
            }
        });
        Ok(Self { header, portions, thread: Some(thread) })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The next entries; `None` at the end. Cancel safe.
    ///
    /// # Errors
    /// [`ArchiveError`] of the next line, or if the number of keys differs from that of the header.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, ArchiveError> {
        match self.portions.recv().await {
            Some(portion) => portion.map(Some),
            None => {
                // The end of the dump, unless the thread has failed.
                if let Some(thread) = &mut self.thread {
                    thread.await?;
                    self.thread = None;
                }
                Ok(None)
            }
        }
    }
}

struct Reading {
    name: String,
    lines: Lines<Box<dyn BufRead + Send>>,
    /// Number of keys so far.
    keys: u64,
    /// Number of keys of the header.
    expected: Option<u64>,
    /// The latest time that is accepted.
    latest: Option<UnixTime>,
}

impl Reading {
    fn open(
        name: String,
        file: Option<&Path>,
        latest: Option<UnixTime>,
    ) -> Result<(Self, Header), ArchiveError> {
        let input: Box<dyn BufRead + Send> = match file.map(File::open) {
            None => Box::new(BufReader::new(io::stdin())),
            Some(Ok(file)) => Box::new(BufReader::new(file)),
            Some(Err(source)) => return Err(ArchiveError::Unreadable { dump: name, source }),
        };
        let mut reading = Self { name, lines: Lines::new(input), keys: 0, expected: None, latest };
        let header = reading.header()?;
        Ok((reading, header))
    }

    fn header(&mut self) -> Result<Header, ArchiveError> {
        let header = match self.lines.next() {
            Ok(Some(line)) => Header::decode(line).map_err(|error| match error {
                HeaderError::Invalid(reason) => self.line(reason),
                HeaderError::FormatVersion(found) => {
                    ArchiveError::FormatVersion { dump: self.name.clone(), found }
                }
            })?,
            Ok(None) => return Err(ArchiveError::Empty { dump: self.name.clone() }),
            Err(error) => return Err(self.failure(error)),
        };
        self.expected = header.keys;
        self.check_time("issued", header.issued.as_ref().map(|issued| issued.hlc()))?;
        Ok(header)
    }

    /// The next entries; `None` at the end.
    fn portion(&mut self) -> Result<Option<Vec<Entry>>, ArchiveError> {
        let (mut portion, mut bytes) = (Vec::new(), 0);
        while bytes < PORTION_BYTES {
            let entry = match self.lines.next() {
                Ok(None) => break,
                Ok(Some(line)) => {
                    bytes += line.len();
                    Entry::decode(line).map_err(|reason| self.line(reason))?
                }
                Err(error) => return Err(self.failure(error)),
            };
            let stored = &entry.stored;
            self.check_time("version", stored.version.as_ref().map(|version| version.hlc()))?;
            self.check_time("fencing_token", stored.fencing_token.as_ref().map(|it| it.hlc()))?;
            portion.push(entry);
            self.keys += 1;
        }
        if !portion.is_empty() {
            return Ok(Some(portion));
        }
        match self.expected {
            Some(expected) if expected != self.keys => {
                Err(ArchiveError::Count { dump: self.name.clone(), expected, found: self.keys })
            }
            _ => Ok(None),
        }
    }

    fn check_time(&self, field: &'static str, hlc: Option<&Hlc>) -> Result<(), ArchiveError> {
        match (hlc, self.latest) {
            (Some(hlc), Some(latest)) if hlc.wall() > latest => Err(ArchiveError::Future {
                dump: self.name.clone(),
                number: self.lines.number(),
                field,
            }),
            _ => Ok(()),
        }
    }

    fn failure(&self, error: LineError) -> ArchiveError {
        match error {
            LineError::Io(source) => ArchiveError::Unreadable { dump: self.name.clone(), source },
            LineError::TooLong => {
                self.line("it is longer than 16 MiB, the limit of a line".to_owned())
            }
        }
    }

    /// The error of the last line.
    fn line(&self, reason: String) -> ArchiveError {
        ArchiveError::Line { dump: self.name.clone(), number: self.lines.number(), reason }
    }
}
