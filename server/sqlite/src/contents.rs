//! Contents of a database, from the newest complete snapshot on, and reading them.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _};
use statestore_proto::store::{RECORDS_FORMAT, Record, RecordsError, decode_records};

use crate::error::OpenError;
use crate::row_seal::{JournalId, RowKind};

/// A portion ends with the row that reaches this many bytes.
const PORTION_BYTES: usize = 256 << 10;

/// A complete snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    /// Commit that contained the first part. The log continues with this commit.
    pub(crate) seq: i64,
    /// First part.
    pub(crate) first: i64,
    /// Last part.
    pub(crate) last: i64,
    /// Bytes of all parts.
    pub(crate) bytes: i64,
}

/// Numbers and sizes of the rows in a database.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogState {
    /// Newest complete snapshot.
    pub(crate) snapshot: Option<Snapshot>,
    /// Last commit; 0 in a new database.
    pub(crate) last_seq: i64,
    /// Last part of any snapshot, complete or not.
    pub(crate) last_part: i64,
    /// Bytes of the log that the newest snapshot does not replace.
    pub(crate) log_bytes: i64,
}

impl LogState {
    /// Returns the first commit that must be read.
    pub(crate) fn first_seq(&self) -> i64 {
        self.snapshot.map_or(1, |snapshot| snapshot.seq)
    }

    /// Checks the whole file, and that the log contains the last acknowledged commit.
    pub(crate) fn read_checked(
        db: &Connection,
        path: &Path,
        acknowledged: Option<i64>,
    ) -> Result<Self, OpenError> {
        let from_sqlite = |error| OpenError::from_sqlite(path, error);
        let check: String =
            db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(from_sqlite)?;
        if check != "ok" {
            return Err(OpenError::damaged(path, check));
        }
        let state = Self::query(db).map_err(from_sqlite)?;
        if state.snapshot.is_some() && state.last_seq < state.first_seq() {
            let what = format!("commit {}, the first of the log, is missing", state.first_seq());
            return Err(OpenError::damaged(path, what));
        }
        let last = state.last_seq;
        match acknowledged {
            Some(acknowledged) if acknowledged > last => Err(OpenError::Incomplete {
                path: path.to_owned(),
                mark: path.with_file_name(crate::files::MARK),
                last,
                acknowledged,
            }),
            _ => Ok(state),
        }
    }

    fn query(db: &Connection) -> rusqlite::Result<Self> {
        let snapshot = db
            .query_row(
                "SELECT seq, first, last, bytes FROM snapshots ORDER BY seq DESC LIMIT 1",
                [],
                |row| {
                    Ok(Snapshot {
                        seq: row.get(0)?,
                        first: row.get(1)?,
                        last: row.get(2)?,
                        bytes: row.get(3)?,
                    })
                },
            )
            .optional()?;
        let mut state = Self { snapshot, ..Self::default() };
        state.last_seq =
            db.query_row("SELECT ifnull(max(seq), 0) FROM log", [], |row| row.get(0))?;
        state.last_part =
            db.query_row("SELECT ifnull(max(part), 0) FROM snapshot", [], |row| row.get(0))?;
        state.log_bytes = db.query_row(
            "SELECT ifnull(sum(length(records)), 0) FROM log WHERE seq >= ?1",
            [state.first_seq()],
            |row| row.get(0),
        )?;
        Ok(state)
    }
}

/// Position of a reader in the snapshot and the log.
pub(crate) struct Cursor {
    id: JournalId,
    path: PathBuf,
    /// Next and last part of the snapshot.
    parts: Option<(i64, i64)>,
    next_seq: i64,
    last_seq: i64,
}

impl Cursor {
    pub(crate) fn new(path: &Path, id: JournalId, state: &LogState) -> Self {
        Self {
            id,
            path: path.to_owned(),
            parts: state.snapshot.map(|snapshot| (snapshot.first, snapshot.last)),
            next_seq: state.first_seq(),
            last_seq: state.last_seq,
        }
    }

    /// Returns the next records; `None` at the end.
    pub(crate) fn next(&mut self, db: &Connection) -> Result<Option<Vec<Record>>, OpenError> {
        if let Some((next, last)) = self.parts {
            if next <= last {
                let (records, next) = self.rows(db, RowKind::Part, next, last)?;
                self.parts = Some((next, last));
                return Ok(Some(records));
            }
            self.parts = None;
        }
        if self.next_seq > self.last_seq {
            return Ok(None);
        }
        let (records, next) = self.rows(db, RowKind::Log, self.next_seq, self.last_seq)?;
        self.next_seq = next;
        Ok(Some(records))
    }

    /// Reads a portion: rows from `first` on and not beyond `last`. Returns their records and the
    /// number of the next row.
    fn rows(
        &self,
        db: &Connection,
        kind: RowKind,
        first: i64,
        last: i64,
    ) -> Result<(Vec<Record>, i64), OpenError> {
        let (table, key) = match kind {
            RowKind::Part => ("snapshot", "part"),
            _ => ("log", "seq"),
        };
        let from_sqlite = |error| OpenError::from_sqlite(&self.path, error);
        let damaged = |number: i64, what: &str| {
            OpenError::damaged(&self.path, format!("{key} {number} of table {table} {what}"))
        };
        let select = format!(
            "SELECT {key}, records FROM {table} WHERE {key} BETWEEN ?1 AND ?2 ORDER BY {key}"
        );
        let mut statement = db.prepare_cached(&select).map_err(from_sqlite)?;
        let mut rows = statement.query([first, last]).map_err(from_sqlite)?;
        let (mut records, mut next, mut bytes) = (Vec::new(), first, 0);
        while bytes < PORTION_BYTES && next <= last {
            let Some(row) = rows.next().map_err(from_sqlite)? else {
                return Err(damaged(next, "is missing"));
            };
            if row.get::<_, i64>(0).map_err(from_sqlite)? != next {
                return Err(damaged(next, "is missing"));
            }
            let value = row.get_ref(1).map_err(from_sqlite)?;
            let blob = value.as_blob().map_err(|_| damaged(next, "is not a blob"))?;
            bytes += blob.len();
            let blob = self
                .id
                .unseal(kind, next, blob)
                .ok_or_else(|| damaged(next, "belongs elsewhere or was changed"))?;
            records.extend(decode_records(blob).map_err(|error| match error {
                RecordsError::Later(format) => {
                    let (path, found) = (self.path.clone(), format.into());
                    OpenError::Later { path, found, known: RECORDS_FORMAT.into() }
                }
                _ => damaged(next, "was changed"),
            })?);
            next += 1;
        }
        Ok((records, next))
    }
}
