//! Schema and settings of the database, and opening it.

use std::io;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, OpenFlags};

use crate::error::OpenError;
use crate::files;
use crate::row_seal::JournalId;

/// Application id in the header of a journal's database: "sSto".
const APPLICATION: i64 = 0x7353_746f;

/// Version of the schema. A database with a later version is refused.
const FORMAT: i64 = 1;

/// Tables of a journal:
///
/// - `journal` has one row, the [`JournalId`] of the journal. It is part of the seal of each row.
/// - A row of `log` is a commit: its records as [`encode_records`] writes them, which may be an
///   empty list, and a seal. `seq` has no gaps.
/// - A row of `snapshot` is one part of a snapshot, encoded and sealed in the same way.
/// - A row of `snapshots` is a complete snapshot: the parts from `first` to `last`, continued by
///   the log from `seq` on.
///
/// [`encode_records`]: statestore_proto::store::encode_records
const TABLES: [&str; 4] = [
    "CREATE TABLE journal (id INTEGER NOT NULL) STRICT",
    "CREATE TABLE log (seq INTEGER PRIMARY KEY, records BLOB NOT NULL) STRICT",
    "CREATE TABLE snapshot (part INTEGER PRIMARY KEY, records BLOB NOT NULL) STRICT",
    "CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, first INTEGER NOT NULL, \
     last INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT",
];

/// With these settings a commit is durable when it returns, and never runs a checkpoint.
const SETTINGS: &str = "
    PRAGMA synchronous = FULL;
    PRAGMA fullfsync = ON;
    PRAGMA checkpoint_fullfsync = ON;
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA trusted_schema = OFF;
    PRAGMA cell_size_check = ON;
";

/// Page size of a new database, in bytes. A commit writes whole pages, so half of SQLite's default
/// saves about a third of the bytes of small commits.
const PAGE_BYTES: i64 = 2048;

/// Bytes that are preallocated in a new database and in its log.
const PREALLOCATED_BYTES: i64 = 4 << 20;

/// Opens the database for writing; creates it if it is missing.
pub(crate) fn open(path: &Path) -> Result<Connection, OpenError> {
    // SQLite creates its other files with the permissions of this one. An existing database must
    // not be opened here: closing it would release the locks that SQLite holds on it elsewhere in
    // this process.
    match files::private_options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(OpenError::from_io(path, error));
        }
        _ => {}
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = connect(path, flags)?;
    let from_sqlite = |error| OpenError::from_sqlite(path, error);
    // SQLite opens a file for reading if it may not write it, and the first commit would fail.
    if db.is_readonly(rusqlite::MAIN_DB).map_err(from_sqlite)? {
        return Err(OpenError::ReadOnly(path.to_owned()));
    }
    let (application, format) = header(&db).map_err(from_sqlite)?;
    let is_new = application == 0 && format == 0 && is_empty(&db).map_err(from_sqlite)?;
    if !is_new {
        check_header(&db, path, application, format)?;
    }
    let prepare = || {
        if is_new {
            db.execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES}"))?;
        }
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        db.execute_batch(SETTINGS)?;
        // A regular exit leaves the same files as a crash: the log keeps its contents and its size.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        if is_new {
            db.execute_batch(&format!(
                "BEGIN IMMEDIATE; {}; INSERT INTO journal VALUES (random());
                 PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}; COMMIT",
                TABLES.join(";")
            ))?;
            preallocate(&db)?;
        }
        Ok(())
    };
    prepare().map_err(from_sqlite)?;
    Ok(db)
}

/// Has SQLite truncate the log to this many bytes when it reuses a longer log from its beginning.
pub(crate) fn limit_log(db: &Connection, bytes: i64) -> rusqlite::Result<()> {
    db.query_row(&format!("PRAGMA journal_size_limit = {bytes}"), [], |_| Ok(()))
}

/// Extends both files, since a commit that makes a file longer needs another flush.
fn preallocate(db: &Connection) -> rusqlite::Result<()> {
    let part = "INSERT INTO snapshot (part, records) VALUES (1, zeroblob(?1))";
    db.execute(part, [PREALLOCATED_BYTES])?;
    db.execute("DELETE FROM snapshot", [])?;
    db.wal_checkpoint_v2(Some("main"), CheckpointMode::PASSIVE)?;
    Ok(())
}

/// Opens an existing database for reading. Another process may be writing it.
pub(crate) fn open_to_read(path: &Path) -> Result<Connection, OpenError> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    let from_sqlite = |error| OpenError::from_sqlite(path, error);
    let (application, format) = header(&db).map_err(from_sqlite)?;
    check_header(&db, path, application, format)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(from_sqlite)?;
    Ok(db)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    Connection::open_with_flags(path, flags).map_err(|error| OpenError::from_sqlite(path, error))
}

fn header(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let application = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let format = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok((application, format))
}

fn is_empty(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

fn check_header(
    db: &Connection,
    path: &Path,
    application: i64,
    format: i64,
) -> Result<(), OpenError> {
    match (application, format) {
        (APPLICATION, FORMAT) => check_schema(db, path),
        (APPLICATION, later) if later > FORMAT => {
            Err(OpenError::Later { path: path.to_owned(), found: later, known: FORMAT })
        }
        (APPLICATION, format) => {
            Err(OpenError::damaged(path, format!("format {format} does not exist")))
        }
        _ => Err(OpenError::Foreign(path.to_owned())),
    }
}

/// Checks that the schema contains exactly the tables of a journal. A trigger, for example, could
/// change records.
fn check_schema(db: &Connection, path: &Path) -> Result<(), OpenError> {
    let tables = || -> rusqlite::Result<Vec<Option<String>>> {
        db.prepare("SELECT sql FROM sqlite_schema ORDER BY name")?
            .query_map([], |row| row.get(0))?
            .collect()
    };
    let tables = tables().map_err(|error| OpenError::from_sqlite(path, error))?;
    if tables.iter().map(Option::as_deref).eq(TABLES.map(Some)) {
        return Ok(());
    }
    Err(OpenError::damaged(path, "its schema is not that of a journal"))
}

/// Returns the page size in bytes.
pub(crate) fn page_bytes(db: &Connection) -> rusqlite::Result<i64> {
    // The value is in memory. Compiling the statement takes longer than executing it.
    db.prepare_cached("PRAGMA page_size")?.query_row([], |row| row.get(0))
}

/// Reads the id of the journal.
pub(crate) fn read_id(db: &Connection, path: &Path) -> Result<JournalId, OpenError> {
    let from_sqlite = |error| OpenError::from_sqlite(path, error);
    let ids: Result<Vec<i64>, _> = db
        .prepare("SELECT id FROM journal")
        .and_then(|mut select| select.query_map([], |row| row.get(0))?.collect());
    match ids.map_err(from_sqlite)?[..] {
        [id] => Ok(JournalId(id)),
        _ => Err(OpenError::damaged(path, "the id of the journal is missing")),
    }
}
