//! What goes wrong with a directory, as whoever runs the store should read it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use statestore_tokio::JournalError;

/// Why a directory cannot be opened, read, copied or written. No text of it holds a key or a value.
///
/// After any of them what was committed is what it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another journal has it.
    #[error("{} is in use by {}: end that process, or take another directory", dir.display(), process(*.pid))]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process that has it, where it could be read.
        pid: Option<u32>,
    },
    /// There is something else.
    #[error("{} is not a directory: take another path, or move the file away", .0.display())]
    NotADirectory(PathBuf),
    /// There is no journal to be read.
    #[error("{} has no journal in it: look for a directory with a file {}", .0.display(), crate::files::DATABASE)]
    Missing(PathBuf),
    /// A journal is not to be written over.
    #[error("{} is there already: take a path where nothing is", .0.display())]
    Exists(PathBuf),
    /// It cannot be written, or not even read.
    #[error("{} cannot be opened: give this user the right to read and write it, and see that it is not mounted read-only", .0.display())]
    ReadOnly(PathBuf),
    /// The disk is full.
    #[error("no space is left for {}: make room on that disk and start again", .0.display())]
    Full(PathBuf),
    /// A later version of this crate has written it.
    #[error("{} has format {found}, and this version knows {known}: use the version that wrote it, or a later one", path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The latest that is known here.
        known: i64,
    },
    /// It is another program's.
    #[error("{} is not a journal of a store: take another directory", .0.display())]
    Foreign(PathBuf),
    /// It is not what was written. Nothing of it is used.
    #[error("{} is damaged: {what}. Put a backup in its place, or restore a dump to a new directory", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What of it, and where.
        what: String,
    },
    /// The end of its log is missing. Nothing of it is used.
    #[error("{} has commits up to {last}, and commit {acknowledged} was acknowledged: put a backup in its place, or restore a dump to a new directory; to go on without what came between, delete {}", path.display(), mark.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The file that says what was acknowledged.
        mark: PathBuf,
        /// The last commit that is there.
        last: i64,
        /// The last that was acknowledged.
        acknowledged: i64,
    },
    /// Somebody has removed it, put another in its place or cut it while it was in use. What was answered before may be lost.
    #[error("{} was removed, replaced or cut while it was in use, and nothing is written any more: start again with what is there, with a backup, or with a dump that is restored to a new directory", .0.display())]
    Replaced(PathBuf),
    /// Where a file belongs is something else, or a link.
    #[error("{} is not a file: move it away", .0.display())]
    NotAFile(PathBuf),
    /// The system refuses something else.
    #[error("{}: {source}: see what is wrong with that disk and start again", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl OpenError {
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        // SQLite writes lines.
        let what = what.into().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Damaged { path: path.to_owned(), what }
    }

    pub(crate) fn of_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(path),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly(path)
            }
            io::ErrorKind::NotADirectory => Self::NotADirectory(path),
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn of_sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let owned = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(owned),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                Self::ReadOnly(owned)
            }
            Some(ErrorCode::DatabaseCorrupt) => Self::damaged(path, error.to_string()),
            Some(ErrorCode::NotADatabase) => {
                Self::damaged(path, "it does not begin as a database does")
            }
            _ => Self::Io { path: owned, source: io::Error::other(error) },
        }
    }
}

impl From<OpenError> for JournalError {
    fn from(error: OpenError) -> Self {
        Self::from_source(error)
    }
}
