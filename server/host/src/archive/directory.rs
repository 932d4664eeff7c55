//! Data directories: reading one, and creating one that appears only once it is complete.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Gid, Uid, chownat};
use statestore_sqlite::{JournalStatus, Reader};

use super::ArchiveError;
use super::contents::Contents;

/// A data directory that was read.
#[non_exhaustive]
pub struct Directory {
    /// The state that its records describe.
    pub contents: Contents,
    /// Sizes of snapshot and log.
    pub status: JournalStatus,
}

/// Reads a data directory, on a separate thread. A store may have it open: then the committed
/// state is read.
///
/// `on_records` is called with the number of records that were read since the last call.
///
/// # Errors
/// [`ArchiveError::Directory`] if it is damaged or not a data directory.
pub async fn read(
    dir: &Path,
    mut on_records: impl FnMut(usize) + Send + 'static,
) -> Result<Directory, ArchiveError> {
    let dir = dir.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let reader = Reader::open(&dir)?;
        let status = reader.status();
        let mut contents = Contents::default();
        for portion in reader {
            let portion = portion?;
            on_records(portion.len());
            portion.into_iter().for_each(|record| contents.apply(record));
        }
        Ok(Directory { contents, status })
    });
    read.await?
}

/// Bytes of all files in a directory, without those in its subdirectories.
///
/// # Errors
/// [`ArchiveError::Path`].
pub fn bytes_on_disk(dir: &Path) -> Result<u64, ArchiveError> {
    let sum = || {
        fs::read_dir(dir)?.try_fold(0_u64, |sum, entry| {
            let meta = entry?.metadata()?;
            io::Result::Ok(if meta.is_file() { sum.saturating_add(meta.len()) } else { sum })
        })
    };
    sum().map_err(|error| ArchiveError::path(dir, error))
}

/// A data directory to [restore](Self::restore) a dump to. It is created next to its place, as
/// `DIR.partial`, and moved there once it is complete. Dropping it removes it.
#[derive(Debug)]
pub struct NewDirectory {
    /// `None` once it is in its place.
    at: Option<PathBuf>,
    to: PathBuf,
    /// The empty directory that it replaces.
    replaced: Option<Metadata>,
    /// The new directory, whatever its path leads to since.
    handle: File,
}

impl NewDirectory {
    /// Creates a directory for `to`, which does not exist or is an empty directory. The mode of an
    /// empty directory is kept, and also its owner if this user may change owners.
    ///
    /// # Errors
    /// [`ArchiveError::Target`] or [`ArchiveError::Path`].
    pub fn create(to: &Path) -> Result<Self, ArchiveError> {
        let (to, replaced) = vacant(to)?;
        let name = to.file_name().map(OsString::from);
        let mut name = name.ok_or_else(|| ArchiveError::target(&to, ": name a new directory"))?;
        name.push(".partial");
        let at = to.with_file_name(name);
        match DirBuilder::new().mode(0o700).create(&at) {
            Ok(()) => {
                let handle = open_directory(&at).map_err(|error| ArchiveError::path(&at, error))?;
                Ok(Self { at: Some(at), to, replaced, handle })
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(ArchiveError::target(
                    &at,
                    " exists: another restore is running, or one was killed; in the second case \
                     remove it and run this again",
                ))
            }
            Err(error) => Err(ArchiveError::path(&at, error)),
        }
    }

    /// The directory to write to.
    pub(super) fn path(&self) -> &Path {
        self.at.as_deref().unwrap_or(&self.to)
    }

    /// Checks that the path still leads to this directory: a user who may write to its parent could
    /// have replaced it by a link to another one.
    pub(super) fn check_path(&self, at: &Path) -> io::Result<()> {
        let (own, found) = (self.handle.metadata()?, fs::symlink_metadata(at)?);
        if (own.dev(), own.ino()) != (found.dev(), found.ino()) {
            return Err(io::Error::other("another user has replaced the new directory"));
        }
        Ok(())
    }

    /// Moves it to its place. No file in it may be open.
    pub(super) fn finish(mut self) -> Result<(), ArchiveError> {
        let Some(at) = &self.at else { return Ok(()) };
        let put = || {
            self.check_path(at)?;
            if let Some(replaced) = &self.replaced {
                copy_owner_and_mode(&self.handle, replaced)?;
            }
            self.handle.sync_all()?;
            fs::rename(at, &self.to)
        };
        put().map_err(|error| ArchiveError::path(&self.to, error))?;
        self.at = None;
        let synced = File::open(parent(&self.to)).and_then(|parent| parent.sync_all());
        synced.map_err(|source| ArchiveError::NotSynced { path: self.to.clone(), source })
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if let Some(at) = &self.at {
            let _ = fs::remove_dir_all(at);
        }
    }
}

/// Opens a directory, and no link to one.
fn open_directory(at: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(at)
}

/// Copies mode and, if this user may change owners, the owner of a directory to another one and its
/// files.
fn copy_owner_and_mode(directory: &File, from: &Metadata) -> io::Result<()> {
    let (owner, group) = (Uid::from_raw(from.uid()), Gid::from_raw(from.gid()));
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let _ = chownat(directory, name, Some(owner), Some(group), flags);
        }
    }
    let _ = fchown(directory, Some(from.uid()), Some(from.gid()));
    directory.set_permissions(from.permissions())
}

/// Returns the path if a directory can be moved there, and the empty directory that exists.
fn vacant(to: &Path) -> Result<(PathBuf, Option<Metadata>), ArchiveError> {
    let mut inside = match fs::read_dir(to) {
        Ok(inside) => inside,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match fs::symlink_metadata(to) {
                Ok(_) => Err(ArchiveError::target(
                    to,
                    " is a symbolic link to a path that does not exist: create that directory, or \
                     name another one",
                )),
                Err(_) => Ok((to.to_owned(), None)),
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory && to.is_file() => {
            return Err(ArchiveError::target(
                to,
                " is a file: name a new directory, then the dump",
            ));
        }
        Err(error) => return Err(ArchiveError::path(to, error)),
    };
    if inside.next().is_some() {
        return Err(ArchiveError::target(
            to,
            " is not empty: restore to a directory that does not exist yet",
        ));
    }
    let to = fs::canonicalize(to).map_err(|error| ArchiveError::path(to, error))?;
    let replaced = fs::metadata(&to).map_err(|error| ArchiveError::path(&to, error))?;
    match fs::metadata(parent(&to)) {
        Ok(around) if replaced.dev() != around.dev() => Err(ArchiveError::target(
            &to,
            " is a mount point and cannot be replaced: restore to a directory in it",
        )),
        _ => Ok((to, Some(replaced))),
    }
}

/// The directory that contains a path.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
