//! Folders for data.

use std::path::PathBuf;
use std::{env, fs, io, process};

/// A folder among the temporary files (`TMPDIR`). It is removed, with its contents, when this is
/// dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates a folder for a suite.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(suite: &str) -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("statestore-{suite}-{}", process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
