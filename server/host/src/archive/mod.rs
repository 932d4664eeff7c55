//! Data directories without a running store: reading one, dumping it as lines of JSON, and
//! restoring a dump.
//!
//! A dump is a [`Header`] and one [`Entry`] for each key. Each is a line of JSON.
//!
//! ```
//! use statestore_server::archive::{Header, Source, read};
//!
//! # async fn dump(dir: &std::path::Path) -> Result<String, Box<dyn std::error::Error>> {
//! let contents = read(dir, |_records| {}).await?.contents;
//! let header = Header {
//!     source: Source::Directory,
//!     issued: contents.issued.clone(),
//!     keys: u64::try_from(contents.entries.len()).ok(),
//! };
//! let mut dump = header.encode();
//! for entry in contents.into_entries() {
//!     dump.push_str(&entry.encode());
//! }
//! # Ok(dump)
//! # }
//! ```

mod contents;
mod directory;
mod line;
mod reader;

use std::io;
use std::path::{Path, PathBuf};

use statestore_proto::store::Record;
use statestore_sqlite::{OpenError, SqliteJournal};
use statestore_tokio::JournalError;
use statestore_tokio::diagnostics::text::path_on_one_line;
use statestore_tokio::service::{Commit, Journal as _};
use tokio::task::JoinError;

pub use contents::Contents;
pub use directory::{Directory, NewDirectory, bytes_on_disk, read};
pub(crate) use line::decode_entries;
pub use line::{Entry, Header, LINE_BYTES_MAX, Source, StoredValue};
pub use reader::{DumpReader, FUTURE_MAX};

/// Error of an operation on a data directory or a dump. No text contains a value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The data directory cannot be opened, is damaged, or is not one.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// A path cannot be read or written.
    #[error("{}: {source}", path_on_one_line(path))]
    Path {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The data directory cannot be created at this path.
    #[error("{}{reason}", path_on_one_line(path))]
    Target {
        /// The path.
        path: PathBuf,
        /// The reason and the remedy.
        reason: String,
    },
    /// The dump cannot be read.
    #[error("{dump} cannot be read: {source}; name a dump or an export")]
    Unreadable {
        /// The dump: a path, or standard input.
        dump: String,
        /// The cause.
        source: io::Error,
    },
    /// The dump is empty.
    #[error("{dump}: the file is empty; name a dump or an export")]
    Empty {
        /// The dump: a path, or standard input.
        dump: String,
    },
    /// A line of the dump is invalid.
    #[error("{dump}, line {number}: {reason}; correct that line")]
    Line {
        /// The dump: a path, or standard input.
        dump: String,
        /// Number of the line; the first one has number 1.
        number: u64,
        /// The reason.
        reason: String,
    },
    /// A later version of this software made the dump.
    #[error(
        "{dump} has format_version {found}, and this version reads {supported}: use the version \
         of statestore that made the dump, or a later one", supported = line::FORMAT_VERSION
    )]
    FormatVersion {
        /// The dump: a path, or standard input.
        dump: String,
        /// The version of its format.
        found: u64,
    },
    /// A version or fencing token of the dump is far in the future.
    #[error(
        "{dump}, line {number}: {field} is more than a day ahead of the clock, and the store \
         would issue later versions only; check the clock, or allow future versions"
    )]
    Future {
        /// The dump: a path, or standard input.
        dump: String,
        /// Number of the line; the first one has number 1.
        number: u64,
        /// `issued`, `version` or `fencing_token`.
        field: &'static str,
    },
    /// The number of keys in the dump differs from the number in its first line.
    #[error(
        "{dump}: its first line contains the number {expected}, but {found} keys follow: use the \
         whole file, or correct that number"
    )]
    Count {
        /// The dump: a path, or standard input.
        dump: String,
        /// Number in the first line.
        expected: u64,
        /// Number of keys.
        found: u64,
    },
    /// A key of the dump lacks a version.
    #[error(
        "key {number} of the dump has no version, so it cannot be restored to a directory: \
         restore it to a running store"
    )]
    NoVersion {
        /// Number of the key; the first one has number 1.
        number: u64,
    },
    /// Writing to the data directory failed. Nothing of it is left.
    #[error("nothing is restored: {0}")]
    Journal(#[from] JournalError),
    /// The directory is complete and in place, but a crash of the machine may undo that.
    #[error("{} is restored, but the disk did not confirm it: {source}", path_on_one_line(path))]
    NotSynced {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The runtime has ended, or a thread failed.
    #[error("cannot continue: {0}")]
    Task(#[from] JoinError),
}

impl ArchiveError {
    fn path(path: &Path, source: io::Error) -> Self {
        Self::Path { path: path.to_owned(), source }
    }

    fn target(path: &Path, reason: impl Into<String>) -> Self {
        Self::Target { path: path.to_owned(), reason: reason.into() }
    }
}

impl NewDirectory {
    /// Writes a dump to the directory, moves it to its place, and returns the number of its lines
    /// with keys. Of several lines with the same key the last one wins.
    ///
    /// `on_keys` is called with the number of keys that were written since the last call.
    ///
    /// # Errors
    /// [`ArchiveError`]. Nothing is left then, except after [`ArchiveError::NotSynced`].
    pub async fn restore(
        self,
        dump: &mut DumpReader,
        mut on_keys: impl FnMut(usize),
    ) -> Result<u64, ArchiveError> {
        let path = self.path();
        self.check_path(path).map_err(|error| ArchiveError::path(path, error))?;
        let mut journal = SqliteJournal::open(path)?;
        let makes_all_durable = dump.header().makes_all_keys_durable();
        let issued = dump.header().issued.clone().map(|version| Record::Issued { version });
        commit(&mut journal, issued.into_iter().collect()).await?;
        let mut keys = 0_u64;
        while let Some(entries) = dump.next().await? {
            let written = entries.len();
            let mut records = Vec::with_capacity(written);
            for mut entry in entries {
                keys += 1;
                entry.stored.persist |= makes_all_durable;
                records.push(entry.into_record().ok_or(ArchiveError::NoVersion { number: keys })?);
            }
            commit(&mut journal, records).await?;
            on_keys(written);
        }
        drop(journal);
        self.finish()?;
        Ok(keys)
    }
}

async fn commit(journal: &mut SqliteJournal, records: Vec<Record>) -> Result<(), JournalError> {
    journal.commit(Commit { records, snapshot: None }).await
}
