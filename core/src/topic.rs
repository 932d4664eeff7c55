//! Topics: where requests go, where replies may go, where notifications come from.

use core::fmt;

use crate::limits::{RESPONSE_TOPIC_LEVELS_MAX, TOPIC_BYTES_MAX};

/// Where every request is published.
pub const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// Everything that starts with this belongs to the store alone; notifications are published below it.
pub const RESERVED: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";

const RESPONSE_HEAD: &str = "clients/";
const RESPONSE_TAIL: &str = "/services/statestore/_any_/command/invoke/response";
const NOTIFY: &str = "/command/notify/";

/// Why a topic cannot be built, or cannot serve as a response topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The topic, client id or key has no bytes.
    #[error("the topic, client id or key is empty")]
    Empty,
    /// Longer than the 65,535 bytes of an MQTT topic.
    #[error("the topic is longer than 65,535 bytes")]
    TooLong,
    /// Holds `+`, `#` or NUL, which no topic name may.
    #[error("the topic holds a wildcard or NUL")]
    Wildcard,
    /// A response topic of more than 200 levels, which brokers refuse.
    #[error("the response topic has more than 200 levels")]
    TooManyLevels,
    /// A response topic that begins with `$`: those are the broker's own. Mosquitto, for one, closes the connection of
    /// whoever publishes to `$SYS`.
    #[error("the response topic begins with $, as only the broker's own do")]
    BrokersOwn,
    /// The request topic itself: a reply there would be read as a request.
    #[error("the response topic is the request topic")]
    RequestTopic,
    /// Starts with [`RESERVED`]: a reply there would be read as a notification.
    #[error("the response topic is reserved for notifications")]
    Reserved,
}

/// Checks that a store may publish a reply to `topic`. A store disconnects a client that asks for any other.
///
/// Deployed clients use several forms of response topic, so no pattern is demanded.
///
/// # Errors
/// The [`TopicError`] that forbids it.
///
/// ```
/// use statestore_proto::topic::{check_response, TopicError, REQUEST};
///
/// assert!(check_response("clients/client-id1/services/statestore/_any_/command/invoke/response").is_ok());
/// assert_eq!(check_response(REQUEST), Err(TopicError::RequestTopic));
/// ```
pub fn check_response(topic: &str) -> Result<(), TopicError> {
    check_name(topic)?;
    if topic == REQUEST {
        return Err(TopicError::RequestTopic);
    }
    if topic.starts_with(RESERVED) {
        return Err(TopicError::Reserved);
    }
    if topic.starts_with('$') {
        return Err(TopicError::BrokersOwn);
    }
    check_levels(topic, RESPONSE_TOPIC_LEVELS_MAX)
}

fn check_levels(topic: &str, levels_max: usize) -> Result<(), TopicError> {
    let separators = topic.bytes().fold(0, |count, byte| count + usize::from(byte == b'/'));
    if separators < levels_max { Ok(()) } else { Err(TopicError::TooManyLevels) }
}

/// What MQTT demands of any topic name.
fn check_name(topic: &str) -> Result<(), TopicError> {
    match topic {
        "" => Err(TopicError::Empty),
        _ if topic.len() > TOPIC_BYTES_MAX => Err(TopicError::TooLong),
        // Without an early exit the compiler looks at many bytes at once, and nearly all topics are good.
        _ if topic.bytes().fold(false, |bad, byte| bad | matches!(byte, b'+' | b'#' | 0)) => {
            Err(TopicError::Wildcard)
        }
        _ => Ok(()),
    }
}

/// A response topic of the recommended form, `clients/{client id}/services/statestore/_any_/command/invoke/response`.
///
/// ```
/// use statestore_proto::topic::ResponseTopic;
///
/// let topic = ResponseTopic::new("client-id1")?.to_string();
/// assert_eq!(topic, "clients/client-id1/services/statestore/_any_/command/invoke/response");
/// assert_eq!(ResponseTopic::parse(&topic).unwrap().client_id(), "client-id1");
/// # Ok::<(), statestore_proto::topic::TopicError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTopic<'a> {
    client_id: &'a str,
}

