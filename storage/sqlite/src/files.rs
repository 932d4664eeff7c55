//! Names of the files in a journal's directory.

/// Database with all records.
pub(crate) const DATABASE: &str = "records.db";
/// Write-ahead log of the database.
pub(crate) const LOG: &str = "records.db-wal";
/// Number of the last acknowledged commit.
pub(crate) const MARK: &str = "acknowledged";
/// Shared memory of the processes that have the database open.
pub(crate) const SHARED: &str = "records.db-shm";
/// Locked while the directory is in use. Contains the id of the process that uses it.
pub(crate) const LOCK: &str = "lock";
