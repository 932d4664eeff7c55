//! Mark: the number of the last acknowledged commit, in a file next to the log.
//!
//! SQLite treats the first invalid frame of its log as the end of the log. So a changed bit, or a
//! log that was deleted or not copied, would silently remove acknowledged commits. The mark
//! detects this. It is written after a commit is durable, and never synced: a power cut can set it
//! back, but no crash can set it ahead.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::files;
use crate::row_seal::{JournalId, RowKind};

/// Marks are written to the slots in turn, so a torn write leaves the previous mark intact.
const SLOTS: usize = 2;
/// One disk sector for each slot.
const SLOT_LEN: usize = 512;
/// Bytes of the number and its checksum.
const MARK_LEN: usize = 16;

pub(crate) struct Mark {
    id: JournalId,
    path: PathBuf,
    file: File,
}

impl Mark {
    /// Opens or creates the file and writes both slots, so that a disk that becomes full later
    /// still has space for them.
    pub(crate) fn open(path: &Path, id: JournalId, seq: i64) -> Result<Self, OpenError> {
        let open = || {
            let mut file = files::private_options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            let mut slots = [0; SLOTS * SLOT_LEN];
            slots
                .chunks_mut(SLOT_LEN)
                .filter_map(|slot| slot.first_chunk_mut())
                .for_each(|mark| *mark = encode(id, seq));
            file.write_all(&slots)?;
            Ok(file)
        };
        let file = open().map_err(|error| OpenError::from_io(path, error))?;
        Ok(Self { id, path: path.to_owned(), file })
    }

    pub(crate) fn set(&mut self, seq: i64) -> Result<(), OpenError> {
        let mut write = || {
            let slot = if seq % 2 == 0 { 0 } else { SLOT_LEN as u64 };
            self.file.seek(SeekFrom::Start(slot))?;
            self.file.write_all(&encode(self.id, seq))
        };
        write().map_err(|error| OpenError::from_io(&self.path, error))
    }
}

/// Contents of a directory's mark file.
pub(crate) struct Marks {
    path: PathBuf,
    slots: Option<Vec<u8>>,
}

impl Marks {
    pub(crate) fn read(path: &Path) -> Result<Self, OpenError> {
        let mut text = Vec::new();
        let read = File::open(path)
            .and_then(|file| file.take((SLOTS * SLOT_LEN) as u64).read_to_end(&mut text));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(OpenError::from_io(path, error)),
        }
        // The file is empty or zero if the machine stopped between its creation and first write.
        let slots = text.iter().any(|byte| *byte != 0).then_some(text);
        Ok(Self { path: path.to_owned(), slots })
    }

    /// Returns the last commit that is known to have been acknowledged; `None` without a mark.
    pub(crate) fn acknowledged(&self, id: JournalId) -> Result<Option<i64>, OpenError> {
        let Some(slots) = &self.slots else { return Ok(None) };
        let slots = slots.chunks(SLOT_LEN);
        let newest = slots.filter_map(|slot| decode(id, slot.first_chunk()?)).max();
        let what = "both marks are invalid or belong to another journal";
        newest.map(Some).ok_or_else(|| OpenError::damaged(&self.path, what))
    }
}

fn encode(id: JournalId, seq: i64) -> [u8; MARK_LEN] {
    let mut bytes = [0; MARK_LEN];
    let (number, seal) = bytes.split_at_mut(MARK_LEN / 2);
    number.copy_from_slice(&seq.to_le_bytes());
    seal.copy_from_slice(&id.compute_seal(RowKind::Mark, seq, &[]));
    bytes
}

fn decode(id: JournalId, mark: &[u8; MARK_LEN]) -> Option<i64> {
    let (number, _) = mark.split_first_chunk()?;
    let seq = i64::from_le_bytes(*number);
    (encode(id, seq) == *mark).then_some(seq)
}
