//! Writes commits to the database, one after the other.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use statestore_proto::store::{Record, encode_records};
use statestore_tokio::service::{Commit, SnapshotPart};

use crate::checkpoint::Checkpointer;
use crate::contents::{Cursor, LogState, Snapshot};
use crate::database;
use crate::directory::Directory;
use crate::error::OpenError;
use crate::file_checks::OpenFiles;
use crate::free_space::{DatabaseBytes, FreeSpace};
use crate::log_size;
use crate::mark::{Mark, Marks};
use crate::row_seal::{JournalId, RowKind};

/// A snapshot is due when the log since the last one exceeds both this many bytes and this many
/// times the bytes of that snapshot.
const SNAPSHOT_AFTER: i64 = 16 << 20;
const SNAPSHOT_FACTOR: i64 = 2;

/// Bytes of obsolete rows that one commit removes, in addition to twice the bytes that it adds. Each
/// commit removes more than it adds, so the removal comes to an end.
const REMOVED_BYTES: i64 = 128 << 10;

/// Number of rows that count as at least [`REMOVED_BYTES`], because removing a short row has a cost
/// too.
const REMOVED_ROWS: i64 = 64;

pub(crate) struct Writer {
    // Fields drop in this order: all connections must be closed before the directory is unlocked.
    db: Connection,
    checkpointer: Checkpointer,
    mark: Mark,
    id: JournalId,
    files: OpenFiles,
    space: Arc<FreeSpace>,
    path: PathBuf,
    cursor: Cursor,
    log_state: LogState,
    /// Snapshot in progress, up to its latest part.
    pending: Option<PendingSnapshot>,
    obsolete: Obsolete,
    state: State,
    _directory: Directory,
}

/// After the first error of the disk, nothing more is written.
enum State {
    Working,
    /// The disk failed after the last commit was acknowledged. The next commit returns the error.
    Failing(OpenError),
    Failed,
}

#[derive(Clone, Copy)]
struct PendingSnapshot {
    snapshot: Snapshot,
    /// Bytes of the log since the first part.
    log_bytes: i64,
}

/// Rows to be removed, some with each commit.
#[derive(Clone, Default)]
struct Obsolete {
    log: Range<i64>,
    parts: Range<i64>,
    /// Parts of a snapshot that was not completed.
    unfinished: Range<i64>,
}

impl Obsolete {
    /// Returns the rows that earlier writers did not remove.
    fn read(db: &Connection, log_state: &LogState) -> rusqlite::Result<Self> {
        let rows_before = |select: &str, end: i64| -> rusqlite::Result<Range<i64>> {
            let first: Option<i64> = db.query_row(select, [], |row| row.get(0))?;
            Ok(first.unwrap_or(end).min(end)..end)
        };
        let (first, last) =
            log_state.snapshot.map_or((0, 0), |snapshot| (snapshot.first, snapshot.last));
        Ok(Self {
            log: rows_before("SELECT min(seq) FROM log", log_state.first_seq())?,
            parts: rows_before("SELECT min(part) FROM snapshot", first)?,
            unfinished: last + 1..log_state.last_part + 1,
        })
    }
}

impl Writer {
    pub(crate) fn open(directory: Directory) -> Result<Self, OpenError> {
        let path = directory.database();
        let space = Arc::new(FreeSpace::new(directory.path()));
        let log_limit = log_size::limit(space.disk_bytes());
        let marks = Marks::read(&directory.mark())?;
        directory.sync()?;
        let db = database::open(&path)?;
        let id = database::read_id(&db, &path)?;
        let log_state = LogState::read_checked(&db, &path, marks.acknowledged(id)?)?;
        let mark = Mark::open(&directory.mark(), id, log_state.last_seq)?;
        database::limit_log(&db, log_limit)
            .map_err(|error| OpenError::from_sqlite(&path, error))?;
        let checkpointer = Checkpointer::start(&path, Arc::clone(&space), log_limit)?;
        let cursor = Cursor::new(&path, id, &log_state);
        let files = OpenFiles::new(directory.path(), log_limit.unsigned_abs())?;
        let obsolete = Obsolete::read(&db, &log_state)
            .map_err(|error| OpenError::from_sqlite(&path, error))?;
        let writer = Self {
            db,
            checkpointer,
            mark,
            id,
            files,
            space,
            path,
            cursor,
            log_state,
            pending: None,
            obsolete,
            state: State::Working,
            _directory: directory,
        };
        writer.update_space();
        Ok(writer)
    }

