//! The directory of `dev`: only this command writes there, and it overwrites only its own files.
//!
//! A marker shows that the command made the directory. A list contains a digest of each file that
//! it wrote, so a file that another program wrote or changed is recognized. The list also names the
//! directory itself, so a copy is recognized: others may know the keys of an archive or a clone.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use ring::digest::{SHA256, digest};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::escape::path_on_one_line;
use crate::failure::Failure;

/// Shows that the command made the directory, and is locked while one runs. Contains its process
/// number.
const MARKER: &str = ".statestore-dev";

/// List of the files that the command made.
const LIST: &str = ".made.json";

const IGNORE: &str = ".gitignore";

/// Maximum length of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum length of the marker: a process number and a line feed.
const MARKER_BYTES_MAX: u64 = 20;

/// Maximum number of attempts to lock the marker.
const LOCK_ATTEMPTS_MAX: u32 = 10_000;

/// Mode of a directory that only its owner can use.
const PRIVATE_DIRECTORY: u32 = 0o700;

/// Mode of a file that only its owner can read.
const PRIVATE_FILE: u32 = 0o600;

/// A directory that this process uses alone.
pub(super) struct Directory {
    /// Absolute.
    path: PathBuf,
    made: Made,
    /// Locked until it is closed.
    _marker: File,
}

/// The files that the command made.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Made {
    /// The [`identity`] of the directory.
    directory: String,
    /// Digests of each file: of its contents, and during a write also of the previous contents.
    files: BTreeMap<String, Vec<String>>,
    certificates: BTreeMap<String, Validity>,
}

/// Properties of a certificate by which `dev` decides to reuse it. All times are in seconds since
/// 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Validity {
    /// Time of its creation.
    pub(super) made: u64,
    /// Time of its expiry.
    pub(super) expires: u64,
    /// Names of the server.
    pub(super) names: Vec<String>,
    /// Digest of the certificate authority that has signed it.
    pub(super) authority: String,
}

impl Made {
    /// Reads a file of the list. `None` if it does not exist.
    fn read(&self, path: &Path, name: &str) -> Result<Option<String>, Failure> {
        let text = match name.ends_with(".key") {
            true => read_private(path)?,
            false => read_text(path)?,
        };
        let Some(text) = text else { return Ok(None) };
        if self.files.get(name).is_some_and(|made| made.contains(&digest_of(&text))) {
            return Ok(Some(text));
        }
        Err(Failure::bad_input(format_args!(
            "{}: another program wrote or changed it, so it is neither used nor overwritten; move \
             it to another directory, or use --dir with a new directory",
            path_on_one_line(path)
        )))
    }
}

impl Directory {
    /// Opens or creates a directory, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path_on_one_line(path);
        match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot_write(&shown, &error)),
        }
        let path = own_directory(path)?;
        let marker = open_marker(&path)?;
        let text = read_marker(&path, &marker)?;
        let mut attempts = 0;
        while flock(&marker, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            attempts += 1;
            // `dev env` has a shared lock for a moment.
            if attempts < LOCK_ATTEMPTS_MAX && !is_locked(&marker) {
                std::thread::yield_now();
                continue;
            }
            return Err(Failure::Unreachable(format!(
                "--dir {shown}: another `statestore dev` uses it (process {}); stop that one, or \
                 use another directory and --ports any",
                crate::escape::one_line(text.trim_ascii())
            )));
        }
        // Nothing else is overwritten.
        if text.len() as u64 > MARKER_BYTES_MAX || !text.trim_ascii().iter().all(u8::is_ascii_digit)
        {
            return Err(not_made(&path.join(MARKER), "it contains something else"));
        }
        fs::set_permissions(&path, Permissions::from_mode(PRIVATE_DIRECTORY))
            .and_then(|()| marker.set_len(0))
            .and_then(|()| marker.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0))
            .map_err(|error| cannot_write(&shown, &error))?;
        let made = read_made(&path)?;
        let mut directory = Self { path, made, _marker: marker };
        if directory.read(IGNORE)?.is_none() {
            directory.write(IGNORE, "*\n")?;
        }
        Ok(directory)
    }

    /// Returns the path of a file.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file that the command made. `None` if it does not exist. A private key that others
    /// can read is an error.
    pub(super) fn read(&self, name: &str) -> Result<Option<String>, Failure> {
        self.made.read(&self.path(name), name)
    }

    /// Replaces a file atomically, unless another program wrote or changed it.
    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        let before = self.read(name)?;
        let (now, before) = (digest_of(text), before.as_deref().map(digest_of));
        if before.as_ref() == Some(&now) {
            return Ok(());
        }
        // The list is written first. After a crash, the file has one of both digests.
        let digests = before.into_iter().chain([now.clone()]).collect();
        self.made.files.insert(name.to_owned(), digests);
        self.save()?;
        replace(&self.path(name), text)?;
        self.made.files.insert(name.to_owned(), vec![now]);
        self.save()
    }

    /// Removes a file that the command made.
    pub(super) fn remove(&self, name: &str) -> Result<(), Failure> {
        let path = self.path(name);
        let failed = |error| cannot_write(&path_on_one_line(&path), &error);
        match self.read(name)? {
            Some(_) => fs::remove_file(&path).map_err(failed),
            None => Ok(()),
        }
    }

    /// Creates a directory below this one.
    pub(super) fn create_subdirectory(&self, name: &str) -> Result<(), Failure> {
        let path = self.path(name);
        match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(cannot_write(&path_on_one_line(&path), &error));
            }
            _ => {}
        }
        let failed = |error| cannot_write(&path_on_one_line(&path), &error);
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
            return Err(not_made(&path, "it is not a directory of this user"));
        }
        fs::set_permissions(&path, Permissions::from_mode(PRIVATE_DIRECTORY)).map_err(failed)
    }

    /// Returns what is known about a certificate.
    pub(super) fn validity(&self, name: &str) -> Option<&Validity> {
        self.made.certificates.get(name)
    }

    /// Stores what is known about a certificate.
    pub(super) fn set_validity(&mut self, name: &str, validity: Validity) -> Result<(), Failure> {
        self.made.certificates.insert(name.to_owned(), validity);
        self.save()
    }

    /// Forgets a certificate, with the next [`write`](Self::write).
    pub(super) fn forget_validity(&mut self, name: &str) {
        self.made.certificates.remove(name);
    }

    fn save(&self) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(&self.made).map_err(Failure::system)?;
        replace(&self.path(LIST), &text)
    }
}