impl<'a> ResponseTopic<'a> {
    /// The response topic of the client with this MQTT client id.
    ///
    /// # Errors
    /// [`TopicError::Empty`], [`TopicError::Wildcard`], [`TopicError::TooLong`] or [`TopicError::TooManyLevels`] when the
    /// id cannot stand in a topic.
    pub fn new(client_id: &'a str) -> Result<Self, TopicError> {
        check_name(client_id)?;
        // The other levels are `clients` and six that follow.
        check_levels(client_id, RESPONSE_TOPIC_LEVELS_MAX - 7)?;
        if (Self { client_id }).encoded_len() > TOPIC_BYTES_MAX {
            return Err(TopicError::TooLong);
        }
        // An id that begins like the reserved branch gives a topic that every store refuses.
        let reserved = RESERVED.strip_prefix(RESPONSE_HEAD).unwrap_or(RESERVED);
        if client_id.starts_with(reserved) {
            Err(TopicError::Reserved)
        } else {
            Ok(Self { client_id })
        }
    }

    /// The topic when it is of this form, `None` otherwise. The client id is a claim of whoever sent it.
    #[must_use]
    pub fn parse(topic: &'a str) -> Option<Self> {
        Self::new(topic.strip_prefix(RESPONSE_HEAD)?.strip_suffix(RESPONSE_TAIL)?).ok()
    }

    /// The client id in the topic.
    #[must_use]
    pub const fn client_id(&self) -> &'a str {
        self.client_id
    }

    /// Length of the topic in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        RESPONSE_HEAD.len() + self.client_id.len() + RESPONSE_TAIL.len()
    }
}

impl fmt::Display for ResponseTopic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        [RESPONSE_HEAD, self.client_id, RESPONSE_TAIL]
            .into_iter()
            .try_for_each(|part| f.write_str(part))
    }
}

/// The topic of the notifications about one key to one client; client id and key are written in Base16.
///
/// ```
/// use statestore_proto::topic::NotificationTopic;
///
/// let topic = NotificationTopic::new("client-id1", b"SOMEKEY")?.to_string();
/// assert!(topic.ends_with("/636C69656E742D696431/command/notify/534F4D454B4559"));
/// # Ok::<(), statestore_proto::topic::TopicError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NotificationTopic<'a> {
    client_id: &'a str,
    key: &'a [u8],
}

impl<'a> NotificationTopic<'a> {
    /// The topic of notifications about `key` to the client with this id.
    ///
    /// # Errors
    /// [`TopicError::Empty`] when either is empty, [`TopicError::TooLong`] when both together do not fit: see
    /// [`key_len_max`](Self::key_len_max).
    pub fn new(client_id: &'a str, key: &'a [u8]) -> Result<Self, TopicError> {
        if client_id.is_empty() || key.is_empty() {
            return Err(TopicError::Empty);
        }
        if key.len() > Self::key_len_max(client_id) {
            return Err(TopicError::TooLong);
        }
        Ok(Self { client_id, key })
    }

    /// Bytes of the longest key that this client can be notified of, about 32 KiB.
    #[must_use]
    pub const fn key_len_max(client_id: &str) -> usize {
        let fixed = RESERVED.len() + 1 + NOTIFY.len();
        TOPIC_BYTES_MAX.saturating_sub(fixed).saturating_sub(client_id.len().saturating_mul(2)) / 2
    }

    /// Length of the topic in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        RESERVED.len() + 1 + 2 * self.client_id.len() + NOTIFY.len() + 2 * self.key.len()
    }
}

impl fmt::Display for NotificationTopic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_notify(f, self.client_id)?;
        write_base16(f, self.key)
    }
}

impl fmt::Debug for NotificationTopic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = crate::debug::Key(self.key);
        f.debug_struct("NotificationTopic")
            .field("client_id", &self.client_id)
            .field("key", &key)
            .finish()
    }
}

/// The filter that a client subscribes to before it watches keys: every notification to it, and nothing else.
///
/// ```
/// use statestore_proto::topic::NotificationFilter;
///
/// let filter = NotificationFilter::new("client-id1")?.to_string();
/// assert!(filter.ends_with("/636C69656E742D696431/command/notify/+"));
/// # Ok::<(), statestore_proto::topic::TopicError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotificationFilter<'a> {
    client_id: &'a str,
}

impl<'a> NotificationFilter<'a> {
    /// The filter of the client with this MQTT client id.
    ///
    /// # Errors
    /// [`TopicError::Empty`], and [`TopicError::TooLong`] when no key of even one byte would fit beside it.
    pub fn new(client_id: &'a str) -> Result<Self, TopicError> {
        NotificationTopic::new(client_id, b"k").map(|_| Self { client_id })
    }

    /// Length of the filter in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        RESERVED.len() + 1 + 2 * self.client_id.len() + NOTIFY.len() + 1
    }
}

impl fmt::Display for NotificationFilter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_notify(f, self.client_id)?;
        f.write_str("+")
    }
}

