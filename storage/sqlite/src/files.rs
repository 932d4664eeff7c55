//! The names of the files in a journal's directory.

/// The database, in which all records are; its log has the same name and `-wal`.
pub(crate) const DATABASE: &str = "records.db";
/// SQLite's log of it.
pub(crate) const LOG: &str = "records.db-wal";
/// Which commits were acknowledged.
pub(crate) const MARK: &str = "acknowledged";
/// What SQLite's processes share.
pub(crate) const SHARED: &str = "records.db-shm";
/// Whose lock says that the directory is in use, and whose text says by whom.
pub(crate) const LOCK: &str = "lock";
