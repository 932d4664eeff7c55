//! Checks of the files in a journal's directory: their kinds, and replacement while in use.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::files::{DATABASE, LOCK, LOG, MARK, SHARED};

/// Checks the files of a journal before they are opened.
///
/// Each file must be a regular file: a symbolic link can lead out of the directory, and opening a
/// pipe waits for its writer. The database must not be empty or missing if its log or mark exists:
/// SQLite would delete the log.
pub(crate) fn check_files(dir: &Path) -> Result<(), OpenError> {
    let length = |name: &str| {
        let path = dir.join(name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => Ok(meta.len()),
            Ok(_) => Err(OpenError::NotAFile(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(OpenError::from_io(&path, error)),
        }
    };
    for name in [LOCK, SHARED] {
        length(name)?;
    }
    let others = [LOG, MARK].map(|name| Ok((name, length(name)?)));
    let is_empty = length(DATABASE)? == 0;
    for other in others {
        let (name, length) = other?;
        if is_empty && length > 0 {
            let what = format!("it is empty or missing, but {name} is not");
            return Err(OpenError::damaged(&dir.join(DATABASE), what));
        }
    }
    Ok(())
}

/// Last known identity and length of the database and its log. While a journal uses these files,
/// nothing else may replace or truncate them.
pub(crate) struct OpenFiles {
    database: OpenFile,
    log: OpenFile,
}

struct OpenFile {
    path: PathBuf,
    seen: Identity,
    /// Bytes to which SQLite itself truncates a longer file; `u64::MAX` if it never does.
    limit: u64,
}

#[derive(Clone, Copy, PartialEq)]
struct Identity {
    /// Device and inode number; `None` on systems without them.
    file: Option<(u64, u64)>,
    length: u64,
}

impl Identity {
    fn new(meta: &Metadata) -> Self {
        #[cfg(unix)]
        let file = {
            use std::os::unix::fs::MetadataExt as _;
            Some((meta.dev(), meta.ino()))
        };
        #[cfg(not(unix))]
        let file = None;
        Self { file, length: meta.len() }
    }
}

impl OpenFile {
    fn new(dir: &Path, name: &str, limit: u64) -> Result<Self, OpenError> {
        let path = dir.join(name);
        let meta = fs::metadata(&path).map_err(|error| OpenError::from_io(&path, error))?;
        Ok(Self { path, seen: Identity::new(&meta), limit })
    }

    fn check(&mut self) -> Result<(), OpenError> {
        let now = fs::metadata(&self.path).map(|meta| Identity::new(&meta));
        match now {
            Ok(now)
                if now.file == self.seen.file && now.length >= self.seen.length.min(self.limit) =>
            {
                self.seen = now;
                Ok(())
            }
            _ => Err(OpenError::Replaced(self.path.clone())),
        }
    }
}

impl OpenFiles {
    /// `log_limit` is the length to which SQLite truncates a longer log.
    pub(crate) fn new(dir: &Path, log_limit: u64) -> Result<Self, OpenError> {
        let database = OpenFile::new(dir, DATABASE, u64::MAX)?;
        Ok(Self { database, log: OpenFile::new(dir, LOG, log_limit)? })
    }

    /// Checks that neither file was removed, replaced or truncated since the last check.
    pub(crate) fn check(&mut self) -> Result<(), OpenError> {
        self.database.check()?;
        self.log.check()
    }

    /// Returns the length of the log at the last check.
    pub(crate) const fn log_bytes(&self) -> u64 {
        self.log.seen.length
    }
}