/// A notification topic as received: client id and key still in Base16, checked and ready to decode.
///
/// Upper-case digits are written; either case is read.
///
/// ```
/// use statestore_proto::topic::{NotificationTopic, ReceivedTopic};
///
/// let topic = NotificationTopic::new("client-id1", b"SOMEKEY")?.to_string();
/// let received = ReceivedTopic::parse(&topic).unwrap();
/// let mut key = [0; 16];
/// assert_eq!(received.decode_key(&mut key), Some(b"SOMEKEY".as_slice()));
/// assert!(received.is_for("client-id1") && !received.is_for("client-id2"));
/// # Ok::<(), statestore_proto::topic::TopicError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReceivedTopic<'a> {
    client_id: &'a str,
    key: &'a str,
}

impl<'a> ReceivedTopic<'a> {
    /// Reads `topic`; `None` when it is no notification topic. Allocates nothing.
    #[must_use]
    pub fn parse(topic: &'a str) -> Option<Self> {
        if topic.len() > TOPIC_BYTES_MAX {
            return None;
        }
        let (client_id, key) =
            topic.strip_prefix(RESERVED)?.strip_prefix('/')?.split_once(NOTIFY)?;
        (is_base16(client_id) && is_base16(key)).then_some(Self { client_id, key })
    }

    /// Whether it was sent to the client with this id.
    #[must_use]
    pub fn is_for(&self, client_id: &str) -> bool {
        let mut digits = [0; 2];
        let same = |(pair, byte): (&[u8], u8)| {
            hex::encode_to_slice([byte], &mut digits).is_ok() && pair.eq_ignore_ascii_case(&digits)
        };
        self.client_id_len() == client_id.len()
            && self.client_id.as_bytes().chunks_exact(2).zip(client_id.bytes()).all(same)
    }

    /// Bytes of the client id.
    #[must_use]
    pub const fn client_id_len(&self) -> usize {
        self.client_id.len() / 2
    }

    /// Bytes of the key.
    #[must_use]
    pub const fn key_len(&self) -> usize {
        self.key.len() / 2
    }

    /// Decodes the client id to the start of `out`; `None` when `out` is shorter than
    /// [`client_id_len`](Self::client_id_len). The bytes are UTF-8 if a store wrote them.
    #[must_use]
    pub fn decode_client_id<'b>(&self, out: &'b mut [u8]) -> Option<&'b [u8]> {
        decode_base16(self.client_id, out)
    }

    /// Decodes the key to the start of `out`; `None` when `out` is shorter than [`key_len`](Self::key_len).
    #[must_use]
    pub fn decode_key<'b>(&self, out: &'b mut [u8]) -> Option<&'b [u8]> {
        decode_base16(self.key, out)
    }

    /// The key in an allocation of its own.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn key(&self) -> alloc::vec::Vec<u8> {
        let mut out = alloc::vec![0; self.key_len()];
        // The digits were checked by `parse`, and the length is exact.
        let decoded = decode_base16(self.key, &mut out).is_some();
        debug_assert!(decoded, "checked by parse");
        out
    }
}

impl fmt::Debug for ReceivedTopic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client_id, key) =
            (crate::debug::Key(self.client_id.as_bytes()), crate::debug::Key(self.key.as_bytes()));
        f.debug_struct("ReceivedTopic").field("client_id", &client_id).field("key", &key).finish()
    }
}

/// Everything of a notification topic but the key.
fn write_notify(f: &mut fmt::Formatter<'_>, client_id: &str) -> fmt::Result {
    f.write_str(RESERVED)?;
    f.write_str("/")?;
    write_base16(f, client_id.as_bytes())?;
    f.write_str(NOTIFY)
}

/// Upper-case Base16, through a small buffer on the stack.
fn write_base16(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let mut digits = [0; 64];
    for chunk in bytes.chunks(digits.len() / 2) {
        let Some(text) = digits.get_mut(..2 * chunk.len()) else { return Err(fmt::Error) };
        hex::encode_to_slice(chunk, text).map_err(|_| fmt::Error)?;
        text.make_ascii_uppercase();
        f.write_str(core::str::from_utf8(text).map_err(|_| fmt::Error)?)?;
    }
    Ok(())
}

/// Whole bytes in Base16, at least one.
fn is_base16(text: &str) -> bool {
    !text.is_empty() && text.len() % 2 == 0 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn decode_base16<'b>(text: &str, out: &'b mut [u8]) -> Option<&'b [u8]> {
    let out = out.get_mut(..text.len() / 2)?;
    hex::decode_to_slice(text, out).ok()?;
    Some(out)
}
