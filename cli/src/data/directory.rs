//! Directories of stores: reading one, and making one that is there only once it is whole.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use statestore_sqlite::{JournalStatus, OpenError, Reader};

use super::contents::Contents;
use super::named;
use crate::failure::Failure;
use crate::progress::Progress;

/// All of a directory.
pub(super) struct Read {
    pub(super) contents: Contents,
    pub(super) status: JournalStatus,
}

/// Reads all of it, also beside a store that has it open: then what is committed now.
pub(super) async fn read(dir: &Path) -> Result<Read, Failure> {
    let dir = dir.to_owned();
    // Its line goes with this future, also when nobody waits for the thread any more.
    let progress = Progress::records("reading");
    let its = progress.clone();
    let read = tokio::task::spawn_blocking(move || {
        let reader = Reader::open(&dir)?;
        let status = reader.status();
        let mut contents = Contents::default();
        for portion in reader {
            let portion = portion?;
            its.advance(portion.len());
            portion.into_iter().for_each(|record| contents.add(record));
        }
        Ok(Read { contents, status })
    });
    read.await.map_err(Failure::system)?.map_err(|error: OpenError| Failure::directory(&error))
}

/// Bytes of all files in it.
pub(super) fn bytes_on_disk(dir: &Path) -> Result<u64, Failure> {
    let sum = || {
        fs::read_dir(dir)?.try_fold(0_u64, |sum, entry| {
            let meta = entry?.metadata()?;
            io::Result::Ok(if meta.is_file() { sum.saturating_add(meta.len()) } else { sum })
        })
    };
    sum().map_err(|error| of_path(dir, &error))
}

pub(super) fn of_path(path: &Path, error: &io::Error) -> Failure {
    Failure::path(named(path), error)
}

/// A directory that is being made, beside where it is to be. Unless it is put there, it is removed.
pub(super) struct Staged {
    /// `None` once it is there.
    at: Option<PathBuf>,
    to: PathBuf,
    /// The directory that it takes the place of, if there is one.
    was: Option<Metadata>,
}

impl Staged {
    /// Begins a directory for `to`, where nothing is, or a directory with nothing in it.
    pub(super) fn new(to: &Path) -> Result<Self, Failure> {
        let (to, was) = vacant(to)?;
        let mut name = to.file_name().map(OsString::from).ok_or_else(|| {
            Failure::bad_input(format_args!("{}: name a directory to make", named(&to)))
        })?;
        name.push(".partial");
        let at = to.with_file_name(name);
        match DirBuilder::new().mode(0o700).create(&at) {
            Ok(()) => Ok(Self { at: Some(at), to, was }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Failure::bad_input(format_args!(
                    "{} is there: another restore is under way, or one was killed; in the second case remove it and run \
                     this again",
                    named(&at)
                )))
            }
            Err(error) => Err(of_path(&at, &error)),
        }
    }

    /// Where it is written.
    pub(super) fn path(&self) -> &Path {
        self.at.as_deref().unwrap_or(&self.to)
    }

    /// Puts it where it is to be. Nobody may have anything open in it.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let Some(at) = &self.at else { return Ok(()) };
        let put = || {
            // While it can be opened, which its mode may then not allow.
            let dir = File::open(at)?;
            if let Some(was) = &self.was {
                give(at, was)?;
            }
            dir.sync_all()?;
            fs::rename(at, &self.to)?;
            File::open(parent(&self.to))?.sync_all()
        };
        put().map_err(|error| of_path(&self.to, &error))?;
        self.at = None;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(at) = &self.at {
            let _ = fs::remove_dir_all(at);
        }
    }
}

/// Gives a directory and its files to whom another belongs, as far as this user may, and lets the same users in.
fn give(at: &Path, was: &Metadata) -> io::Result<()> {
    let (owner, group) = (Some(was.uid()), Some(was.gid()));
    for entry in fs::read_dir(at)? {
        let _ = lchown(entry?.path(), owner, group);
    }
    let _ = lchown(at, owner, group);
    fs::set_permissions(at, was.permissions())
}

/// The same path, if a directory can be put there, and the one that is there.
fn vacant(to: &Path) -> Result<(PathBuf, Option<Metadata>), Failure> {
    let mut inside = match fs::read_dir(to) {
        Ok(inside) => inside,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((to.to_owned(), None)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory && to.is_file() => {
            return Err(Failure::bad_input(format_args!(
                "{0} is a file: name the directory to make first, as in `statestore data restore DIR {0}`",
                named(to)
            )));
        }
        Err(error) => return Err(of_path(to, &error)),
    };
    if inside.next().is_some() {
        return Err(Failure::bad_input(format_args!(
            "{} is not empty: restore into a directory that is not there yet",
            named(to)
        )));
    }
    let to = fs::canonicalize(to).map_err(|error| of_path(to, &error))?;
    let was = fs::metadata(&to).map_err(|error| of_path(&to, &error))?;
    match fs::metadata(parent(&to)) {
        Ok(around) if was.dev() != around.dev() => Err(Failure::bad_input(format_args!(
            "{} is where a disk is mounted, so nothing can be put in its place at once: restore into a directory in it",
            named(&to)
        ))),
        _ => Ok((to, Some(was))),
    }
}

/// The directory that a path is in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
