//! Why a request was refused or dropped, in the words of the rule that did it.

use alloc::sync::Arc;
use core::fmt::{self, Write as _};
use core::time::Duration;

use super::{Access, DropReason, Store};
use crate::hlc::{FencingToken, Hlc, HlcRef, ParseHlcError};
use crate::message::property::{FENCING_TOKEN, REASON_BYTES_MAX, TIMESTAMP};
use crate::message::{CommandKind, PeerError, Refusal};
use crate::mqtt::Incoming;
use crate::time::{UnixTime, whole_millis};
use crate::topic::TopicError;

/// Why a [`Store`] has refused or dropped the request before: which rule, and what it was measured by.
///
/// Its text is one line without any value or key. It says no more than its requester may know of a key that it may write:
/// the token that fences it, and whose limit was reached.
///
/// ```
/// use bytes::Bytes;
/// use statestore_proto::mqtt::Incoming;
/// use statestore_proto::store::{Principal, Store, StoreConfig};
/// use statestore_proto::time::{Instant, Now, UnixTime};
/// use statestore_proto::topic;
///
/// let mut store = Store::new(StoreConfig::new(7));
/// let payload = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
/// let mut request = Incoming::new(topic::REQUEST, &payload);
/// request.response_topic = Some("clients/c/services/statestore/_any_/command/invoke/response");
/// request.correlation_data = Some(b"0123456789abcdef");
/// request.user_property("__ts", "100000:0:c");
/// let now = Now::new(Instant::from_millis(0), UnixTime::from_millis(1_000));
/// store.handle_publish(now, Principal::of(&request), &request);
/// assert_eq!(
///     store.explanation().unwrap().to_string(),
///     "__ts is 99000 ms ahead of the clock of the store; 60000 ms are allowed",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Explanation {
    /// The payload is no request, from this byte on.
    Unreadable(PeerError),
    /// It has no correlation data.
    NoCorrelationData,
    /// It was not published with QoS 1.
    NotQos1,
    /// The [authorizer](super::StoreConfig::authorizer) says no to this.
    NotAllowed(Access),
    /// It watches, and nobody knows under which client id.
    Nameless,
    /// `__srcId` names another client than the one that the broker knows.
    OtherSource,
    /// A SET without `__ts`.
    NoTimestamp,
    /// A stamp is no clock value.
    MalformedStamp {
        /// Whether it is `__ft`, or else `__ts`.
        is_token: bool,
        /// What is wrong with it, and where.
        error: ParseHlcError,
    },
    /// A stamp is too far ahead of the store's clock.
    Skew {
        /// Whether it is `__ft`, or else `__ts`.
        is_token: bool,
        /// How far it is ahead.
        ahead: Duration,
        /// How far it may be.
        max: Duration,
    },
    /// The last version that there is was issued.
    NoVersionLeft,
    /// The key is fenced, and the request has no token.
    FenceRequired {
        /// The token that fences the key.
        fence: FencingToken,
    },
    /// The key is fenced by a greater token.
    FenceLower {
        /// The token that fences the key.
        fence: FencingToken,
        /// The one in the request.
        offered: FencingToken,
    },
    /// A limit is reached.
    Limit(Exceeded),
    /// The pattern of a listing is none.
    Pattern,
    /// A listing goes on from a token that this store has not made for that pattern.
    ScanToken,
    /// Its response topic is forbidden.
    ResponseTopic(TopicError),
    /// It was not answered, for this reason.
    Dropped(DropReason),
}

/// What a request has needed of a limit, and how much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exceeded {
    /// Which limit.
    pub limit: Limit,
    /// What it would have taken.
    pub needed: usize,
    /// How much is allowed.
    pub max: usize,
}

