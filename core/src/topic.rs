//! Topics of requests, responses and notifications.

use core::fmt;

use crate::debug::{Key, show};
use crate::limits::{RESPONSE_TOPIC_LEVELS_MAX, TOPIC_BYTES_MAX};

/// The topic of all requests.
pub const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// The prefix of topics that only the store publishes to: its notifications.
pub const RESERVED: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";

const RESPONSE_HEAD: &str = "clients/";
const RESPONSE_TAIL: &str = "/services/statestore/_any_/command/invoke/response";
const NOTIFY: &str = "/command/notify/";

/// The topic cannot be built, or is not valid as a response topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The topic, client id or key is empty.
    #[error("the topic, client id or key is empty")]
    Empty,
    /// The topic exceeds the 65,535 bytes that MQTT allows.
    #[error("the topic is longer than 65,535 bytes")]
    TooLong,
    /// The topic name contains `+`, `#` or NUL, which MQTT forbids.
    #[error("the topic contains a wildcard or NUL")]
    Wildcard,
    /// The response topic has more than 200 levels, which brokers reject.
    #[error("the response topic has more than 200 levels")]
    TooManyLevels,
    /// The response topic begins with `$`, which is reserved for the broker. Mosquitto, for
    /// example, closes the connection of a client that publishes to `$SYS`.
    #[error("the response topic begins with $, which is reserved for the broker")]
    BrokersOwn,
    /// The response topic is the request topic: a reply would be received as a request.
    #[error("the response topic is the request topic")]
    RequestTopic,
    /// The response topic begins with [`RESERVED`]: a reply would be received as a notification.
    #[error("the response topic is reserved for notifications")]
    Reserved,
}

/// Checks that a store may publish a reply to `topic`. A store disconnects a client whose response
/// topic is not allowed.
///
/// Deployed clients use several forms of response topics, so no particular form is required.
///
/// # Errors
/// [`TopicError`] if the topic is not allowed.
///
/// ```
/// use statestore_proto::topic::{check_response, TopicError, REQUEST};
///
/// let topic = "clients/client-id1/services/statestore/_any_/command/invoke/response";
/// assert!(check_response(topic).is_ok());
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
    // Nearly all topics are too short for that many levels.
    if topic.len() < levels_max {
        return Ok(());
    }
    let separators = topic.bytes().fold(0, |count, byte| count + usize::from(byte == b'/'));
    if separators < levels_max { Ok(()) } else { Err(TopicError::TooManyLevels) }
}

/// Checks the rules of MQTT for topic names.
fn check_name(topic: &str) -> Result<(), TopicError> {
    match topic {
        "" => Err(TopicError::Empty),
        _ if topic.len() > TOPIC_BYTES_MAX => Err(TopicError::TooLong),
        // Without an early exit the compiler vectorizes the loop, and nearly all topics are valid.
        _ if topic.bytes().fold(false, |bad, byte| bad | matches!(byte, b'+' | b'#' | 0)) => {
            Err(TopicError::Wildcard)
        }
        _ => Ok(()),
    }
}

/// A response topic of the recommended form,
/// `clients/{client id}/services/statestore/_any_/command/invoke/response`.
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
    /// [`TopicError`] if the topic would be invalid: the client id is empty, contains a wildcard or
    /// has too many bytes or levels, or the topic would begin with [`RESERVED`].
    pub fn new(client_id: &'a str) -> Result<Self, TopicError> {
        check_name(client_id)?;
        // The other seven levels are `clients` and six after the client id.
        check_levels(client_id, RESPONSE_TOPIC_LEVELS_MAX - 7)?;
        if (Self { client_id }).encoded_len() > TOPIC_BYTES_MAX {
            return Err(TopicError::TooLong);
        }
        // With such a client id, the topic would begin with `RESERVED`, and stores reject it.
        let reserved = RESERVED.strip_prefix(RESPONSE_HEAD).unwrap_or(RESERVED);
        if client_id.starts_with(reserved) {
            Err(TopicError::Reserved)
        } else {
            Ok(Self { client_id })
        }
    }

    /// Parses a topic; `None` if it is not of this form. The client id is not verified.
    #[must_use]
    pub fn parse(topic: &'a str) -> Option<Self> {
        Self::new(topic.strip_prefix(RESPONSE_HEAD)?.strip_suffix(RESPONSE_TAIL)?).ok()
    }

    /// Client id in the topic.
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

/// The topic of the notifications to one client about one key. It contains client id and key in
/// Base16.
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
    /// The topic of the notifications about `key` to the client with this id.
    ///
    /// # Errors
    /// [`TopicError::Empty`] if either is empty, [`TopicError::TooLong`] if the key exceeds
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

    /// Maximum length of a key that this client can watch in bytes, about 32 KiB.
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
        write_notification_head(f, self.client_id)?;
        write_notification_tail(f, self.key)
    }
}

impl fmt::Debug for NotificationTopic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client_id, key } = self;
        show!(f, NotificationTopic { client_id, key = Key(key) })
    }
}

/// The topic filter of all notifications to a client. The client subscribes to it before it watches
/// keys.
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
    /// [`TopicError::Empty`] if the client id is empty, [`TopicError::TooLong`] if it leaves no
    /// space for a key of one byte.
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
        write_notification_head(f, self.client_id)?;
        f.write_str(NOTIFY)?;
        f.write_str("+")
    }
}

