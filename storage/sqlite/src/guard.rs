//! How the files in a journal's directory are made, what they must be, and whether they are still the same.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::files::{DATABASE, LOCK, LOG, MARK, SHARED};

/// Options to make a file for this user alone.
pub(crate) fn private() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Sees that whatever is there is a file: a link would lead elsewhere, and opening a pipe waits for its other end. And that
/// there is a database where there was one: SQLite removes a log that has none.
pub(crate) fn judge(dir: &Path) -> Result<(), OpenError> {
    let length = |name: &str| {
        let path = dir.join(name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => Ok(meta.len()),
            Ok(_) => Err(OpenError::NotAFile(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(OpenError::of_io(&path, error)),
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
            let what = format!("it is empty or missing, and {name} is not");
            return Err(OpenError::damaged(&dir.join(DATABASE), what));
        }
    }
    Ok(())
}

/// The database and its log, as they were last seen. Neither is replaced, or gets shorter, while a journal has them.
pub(crate) struct Files([(PathBuf, Identity); 2]);

#[derive(Clone, Copy, PartialEq)]
struct Identity {
    /// Device and number, where the system says them.
    file: Option<(u64, u64)>,
    length: u64,
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
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

impl Files {
    /// As they are now.
    pub(crate) fn new(dir: &Path) -> Result<Self, OpenError> {
        let see = |name| {
            let path = dir.join(name);
            let meta = fs::metadata(&path).map_err(|error| OpenError::of_io(&path, error))?;
            Ok((path, Identity::of(&meta)))
        };
        Ok(Self([see(DATABASE)?, see(LOG)?]))
    }

    /// Whether what was written to them can be found again.
    pub(crate) fn check(&mut self) -> Result<(), OpenError> {
        for (path, seen) in &mut self.0 {
            let now = fs::metadata(&*path).map(|meta| Identity::of(&meta));
            match now {
                Ok(now) if now.file == seen.file && now.length >= seen.length => *seen = now,
                _ => return Err(OpenError::Replaced(path.clone())),
            }
        }
        Ok(())
    }
}
