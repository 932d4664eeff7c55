//! What tools need: reading a journal, copying it, and what is in it, beside a running store or without one.

use std::fs::{self, File};
use std::path::Path;

use rusqlite::Connection;
use statestore_proto::store::Record;

use crate::contents::{Cursor, Extent};
use crate::error::OpenError;
use crate::files::{DATABASE, MARK};
use crate::mark::Marks;
use crate::{database, directory, guard};

/// Reads a journal without taking it: all records that were committed when it was opened, the oldest first, in portions of
/// some 256 KiB, as [`load`](statestore_tokio::service::Journal::load) gives them. After an error there are no more.
///
/// A store may go on writing meanwhile. Its log grows until this is dropped, so do not hold it for long.
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
/// # assert!(matches!(keys("there is none".as_ref()), Err(OpenError::Missing(_))));
/// ```
pub struct Reader {
    db: Connection,
    cursor: Cursor,
    status: JournalStatus,
    has_ended: bool,
}

/// What is in a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalStatus {
    /// Commits since it was made.
    pub commits: u64,
    /// Commits since the last snapshot began, or since it was made.
    pub log_commits: u64,
    /// Bytes of their records.
    pub log_bytes: u64,
    /// The last snapshot that was ended.
    pub snapshot: Option<SnapshotStatus>,
}

/// A snapshot in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotStatus {
    /// Parts of it.
    pub parts: u64,
    /// Bytes of its records.
    pub bytes: u64,
}

impl Reader {
    /// Opens the journal in this directory. Reads the whole file once, so it blocks for as long as that takes.
    ///
    /// # Errors
    /// [`OpenError`], with what is to be done.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        let path = directory::existing(dir)?;
        // Before the database: what is acknowledged now, that has.
        let marks = Marks::read(&dir.join(MARK))?;
        let db = database::open_to_read(&path)?;
        db.execute_batch("BEGIN").map_err(|error| OpenError::of_sqlite(&path, error))?;
        let id = database::id(&db, &path)?;
        let extent = Extent::read(&db, &path, marks.acknowledged(id)?)?;
        let cursor = Cursor::new(&path, id, &extent);
        Ok(Self { db, cursor, status: JournalStatus::new(&extent), has_ended: false })
    }

    /// What is in it.
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
    fn new(extent: &Extent) -> Self {
        let first = extent.first_seq();
        let snapshot = extent.snapshot.map(|snapshot| SnapshotStatus {
            parts: (snapshot.last - snapshot.first).unsigned_abs() + 1,
            bytes: snapshot.bytes.unsigned_abs(),
        });
        Self {
            commits: extent.last_seq.unsigned_abs(),
            log_commits: (extent.last_seq + 1).saturating_sub(first).unsigned_abs(),
            log_bytes: extent.log_bytes.unsigned_abs(),
            snapshot,
        }
    }
}

/// Copies the journal in a directory to a new one, which a store can be started with, and reads the copy. A store may go on
/// writing meanwhile; the copy has what was committed when it began. Blocks until it is safe on its disk.
///
/// A copy of the files made by other means is of use only while no store writes them, and with all of them.
///
/// # Errors
/// [`OpenError`]. What it has begun then is in the way of the next try: delete it.
pub fn backup(dir: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<JournalStatus, OpenError> {
    let (dir, to) = (dir.as_ref(), to.as_ref());
    let path = directory::existing(dir)?;
    let marks = Marks::read(&dir.join(MARK))?;
    let db = database::open_to_read(&path)?;
    Extent::read(&db, &path, marks.acknowledged(database::id(&db, &path)?)?)?;
    if fs::symlink_metadata(to).is_ok() {
        return Err(OpenError::Exists(to.to_owned()));
    }
    directory::create(to)?;
    let copy = to.join(DATABASE);
    let text = copy.to_str().ok_or_else(|| {
        let source = std::io::Error::other("a path that is not UTF-8");
        OpenError::Io { path: copy.clone(), source }
    })?;
    // An empty file is as good as none to SQLite, and has the rights that it should have.
    guard::private()
        .write(true)
        .create_new(true)
        .open(&copy)
        .map_err(|error| OpenError::of_io(&copy, error))?;
    db.execute("VACUUM INTO ?1", [text]).map_err(|error| OpenError::of_sqlite(&copy, error))?;
    let sync = || File::open(&copy)?.sync_all().and_then(|()| directory::sync(to));
    sync().map_err(|error| OpenError::of_io(&copy, error))?;
    let mut reader = Reader::open(to)?;
    reader.try_for_each(|portion| portion.map(drop))?;
    Ok(reader.status())
}