/// The limits that a request can reach; see [`StoreLimits`](crate::limits::StoreLimits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of one key, or of a pattern.
    KeyBytes,
    /// Bytes of one value.
    ValueBytes,
    /// Keys of all clients.
    Keys,
    /// Bytes of all keys and values.
    Bytes,
    /// Keys of one client.
    ClientKeys,
    /// Bytes of the keys and values of one client.
    ClientBytes,
    /// Bytes of the topic of a notification.
    TopicBytes,
    /// Registrations of all clients.
    Watches,
    /// Bytes of the registrations of all clients.
    WatchBytes,
    /// Registrations for one key.
    WatchesPerKey,
    /// Registrations of one client.
    ClientWatches,
    /// Bytes of the registrations of one client.
    ClientWatchBytes,
    /// Bytes of the largest packet that the requester takes.
    PacketBytes,
}

impl Limit {
    /// Its name in a sentence.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::KeyBytes => "bytes of one key",
            Self::ValueBytes => "bytes of one value",
            Self::Keys => "keys of all clients",
            Self::Bytes => "bytes of all keys and values",
            Self::ClientKeys => "keys of one client",
            Self::ClientBytes => "bytes of the keys and values of one client",
            Self::TopicBytes => "bytes of the topic of a notification",
            Self::Watches => "registrations of all clients",
            Self::WatchBytes => "bytes of the registrations of all clients",
            Self::WatchesPerKey => "registrations for one key",
            Self::ClientWatches => "registrations of one client",
            Self::ClientWatchBytes => "bytes of the registrations of one client",
            Self::PacketBytes => "bytes of an answer that the requester takes",
        }
    }
}

impl Exceeded {
    /// What is needed, if it is more than there is.
    pub(super) fn of(limit: Limit, needed: usize, max: usize) -> Option<Self> {
        (needed > max).then_some(Self { limit, needed, max })
    }
}

impl Explanation {
    /// What the requester is answered; `None` when it is not.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        Some(match self {
            Self::Unreadable(error) => error.kind.refusal(),
            Self::NoCorrelationData => Refusal::MissingCorrelationData,
            Self::NotQos1 => Refusal::NotQos1,
            Self::NotAllowed(_) | Self::Nameless | Self::OtherSource => Refusal::NotAuthorized,
            Self::NoTimestamp => Refusal::MissingTimestamp,
            Self::MalformedStamp { .. } => Refusal::MalformedTimestamp,
            Self::Skew { is_token: false, .. } | Self::NoVersionLeft => Refusal::TimestampSkew,
            Self::Skew { is_token: true, .. } => Refusal::FencingTokenSkew,
            Self::FenceRequired { .. } => Refusal::FencingTokenRequired,
            Self::FenceLower { .. } => Refusal::FencingTokenLower,
            Self::Limit(_) => Refusal::QuotaExceeded,
            Self::Pattern | Self::ScanToken => Refusal::Syntax,
            Self::ResponseTopic(_) | Self::Dropped(_) => return None,
        })
    }

    /// Why the stamps of a request were refused.
    pub(super) fn of_stamps(
        refusal: Refusal,
        kind: CommandKind,
        incoming: &Incoming<'_>,
        now: UnixTime,
        max: Duration,
    ) -> Self {
        let properties = &incoming.properties;
        let timestamp = properties.timestamp.filter(|_| kind == CommandKind::Set);
        let malformed = |text: Option<_>| text.and_then(|text| HlcRef::parse(text).err());
        let skew = |is_token, text: Option<_>| {
            let stamp = text.and_then(|text| HlcRef::parse(text).ok());
            let ahead = stamp.map_or(0, |stamp| stamp.wall().as_millis());
            let ahead = Duration::from_millis(ahead.saturating_sub(now.as_millis()));
            Self::Skew { is_token, ahead, max }
        };
        match refusal {
            Refusal::TimestampSkew => skew(false, timestamp),
            Refusal::FencingTokenSkew => skew(true, properties.fencing_token),
            Refusal::MissingTimestamp => Self::NoTimestamp,
            _ => match (malformed(timestamp), malformed(properties.fencing_token)) {
                (Some(error), _) => Self::MalformedStamp { is_token: false, error },
                (None, Some(error)) => Self::MalformedStamp { is_token: true, error },
                (None, None) => Self::NoTimestamp,
            },
        }
    }

    /// Why a fence refused a request with this token.
    pub(super) fn of_fence(fence: &FencingToken, offered: Option<HlcRef<'_>>) -> Self {
        let fence = fence.clone();
        match offered {
            None => Self::FenceRequired { fence },
            Some(offered) => {
                Self::FenceLower { fence, offered: FencingToken::new(Hlc::from(offered)) }
            }
        }
    }

    /// The text, cut where it is longer than [`REASON_BYTES_MAX`].
    pub(super) fn to_reason(&self) -> Arc<str> {
        let mut text = Bounded { bytes: [0; REASON_BYTES_MAX], len: 0 };
        // It ends where it is full.
        let _ = write!(text, "{self}");
        let bytes = text.bytes.get(..text.len).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default().into()
    }
}

