//! The RESP3 subset of the protocol.
//!
//! * Requests and notifications are flat arrays of blob strings: `*N\r\n`, then N times
//!   `$LEN\r\n<LEN bytes>\r\n`.
//! * Replies are exactly one frame: `+text\r\n`, `:N\r\n`, `$LEN\r\n<LEN bytes>\r\n`, `$-1\r\n` or
//!   `-ERR text\r\n`.
//! * A page of keys is the only nested array, so the parser does not recurse.
//!
//! A payload is a whole message, so input that ends early and trailing input are both errors.
//! Lengths are decimal digits without a sign; each is first compared with the remaining input.
//!
//! The decoders accept these forms, which the encoders never write: leading zeros (`$007`, `:01`,
//! `:-0`), a colon after `-ERR`, an error without text or without its final CRLF, and `-1\r\n`,
//! which the public specification uses instead of `:-1\r\n`.

mod parse;
mod write;

use core::fmt;

pub(crate) use parse::{Elements, PageLayout, read_array, read_page, whole_decimal};
pub use parse::{decode_array, decode_frame};
pub(crate) use write::{put_array, put_frame};

use crate::debug;

/// The payload is not a message of this subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct RespError {
    /// The error.
    pub kind: RespErrorKind,
    /// Offset of the first invalid byte in the payload.
    pub at: usize,
}

/// The kind of a [`RespError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RespErrorKind {
    /// The payload ends within a message.
    #[error("unexpected end of the payload")]
    UnexpectedEnd,
    /// A byte that the grammar does not allow here.
    #[error("unexpected byte")]
    UnexpectedByte,
    /// A number exceeds 64 bits.
    #[error("number out of range")]
    Overflow,
    /// A length or count exceeds the rest of the payload.
    #[error("length exceeds the payload")]
    Overrun,
    /// Bytes follow a complete message.
    #[error("trailing bytes")]
    Trailing,
}

/// The first `MAX` elements of a decoded array, borrowed from the payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Blobs<'a, const MAX: usize> {
    kept: [&'a [u8]; MAX],
    total: usize,
}

impl<'a, const MAX: usize> Blobs<'a, MAX> {
    /// The first `MAX` elements, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[&'a [u8]] {
        self.kept.get(..self.total).unwrap_or(&self.kept)
    }

    /// Number of elements of the array, which may exceed `MAX`.
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

/// One reply frame, over any container `B` of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Frame<B> {
    /// `+text\r\n`: the text, which contains neither CR nor LF.
    Simple(B),
    /// `-ERR text\r\n`: the text after `-ERR `, which contains neither CR nor LF.
    Error(B),
    /// `:N\r\n`; decoders accept `-1\r\n` too.
    Integer(i64),
    /// `$LEN\r\n<LEN bytes>\r\n`, any bytes.
    Blob(B),
    /// `$-1\r\n`.
    Null,
}

impl<B> Frame<B> {
    /// Converts the container of the content.
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
            Self::Simple(text) => write!(f, "Simple({:?})", debug::Key(text.as_ref())),
            Self::Error(text) => write!(f, "Error({:?})", debug::Key(text.as_ref())),
            Self::Integer(number) => write!(f, "Integer({number})"),
            Self::Blob(blob) => write!(f, "Blob({:?})", debug::Value(blob.as_ref())),
            Self::Null => f.write_str("Null"),
        }
    }
}
