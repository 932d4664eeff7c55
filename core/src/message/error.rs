//! Errors of a message, and the table of errors that a store answers with.

use core::fmt;

use crate::debug;
use crate::resp::{RespError, RespErrorKind};

/// A message of the peer that cannot be read, and where. It concerns that message only; everything else goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct PeerError {
    /// What is wrong.
    pub kind: PeerErrorKind,
    /// Offset of the element that is wrong, counted from the start of the payload.
    pub at: usize,
}

/// What is wrong with a message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerErrorKind {
    /// Not of the RESP3 subset.
    #[error(transparent)]
    Resp(RespErrorKind),
    /// The first element is no verb.
    #[error("unknown command")]
    UnknownCommand,
    /// Too few or too many elements for the verb.
    #[error("wrong number of arguments")]
    Arity,
    /// An unknown option, one given twice, NX with NEX, or one without its argument.
    #[error("invalid option")]
    Option,
    /// The expiry is no whole number of milliseconds from 1 to 2^64 - 1.
    #[error("invalid expiry")]
    Expiry,
    /// The key has no bytes.
    #[error("empty key")]
    EmptyKey,
    /// A well-formed reply that does not answer the command it belongs to.
    #[error("the reply does not answer the command")]
    UnexpectedReply,
    /// A well-formed array that is no notification.
    #[error("not a notification")]
    UnexpectedNotification,
}

impl PeerErrorKind {
    /// What a store answers to a command that it cannot read.
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

/// Both directions of the error table from one list.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $text:literal $(| $misprint:literal)?,)+) => {
        /// Why a store refuses a request. Each has one exact text on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Refusal { $($(#[$doc])* $name,)+ }

        impl Refusal {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The text after `-ERR `.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The refusal with this text; the misprint of the protocol page is read too.
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
    TimestampSkew = "the request timestamp is too far in the future; ensure that the client and broker system clocks are synchronized",
    /// The key is fenced and the request has no `__ft`.
    FencingTokenRequired = "a fencing token is required for this request",
    /// `__ft` is further ahead of the store's clock than allowed.
    FencingTokenSkew = "the request fencing token timestamp is too far in the future; ensure that the client and broker system clocks are synchronized",
    /// `__ft` is lower than the token of the key: a newer holder of the lock has written.
    FencingTokenLower = "the request fencing token is a lower version than the fencing token protecting the resource"
        | "the request fencing token is a lower version that the fencing token protecting the resource",
    /// No room for what the request would add; or for the answer, in the largest packet that its requester takes.
    QuotaExceeded = "the quota has been exceeded",
    /// The payload is not of the protocol's grammar.
    Syntax = "syntax error",
    /// Refused by policy.
    NotAuthorized = "not authorized",
    /// The verb is not known.
    UnknownCommand = "unknown command",
    /// Too few or too many elements for the verb.
    WrongArity = "wrong number of arguments",
    /// SET without `__ts`.
    MissingTimestamp = "missing timestamp",
    /// `__ts` or `__ft` is no clock value.
    MalformedTimestamp = "malformed timestamp",
    /// The key has no bytes.
    EmptyKey = "the key length is zero",
    /// The request has a response topic but no correlation data. Our choice of text: the protocol names none.
    MissingCorrelationData = "missing correlation data",
    /// The request was not published with QoS 1. Our choice of text: the protocol names none.
    NotQos1 = "the request must be published with QoS 1",
}

impl Refusal {
    /// Its name in lower case, as a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimestampSkew => "timestamp_skew",
            Self::FencingTokenRequired => "fencing_token_required",
            Self::FencingTokenSkew => "fencing_token_skew",
            Self::FencingTokenLower => "fencing_token_lower",
            Self::QuotaExceeded => "quota_exceeded",
            Self::Syntax => "syntax",
            Self::NotAuthorized => "not_authorized",
            Self::UnknownCommand => "unknown_command",
            Self::WrongArity => "wrong_arity",
            Self::MissingTimestamp => "missing_timestamp",
            Self::MalformedTimestamp => "malformed_timestamp",
            Self::EmptyKey => "empty_key",
            Self::MissingCorrelationData => "missing_correlation_data",
            Self::NotQos1 => "not_qos_1",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Refusal {}

/// An error reply. A store newer than this crate may know errors that this crate does not: their text is kept.
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
    /// An error of the table.
    Known(Refusal),
    /// Any other text.
    Unknown(UnknownText<B>),
}

/// The text of an error that is not in the table: one line, any bytes but CR and LF.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnknownText<B>(B);

impl<B: AsRef<[u8]>> ServiceError<B> {
    /// The error with this text; `None` when the text holds CR or LF and so cannot be an error line.
    #[must_use]
    pub fn from_text(text: B) -> Option<Self> {
        let one_line = !text.as_ref().iter().any(|byte| matches!(byte, b'\r' | b'\n'));
        one_line.then(|| Self::of_line(text))
    }

    /// The error with a text that is known to hold neither CR nor LF.
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
    /// The same error over another container; `f` must keep the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> ServiceError<C> {
        match self {
            Self::Known(refusal) => ServiceError::Known(refusal),
            Self::Unknown(text) => ServiceError::Unknown(UnknownText(f(text.0))),
        }
    }

    /// The error of the table, if it is one.
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

impl<B: AsRef<[u8]>> fmt::Display for ServiceError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.text().utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for ServiceError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(refusal) => fmt::Debug::fmt(refusal, f),
            Self::Unknown(text) => {
                f.debug_tuple("Unknown").field(&debug::Key(text.0.as_ref())).finish()
            }
        }
    }
}

impl<B: AsRef<[u8]>> core::error::Error for ServiceError<B> {}