/// As much of a text as there is room for.
struct Bounded {
    bytes: [u8; REASON_BYTES_MAX],
    len: usize,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            let end = self.len + char.len_utf8();
            let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
            char.encode_utf8(room);
            self.len = end;
        }
        Ok(())
    }
}

/// Keeps a text on its line, whatever a node id has in it.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut pieces = text.split(char::is_control);
        self.0.write_str(pieces.next().unwrap_or_default())?;
        pieces.try_for_each(|piece| {
            self.0.write_char(char::REPLACEMENT_CHARACTER)?;
            self.0.write_str(piece)
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut OneLine(f);
        let stamp = |is_token: &bool| if *is_token { FENCING_TOKEN } else { TIMESTAMP };
        match self {
            Self::Unreadable(error) => write!(f, "the payload is no request: {error}"),
            Self::NoCorrelationData => f.write_str("there is no correlation data"),
            Self::NotQos1 => f.write_str("it was not published with QoS 1"),
            Self::NotAllowed(access) => {
                let what = match access {
                    Access::Read => "read the key",
                    Access::Write => "write the key",
                    Access::Fence => "write the key with a fencing token",
                };
                write!(f, "the policy does not let this client {what}")
            }
            Self::Nameless => f.write_str("the client has no name that could be notified"),
            Self::OtherSource => f.write_str("__srcId names another client than the sender"),
            Self::NoTimestamp => f.write_str("there is no __ts"),
            Self::MalformedStamp { is_token, error } => {
                write!(f, "{} is no clock value: {error}", stamp(is_token))
            }
            Self::Skew { is_token, ahead, max } => write!(
                f,
                "{} is {} ms ahead of the clock of the store; {} ms are allowed",
                stamp(is_token),
                whole_millis(*ahead),
                whole_millis(*max),
            ),
            Self::NoVersionLeft => f.write_str("there is no greater version than the last one"),
            Self::FenceRequired { fence } => {
                write!(f, "the key is fenced by {fence}, and the request has no __ft")
            }
            Self::FenceLower { fence, offered } => {
                write!(f, "the key is fenced by {fence}, and __ft is {offered}")
            }
            Self::Limit(Exceeded { limit, needed, max }) => {
                write!(f, "{}: {needed} needed, {max} allowed", limit.text())
            }
            Self::Pattern => f.write_str("the pattern is none"),
            Self::ScanToken => f.write_str("the token of the listing is not of this store"),
            Self::ResponseTopic(offence) => write!(f, "the response topic is forbidden: {offence}"),
            Self::Dropped(reason) => f.write_str(match reason {
                DropReason::NotARequest => "it is no request, or a retained one",
                DropReason::Unanswerable => "there is no response topic",
                DropReason::Forbidden => "the response topic is forbidden",
                DropReason::Expired => "it had waited past its message expiry interval",
                DropReason::Overloaded => "the store was not ready for it",
            }),
        }
    }
}

impl Store {
    /// Why the last message that was handed over was refused or dropped; `None` when it was neither, and for one that was
    /// answered again from the cache.
    ///
    /// With [`StoreConfig::explain`](super::StoreConfig::explain) it is also what the reply says.
    #[must_use]
    pub const fn explanation(&self) -> Option<&Explanation> {
        self.explained.as_ref()
    }
}
