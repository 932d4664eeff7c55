//! Names and permissions of the files in a journal's directory.

use std::fs::{File, OpenOptions};

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

/// Returns options that create a file with access for this user only.
pub(crate) fn private_options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
