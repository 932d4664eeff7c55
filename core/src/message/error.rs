//! Errors of messages, and the table of errors that a store replies with.

use core::fmt::{self, Write as _};

use crate::debug::{self, OneLine};
use crate::resp::{RespError, RespErrorKind};

/// A message of the peer is invalid. The error affects that message only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct PeerError {
    /// The error.
    pub kind: PeerErrorKind,
    /// Offset of the invalid element in the payload.
    pub at: usize,
}

/// The kind of a [`PeerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerErrorKind {
    /// The payload is not of the RESP3 subset.
    #[error(transparent)]
    Resp(RespErrorKind),
    /// The first element is not a verb.
    #[error("unknown command")]
    UnknownCommand,
    /// Too few or too many elements for the verb.
    #[error("wrong number of arguments")]
    Arity,
    /// An option is unknown, repeated or lacks its argument, or NX is combined with NEX.
    #[error("invalid option")]
    Option,
    /// The expiry is not a whole number of milliseconds from 1 to 2^64 - 1.
    #[error("invalid expiry")]
    Expiry,
    /// The key is empty.
    #[error("empty key")]
    EmptyKey,
    /// The reply is well-formed, but does not fit its command.
    #[error("the reply does not fit the command")]
    UnexpectedReply,
    /// A page of a listing has the token of an earlier page, so that the listing would not end.
    #[error("the listing does not end: a page has the token of an earlier one")]
    RepeatedToken,
    /// The array is well-formed, but not a notification.
    #[error("not a notification")]
    UnexpectedNotification,
}

impl PeerErrorKind {
    /// The error that a store replies with to such a request.
    #[must_use]
    pub const fn refusal(self) -> Refusal {
        match self {
            Self::UnknownCommand => Refusal::UnknownCommand,
            Self::Arity => Refusal::WrongArity,
            Self::EmptyKey => Refusal::EmptyKey,
            _ => Refusal::Syntax,
        }
    }
}

impl From<RespError> for PeerError {
    fn from(error: RespError) -> Self {
        Self { kind: PeerErrorKind::Resp(error.kind), at: error.at }
    }
}

/// Declares both directions of the error table.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident($label:literal) = $text:literal $(| $misprint:literal)?,)+) => {
        /// The reason for which a store refuses a request. Each has one exact text on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Refusal { $($(#[$doc])* $name,)+ }

        impl Refusal {
            /// All refusals.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name in lower case, as a metric label.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $label,)+ }
            }

            /// The text after `-ERR `.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The refusal with this text. The misprint of the public specification is accepted
            /// too.
            #[must_use]
            pub fn from_text(text: &[u8]) -> Option<Self> {
                $(if text == $text.as_bytes() $(|| text == $misprint.as_bytes())? {
                    return Some(Self::$name);
                })+
                None
            }
        }
    };
}