/// A received notification topic, whose client id and key are valid Base16 in either case.
///
/// ```
/// use statestore_proto::topic::{NotificationTopic, ParsedNotificationTopic};
///
/// let topic = NotificationTopic::new("client-id1", b"SOMEKEY")?.to_string();
/// let received = ParsedNotificationTopic::parse(&topic).unwrap();
/// let mut key = [0; 16];
/// assert_eq!(received.decode_key(&mut key), Some(b"SOMEKEY".as_slice()));
/// assert!(received.is_for("client-id1") && !received.is_for("client-id2"));
/// # Ok::<(), statestore_proto::topic::TopicError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ParsedNotificationTopic<'a> {
    client_id: &'a str,
    key: &'a str,
}

impl<'a> ParsedNotificationTopic<'a> {
    /// Parses a topic; `None` if it is not a notification topic. Allocates nothing.
    #[must_use]
    pub fn parse(topic: &'a str) -> Option<Self> {
        if topic.len() > TOPIC_BYTES_MAX {
            return None;
        }
        let (client_id, key) =
            topic.strip_prefix(RESERVED)?.strip_prefix('/')?.split_once(NOTIFY)?;
        (is_base16(client_id) && is_base16(key)).then_some(Self { client_id, key })
    }

    /// Returns whether the recipient is the client with this id.
    #[must_use]
    pub fn is_for(&self, client_id: &str) -> bool {
        let mut digits = [0; 2];
        let mut pairs = self.client_id.as_bytes().chunks_exact(2).zip(client_id.bytes());
        self.client_id_len() == client_id.len()
            && pairs.all(|(pair, byte)| {
                hex::encode_to_slice([byte], &mut digits).is_ok()
                    && pair.eq_ignore_ascii_case(&digits)
            })
    }

    /// Length of the client id in bytes.
    #[must_use]
    pub const fn client_id_len(&self) -> usize {
        self.client_id.len() / 2
    }

    /// Length of the key in bytes.
    #[must_use]
    pub const fn key_len(&self) -> usize {
        self.key.len() / 2
    }

    /// Decodes the client id to the start of `out`; `None` if `out` is shorter than
    /// [`client_id_len`](Self::client_id_len). The bytes are UTF-8 if a store has sent the topic.
    #[must_use]
    pub fn decode_client_id<'b>(&self, out: &'b mut [u8]) -> Option<&'b [u8]> {
        decode_base16(self.client_id, out)
    }

    /// Decodes the key to the start of `out`; `None` if `out` is shorter than
    /// [`key_len`](Self::key_len).
    #[must_use]
    pub fn decode_key<'b>(&self, out: &'b mut [u8]) -> Option<&'b [u8]> {
        decode_base16(self.key, out)
    }

    /// The key, in one allocation of its exact length.
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

impl fmt::Debug for ParsedNotificationTopic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client_id, key) = (Key(self.client_id.as_bytes()), Key(self.key.as_bytes()));
        show!(f, ParsedNotificationTopic { client_id, key })
    }
}

/// Writes the first part of a notification topic, which depends on the client.
pub(crate) fn write_notification_head(to: &mut impl fmt::Write, client_id: &str) -> fmt::Result {
    to.write_str(RESERVED)?;
    to.write_str("/")?;
    write_base16(to, client_id.as_bytes())
}

/// Writes the second part of a notification topic, which depends on the key.
fn write_notification_tail(to: &mut impl fmt::Write, key: &[u8]) -> fmt::Result {
    to.write_str(NOTIFY)?;
    write_base16(to, key)
}

/// The first part of a notification topic.
#[cfg(feature = "machines")]
pub(crate) fn notification_head(client_id: &str) -> alloc::string::String {
    let len = RESERVED.len() + 1 + 2 * client_id.len();
    let mut head = alloc::string::String::with_capacity(len);
    // Writing to a string cannot fail.
    let _ = write_notification_head(&mut head, client_id);
    head
}

/// The second part of a notification topic.
#[cfg(feature = "machines")]
pub(crate) fn notification_tail(key: &[u8]) -> alloc::string::String {
    let mut tail = alloc::string::String::with_capacity(NOTIFY.len() + 2 * key.len());
    // Writing to a string cannot fail.
    let _ = write_notification_tail(&mut tail, key);
    tail
}

/// Writes upper-case Base16, in chunks that fit in a small buffer on the stack.
fn write_base16(to: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS[usize::from(value & 0xF)];
    let mut digits = [[0; 2]; 32];
    for chunk in bytes.chunks(digits.len()) {
        for (pair, byte) in digits.iter_mut().zip(chunk) {
            *pair = [digit(byte >> 4), digit(*byte)];
        }
        let text = digits.get(..chunk.len()).unwrap_or(&digits).as_flattened();
        to.write_str(core::str::from_utf8(text).map_err(|_| fmt::Error)?)?;
    }
    Ok(())
}

/// Returns whether the text is the Base16 of at least one byte.
fn is_base16(text: &str) -> bool {
    !text.is_empty() && text.len() % 2 == 0 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn decode_base16<'b>(text: &str, out: &'b mut [u8]) -> Option<&'b [u8]> {
    let out = out.get_mut(..text.len() / 2)?;
    hex::decode_to_slice(text, out).ok()?;
    Some(out)
}
