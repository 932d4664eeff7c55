//! Up to which commit was acknowledged, beside the log: a log that has lost its end does not show it.
//!
//! SQLite takes the first frame of its log that is not right for the end of the log. So a changed bit there, or a log that was
//! deleted or left behind, would take acknowledged commits away without a word. The mark is written after a commit is
//! safe, and never synced: a power cut may set it back, and no crash sets it ahead.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::guard;
use crate::seal::{Id, Kind};

/// Two of them take turns, so that a write that was torn leaves the one before.
const SLOTS: usize = 2;
/// Each in a sector of its own.
const SLOT_LEN: usize = 512;
/// The number, and its checksum.
const MARK_LEN: usize = 16;

pub(crate) struct Mark {
    id: Id,
    path: PathBuf,
    file: File,
}

impl Mark {
    /// Opens or makes it. There is room for it from now on, however full the disk gets.
    pub(crate) fn open(path: &Path, id: Id, seq: i64) -> Result<Self, OpenError> {
        let open = || {
            let mut file =
                guard::private().read(true).write(true).create(true).truncate(false).open(path)?;
            let mut slots = [0; SLOTS * SLOT_LEN];
            slots
                .chunks_mut(SLOT_LEN)
                .filter_map(|slot| slot.first_chunk_mut())
                .for_each(|mark| *mark = bytes(id, seq));
            file.write_all(&slots)?;
            Ok(file)
        };
        let file = open().map_err(|error| OpenError::of_io(path, error))?;
        Ok(Self { id, path: path.to_owned(), file })
    }

    pub(crate) fn set(&mut self, seq: i64) -> Result<(), OpenError> {
        let mut write = || {
            let slot = if seq % 2 == 0 { 0 } else { SLOT_LEN as u64 };
            self.file.seek(SeekFrom::Start(slot))?;
            self.file.write_all(&bytes(self.id, seq))
        };
        write().map_err(|error| OpenError::of_io(&self.path, error))
    }
}

/// What the marks of a directory say.
pub(crate) struct Marks {
    path: PathBuf,
    slots: Option<Vec<u8>>,
}

impl Marks {
    /// Reads them as they are now.
    pub(crate) fn read(path: &Path) -> Result<Self, OpenError> {
        let mut text = Vec::new();
        let read = File::open(path)
            .and_then(|file| file.take((SLOTS * SLOT_LEN) as u64).read_to_end(&mut text));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(OpenError::of_io(path, error)),
        }
        // None of them: made, and not yet written, when the machine stopped.
        let slots = text.iter().any(|byte| *byte != 0).then_some(text);
        Ok(Self { path: path.to_owned(), slots })
    }

    /// The last commit that is known to have been acknowledged; `None` where there is no mark.
    pub(crate) fn acknowledged(&self, id: Id) -> Result<Option<i64>, OpenError> {
        let Some(slots) = &self.slots else { return Ok(None) };
        let slots = slots.chunks(SLOT_LEN);
        let newest = slots.filter_map(|slot| value(id, slot.first_chunk()?)).max();
        let what = "neither of its marks is whole, or they are another journal's";
        newest.map(Some).ok_or_else(|| OpenError::damaged(&self.path, what))
    }
}

fn bytes(id: Id, seq: i64) -> [u8; MARK_LEN] {
    let mut bytes = [0; MARK_LEN];
    let (number, seal) = bytes.split_at_mut(MARK_LEN / 2);
    number.copy_from_slice(&seq.to_le_bytes());
    seal.copy_from_slice(&id.of(Kind::Mark, seq, &[]));
    bytes
}

fn value(id: Id, mark: &[u8; MARK_LEN]) -> Option<i64> {
    let (number, _) = mark.split_first_chunk()?;
    let seq = i64::from_le_bytes(*number);
    (bytes(id, seq) == *mark).then_some(seq)
}
