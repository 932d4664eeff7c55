//! Directory of a journal: creation, lock and paths.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::file_checks;
use crate::files::{self, DATABASE, LOCK, LOG, MARK};

/// A directory that this value locks for exclusive use until it is dropped.
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
    /// The directory itself, also locked: the lock file may be deleted. `None` where other users
    /// could lock it and so block the store.
    own_lock: Option<File>,
}

/// Returns whether other users can neither read nor write this directory.
fn is_private(directory: &File) -> bool {
    directory.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o077 == 0)
}

impl Drop for Directory {
    /// Unlocks explicitly. Closing the file would not be enough: a child process that another
    /// thread has forked shares the lock until it executes its program.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
        let _ = self.own_lock.as_ref().map(File::unlock);
    }
}

impl Directory {
    /// Locks the directory. Creates it if it is missing, with access for this user only.
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        create(path)?;
        file_checks::check_files(path)?;
        let file = path.join(LOCK);
        let lock_error = |error| OpenError::from_io(&file, error);
        let mut lock = files::private_options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&file)
            .map_err(lock_error)?;
        // First, so that of two processes one gets both locks.
        let own_lock = File::open(path).ok().filter(is_private);
        let own_result = own_lock.as_ref().map_or(Ok(()), File::try_lock);
        let result = match own_result {
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Ok(()) | Err(TryLockError::Error(_)) => lock.try_lock(),
        };
        match result {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // Closing the file would not unlock it, see `drop`.
                if let (Some(own), Ok(())) = (&own_lock, &own_result) {
                    let _ = own.unlock();
                }
                let mut text = String::new();
                let pid = match lock.read_to_string(&mut text) {
                    Ok(_) => text.trim().parse().ok(),
                    Err(_) => None,
                };
                return Err(OpenError::InUse { dir: path.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(lock_error(error)),
        }
        let pid = std::process::id();
        let write = |lock: &mut File| {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{pid}")
        };
        // From here on, an error unlocks the directory too.
        let mut directory = Self { path: path.to_owned(), lock, own_lock };
        write(&mut directory.lock).map_err(lock_error)?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    pub(crate) fn mark(&self) -> PathBuf {
        self.path.join(MARK)
    }

    /// Syncs the log, which a killed process may have written without syncing it. Loading reads
    /// those commits, and responses can depend on them.
    ///
    /// The database needs no sync, because its unsynced pages are still in the log. It must not be
    /// opened here: closing it would release the locks that SQLite holds on it elsewhere in this
    /// process.
    pub(crate) fn sync(&self) -> Result<(), OpenError> {
        let log = self.path.join(LOG);
        match OpenOptions::new().read(true).write(true).open(&log) {
            Ok(file) => file.sync_data().map_err(|error| OpenError::from_io(&log, error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(OpenError::from_io(&log, error)),
        }
        sync(&self.path).map_err(|error| OpenError::from_io(&self.path, error))
    }
}

/// Returns the path of the database in an existing directory.
///
/// # Errors
/// [`OpenError::Missing`] if the directory or the database does not exist.
pub(crate) fn existing(dir: &Path) -> Result<PathBuf, OpenError> {
    let meta = fs::metadata(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing(dir.to_owned()),
        _ => OpenError::from_io(dir, error),
    })?;
    if !meta.is_dir() {
        return Err(OpenError::NotADirectory(dir.to_owned()));
    }
    file_checks::check_files(dir)?;
    let database = dir.join(DATABASE);
    match fs::metadata(&database) {
        Ok(_) => Ok(database),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(OpenError::Missing(dir.to_owned()))
        }
        Err(error) => Err(OpenError::from_io(&database, error)),
    }
}

/// Creates a directory and its missing parents, with access for this user only, and makes their
/// names durable.
pub(crate) fn create(path: &Path) -> Result<(), OpenError> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => return Err(OpenError::NotADirectory(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(OpenError::from_io(path, error)),
    }
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && fs::metadata(dir).is_err();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| OpenError::from_io(path, error))?;
    for dir in missing {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync(parent.unwrap_or_else(|| Path::new(".")))
            .map_err(|error| OpenError::from_io(path, error))?;
    }
    Ok(())
}

/// Makes the names in a directory durable.
pub(crate) fn sync(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn missing_parents_are_created_for_this_user_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let top =
            std::env::temp_dir().join(format!("statestore-sqlite-parents-{}", std::process::id()));
        let dir = top.join("parent/data");
        create(&dir).unwrap();
        for dir in dir.ancestors().take(3) {
            assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700, "{dir:?}");
        }
        fs::remove_dir_all(&top).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn directory_without_its_lock_file_is_still_locked() {
        let dir =
            std::env::temp_dir().join(format!("statestore-sqlite-unlock-{}", std::process::id()));
        let first = Directory::lock(&dir).unwrap();
        fs::remove_file(dir.join(LOCK)).unwrap();
        assert!(matches!(Directory::lock(&dir), Err(OpenError::InUse { .. })));
        drop(first);
        drop(Directory::lock(&dir).unwrap());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn directory_can_be_locked_again_while_a_forked_child_still_has_the_lock_file_open() {
        let dir =
            std::env::temp_dir().join(format!("statestore-sqlite-claim-{}", std::process::id()));
        let first = Directory::lock(&dir).unwrap();
        assert!(matches!(Directory::lock(&dir), Err(OpenError::InUse { .. })));
        // A duplicate shares the lock, as the file of a forked child does.
        let child_file = first.lock.try_clone().unwrap();
        drop(first);
        drop(Directory::lock(&dir).unwrap());
        drop(child_file);
        fs::remove_dir_all(&dir).unwrap();
    }
}
