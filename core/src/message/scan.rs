//! Listing keys: SCAN, and the pages that answer it.
//!
//! SCAN is newer than the public protocol page; its source is the deployed SDK 1.5.0-beta1 (`list_keys`). It is no
//! [`Command`](super::Command), since it is about no single key.

use core::fmt;

use super::{Encode, PeerError, PeerErrorKind, ServiceError, WordCase};
use crate::debug;
use crate::resp::{self, BufferTooSmall, Frame, Sink, put_array, read_array, read_page};

const VERB: &[u8] = b"SCAN";

/// `SCAN pattern [token]`: asks for the keys that match a [pattern](crate::glob::Pattern), page by page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scan<B> {
    /// The pattern. It may be none: that is for the store to judge.
    pub pattern: B,
    /// The token of the page before; `None` asks for the first page. A token may be used again.
    pub token: Option<B>,
}

impl<'a> Scan<&'a [u8]> {
    /// Reads a whole request payload. Borrows; allocates nothing.
    ///
    /// # Errors
    /// [`PeerError`]; [`PeerErrorKind::UnknownCommand`] for every other verb.
    ///
    /// ```
    /// use statestore_proto::message::{Scan, WordCase};
    ///
    /// let scan = Scan::decode(b"*2\r\n$4\r\nSCAN\r\n$4\r\nkey*\r\n", WordCase::Any)?;
    /// assert_eq!(scan, Scan { pattern: b"key*".as_slice(), token: None });
    /// # Ok::<(), statestore_proto::message::PeerError>(())
    /// ```
    pub fn decode(payload: &'a [u8], case: WordCase) -> Result<Self, PeerError> {
        let mut kept = [[].as_slice(); 3];
        let total = read_array(payload, &mut kept)?;
        let [verb, pattern, token] = kept;
        if total == 0 {
            return Err(PeerError { kind: PeerErrorKind::Arity, at: 0 });
        }
        let at = (verb.as_ptr() as usize).saturating_sub(payload.as_ptr() as usize);
        match total {
            _ if !case.matches(verb, VERB) => {
                Err(PeerError { kind: PeerErrorKind::UnknownCommand, at })
            }
            2 => Ok(Self { pattern, token: None }),
            3 => Ok(Self { pattern, token: Some(token) }),
            _ => Err(PeerError { kind: PeerErrorKind::Arity, at }),
        }
    }
}

impl<B> Scan<B> {
    /// The same over another container; `f` must keep the bytes.
    pub fn map<C>(self, mut f: impl FnMut(B) -> C) -> Scan<C> {
        Scan { pattern: f(self.pattern), token: self.token.map(f) }
    }
}

impl<B: AsRef<[u8]>> Scan<B> {
    /// Exact length in bytes of the request payload.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.len()
    }

    /// Writes the request payload to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BufferTooSmall`] when `out` is shorter than [`encoded_len`](Self::encoded_len); `out` is untouched then.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        self.put_into(out)
    }

    /// The request payload, in one allocation of exactly its length.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn encode(&self) -> alloc::vec::Vec<u8> {
        self.to_vec()
    }
}

impl<B: AsRef<[u8]>> Encode for Scan<B> {
    fn put(&self, sink: &mut impl Sink) {
        let pattern = self.pattern.as_ref();
        match &self.token {
            None => put_array(&[VERB, pattern], sink),
            Some(token) => put_array(&[VERB, pattern, token.as_ref()], sink),
        }
    }
}

/// The pattern as keys are shown; of the token only its length.
impl<B: AsRef<[u8]>> fmt::Debug for Scan<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("pattern", &debug::Key(self.pattern.as_ref()))
            .field("token", &self.token.as_ref().map(|token| debug::Value(token.as_ref())))
            .finish()
    }
}

/// The answer to a [`Scan`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ScanReply<B> {
    /// Keys that match.
    Page(Page<B>),
    /// `-ERR text`: the store refused.
    Error(ServiceError<B>),
}

