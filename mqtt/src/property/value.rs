//! Types of property values.

use super::id;
use crate::error::Malformed;
use crate::topic;
use crate::wire::Reader;

/// The encoding of a property value, and its limits.
#[derive(Clone, Copy)]
pub(super) enum ValueType {
    /// One byte, 0 or 1.
    Flag,
    TwoBytes,
    /// Two bytes, not 0.
    PositiveTwoBytes,
    FourBytes,
    /// Four bytes, not 0.
    PositiveFourBytes,
    /// A variable byte integer, not 0.
    PositiveVarint,
    Text,
    /// A text that is a topic name: not empty, and without wildcards.
    TopicName,
    Binary,
    TextPair,
}

impl ValueType {
    /// The type of the values with this identifier, or `None` if the identifier is unknown.
    pub(super) const fn of(id: u8) -> Option<Self> {
        Some(match id {
            id::PAYLOAD_FORMAT
            | id::REQUEST_PROBLEM_INFORMATION
            | id::REQUEST_RESPONSE_INFORMATION
            | id::MAXIMUM_QOS
            | id::RETAIN_AVAILABLE
            | id::WILDCARD_AVAILABLE
            | id::SUBSCRIPTION_IDS_AVAILABLE
            | id::SHARED_AVAILABLE => Self::Flag,
            id::SERVER_KEEP_ALIVE | id::TOPIC_ALIAS_MAXIMUM => Self::TwoBytes,
            id::RECEIVE_MAXIMUM | id::TOPIC_ALIAS => Self::PositiveTwoBytes,
            id::MESSAGE_EXPIRY | id::SESSION_EXPIRY | id::WILL_DELAY => Self::FourBytes,
            id::MAXIMUM_PACKET_SIZE => Self::PositiveFourBytes,
            id::SUBSCRIPTION => Self::PositiveVarint,
            id::CONTENT_TYPE
            | id::ASSIGNED_CLIENT_ID
            | id::AUTHENTICATION_METHOD
            | id::RESPONSE_INFORMATION
            | id::SERVER_REFERENCE
            | id::REASON_STRING => Self::Text,
            id::RESPONSE_TOPIC => Self::TopicName,
            id::CORRELATION_DATA | id::AUTHENTICATION_DATA => Self::Binary,
            id::USER => Self::TextPair,
            _ => return None,
        })
    }

    /// Reads the value of the property `id` and checks it, without decoding it.
    ///
    /// # Errors
    /// [`Malformed`] if the value is truncated or invalid.
    pub(super) fn check(self, reader: &mut Reader<'_>, id: u8) -> Result<(), Malformed> {
        let is_allowed = match self {
            Self::Flag => reader.byte()? <= 1,
            Self::PositiveTwoBytes => reader.two()? > 0,
            Self::PositiveFourBytes => reader.four()? > 0,
            Self::PositiveVarint => reader.varint()? > 0,
            Self::TopicName => topic::is_name_of_bytes(reader.text_bytes()?),
            Self::Text => reader.text_bytes().map(|_| true)?,
            Self::TextPair => {
                reader.text_bytes()?;
                reader.text_bytes().map(|_| true)?
            }
            Self::TwoBytes | Self::FourBytes | Self::Binary => self.skip(reader).map(|()| true)?,
        };
        if is_allowed { Ok(()) } else { Err(Malformed::Value(id)) }
    }

    /// Reads a value that was checked before. Checks only its length.
    ///
    /// # Errors
    /// [`Malformed`] if the value is truncated, so it was not checked.
    pub(super) fn skip(self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        match self {
            Self::Flag => reader.byte().map(drop),
            Self::TwoBytes | Self::PositiveTwoBytes => reader.two().map(drop),
            Self::FourBytes | Self::PositiveFourBytes => reader.four().map(drop),
            Self::PositiveVarint => reader.varint().map(drop),
            Self::Text | Self::TopicName | Self::Binary => reader.binary().map(drop),
            Self::TextPair => {
                reader.binary()?;
                reader.binary().map(drop)
            }
        }
    }
}
