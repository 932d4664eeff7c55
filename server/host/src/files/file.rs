//! A file that is read again, and the version that was read last.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// A file with a size limit, and the version of it that was read last.
#[derive(Debug)]
pub struct ReloadFile {
    path: PathBuf,
    limit: u64,
    /// `None` before the first read.
    version: Mutex<Option<FileVersion>>,
}

/// Identifies one version of a file without reading it. A file that cannot be inspected, for
/// example because it does not exist, has the version [`FileVersion::MISSING`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion(Option<Attributes>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Attributes {
    len: u64,
    modified: Option<SystemTime>,
    /// Device, inode and time of the last status change. A file that replaces another one, or a
    /// symbolic link that is changed to point to another file, changes them even if size and
    /// modification time are equal.
    #[cfg(unix)]
    identity: (u64, u64, i64, i64),
}

/// The contents of a file.
pub struct FileContents {
    /// All bytes of the file.
    pub bytes: Vec<u8>,
    /// Set if every user of this machine can read the file. Always false without Unix permissions.
    pub is_readable_by_all: bool,
}

/// Omits the bytes, which may be a private key.
impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, is_readable_by_all } = self;
        f.debug_struct("FileContents")
            .field("bytes", &format_args!("<{} bytes>", bytes.len()))
            .field("is_readable_by_all", is_readable_by_all)
            .finish()
    }
}

/// Reason why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The path is a directory, a pipe or a device. Reading a pipe could block forever.
    #[error("this is not a regular file")]
    NotAFile,
    /// The file exceeds the limit for its kind.
    #[error("the file has more than {0} bytes")]
    TooLarge(u64),
    /// The file is not UTF-8 text.
    #[error("the file is not UTF-8 text")]
    NotText,
}

/// The byte order mark of UTF-8. Some editors write it, and it is not part of the contents.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl FileVersion {
    /// Version of a file that does not exist or cannot be inspected.
    pub const MISSING: Self = Self(None);

    /// Returns the current version of a file. Follows symbolic links.
    #[must_use]
    pub fn current(path: &Path) -> Self {
        Self(fs::metadata(path).ok().as_ref().map(Attributes::new))
    }
}

impl Attributes {
    fn new(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt as _;
        Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            identity: (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl ReloadFile {
    /// Describes a file of at most `limit` bytes. Does not read it.
    pub fn new(path: impl Into<PathBuf>, limit: u64) -> Self {
        Self { path: path.into(), limit, version: Mutex::default() }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version that was read last, successfully or not; `None` before the first read.
    #[must_use]
    pub fn version(&self) -> Option<FileVersion> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file and records its version. Blocks.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(&self) -> Result<FileContents, ReadError> {
        // The version is that of the open file, so a file that replaces it later is another one.
        let opened =
            open(&self.path).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        let version = opened.as_ref().ok().map(|(_, metadata)| Attributes::new(metadata));
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(FileVersion(version));
        let (file, metadata) = opened?;
        if !metadata.is_file() {
            return Err(ReadError::NotAFile);
        }
        let mut bytes = Vec::new();
        file.take(self.limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > self.limit {
            return Err(ReadError::TooLarge(self.limit));
        }
        if bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(FileContents { bytes, is_readable_by_all: is_readable_by_all(&metadata) })
    }

    /// Like [`read`](Self::read), for a text file.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read_text(&self) -> Result<String, ReadError> {
        String::from_utf8(self.read()?.bytes).map_err(|_| ReadError::NotText)
    }
}

/// Opens a file for reading. Neither this nor a read blocks if the file is a pipe without a writer,
/// or a device without data.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.open(path)
}

#[cfg(unix)]
fn is_readable_by_all(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o004 != 0
}

#[cfg(not(unix))]
const fn is_readable_by_all(_: &Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_mark_is_not_part_of_the_contents() {
        let path = std::env::temp_dir().join(format!("statestore-mark-{}", std::process::id()));
        fs::write(&path, "\u{feff}{}").unwrap();
        let text = ReloadFile::new(&path, 10).read_text();
        fs::remove_file(&path).unwrap();
        assert_eq!(text.unwrap(), "{}");
    }

    #[test]
    fn only_regular_files_are_read() {
        let directory = ReloadFile::new(std::env::temp_dir(), 10);
        assert!(matches!(directory.read(), Err(ReadError::NotAFile)));
        #[cfg(unix)]
        assert!(matches!(ReloadFile::new("/dev/zero", 10).read(), Err(ReadError::NotAFile)));
        #[cfg(unix)]
        {
            let pipe = std::env::temp_dir().join(format!("statestore-pipe-{}", std::process::id()));
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            if made.is_ok_and(|status| status.success()) {
                let read = ReloadFile::new(&pipe, 10).read();
                fs::remove_file(&pipe).unwrap();
                assert!(matches!(read, Err(ReadError::NotAFile)), "a pipe without a writer");
            }
        }
        let missing = ReloadFile::new("/no/such/file", 10);
        assert!(matches!(missing.read(), Err(ReadError::Io(_))));
    }
}
