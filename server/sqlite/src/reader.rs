//! Reading, inspecting and copying a journal, also while a store writes it.

use std::fs::{self, File};
use std::path::Path;

use rusqlite::Connection;
use statestore_proto::store::Record;

use crate::contents::{Cursor, LogState};
use crate::error::OpenError;
use crate::files::{self, DATABASE, MARK};
use crate::mark::Marks;
use crate::{database, directory};

/// Reads a journal without locking its directory.
///
/// Iterates over all records that were committed when the reader was opened, oldest first, in
/// portions as [`load`](statestore_tokio::service::Journal::load) returns them: a portion ends with
/// the commit or the part of a snapshot that reaches 256 KiB.
/// The iteration ends after an error.
///
/// A store can continue to write. Its log grows until the reader is dropped, so do not hold a
/// reader for long. If the log then fills the disk, a commit of the store fails.
///
/// ```
/// use statestore_proto::store::Record;
/// use statestore_sqlite::{OpenError, Reader};
///
/// fn keys(dir: &std::path::Path) -> Result<Vec<Box<[u8]>>, OpenError> {
///     let mut keys = Vec::new();
///     for portion in Reader::open(dir)? {
///         keys.extend(portion?.iter().filter_map(Record::key).map(Box::from));
///     }
///     Ok(keys)
/// }
/// # assert!(matches!(keys("does not exist".as_ref()), Err(OpenError::Missing(_))));
/// ```
pub struct Reader {
    db: Connection,
    cursor: Cursor,
    status: JournalStatus,
    has_ended: bool,
}

/// Counts and sizes of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalStatus {
    /// Number of commits since the journal was created.
    pub commits: u64,
    /// Number of commits since the last complete snapshot began; all commits without a snapshot.
    pub log_commits: u64,
    /// Bytes of the records in those commits.
    pub log_bytes: u64,
    /// Last complete snapshot.
    pub snapshot: Option<SnapshotStatus>,
}

/// A snapshot in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotStatus {
    /// Number of parts.
    pub parts: u64,
    /// Bytes of the records in all parts.
    pub bytes: u64,
}

impl Reader {
    /// Opens the journal in this directory. Blocks while it reads the whole database once.
    ///
    /// # Errors
    /// [`OpenError`], whose text contains the remedy.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        let path = directory::existing(dir)?;
        // Read before the database, which then contains at least the commits acknowledged here.
        let marks = Marks::read(&dir.join(MARK))?;
        let db = database::open_to_read(&path)?;
        db.execute_batch("BEGIN").map_err(|error| OpenError::from_sqlite(&path, error))?;
        let id = database::read_id(&db, &path)?;
        let state = LogState::read_checked(&db, &path, marks.acknowledged(id)?)?;
        let cursor = Cursor::new(&path, id, &state);
        Ok(Self { db, cursor, status: JournalStatus::new(&state), has_ended: false })
    }

    /// Returns the counts and sizes at the time the reader was opened.
    #[must_use]
    pub const fn status(&self) -> JournalStatus {
        self.status
    }
}

impl Iterator for Reader {
    type Item = Result<Vec<Record>, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.cursor.next(&self.db).transpose();
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("status", &self.status).finish_non_exhaustive()
    }
}

impl JournalStatus {
    fn new(state: &LogState) -> Self {
        let first = state.first_seq();
        let snapshot = state.snapshot.map(|snapshot| SnapshotStatus {
            parts: (snapshot.last - snapshot.first).unsigned_abs() + 1,
            bytes: snapshot.bytes.unsigned_abs(),
        });
        Self {
            commits: state.last_seq.unsigned_abs(),
            log_commits: (state.last_seq + 1).saturating_sub(first).unsigned_abs(),
            log_bytes: state.log_bytes.unsigned_abs(),
            snapshot,
        }
    }
}

/// Copies the journal in `dir` to the new directory `to`, from which a store can start, and reads
/// the copy to check it.
///
/// A store can continue to write; the copy contains the commits from before it began. Blocks until
/// the copy is durable.
///
/// Copying the files by other means is only valid while no store writes them, and must include all
/// of them.
///
/// # Errors
/// [`OpenError`]. An incomplete copy can remain in `to`: delete it before the next attempt.
pub fn backup(dir: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<JournalStatus, OpenError> {
    let (dir, to) = (dir.as_ref(), to.as_ref());
    let path = directory::existing(dir)?;
    let marks = Marks::read(&dir.join(MARK))?;
    let db = database::open_to_read(&path)?;
    LogState::read_checked(&db, &path, marks.acknowledged(database::read_id(&db, &path)?)?)?;
    if fs::symlink_metadata(to).is_ok() {
        return Err(OpenError::Exists(to.to_owned()));
    }
    directory::create(to)?;
    let copy = to.join(DATABASE);
    let text = copy.to_str().ok_or_else(|| {
        let source = std::io::Error::other("the path is not UTF-8");
        OpenError::Io { path: copy.clone(), source }
    })?;
    // SQLite accepts an empty file as the target, and keeps its permissions.
    files::private_options()
        .write(true)
        .create_new(true)
        .open(&copy)
        .map_err(|error| OpenError::from_io(&copy, error))?;
    db.execute("VACUUM INTO ?1", [text]).map_err(|error| OpenError::from_sqlite(&copy, error))?;
    let sync = || File::open(&copy)?.sync_all().and_then(|()| directory::sync(to));
    sync().map_err(|error| OpenError::from_io(&copy, error))?;
    let mut reader = Reader::open(to)?;
    reader.try_for_each(|portion| portion.map(drop))?;
    Ok(reader.status())
}
