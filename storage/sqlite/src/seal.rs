//! What binds a row to its journal and to its place in it. Each row has a checksum of its own, and so would be right in
//! any other.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

const LEN: usize = 8;

/// The number of a journal, by which it knows what is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) i64);

/// What a row is of.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Log,
    Part,
    Mark,
}

impl Id {
    /// Appends the seal of this row to its bytes.
    pub(crate) fn seal(self, kind: Kind, number: i64, bytes: &mut Vec<u8>) {
        let seal = self.of(kind, number, bytes);
        bytes.extend_from_slice(&seal);
    }

    /// The bytes of a row; `None` if it is another's.
    pub(crate) fn open(self, kind: Kind, number: i64, sealed: &[u8]) -> Option<&[u8]> {
        let (bytes, seal) = sealed.split_last_chunk::<LEN>()?;
        (self.of(kind, number, bytes) == *seal).then_some(bytes)
    }

    /// Of the end of the bytes alone: that is their checksum, which says the rest.
    pub(crate) fn of(self, kind: Kind, number: i64, bytes: &[u8]) -> [u8; LEN] {
        let mut hasher = SipHasher13::new();
        hasher.write(&self.0.to_le_bytes());
        hasher.write(&[kind as u8]);
        hasher.write(&number.to_le_bytes());
        hasher.write(bytes.last_chunk::<LEN>().map_or(bytes, |end| end));
        hasher.finish().to_le_bytes()
    }
}
