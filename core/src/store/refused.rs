//! The reasons why a store refuses a request.

use alloc::sync::Arc;
use core::fmt::{self, Write as _};

use super::Access;
use crate::debug::Printable;
use crate::message::property::REASON_BYTES_MAX;
use crate::message::{PeerError, Refusal};
use crate::rules::{Exceeded, FenceError, Rejected, TimestampError};

/// The reason why a store refused a request: the rule, and the values that it compared.
///
/// Its text is one line and contains no key and no value. It has no source, since its text contains
/// that of the inner error. It reveals no more than the requester may
/// learn about a key that it may write: the fence of the key, and which limit was exceeded.
///
/// ```
/// use bytes::Bytes;
/// use statestore_proto::store::{RequestOutcome, Store, StoreConfig};
/// use statestore_proto::time::{Instant, Now, UnixTime};
/// use statestore_proto::topic;
/// use statestore_proto::transport::Incoming;
///
/// let mut store = Store::new(StoreConfig::new(7));
/// let payload = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
/// let mut request = Incoming::new(topic::REQUEST, &payload);
/// request.response_topic = Some("clients/c/services/statestore/_any_/command/invoke/response");
/// request.correlation_data = Some(b"0123456789abcdef");
/// request.user_property("__ts", "100000:0:c");
/// let now = Now::new(Instant::from_millis(0), UnixTime::from_millis(1_000));
/// let RequestOutcome::Refused(refused) = store.handle_publish(now, &request).outcome else {
///     panic!("the timestamp is 99 s ahead")
/// };
/// assert_eq!(
///     refused.to_string(),
///     "__ts is 99000 ms ahead of the store's clock (limit 60000 ms)",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The request lacks correlation data.
    #[error("the request has no correlation data")]
    NoCorrelationData,
    /// The request was not published with QoS 1.
    #[error("the request was not published with QoS 1")]
    NotQos1,
    /// The request is a [chunk](crate::message::property::CHUNK) of a larger message.
    #[error(
        "the request has __chunk, and this store does not reassemble chunks: send a value that \
         fits into one packet"
    )]
    Chunked,
    /// The payload is not a request.
    #[error("the payload is malformed: {0}")]
    Malformed(PeerError),
    /// The [authorizer](super::StoreConfig::authorizer) denies this access.
    #[error("the policy does not allow this client to {}", .0.text())]
    AccessDenied(Access),
    /// A KEYNOTIFY whose client id is unknown, so that notifications cannot be addressed.
    #[error("the client id is unknown, so notifications cannot be delivered")]
    UnknownClientId,
    /// `__srcId` differs from the verified client id.
    #[error("__srcId differs from the client id of the sender")]
    SourceMismatch,
    /// A timestamp is missing, malformed, or too far ahead.
    #[error("{0}")]
    Timestamp(TimestampError),
    /// The fence of the key rejects the write.
    #[error("{}", Printable(.0))]
    Fence(FenceError),
    /// A limit would be exceeded.
    #[error("{0}")]
    LimitExceeded(Exceeded),
    /// The greatest possible version was issued already.
    #[error("the greatest possible version was issued")]
    VersionsExhausted,
    /// The pattern of a SCAN is invalid.
    #[error("invalid key pattern")]
    InvalidPattern,
    /// The token of a SCAN was not issued by this store for this pattern.
    #[error("the SCAN token was not issued by this store for this pattern")]
    ForeignScanToken,
}

impl Refused {
    /// The error that the requester gets.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::NoCorrelationData => Refusal::MissingCorrelationData,
            Self::NotQos1 => Refusal::NotQos1,
            Self::Chunked => Refusal::Chunked,
            Self::Malformed(error) => error.kind.refusal(),
            Self::AccessDenied(_) | Self::UnknownClientId | Self::SourceMismatch => {
                Refusal::NotAuthorized
            }
            Self::Timestamp(error) => error.refusal(),
            Self::Fence(error) => error.refusal(),
            Self::LimitExceeded(_) => Refusal::QuotaExceeded,
            Self::VersionsExhausted => Refusal::TimestampSkew,
            Self::InvalidPattern | Self::ForeignScanToken => Refusal::Syntax,
        }
    }

    /// The text, cut to [`REASON_BYTES_MAX`].
    pub(super) fn to_reason(&self) -> Arc<str> {
        let mut text = BoundedText { bytes: [0; REASON_BYTES_MAX], len: 0 };
        // A write fails where the text is cut.
        let _ = write!(text, "{self}");
        let bytes = text.bytes.get(..text.len).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default().into()
    }
}

impl From<PeerError> for Refused {
    fn from(error: PeerError) -> Self {
        Self::Malformed(error)
    }
}

impl From<TimestampError> for Refused {
    fn from(error: TimestampError) -> Self {
        Self::Timestamp(error)
    }
}

impl From<Exceeded> for Refused {
    fn from(exceeded: Exceeded) -> Self {
        Self::LimitExceeded(exceeded)
    }
}

impl From<Rejected<'_>> for Refused {
    fn from(rejected: Rejected<'_>) -> Self {
        match rejected {
            Rejected::Quota(exceeded) => Self::LimitExceeded(exceeded),
            Rejected::Fence(error) => Self::Fence(error.into()),
        }
    }
}

/// The part of a text that fits.
struct BoundedText {
    bytes: [u8; REASON_BYTES_MAX],
    len: usize,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            let end = self.len + char.len_utf8();
            let free = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
            char.encode_utf8(free);
            self.len = end;
        }
        Ok(())
    }
}
