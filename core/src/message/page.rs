//! Pages of keys: the replies to SCAN.

use core::fmt;

use super::{Encode, PeerError, encoders};
use crate::buffer::Sink;
use crate::debug::{self, show};
use crate::resp::{Elements, PageLayout, put_array, read_page};

/// A page of keys, as a payload that was checked.
///
/// ```
/// use statestore_proto::message::Page;
///
/// let page = Page::decode(b"*2\r\n*2\r\n$4\r\nkey1\r\n$4\r\nkey2\r\n$4\r\n1;1;\r\n")?;
/// assert!(page.keys().eq([b"key1", b"key2"]));
/// assert_eq!(page.token(), Some(b"1;1;".as_slice())); // there may be more keys
/// # Ok::<(), statestore_proto::message::PeerError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Page<B> {
    payload: B,
    layout: PageLayout,
}

impl<'a> Page<&'a [u8]> {
    /// Decodes a whole payload. Borrows; allocates nothing.
    ///
    /// # Errors
    /// [`PeerError`] if the payload is not a page.
    pub fn decode(payload: &'a [u8]) -> Result<Self, PeerError> {
        Ok(Self { payload, layout: read_page(payload)? })
    }
}

impl<B> Page<B> {
    /// Converts the container of the payload; `f` must preserve the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Page<C> {
        Page { payload: f(self.payload), layout: self.layout }
    }

    /// Number of keys. A page without keys is not necessarily the last one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.layout.total
    }

    /// Returns whether the page is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.layout.total == 0
    }
}

impl<B: AsRef<[u8]>> Page<B> {
    /// The payload.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.payload.as_ref()
    }

    /// The keys, in the order of the page.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        Elements(self.part(self.layout.keys))
    }

    /// Token to request the next page with; `None` on the last page.
    #[must_use]
    pub fn token(&self) -> Option<&[u8]> {
        self.layout.token.map(|token| self.part(token))
    }

    fn part(&self, (start, end): (usize, usize)) -> &[u8] {
        self.as_bytes().get(start..end).unwrap_or_default()
    }
}

#[cfg(feature = "machines")]
impl Page<bytes::Bytes> {
    /// The keys, in the order of the page. Each shares, and so retains, the memory of the page.
    pub fn shared_keys(&self) -> impl Iterator<Item = bytes::Bytes> {
        self.keys().map(|key| self.payload.slice_ref(key))
    }

    /// Token to request the next page with, sharing the memory of the page; `None` on the last
    /// page.
    #[must_use]
    pub fn shared_token(&self) -> Option<bytes::Bytes> {
        self.token().map(|token| self.payload.slice_ref(token))
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Page<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show!(f, Page { keys = self.len(), token = self.token().map(debug::Value) })
    }
}

/// Encoder of a page of keys.
#[derive(Clone, Copy)]
pub struct PageEncoder<'a> {
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// Token to request the next page with; `None` on the last page.
    pub token: Option<&'a [u8]>,
}

/// Number of bytes that a key adds to a page.
#[cfg(feature = "machines")]
pub(crate) fn listed_len(key: &[u8]) -> usize {
    crate::buffer::Length::of(|length| length.put_blob(key))
}

encoders!([] PageEncoder<'_>);

impl fmt::Debug for PageEncoder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show!(f, PageEncoder { keys = self.keys.len(), token = self.token.map(debug::Value) })
    }
}

impl Encode for PageEncoder<'_> {
    fn put(&self, sink: &mut impl Sink) {
        sink.put_line(b'*', if self.token.is_some() { 2 } else { 1 });
        put_array(self.keys, sink);
        if let Some(token) = self.token {
            sink.put_blob(token);
        }
    }
}
