//! A journal for a state store: its records in a directory, with SQLite's write-ahead log as the log.
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
//! # What is kept
//!
//! The store has everything in memory, and asks the database for nothing until it starts again. So the database is a
//! log: a row for each [`Commit`](statestore_tokio::service::Commit), the bytes of all its records, and a row for each part of a
//! snapshot. A commit is one transaction, with `synchronous = FULL`: when it returns, it is safe whatever happens to the
//! machine, as far as the disk keeps what it says that it has. What a snapshot replaces is removed with the commits that follow, some at
//! a time.
//!
//! | File | |
//! |---|---|
//! | `records.db` | the database; never shrinks, and uses again what is free in it |
//! | `records.db-wal` | SQLite's log, written first; part of the data |
//! | `records.db-shm` | of no use to another process, and none to a backup |
//! | `acknowledged` | up to which commit was acknowledged |
//! | `lock` | the process that has the directory |
//!
//! # Bounds
//!
//! A new journal takes 8 MiB: both files have the size at once that they soon would have, since a file that grows takes a
//! flush more. A snapshot is due when the log since the last one has more than 16 MiB and twice that snapshot. Until it is
//! ended, both and what is written meanwhile are there.
//!
//! SQLite's log is copied into the database from 4 MiB on by a thread of its own, and then used again from its beginning.
//! While commits follow each other without a pause, that thread never has all; the last 64 pages are then copied between
//! two commits. From 64 MiB on a commit waits for the copy. Only a [`Reader`] or a [`backup`] that takes long makes it
//! grow beyond that, by what is written meanwhile.
//!
//! The journal reports the free bytes of its disk, with those that are free in the database. With less than 64 MiB the
//! service refuses durable writes, since the log itself may need that much.
//!
//! The thread that writes has one commit, and one more waits at most; both are as large as the store makes them.
//!
//! # Building
//!
//! Build with `LIBSQLITE3_FLAGS=-DHAVE_FDATASYNC=1` in the environment, or under `[env]` in `.cargo/config.toml`. SQLite
//! does not look for `fdatasync` itself, and without it most commits take a second flush, for the times of its log. It is as
//! safe either way. The example `measure` compares commits with those of other logs, on the disk that counts.
//!
//! # Damage
//!
//! A disk that fails once is not trusted again: after an error, of a commit or of the copying, nothing is written any more.
//!
//! Rows have a checksum, are bound to their journal and to their place in it, and have numbers without gaps; the file is
//! checked when it is opened. What is not right is refused and not repaired: put a [`backup`] in its place, or restore a dump
//! to a new directory. Files that are removed, replaced or cut while they are in use are found with the next commit.
//!
//! A log that has lost its end is the hard case. SQLite takes the first frame of its log that is not right for the end:
//! after a power cut that is a commit which was not answered, but a changed bit there, or a `-wal` that was deleted, would
//! take acknowledged commits with it. They are missed by the number in `acknowledged`, which is written after each commit
//! and not synced. So it may itself be late after a power cut, by as much as the system takes to write it, some 30
//! seconds; damage that comes together with a power cut, and only to those commits, is not found. Without that file nothing is
//! compared: delete it to go on with less.
#![forbid(unsafe_code)]

mod checkpoint;
mod contents;
mod database;
mod directory;
mod error;
mod files;
mod guard;
mod journal;
mod mark;
mod reader;
mod seal;
mod space;
mod writer;

pub use error::OpenError;
pub use journal::SqliteJournal;
pub use reader::{JournalStatus, Reader, SnapshotStatus, backup};

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
