//! The RESP3 subset of the protocol: flat arrays of blob strings one way, single frames the other.
//!
//! Requests and notifications are `*N\r\n` and N times `$LEN\r\n<LEN bytes>\r\n`. Replies are exactly one of
//! `+text\r\n`, `:N\r\n`, `$LEN\r\n<LEN bytes>\r\n`, `$-1\r\n`, `-ERR text\r\n`. A payload is a whole message, so input
//! that ends early and input that goes on are both errors. Lengths are decimal digits without sign; they are compared
//! with what remains before anything else happens. Arrays do not nest but for the one of a page of keys, so nothing here
//! recurses.
//!
//! Tolerated when reading, never written: leading zeros (`$007`, `:01`, `:-0`), a colon after `-ERR`, an error without
//! text or without its final CRLF, and `-1\r\n`, which the public protocol page uses where RESP has `:-1\r\n`.

mod parse;
mod write;

use core::fmt;

pub use parse::{decode_array, decode_frame};
pub(crate) use parse::{elements, read_array, read_page, whole_decimal};
pub use write::{BufferTooSmall, array_len, encode_array};
pub(crate) use write::{Decimal, Length, Sink, Slice, put_array, put_frame};

use crate::debug;

/// Why bytes are not a message of this subset, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct RespError {
    /// What is wrong.
    pub kind: RespErrorKind,
    /// Offset of the first byte that cannot stand, counted from the start of the payload.
    pub at: usize,
}

/// What is wrong with a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RespErrorKind {
    /// The payload ends inside of a message.
    #[error("unexpected end of the payload")]
    UnexpectedEnd,
    /// A byte that the grammar does not allow here.
    #[error("unexpected byte")]
    UnexpectedByte,
    /// A number of more than 64 bits.
    #[error("number out of range")]
    Overflow,
    /// A length or count that goes past the end of the payload.
    #[error("length exceeds the payload")]
    Overrun,
    /// Bytes after a complete message.
    #[error("trailing bytes")]
    Trailing,
}

/// The elements of a decoded array, borrowed from the payload; the first `MAX` of them are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Blobs<'a, const MAX: usize> {
    kept: [&'a [u8]; MAX],
    total: usize,
}

impl<'a, const MAX: usize> Blobs<'a, MAX> {
    /// The elements in order, at most `MAX` of them.
    #[must_use]
    pub fn as_slice(&self) -> &[&'a [u8]] {
        self.kept.get(..self.total).unwrap_or(&self.kept)
    }

    /// How many elements the array has, those past `MAX` included.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }
}

impl<const MAX: usize> fmt::Debug for Blobs<'_, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice().iter().map(|blob| debug::Value(blob))).finish()
    }
}

/// One reply frame over any container of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Frame<B> {
    /// `+text\r\n`; the text holds no CR and no LF.
    Simple(B),
    /// `-ERR text\r\n`: the text alone, without CR and LF.
    Error(B),
    /// `:N\r\n`, and `-1\r\n` when reading.
    Integer(i64),
    /// `$LEN\r\n<LEN bytes>\r\n`, any bytes.
    Blob(B),
    /// `$-1\r\n`.
    Null,
}

impl<B> Frame<B> {
    /// The same frame over another container.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Frame<C> {
        match self {
            Self::Simple(text) => Frame::Simple(f(text)),
            Self::Error(text) => Frame::Error(f(text)),
            Self::Integer(number) => Frame::Integer(number),
            Self::Blob(blob) => Frame::Blob(f(blob)),
            Self::Null => Frame::Null,
        }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Frame<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => {
                f.debug_tuple("Simple").field(&debug::Key(text.as_ref())).finish()
            }
            Self::Error(text) => f.debug_tuple("Error").field(&debug::Key(text.as_ref())).finish(),
            Self::Integer(number) => f.debug_tuple("Integer").field(number).finish(),
            Self::Blob(blob) => f.debug_tuple("Blob").field(&debug::Value(blob.as_ref())).finish(),
            Self::Null => f.write_str("Null"),
        }
    }
}
