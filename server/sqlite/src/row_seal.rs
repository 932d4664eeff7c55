//! Seals, which bind a row to its journal and to its place there. The checksum of a row alone would
//! also be valid in another row or another journal.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

const LEN: usize = 8;

/// Random number of a journal, which is part of all its seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalId(pub(crate) i64);

/// Kind of a sealed row.
#[derive(Clone, Copy)]
pub(crate) enum RowKind {
    Log,
    Part,
    Mark,
}

impl JournalId {
    /// Appends the seal of a row to its bytes.
    pub(crate) fn seal(self, kind: RowKind, number: i64, bytes: &mut Vec<u8>) {
        let seal = self.compute_seal(kind, number, bytes);
        bytes.extend_from_slice(&seal);
    }

    /// Checks the seal of a row and returns the bytes before it; `None` if the seal is invalid.
    pub(crate) fn unseal(self, kind: RowKind, number: i64, sealed: &[u8]) -> Option<&[u8]> {
        let (bytes, seal) = sealed.split_last_chunk::<LEN>()?;
        (self.compute_seal(kind, number, bytes) == *seal).then_some(bytes)
    }

    /// Computes the seal of a row from the last 8 bytes alone. These are the checksum of the
    /// records, which covers the rest.
    pub(crate) fn compute_seal(self, kind: RowKind, number: i64, bytes: &[u8]) -> [u8; LEN] {
        let mut hasher = SipHasher13::new();
        hasher.write(&self.0.to_le_bytes());
        hasher.write(&[kind as u8]);
        hasher.write(&number.to_le_bytes());
        hasher.write(bytes.last_chunk::<LEN>().map_or(bytes, |end| end));
        hasher.finish().to_le_bytes()
    }
}