impl<'a> ScanReply<&'a [u8]> {
    /// Reads a whole reply payload that answers a [`Scan`]. Borrows; allocates nothing.
    ///
    /// # Errors
    /// [`PeerError`] when the payload is neither a page nor an error.
    pub fn decode(payload: &'a [u8]) -> Result<Self, PeerError> {
        if !payload.starts_with(b"-") {
            return Page::decode(payload).map(Self::Page);
        }
        match resp::decode_frame(payload)? {
            Frame::Error(text) => Ok(Self::Error(ServiceError::of_line(text))),
            _ => Err(PeerError { kind: PeerErrorKind::UnexpectedReply, at: 0 }),
        }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for ScanReply<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(page) => fmt::Debug::fmt(page, f),
            Self::Error(error) => f.debug_tuple("Error").field(error).finish(),
        }
    }
}

/// A page of keys: its payload, which was checked.
///
/// ```
/// use statestore_proto::message::Page;
///
/// let page = Page::decode(b"*2\r\n*2\r\n$4\r\nkey1\r\n$4\r\nkey2\r\n$4\r\n1;1;\r\n")?;
/// assert!(page.keys().eq([b"key1", b"key2"]));
/// assert_eq!(page.token(), Some(b"1;1;".as_slice())); // there may be more
/// # Ok::<(), statestore_proto::message::PeerError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Page<B>(B);

impl<'a> Page<&'a [u8]> {
    /// Reads a whole payload.
    ///
    /// # Errors
    /// [`PeerError`] when it is no page.
    pub fn decode(payload: &'a [u8]) -> Result<Self, PeerError> {
        read_page(payload).map(|_| Self(payload)).map_err(PeerError::from)
    }
}

impl<B> Page<B> {
    /// The same page over another container; `f` must keep the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Page<C> {
        Page(f(self.0))
    }
}

impl<B: AsRef<[u8]>> Page<B> {
    /// The payload.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// How many keys there are. A page without keys need not be the last one.
    #[must_use]
    pub fn len(&self) -> usize {
        read_page(self.as_bytes()).map_or(0, |page| page.total)
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys, in the order of the page.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        resp::elements(read_page(self.as_bytes()).map_or(&[], |page| page.keys))
    }

    /// What to ask for the next page with; `None` on the last one.
    #[must_use]
    pub fn token(&self) -> Option<&[u8]> {
        read_page(self.as_bytes()).ok()?.token
    }
}

#[cfg(feature = "alloc")]
impl Page<bytes::Bytes> {
    /// The keys, in the order of the page. They share its memory, so each of them keeps all.
    pub fn shared_keys(&self) -> impl Iterator<Item = bytes::Bytes> {
        self.keys().map(|key| self.0.slice_ref(key))
    }

    /// What to ask for the next page with, sharing the page's memory; `None` on the last one.
    #[must_use]
    pub fn shared_token(&self) -> Option<bytes::Bytes> {
        self.token().map(|token| self.0.slice_ref(token))
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Page<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("keys", &self.len())
            .field("token", &self.token().map(debug::Value))
            .finish()
    }
}

/// A page of keys to be written.
#[derive(Clone, Copy)]
pub struct PageParts<'a> {
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// What the next page is asked for with; `None` when this is the last one.
    pub token: Option<&'a [u8]>,
}

/// What a key adds to the length of a page.
#[cfg(feature = "alloc")]
pub(crate) fn listed_len(key: &[u8]) -> usize {
    resp::Length::of(|length| length.put_blob(key))
}

impl PageParts<'_> {
    /// Exact length in bytes of the reply payload.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.len()
    }

    /// Writes the reply payload to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BufferTooSmall`] when `out` is shorter than [`encoded_len`](Self::encoded_len); `out` is untouched then.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        self.put_into(out)
    }

    /// The reply payload, in one allocation of exactly its length.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn encode(&self) -> alloc::vec::Vec<u8> {
        self.to_vec()
    }
}

impl fmt::Debug for PageParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageParts")
            .field("keys", &self.keys.len())
            .field("token", &self.token.map(debug::Value))
            .finish()
    }
}

impl Encode for PageParts<'_> {
    fn put(&self, sink: &mut impl Sink) {
        sink.put_line(b'*', if self.token.is_some() { 2 } else { 1 });
        put_array(self.keys, sink);
        if let Some(token) = self.token {
            sink.put_blob(token);
        }
    }
}