/// Returns the SHA-256 digest of a text.
pub(super) fn digest_of(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a file in the directory of a `dev` that runs.
pub(super) fn find(path: &Path, name: &str) -> Result<String, Failure> {
    let absent = || {
        Failure::unreachable(format_args!(
            "--dir {}: no `statestore dev` runs there; start one, or name its directory",
            path_on_one_line(path)
        ))
    };
    if !path.is_dir() {
        return Err(absent());
    }
    let path = own_directory(path)?;
    let marker = open_made_marker(&path, OpenOptions::new().read(true))?.ok_or_else(absent)?;
    let text = read_made(&path)?.read(&path.join(name), name)?;
    text.filter(|_| is_locked(&marker)).ok_or_else(absent)
}

/// Returns whether a `dev` that runs has locked its marker.
fn is_locked(marker: &File) -> bool {
    let result = flock(marker, FlockOperation::NonBlockingLockShared);
    if result.is_ok() {
        let _ = flock(marker, FlockOperation::Unlock);
    }
    result == Err(Errno::WOULDBLOCK)
}

/// What distinguishes a directory from its copies, also from those that another user prepared: its
/// inode, and the time of its creation if the file system has one. The device may have another
/// number after the next mount.
fn identity(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    let created = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let created = created.map_or(0, |created| created.as_nanos());
    Ok(format!("{}:{created}", metadata.ino()))
}

/// Returns the absolute path of a directory of this user. Other users could replace a directory
/// behind their own link.
fn own_directory(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path_on_one_line(path);
    let failed = |error| cannot_write(&shown, &error);
    // Without a slash at the end, by which the link itself would be followed.
    let link: PathBuf = path.components().collect();
    let link = fs::symlink_metadata(link).map_err(failed)?;
    if link.is_symlink() && link.uid() != geteuid().as_raw() {
        return Err(Failure::bad_input(format_args!(
            "--dir {shown}: it is a symbolic link of another user, who could replace the directory; \
             use another directory"
        )));
    }
    let path = fs::canonicalize(path).map_err(failed)?;
    let metadata = fs::metadata(&path).map_err(failed)?;
    if !metadata.is_dir() {
        return Err(Failure::bad_input(format_args!(
            "--dir {shown}: it is a file; use another name"
        )));
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(Failure::bad_input(format_args!(
            "--dir {shown}: it belongs to another user, who could read the keys; use another \
             directory"
        )));
    }
    Ok(path)
}

/// Opens the marker. Creates it if the directory is empty.
fn open_marker(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(PRIVATE_FILE);
    if let Some(marker) = open_made_marker(path, &mut options)? {
        return Ok(marker);
    }
    let marker = path.join(MARKER);
    let shown = path_on_one_line(path);
    let mut entries = fs::read_dir(path).map_err(|error| cannot_write(&shown, &error))?;
    if let Some(entry) = entries.next() {
        let entry = entry.map_err(|error| cannot_write(&shown, &error))?;
        return Err(Failure::bad_input(format_args!(
            "--dir {shown}: it contains files that `statestore dev` did not make, for example {}; \
             use an empty or a new directory, or move these files",
            path_on_one_line(Path::new(&entry.file_name()))
        )));
    }
    options.create_new(true).open(&marker).map_err(|error| cannot_write(&shown, &error))
}

/// Opens the marker of a directory that `dev` made. `None` if it does not exist. Other users must
/// not be able to add files to the directory.
fn open_made_marker(path: &Path, options: &mut OpenOptions) -> Result<Option<File>, Failure> {
    let marker = path.join(MARKER);
    let failed = |error| cannot_write(&path_on_one_line(&marker), &error);
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let file = match options.open(&marker) {
        Ok(file) => file,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            return Err(not_made(&marker, "it is a symbolic link"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    check_marker(&marker, &file)?;
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.mode() & 0o022 != 0 {
        return Err(not_made(path, "other users can write to it"));
    }
    Ok(Some(file))
}

/// Reads the marker, and one byte more than it may have.
fn read_marker(path: &Path, marker: &File) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = marker.take(MARKER_BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| cannot_write(&path_on_one_line(path), &error))?;
    Ok(text)
}

/// Refuses a marker by which another file of this user would be overwritten.
fn check_marker(path: &Path, file: &File) -> Result<(), Failure> {
    let metadata =
        file.metadata().map_err(|error| cannot_write(&path_on_one_line(path), &error))?;
    if !metadata.is_file() {
        return Err(not_made(path, "it is not a regular file"));
    }
    if metadata.nlink() != 1 || metadata.uid() != geteuid().as_raw() {
        return Err(not_made(path, "it has another name or another owner"));
    }
    check_private(path, &metadata)
}

/// Refuses a file that other users may read. A copy, for example by Git, has such a mode.
fn check_private(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    match metadata.mode() & 0o077 {
        0 => Ok(()),
        _ => Err(not_made(path, "other users have access to it")),
    }
}

fn not_made(path: &Path, reason: &str) -> Failure {
    Failure::bad_input(format_args!(
        "{}: {reason}, so `statestore dev` did not make it like this; delete the directory, or use \
         --dir with a new directory",
        path_on_one_line(path)
    ))
}

fn read_made(directory: &Path) -> Result<Made, Failure> {
    let path = directory.join(LIST);
    let identity =
        identity(directory).map_err(|error| Failure::path(path_on_one_line(directory), &error))?;
    let Some(text) = read_private(&path)? else {
        return Ok(Made { directory: identity, ..Made::default() });
    };
    let made: Made = serde_json::from_str(&text).map_err(|error| {
        Failure::bad_input(format_args!(
            "{}: not the list that `statestore dev` wrote: error in line {}; delete the directory \
             to start again",
            path_on_one_line(&path),
            error.line()
        ))
    })?;
    match made.directory == identity {
        true => Ok(made),
        false => Err(not_made(directory, "it is a copy, whose keys others may know")),
    }
}

fn read_text(path: &Path) -> Result<Option<String>, Failure> {
    open_regular(path)?.map(|(file, _)| read_all(path, file)).transpose()
}

/// Reads a file that only its owner can read.
fn read_private(path: &Path) -> Result<Option<String>, Failure> {
    let Some((file, metadata)) = open_regular(path)? else { return Ok(None) };
    check_private(path, &metadata)?;
    read_all(path, file).map(Some)
}

/// Opens a regular file of this user. A named pipe must not block.
fn open_regular(path: &Path) -> Result<Option<(File, Metadata)>, Failure> {
    let failed = |error| Failure::path(path_on_one_line(path), &error);
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(not_made(path, "it is not a regular file"));
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(not_made(path, "it belongs to another user"));
    }
    Ok(Some((file, metadata)))
}

fn read_all(path: &Path, file: File) -> Result<String, Failure> {
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Failure::path(path_on_one_line(path), &error))?;
    Ok(text)
}

/// Writes a private file with a new name next to `path`, and renames it.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.new", fastrand::u64(..)));
    let new = path.with_file_name(name);
    let failed = |error| cannot_write(&path_on_one_line(path), &error);
    let options = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&new);
    let mut file = options.map_err(failed)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&new, path)).map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}

fn cannot_write(shown: &str, error: &io::Error) -> Failure {
    Failure::path(format_args!("--dir: {shown}"), error)
}