refusals! {
    /// `__ts` is further ahead of the store's clock than allowed.
    TimestampSkew("timestamp_skew") = "the request timestamp is too far in the future; ensure that the client and broker system clocks are synchronized",
    /// The key is fenced and the request lacks `__ft`.
    FencingTokenRequired("fencing_token_required") = "a fencing token is required for this request",
    /// `__ft` is further ahead of the store's clock than allowed.
    FencingTokenSkew("fencing_token_skew") = "the request fencing token timestamp is too far in the future; ensure that the client and broker system clocks are synchronized",
    /// `__ft` is lower than the token of the key: a newer holder of the lock has written.
    FencingTokenLower("fencing_token_lower") = "the request fencing token is a lower version than the fencing token protecting the resource"
        | "the request fencing token is a lower version that the fencing token protecting the resource",
    /// The request would exceed a limit of the store, or its response the requester's Maximum
    /// Packet Size.
    QuotaExceeded("quota_exceeded") = "the quota has been exceeded",
    /// The payload does not conform to the protocol's grammar.
    Syntax("syntax") = "syntax error",
    /// The authorization policy forbids the request.
    NotAuthorized("not_authorized") = "not authorized",
    /// The verb is unknown.
    UnknownCommand("unknown_command") = "unknown command",
    /// Too few or too many elements for the verb.
    WrongArity("wrong_arity") = "wrong number of arguments",
    /// SET without `__ts`.
    MissingTimestamp("missing_timestamp") = "missing timestamp",
    /// `__ts` or `__ft` is not a clock value.
    MalformedTimestamp("malformed_timestamp") = "malformed timestamp",
    /// The key is empty.
    EmptyKey("empty_key") = "the key length is zero",
    /// The request has a response topic but no correlation data. The text is our choice: the
    /// protocol defines none.
    MissingCorrelationData("missing_correlation_data") = "missing correlation data",
    /// The request was not published with QoS 1. The text is our choice: the protocol defines none.
    NotQos1("not_qos_1") = "the request must be published with QoS 1",
    /// The request is a chunk of a larger message. The text is our choice: the protocol defines
    /// none.
    Chunked("chunked") = "chunked requests are not supported",
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Refusal {}

/// An error reply. The text of an error that this crate does not know, for example of a newer
/// store, is preserved.
///
/// ```
/// use statestore_proto::message::{Refusal, ServiceError};
///
/// assert_eq!(ServiceError::from_text("syntax error"), Some(ServiceError::Known(Refusal::Syntax)));
/// let newer = ServiceError::from_text("out of tea").unwrap();
/// assert_eq!(newer.to_string(), "out of tea");
/// assert!(ServiceError::from_text("two\r\nlines").is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServiceError<B> {
    /// A known error.
    Known(Refusal),
    /// Any other text.
    Unknown(UnknownText<B>),
}

/// The text of an unknown error: one line of any bytes except CR and LF.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnknownText<B>(B);

impl<B: AsRef<[u8]>> ServiceError<B> {
    /// The error with this text; `None` if the text contains CR or LF.
    #[must_use]
    pub fn from_text(text: B) -> Option<Self> {
        let one_line = !text.as_ref().iter().any(|byte| matches!(byte, b'\r' | b'\n'));
        one_line.then(|| Self::of_line(text))
    }

    /// The error with a text that contains neither CR nor LF.
    pub(super) fn of_line(text: B) -> Self {
        Refusal::from_text(text.as_ref()).map_or(Self::Unknown(UnknownText(text)), Self::Known)
    }

    /// The text after `-ERR `.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Known(refusal) => refusal.text().as_bytes(),
            Self::Unknown(text) => text.0.as_ref(),
        }
    }
}

impl<B> ServiceError<B> {
    /// Converts the container of the text; `f` must preserve the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> ServiceError<C> {
        match self {
            Self::Known(refusal) => ServiceError::Known(refusal),
            Self::Unknown(text) => ServiceError::Unknown(UnknownText(f(text.0))),
        }
    }

    /// The error if it is known.
    #[must_use]
    pub const fn known(&self) -> Option<Refusal> {
        match self {
            Self::Known(refusal) => Some(*refusal),
            Self::Unknown(_) => None,
        }
    }
}

impl<B> From<Refusal> for ServiceError<B> {
    fn from(refusal: Refusal) -> Self {
        Self::Known(refusal)
    }
}

/// Maximum number of bytes of a text that are shown.
const SHOWN_MAX: usize = 256;

/// At most 256 bytes of the text, without control characters: the text comes from a store that may
/// be hostile, and goes to logs and terminals. [`text`](Self::text) is all of it.
impl<B: AsRef<[u8]>> fmt::Display for ServiceError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let shown = text.get(..SHOWN_MAX).unwrap_or(text);
        for chunk in shown.utf8_chunks() {
            write!(OneLine(f), "{}", chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        if shown.len() < text.len() { f.write_str("...") } else { Ok(()) }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for ServiceError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(refusal) => fmt::Debug::fmt(refusal, f),
            Self::Unknown(text) => write!(f, "Unknown({:?})", debug::Key(text.0.as_ref())),
        }
    }
}

impl<B: AsRef<[u8]>> core::error::Error for ServiceError<B> {}
