//! Replies to commands. The kind of the command decides how a reply is decoded.

use core::fmt;

use super::{Dialect, Encode, PeerError, PeerErrorKind, RequestKind, ServiceError, encoders};
use crate::buffer::Sink;
use crate::debug::Value;
use crate::resp::{Frame, decode_frame, put_frame};

/// The reply to a command.
///
/// The enum is exhaustive on purpose: every client must handle each reply of the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reply<B> {
    /// `+OK`: the store applied a SET, or added or removed a registration.
    Done,
    /// `:-1` or `-1`: the condition of a SET does not hold, or the value of a VDEL differs.
    NotApplied,
    /// `$LEN`: the value of a GET, possibly empty.
    Value(B),
    /// `$-1`: the key of a GET does not exist.
    Absent,
    /// `:1`: DEL or VDEL removed the key.
    Removed,
    /// `:0`: the key of a DEL or VDEL does not exist.
    NothingRemoved,
    /// `:0`: STOP found no registration.
    NotWatched,
    /// `-ERR text`: the store refused the request and changed nothing.
    Error(ServiceError<B>),
}

impl<'a> Reply<&'a [u8]> {
    /// Decodes a whole reply payload to a command of this kind, in either dialect. Borrows;
    /// allocates nothing.
    ///
    /// # Errors
    /// [`PeerError`] if the payload is not a reply to such a command.
    ///
    /// ```
    /// use statestore_proto::message::{RequestKind, Reply};
    ///
    /// assert_eq!(Reply::decode(b":0\r\n", RequestKind::Del)?, Reply::NothingRemoved);
    /// assert_eq!(Reply::decode(b":0\r\n", RequestKind::Unwatch)?, Reply::NotWatched);
    /// assert!(Reply::decode(b":0\r\n", RequestKind::Get).is_err());
    /// # Ok::<(), statestore_proto::message::PeerError>(())
    /// ```
    #[inline]
    pub fn decode(payload: &'a [u8], kind: RequestKind) -> Result<Self, PeerError> {
        use RequestKind::{Del, Get, Set, Unwatch, VDel, Watch};
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
    /// Converts the container of the content; `f` must preserve the bytes.
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

encoders!([B: AsRef<[u8]>] Reply<B>, dialect);

impl<B: AsRef<[u8]>> Reply<B> {
    /// The payload. A value or an error takes one allocation of its exact length, other replies
    /// none.
    #[cfg(feature = "machines")]
    #[must_use]
    #[inline]
    pub fn to_bytes(&self, dialect: Dialect) -> bytes::Bytes {
        match self.constant(dialect) {
            Some(constant) => bytes::Bytes::from_static(constant),
            None => self.encode(dialect).into(),
        }
    }

    /// The payload of a reply without content.
    #[inline]
    const fn constant(&self, dialect: Dialect) -> Option<&'static [u8]> {
        Some(match (self, dialect) {
            (Self::Done, _) => b"+OK\r\n",
            (Self::NotApplied, Dialect::Deployed) => b":-1\r\n",
            (Self::NotApplied, Dialect::Spec) => b"-1\r\n",
            (Self::Absent, _) => b"$-1\r\n",
            (Self::Removed, _) => b":1\r\n",
            (Self::NothingRemoved | Self::NotWatched, _) => b":0\r\n",
            (Self::Value(_) | Self::Error(_), _) => return None,
        })
    }

    #[inline]
    pub(super) fn wire(&self, dialect: Dialect) -> Wire<'_> {
        match self {
            Self::Value(value) => Wire::Frame(Frame::Blob(value.as_ref())),
            Self::Error(error) => Wire::Frame(Frame::Error(error.text())),
            _ => Wire::Bytes(self.constant(dialect).unwrap_or_default()),
        }
    }
}

/// The encoded form of a response: a frame with content, or bytes as they are.
pub(super) enum Wire<'a> {
    Frame(Frame<&'a [u8]>),
    Bytes(&'a [u8]),
}

impl Encode for Wire<'_> {
    #[inline]
    fn put(&self, sink: &mut impl Sink) {
        match self {
            Self::Frame(frame) => put_frame(frame, sink),
            Self::Bytes(bytes) => sink.put(bytes),
        }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Reply<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "Done",
            Self::NotApplied => "NotApplied",
            Self::Value(value) => return write!(f, "Value({:?})", Value(value.as_ref())),
            Self::Absent => "Absent",
            Self::Removed => "Removed",
            Self::NothingRemoved => "NothingRemoved",
            Self::NotWatched => "NotWatched",
            Self::Error(error) => return write!(f, "Error({error:?})"),
        })
    }
}
