//! Responses: what a store sends back and a client receives.

use core::fmt;

use super::reply::Wire;
use super::{Dialect, Encode, Page, PeerError, Reply, RequestKind, encoders};

/// The payload of a response: the [`Reply`] to a command, or a [`Page`] of the keys that a SCAN
/// found.
///
/// An error is a [`Reply`] for every kind of request. A page is the same in both dialects. A store
/// that creates pages itself encodes them with a [`PageEncoder`](super::PageEncoder).
///
/// ```
/// use statestore_proto::message::{Reply, RequestKind, Response};
///
/// let response = Response::decode(b"$-1\r\n", RequestKind::Get)?;
/// assert_eq!(response, Response::Reply(Reply::Absent));
/// let response = Response::decode(b"*1\r\n*1\r\n$3\r\nkey\r\n", RequestKind::Scan)?;
/// assert!(matches!(response, Response::Page(page) if page.keys().eq([b"key"])));
/// # Ok::<(), statestore_proto::message::PeerError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response<B> {
    /// The reply to a command, or an error.
    Reply(Reply<B>),
    /// A page of keys.
    Page(Page<B>),
}

impl<'a> Response<&'a [u8]> {
    /// Decodes a whole response payload to a request of this kind, in either dialect. Borrows;
    /// allocates nothing.
    ///
    /// # Errors
    /// [`PeerError`] when the payload is malformed, or is not a response to a request of this kind.
    #[inline]
    pub fn decode(payload: &'a [u8], kind: RequestKind) -> Result<Self, PeerError> {
        if kind == RequestKind::Scan && !payload.starts_with(b"-") {
            return Page::decode(payload).map(Self::Page);
        }
        Reply::decode(payload, kind).map(Self::Reply)
    }
}

impl<B> Response<B> {
    /// The reply; `None` for a page.
    #[must_use]
    pub const fn reply(&self) -> Option<&Reply<B>> {
        match self {
            Self::Reply(reply) => Some(reply),
            Self::Page(_) => None,
        }
    }

    /// Converts the container of the payload; `f` must preserve the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Response<C> {
        match self {
            Self::Reply(reply) => Response::Reply(reply.map(f)),
            Self::Page(page) => Response::Page(page.map(f)),
        }
    }
}

encoders!([B: AsRef<[u8]>] Response<B>, dialect);

impl<B: AsRef<[u8]>> Response<B> {
    #[inline]
    fn wire(&self, dialect: Dialect) -> Wire<'_> {
        match self {
            Self::Reply(reply) => reply.wire(dialect),
            Self::Page(page) => Wire::Bytes(page.as_bytes()),
        }
    }
}

impl<B> From<Reply<B>> for Response<B> {
    fn from(reply: Reply<B>) -> Self {
        Self::Reply(reply)
    }
}

impl<B> From<Page<B>> for Response<B> {
    fn from(page: Page<B>) -> Self {
        Self::Page(page)
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Response<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => fmt::Debug::fmt(reply, f),
            Self::Page(page) => fmt::Debug::fmt(page, f),
        }
    }
}
