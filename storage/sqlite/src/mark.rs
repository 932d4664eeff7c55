//! Up to which commit was acknowledged, beside the log: a log that has lost its end does not show it.
//!
//! SQLite takes the first frame of its log that is not right for the end of the log. So a changed bit there, or a log that was
//! deleted or left behind, would take acknowledged commits away without a word. The mark is written after a commit is
//! safe, and never synced: a power cut may set it back, and no crash sets it ahead.

use std::fs::{File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use crate::error::OpenError;

/// Two of them take turns, so that a write that was torn leaves the one before.
const SLOTS: usize = 2;
/// Each in a sector of its own.
const SLOT_LEN: usize = 512;
/// The number, and its checksum.
const MARK_LEN: usize = 16;

pub(crate) struct Mark {
    path: PathBuf,
    file: File,
}

impl Mark {
    /// Opens or makes it. There is room for it from now on, however full the disk gets.
    pub(crate) fn open(path: &Path, seq: u64) -> Result<Self, OpenError> {
        let open = || {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            let mut slots = [0; SLOTS * SLOT_LEN];
            slots
                .chunks_mut(SLOT_LEN)
                .filter_map(|slot| slot.first_chunk_mut())
                .for_each(|mark| *mark = bytes(seq));
            file.write_all(&slots)?;
            Ok(file)
        };
        let file = open().map_err(|error| OpenError::of_io(path, error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn set(&mut self, seq: u64) -> Result<(), OpenError> {
        let mut write = || {
            let slot = if seq.is_multiple_of(2) { 0 } else { SLOT_LEN as u64 };
            self.file.seek(SeekFrom::Start(slot))?;
            self.file.write_all(&bytes(seq))
        };
        write().map_err(|error| OpenError::of_io(&self.path, error))
    }
}

/// The last commit that is known to have been acknowledged; `None` where there is no mark.
pub(crate) fn read(path: &Path) -> Result<Option<u64>, OpenError> {
    let mut text = Vec::new();
    match File::open(path)
        .and_then(|file| file.take((SLOTS * SLOT_LEN) as u64).read_to_end(&mut text))
    {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::of_io(path, error)),
    }
    // Made, and not yet written, when the machine stopped.
    if text.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let slots = text.chunks(SLOT_LEN);
    let newest = slots.filter_map(|slot| value(slot.first_chunk()?)).max();
    newest.map(Some).ok_or_else(|| OpenError::damaged(path, "neither of its marks is whole"))
}

fn bytes(seq: u64) -> [u8; MARK_LEN] {
    let mut hasher = SipHasher13::new();
    hasher.write(&seq.to_le_bytes());
    let mut bytes = [0; MARK_LEN];
    let (number, checksum) = bytes.split_at_mut(MARK_LEN / 2);
    number.copy_from_slice(&seq.to_le_bytes());
    checksum.copy_from_slice(&hasher.finish().to_le_bytes());
    bytes
}

fn value(mark: &[u8; MARK_LEN]) -> Option<u64> {
    let (number, _) = mark.split_first_chunk()?;
    let seq = u64::from_le_bytes(*number);
    (bytes(seq) == *mark).then_some(seq)
}
