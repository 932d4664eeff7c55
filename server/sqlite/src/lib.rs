//! Durable storage for a state store: a journal in a directory, written with SQLite.
//!
//! ```
//! use statestore_sqlite::SqliteJournal;
//! use statestore_tokio::service::{Durability, StoreConfig};
//! use statestore_tokio::StoreService;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("statestore-sqlite-{}", std::process::id()));
//! let journal = SqliteJournal::open(&dir)?;
//! let config = StoreConfig::new(7).durability(Durability::All);
//! let service = StoreService::builder().journal(journal).config(config)?;
//! # drop(service);
//! # let _ = std::fs::remove_dir_all(&dir);
//! # Ok(())
//! # }
//! ```
//!
//! # Storage
//!
//! The store holds all keys in memory and reads the database only when it starts. The database is
//! therefore a log: one row for each [`Commit`](statestore_tokio::service::Commit), with all its
//! records, and one row for each part of a snapshot.
//!
//! A commit is one transaction with `synchronous = FULL`. When it returns, it survives a crash and
//! a power cut, if the disk really stores what it reports as flushed. Rows that a snapshot replaces
//! are removed with the commits that follow, some at a time.
//!
//! | File | Contents |
//! |---|---|
//! | `records.db` | database; never shrinks, and reuses its free space |
//! | `records.db-wal` | SQLite's write-ahead log, written first; part of the data |
//! | `records.db-shm` | SQLite's shared memory; not needed in a backup |
//! | `acknowledged` | number of the last acknowledged commit |
//! | `lock` | id of the process that uses the directory |
//!
//! # Limits
//!
//! - A new journal takes 8 MiB, 4 MiB for each file, because a commit that makes a file longer needs
//!   another flush. SQLite's log then grows with the commits.
//! - A snapshot is due when the log since the last one exceeds 16 MiB and twice the size of that
//!   snapshot. Until the new snapshot is complete, the old one and the log stay on the disk.
//! - The limit of SQLite's log is 64 MiB. On a disk with less than 512 MiB for the journal, it is an
//!   eighth of these bytes, at least 4 MiB. The disk is measured when the journal is opened: its free
//!   bytes and the journal's files.
//! - At a quarter of this limit, a separate thread copies the log into the database, and SQLite
//!   reuses it from its beginning. While commits follow each other without a pause, that thread
//!   always lags; then the last 256 KiB are copied between two commits. A commit that would make
//!   the log exceed its limit, or the disk, waits for the copy. Then only a commit longer than the
//!   limit exceeds it. While a [`Reader`] or a [`backup`] is open, the log is not reused, and all
//!   commits of that time are added to it. SQLite truncates the log to its limit when it reuses it.
//! - The journal reports the free bytes of its disk plus those in the database, or 0 if the log
//!   cannot hold a commit of 8 MiB. When too few bytes are free, the service refuses durable writes:
//!   see [`ServiceBuilder::storage_reserve`](statestore_tokio::service::ServiceBuilder). It then
//!   makes commits without records, which remove the rows that a snapshot has replaced. If a commit
//!   fails, the service ends.
//! - At most two commits are in memory, one of them waiting. The store determines their size.
//!
//! # Building
//!
//! Set `LIBSQLITE3_FLAGS=-DHAVE_FDATASYNC=1` in the environment, or under `[env]` in
//! `.cargo/config.toml`. SQLite does not detect `fdatasync`, and without it most commits need a
//! second flush, for the timestamps of the log file. Durability is the same in both cases. The
//! example `measure` compares the speed of commits with that of other logs on your disk.
//!
//! # Damage
//!
//! After the first error of a commit or of the copying thread, nothing more is written.
//!
//! Rows have a checksum, a seal that binds them to their journal and their place in it, and numbers
//! without gaps. The database is checked when it is opened. Damaged files are refused and not
//! repaired: put a [`backup`] in their place, or restore a dump to a new directory. Files that are
//! removed, replaced or truncated while in use are detected by the next commit.
//!
//! SQLite treats the first invalid frame of its log as the end of the log. After a power cut, this
//! frame belongs to a commit that was not acknowledged. But a changed bit, or a deleted `-wal`
//! file, would remove acknowledged commits in the same way. Opening detects this by the number in
//! `acknowledged`, which is written after each commit and not synced. After a power cut this number
//! can be outdated by the time the system takes to write it, about 30 seconds. Damage of just those
//! commits, together with a power cut, is not detected. Delete `acknowledged` to skip the
//! comparison and continue without the missing commits.
#![forbid(unsafe_code)]

mod checkpoint;
mod contents;
mod database;
mod directory;
mod error;
mod file_checks;
mod files;
mod free_space;
mod journal;
mod log_size;
mod mark;
mod reader;
mod row_seal;
mod writer;

pub use error::OpenError;
pub use journal::SqliteJournal;
pub use reader::{JournalStatus, Reader, SnapshotStatus, backup};

/// Compiles the programs in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
