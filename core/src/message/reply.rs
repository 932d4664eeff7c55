//! Replies: what a store answers, read in the light of what was asked.

use core::fmt;

use super::{CommandKind, Dialect, Encode, PeerError, PeerErrorKind, ServiceError};
use crate::debug;
use crate::resp::{BufferTooSmall, Frame, Sink, decode_frame, put_frame};

/// The answer to a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reply<B> {
    /// `+OK`: SET applied, KEYNOTIFY registered, STOP ended a registration.
    Done,
    /// `:-1` or `-1`: the condition of a SET did not hold, or the value of a VDEL was another.
    NotApplied,
    /// `$LEN`: the value that GET found, possibly empty.
    Value(B),
    /// `$-1`: GET found nothing.
    Absent,
    /// `:1`: DEL or VDEL removed the key.
    Removed,
    /// `:0`: DEL or VDEL found nothing.
    NothingRemoved,
    /// `:0`: STOP of a key that was not watched.
    NotWatched,
    /// `-ERR text`: the store refused and nothing changed.
    Error(ServiceError<B>),
}

impl<'a> Reply<&'a [u8]> {
    /// Reads a whole reply payload that answers a command of this kind. Borrows; allocates nothing.
    ///
    /// Both dialects are read.
    ///
    /// # Errors
    /// [`PeerError`] when the payload is no reply, or is one that does not answer such a command.
    ///
    /// ```
    /// use statestore_proto::message::{CommandKind, Reply};
    ///
    /// assert_eq!(Reply::decode(b":0\r\n", CommandKind::Del)?, Reply::NothingRemoved);
    /// assert_eq!(Reply::decode(b":0\r\n", CommandKind::Unwatch)?, Reply::NotWatched);
    /// assert!(Reply::decode(b":0\r\n", CommandKind::Get).is_err());
    /// # Ok::<(), statestore_proto::message::PeerError>(())
    /// ```
    #[inline]
    pub fn decode(payload: &'a [u8], kind: CommandKind) -> Result<Self, PeerError> {
        use CommandKind::{Del, Get, Set, Unwatch, VDel, Watch};
        Ok(match (kind, decode_frame(payload)?) {
            (Get, Frame::Blob(value)) => Self::Value(value),
            (Get, Frame::Null) => Self::Absent,
            (Set | Watch | Unwatch, Frame::Simple(b"OK")) => Self::Done,
            (Set | VDel, Frame::Integer(-1)) => Self::NotApplied,
            (Del | VDel, Frame::Integer(1)) => Self::Removed,
            (Del | VDel, Frame::Integer(0)) => Self::NothingRemoved,
            (Unwatch, Frame::Integer(0)) => Self::NotWatched,
            (_, Frame::Error(text)) => Self::Error(ServiceError::of_line(text)),
            _ => return Err(PeerError { kind: PeerErrorKind::UnexpectedReply, at: 0 }),
        })
    }
}

impl<B> Reply<B> {
    /// The same reply over another container; `f` must keep the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Reply<C> {
        match self {
            Self::Done => Reply::Done,
            Self::NotApplied => Reply::NotApplied,
            Self::Value(value) => Reply::Value(f(value)),
            Self::Absent => Reply::Absent,
            Self::Removed => Reply::Removed,
            Self::NothingRemoved => Reply::NothingRemoved,
            Self::NotWatched => Reply::NotWatched,
            Self::Error(error) => Reply::Error(error.map(f)),
        }
    }
}

impl<B: AsRef<[u8]>> Reply<B> {
    /// Exact length in bytes of the reply payload.
    #[must_use]
    pub fn encoded_len(&self, dialect: Dialect) -> usize {
        self.wire(dialect).len()
    }

    /// Writes the reply payload to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BufferTooSmall`] when `out` is shorter than [`encoded_len`](Self::encoded_len); `out` is untouched then.
    pub fn encode_into(&self, dialect: Dialect, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        self.wire(dialect).put_into(out)
    }

    /// The reply payload, in one allocation of exactly its length.
    #[cfg(feature = "alloc")]
    #[must_use]
    #[inline]
    pub fn encode(&self, dialect: Dialect) -> alloc::vec::Vec<u8> {
        self.wire(dialect).to_vec()
    }

    /// The reply payload. One allocation of exactly its length for a value or an error, none for the rest.
    #[cfg(feature = "alloc")]
    #[must_use]
    #[inline]
    pub fn to_bytes(&self, dialect: Dialect) -> bytes::Bytes {
        match self.constant(dialect) {
            Some(constant) => bytes::Bytes::from_static(constant),
            None => self.encode(dialect).into(),
        }
    }

    /// The payload of a reply that carries nothing.
    #[inline]
    const fn constant(&self, dialect: Dialect) -> Option<&'static [u8]> {
        Some(match (self, dialect) {
            (Self::Done, _) => b"+OK\r\n",
            (Self::NotApplied, Dialect::Deployed) => b":-1\r\n",
            (Self::NotApplied, Dialect::Page) => b"-1\r\n",
            (Self::Absent, _) => b"$-1\r\n",
            (Self::Removed, _) => b":1\r\n",
            (Self::NothingRemoved | Self::NotWatched, _) => b":0\r\n",
            (Self::Value(_) | Self::Error(_), _) => return None,
        })
    }

    #[inline]
    fn wire(&self, dialect: Dialect) -> Wire<'_> {
        match self {
            Self::Value(value) => Wire::Frame(Frame::Blob(value.as_ref())),
            Self::Error(error) => Wire::Frame(Frame::Error(error.text())),
            _ => Wire::Constant(self.constant(dialect).unwrap_or_default()),
        }
    }
}

/// A frame that carries something, or one that is always the same.
enum Wire<'a> {
    Frame(Frame<&'a [u8]>),
    Constant(&'static [u8]),
}

impl Encode for Wire<'_> {
    #[inline]
    fn put(&self, sink: &mut impl Sink) {
        match self {
            Self::Frame(frame) => put_frame(frame, sink),
            Self::Constant(bytes) => sink.put(bytes),
        }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Reply<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("Done"),
            Self::NotApplied => f.write_str("NotApplied"),
            Self::Value(value) => {
                f.debug_tuple("Value").field(&debug::Value(value.as_ref())).finish()
            }
            Self::Absent => f.write_str("Absent"),
            Self::Removed => f.write_str("Removed"),
            Self::NothingRemoved => f.write_str("NothingRemoved"),
            Self::NotWatched => f.write_str("NotWatched"),
            Self::Error(error) => f.debug_tuple("Error").field(error).finish(),
        }
    }
}
