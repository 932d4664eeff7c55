//! Errors of opening, reading and writing a journal's directory, with texts for operators.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use statestore_tokio::JournalError;

/// Reason why a directory cannot be opened, read, copied or written. The texts contain neither
/// keys nor values.
///
/// Commits from before the error stay unchanged, except after [`Replaced`](Self::Replaced).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another journal has locked the directory.
    #[error(
        "cannot open {}: {} is using it; stop that process, or choose another directory",
        dir.display(),
        process(*.pid)
    )]
    InUse {
        /// Directory.
        dir: PathBuf,
        /// Process that has locked the directory, if its id could be read.
        pid: Option<u32>,
    },
    /// The path is not a directory.
    #[error(
        "cannot open {}: it is not a directory; choose another path, or move the file away",
        .0.display()
    )]
    NotADirectory(PathBuf),
    /// The directory to read does not exist or contains no journal.
    #[error(
        "{} has no journal in it: choose a directory that contains the file {}",
        .0.display(),
        crate::files::DATABASE
    )]
    Missing(PathBuf),
    /// The target of a backup exists. It is not overwritten.
    #[error("cannot write to {}: it already exists; choose another path", .0.display())]
    Exists(PathBuf),
    /// The file or directory is not readable or not writable.
    #[error(
        "cannot open {}: it is not readable or not writable; allow this user to read and write it, \
         and check that its file system is not mounted read-only",
        .0.display()
    )]
    ReadOnly(PathBuf),
    /// The disk is full.
    #[error("cannot write {}: its disk is full; free space and start again", .0.display())]
    Full(PathBuf),
    /// A later version of this crate has written the file.
    #[error(
        "cannot read {}: it has format {found}, and this version supports {known}; use the version \
         that wrote it, or a later one",
        path.display()
    )]
    Later {
        /// File.
        path: PathBuf,
        /// Format of the file.
        found: i64,
        /// Latest format that this version supports.
        known: i64,
    },
    /// Another program has written the file.
    #[error(
        "cannot open {}: it is not a journal of a state store; choose another directory",
        .0.display()
    )]
    Foreign(PathBuf),
    /// The contents differ from those that were written. None of them are used.
    #[error(
        "{} is damaged: {what}; put a backup in its place, or restore a dump to a new directory",
        path.display()
    )]
    Damaged {
        /// File.
        path: PathBuf,
        /// Kind and place of the damage.
        what: String,
    },
    /// The end of the log is missing. None of its commits are used.
    #[error(
        "{} is incomplete: it ends with commit {last}, but commit {acknowledged} was acknowledged; \
         put a backup in its place, or restore a dump to a new directory, or delete {} to continue \
         without the missing commits",
        path.display(),
        mark.display()
    )]
    Incomplete {
        /// Database file.
        path: PathBuf,
        /// File that contains the number of the last acknowledged commit.
        mark: PathBuf,
        /// Last commit in the log.
        last: i64,
        /// Last acknowledged commit.
        acknowledged: i64,
    },
    /// The file was removed, replaced or truncated while it was in use. Acknowledged commits may
    /// be lost.
    #[error(
        "cannot write {}: it was removed, replaced or truncated while it was in use; start again \
         with the present files, with a backup, or with a dump restored to a new directory",
        .0.display()
    )]
    Replaced(PathBuf),
    /// A file of the journal is not a regular file, for example a symbolic link.
    #[error("cannot open {}: it is not a regular file; move it away", .0.display())]
    NotAFile(PathBuf),
    /// Any other error of the system.
    #[error("cannot access {}: {source}; check the disk and start again", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the system or of SQLite.
        source: io::Error,
    },
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl OpenError {
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        // SQLite's texts can have several lines.
        let what = what.into().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Damaged { path: path.to_owned(), what }
    }

    pub(crate) fn from_io(path: &Path, source: io::Error) -> Self {
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

    pub(crate) fn from_sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let owned = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                let dir = path.parent().unwrap_or(path).to_owned();
                Self::InUse { dir, pid: None }
            }
            Some(ErrorCode::DiskFull) => Self::Full(owned),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                Self::ReadOnly(owned)
            }
            Some(ErrorCode::DatabaseCorrupt) => Self::damaged(path, error.to_string()),
            Some(ErrorCode::NotADatabase) => {
                Self::damaged(path, "it does not begin like a database")
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