    pub(crate) fn space(&self) -> Arc<FreeSpace> {
        Arc::clone(&self.space)
    }

    pub(crate) fn load(&mut self) -> Result<Option<Vec<Record>>, OpenError> {
        self.cursor.next(&self.db)
    }

    /// Returns whether another snapshot is due.
    pub(crate) fn wants_snapshot(&self) -> bool {
        let last = self.log_state.snapshot.map_or(0, |snapshot| snapshot.bytes);
        self.pending.is_none()
            && self.log_state.log_bytes > SNAPSHOT_AFTER.max(last.saturating_mul(SNAPSHOT_FACTOR))
    }

    /// Returns whether further commits remove rows, which frees their pages.
    pub(crate) fn can_free_space(&self) -> bool {
        let Obsolete { log, parts, unfinished } = &self.obsolete;
        [log, parts, unfinished].into_iter().any(|rows| !rows.is_empty())
    }

    fn update_space(&self) {
        // Both counts are on the first page, which is in memory.
        let bytes = |pragma: &str| -> rusqlite::Result<u64> {
            let mut pages = self.db.prepare_cached(pragma)?;
            let pages: i64 = pages.query_row([], |row| row.get(0))?;
            let bytes = pages.saturating_mul(database::page_bytes(&self.db)?);
            Ok(u64::try_from(bytes).unwrap_or_default())
        };
        let length = bytes("PRAGMA page_count");
        if let (Ok(length), Ok(reusable)) = (length, bytes("PRAGMA freelist_count")) {
            self.space.set_database(DatabaseBytes { length, reusable });
        }
    }

    /// Writes a commit and returns when it is durable. After an error nothing more is written.
    pub(crate) fn commit(&mut self, commit: &Commit) -> Result<(), OpenError> {
        let result = match std::mem::replace(&mut self.state, State::Failed) {
            State::Working => self.write(commit),
            State::Failing(error) => Err(error),
            State::Failed => Err(OpenError::Io {
                path: self.path.clone(),
                source: std::io::Error::other("an earlier commit failed"),
            }),
        };
        if result.is_ok() {
            self.state = State::Working;
        }
        result
    }

    /// Does the work that can wait until a commit is acknowledged.
    pub(crate) fn after_commit(&mut self) {
        self.update_space();
        if let Err(error) = self.checkpointer.after_commit(&self.db) {
            self.state = State::Failing(OpenError::from_sqlite(&self.path, error));
        }
    }

    fn write(&mut self, commit: &Commit) -> Result<(), OpenError> {
        let log = encode_records(&commit.records);
        let part = commit.snapshot.as_ref().map(|part| encode_records(&part.records));
        let mut next = Next {
            id: self.id,
            log_state: self.log_state,
            pending: self.pending,
            obsolete: self.obsolete.clone(),
        };
        let added = length(&log);
        let bytes = added.saturating_add(part.as_deref().map_or(0, length));
        let write = || {
            self.checkpointer.before_commit(&self.db, bytes, self.files.log_bytes())?;
            let tx = Transaction::new(&mut self.db, TransactionBehavior::Immediate)?;
            next.append(&tx, log)?;
            if let (Some(part), Some(bytes)) = (&commit.snapshot, part) {
                next.append_part(&tx, part, bytes)?;
            }
            next.remove_obsolete(&tx, added)?;
            tx.commit()
        };
        write().map_err(|error| OpenError::from_sqlite(&self.path, error))?;
        Next { log_state: self.log_state, pending: self.pending, obsolete: self.obsolete, .. } =
            next;
        self.files.check()?;
        self.mark.set(self.log_state.last_seq)
    }
}

/// State of the writer after a transaction, once it is committed.
struct Next {
    id: JournalId,
    log_state: LogState,
    pending: Option<PendingSnapshot>,
    obsolete: Obsolete,
}

