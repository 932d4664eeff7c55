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
    /// It cannot be written.
    #[error("{} cannot be written: give this user the right to, and see that it is not mounted read-only", .0.display())]
    ReadOnly(PathBuf),
    /// The disk is full.
    #[error("no space is left for {}: make room on that disk and start again; what was committed is kept", .0.display())]
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
    #[error("{} is damaged: {what}. Put a backup or a dump in its place", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What of it, and where.
        what: String,
    },
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
        Self::Damaged { path: path.to_owned(), what: what.into() }
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
        Self::new(error)
    }
}
