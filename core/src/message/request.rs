//! Requests: what a client sends and a store receives.

use core::fmt;

use super::{Command, Encode, RequestKind, Scan, encoders};
use crate::buffer::Sink;

/// A request payload: a [`Command`] about one key, or a [`Scan`] of the keys that match a pattern.
#[cfg_attr(
    feature = "machines",
    doc = "The client machine takes a [`client::Request`](crate::client::Request), a payload with options."
)]
///
/// ```
/// use statestore_proto::message::{RequestPayload, RequestKind};
///
/// let request = RequestPayload::decode(b"*2\r\n$4\r\nSCAN\r\n$7\r\nrooms/*\r\n")?;
/// assert_eq!(request.kind(), RequestKind::Scan);
/// assert_eq!((request.key(), *request.subject()), (None, b"rooms/*".as_slice()));
/// # Ok::<(), statestore_proto::message::PeerError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestPayload<B> {
    /// GET, SET, DEL, VDEL or KEYNOTIFY.
    Command(Command<B>),
    /// SCAN.
    Scan(Scan<B>),
}

impl<B> RequestPayload<B> {
    /// The kind of this request.
    #[must_use]
    pub const fn kind(&self) -> RequestKind {
        match self {
            Self::Command(command) => command.kind(),
            Self::Scan(_) => RequestKind::Scan,
        }
    }

    /// The key of a command, or the pattern of a SCAN.
    #[must_use]
    pub const fn subject(&self) -> &B {
        match self {
            Self::Command(command) => command.key(),
            Self::Scan(scan) => &scan.pattern,
        }
    }

    /// The key of a command; `None` for a SCAN.
    #[must_use]
    pub const fn key(&self) -> Option<&B> {
        match self {
            Self::Command(command) => Some(command.key()),
            Self::Scan(_) => None,
        }
    }

    /// The command; `None` for a SCAN.
    #[must_use]
    pub const fn command(&self) -> Option<&Command<B>> {
        match self {
            Self::Command(command) => Some(command),
            Self::Scan(_) => None,
        }
    }

    /// Converts the container of each argument; `f` must preserve the bytes.
    pub fn map<C>(self, f: impl FnMut(B) -> C) -> RequestPayload<C> {
        match self {
            Self::Command(command) => RequestPayload::Command(command.map(f)),
            Self::Scan(scan) => RequestPayload::Scan(scan.map(f)),
        }
    }
}

encoders!([B: AsRef<[u8]>] RequestPayload<B>);

impl<B: AsRef<[u8]>> Encode for RequestPayload<B> {
    #[inline]
    fn put(&self, sink: &mut impl Sink) {
        match self {
            Self::Command(command) => command.put(sink),
            Self::Scan(scan) => scan.put(sink),
        }
    }
}

impl<B> From<Command<B>> for RequestPayload<B> {
    fn from(command: Command<B>) -> Self {
        Self::Command(command)
    }
}

impl<B> From<Scan<B>> for RequestPayload<B> {
    fn from(scan: Scan<B>) -> Self {
        Self::Scan(scan)
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for RequestPayload<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => fmt::Debug::fmt(command, f),
            Self::Scan(scan) => fmt::Debug::fmt(scan, f),
        }
    }
}