impl Next {
    fn append(&mut self, tx: &Transaction<'_>, mut log: Vec<u8>) -> rusqlite::Result<()> {
        self.log_state.last_seq += 1;
        self.id.seal(RowKind::Log, self.log_state.last_seq, &mut log);
        self.log_state.log_bytes += length(&log);
        if let Some(pending) = &mut self.pending {
            pending.log_bytes += length(&log);
        }
        tx.prepare_cached("INSERT INTO log (seq, records) VALUES (?1, ?2)")?
            .execute(params![self.log_state.last_seq, log])?;
        Ok(())
    }

    fn append_part(
        &mut self,
        tx: &Transaction<'_>,
        part: &SnapshotPart,
        mut bytes: Vec<u8>,
    ) -> rusqlite::Result<()> {
        self.log_state.last_part += 1;
        let number = self.log_state.last_part;
        self.id.seal(RowKind::Part, number, &mut bytes);
        tx.prepare_cached("INSERT INTO snapshot (part, records) VALUES (?1, ?2)")?
            .execute(params![number, bytes])?;
        if part.is_first {
            if let Some(abandoned) = self.pending.take() {
                self.obsolete.unfinished = abandoned.snapshot.first..number;
            }
            let seq = self.log_state.last_seq;
            // The snapshot does not replace the row of this commit, so its bytes count.
            let log_bytes = tx
                .prepare_cached("SELECT length(records) FROM log WHERE seq = ?1")?
                .query_row([seq], |row| row.get(0))?;
            let snapshot = Snapshot { seq, first: number, last: number, bytes: 0 };
            self.pending = Some(PendingSnapshot { snapshot, log_bytes });
        }
        let Some(pending) = &mut self.pending else { return Ok(()) };
        let snapshot = &mut pending.snapshot;
        snapshot.last = number;
        snapshot.bytes += length(&bytes);
        if part.is_last {
            tx.prepare_cached(
                "INSERT INTO snapshots (seq, first, last, bytes) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute([snapshot.seq, snapshot.first, snapshot.last, snapshot.bytes])?;
            tx.prepare_cached("DELETE FROM snapshots WHERE seq < ?1")?.execute([snapshot.seq])?;
            self.log_state.snapshot = Some(*snapshot);
            self.log_state.log_bytes = pending.log_bytes;
            self.obsolete =
                Obsolete { log: 0..snapshot.seq, parts: 0..snapshot.first, unfinished: 0..0 };
            self.pending = None;
        }
        Ok(())
    }

    fn remove_obsolete(&mut self, tx: &Transaction<'_>, added: i64) -> rusqlite::Result<()> {
        let mut budget = REMOVED_BYTES.saturating_add(added.saturating_mul(2));
        let Obsolete { log, parts, unfinished } = &mut self.obsolete;
        for (table, key, rows) in
            [("snapshot", "part", parts), ("snapshot", "part", unfinished), ("log", "seq", log)]
        {
            while budget > 0 && !rows.is_empty() {
                budget -= remove(tx, table, key, rows, budget)?;
            }
        }
        Ok(())
    }
}

/// Removes the first of `rows`, until `budget` bytes or [`REMOVED_ROWS`] rows are removed. Shortens
/// the range, and returns the bytes that count for the removal.
fn remove(
    tx: &Transaction<'_>,
    table: &str,
    key: &str,
    rows: &mut Range<i64>,
    budget: i64,
) -> rusqlite::Result<i64> {
    let select = format!(
        "SELECT {key}, length(records) FROM {table} WHERE {key} >= ?1 AND {key} < ?2 \
         ORDER BY {key} LIMIT {REMOVED_ROWS}"
    );
    let mut statement = tx.prepare_cached(&select)?;
    let mut found = statement.query([rows.start, rows.end])?;
    let (mut bytes, mut count, mut end) = (0, 0, rows.start);
    while let Some(row) = found.next()? {
        end = row.get::<_, i64>(0)? + 1;
        bytes += row.get::<_, i64>(1)?;
        count += 1;
        if bytes >= budget {
            break;
        }
    }
    tx.prepare_cached(&format!("DELETE FROM {table} WHERE {key} >= ?1 AND {key} < ?2"))?
        .execute([rows.start, end])?;
    let is_done = count < REMOVED_ROWS && bytes < budget;
    rows.start = if is_done { rows.end } else { end };
    Ok(bytes.max(count.saturating_mul(REMOVED_BYTES / REMOVED_ROWS)))
}

fn length(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX)
}
