//! Names and values of the MQTT 5 properties of requests, replies and notifications.

use core::fmt;

use super::Incarnation;
use crate::hlc::{FencingTokenRef, HlcRef, TimestampRef};

/// Request, reply, notification: a clock value. Mandatory on SET.
pub const TIMESTAMP: &str = "__ts";

/// Request (SET, DEL, VDEL): the fencing token, a clock value.
pub const FENCING_TOKEN: &str = "__ft";

/// Request (SET): with the value [`PERSIST_VALUE`], persist this key. The reply does not show
/// whether the store has done so.
pub const PERSIST: &str = "aio-persistence";

/// The value of [`PERSIST`].
pub const PERSIST_VALUE: &str = "true";

/// Request: the MQTT client id of the sender, unverified.
pub const SOURCE_ID: &str = "__srcId";

/// Request: [`PROTOCOL_VERSION_VALUE`]. Its presence selects the deployed dialect.
pub const PROTOCOL_VERSION: &str = "__protVer";

/// The value of [`PROTOCOL_VERSION`].
pub const PROTOCOL_VERSION_VALUE: &str = "1.0";

/// Reply: always [`STATUS_VALUE`], on errors too. Deployed clients reject a reply without it.
pub const STATUS: &str = "__stat";

/// The value of [`STATUS`].
pub const STATUS_VALUE: &str = "200";

/// Request: the MQTT client id again. Deployed clients send it; stores do not need it.
pub const PARTITION: &str = "$partition";

/// Request: empty. Deployed clients send it; stores do not need it.
pub const HIGH_PRIORITY: &str = "$high_priority";

/// Request: the message is a chunk of a larger one, in drafts of the Azure SDKs.
///
/// Stores do not reassemble chunks. A request with this property is refused, whatever its value.
pub const CHUNK: &str = "__chunk";

/// Request, reply, notification: the [`Incarnation`] of the store.
///
/// An extension of this project, which deployed stores and clients ignore. Its name does not begin
/// with `__`, since such names are reserved for them.
///
/// * A request with this property requests the incarnation. Clients of this crate send an empty
///   value; the store ignores the value.
/// * A store with an incarnation then adds its text, 16 lower-case hexadecimal digits, to the
///   reply, to errors and repeated replies too. After a KEYNOTIFY with this property, it adds the
///   text to each notification of that registration.
/// * A client ignores any other text.
///
/// If the incarnation changes, the client's registrations are lost, and so is all state that was
/// not durable: values, fences, locks. Without incarnations, a client cannot detect a replaced
/// store and relies on renewals.
pub const INCARNATION: &str = "statestore-incarnation";

/// Reply to a refused request: the reason, as one line of at most [`REASON_BYTES_MAX`] for people.
///
/// An extension of this project, which deployed clients ignore. A store adds it if configured so.
/// Programs must use the error in the payload, since this text may change with each release. The
/// text is from a peer, so escape it in output.
pub const REASON: &str = "statestore-reason";

/// Maximum length of a [`REASON`] in bytes; a longer text is truncated.
pub const REASON_BYTES_MAX: usize = 256;

/// Content type of requests. On replies it is absent or this value.
pub const CONTENT_TYPE: &str = "application/octet-stream";

/// The value of a user property. `Display` writes its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PropertyValue<'a> {
    /// Text.
    Text(&'a str),
    /// A clock value.
    Hlc(HlcRef<'a>),
    /// An incarnation of a store.
    Incarnation(Incarnation),
}

impl PropertyValue<'_> {
    /// Length of the text in bytes, without formatting it.
    ///
    /// ```
    /// use statestore_proto::hlc::HlcRef;
    /// use statestore_proto::message::Incarnation;
    /// use statestore_proto::message::property::PropertyValue;
    ///
    /// let timestamp = PropertyValue::Hlc(HlcRef::parse("001696374425000:00007:lamp")?);
    /// let incarnation = PropertyValue::Incarnation(Incarnation::new(7));
    /// for value in [timestamp, incarnation, PropertyValue::Text("1.0")] {
    ///     assert_eq!(value.encoded_len(), value.to_string().len());
    /// }
    /// # Ok::<(), statestore_proto::hlc::ParseHlcError>(())
    /// ```
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Hlc(hlc) => hlc.encoded_len(),
            Self::Incarnation(_) => Incarnation::DIGITS,
        }
    }
}

impl fmt::Display for PropertyValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Hlc(hlc) => fmt::Display::fmt(hlc, f),
            Self::Incarnation(incarnation) => fmt::Display::fmt(incarnation, f),
        }
    }
}

/// The user properties of a request, for a client that writes its own packets. The client machine
/// sends the same properties.
///
/// ```
/// use statestore_proto::hlc::TimestampRef;
/// use statestore_proto::message::property::RequestProperties;
///
/// let now = TimestampRef::parse("1696374425000:0:thermostat-7")?;
/// let set = RequestProperties::new("thermostat-7").timestamp(now);
/// let texts: Vec<_> = set.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
/// assert_eq!(texts[..2], ["__ts=1696374425000:0:thermostat-7", "__srcId=thermostat-7"]);
/// assert_eq!(texts[2..], ["__protVer=1.0", "statestore-incarnation="]);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestProperties<'a> {
    pub(crate) source_id: &'a str,
    pub(crate) timestamp: Option<TimestampRef<'a>>,
    pub(crate) fencing_token: Option<FencingTokenRef<'a>>,
    pub(crate) persist: bool,
}

impl<'a> RequestProperties<'a> {
    /// Properties of a request of the client with this MQTT client id.
    #[must_use]
    pub const fn new(client_id: &'a str) -> Self {
        Self { source_id: client_id, timestamp: None, fencing_token: None, persist: false }
    }

    /// Timestamp from the clock of the client; mandatory on SET.
    #[must_use]
    pub const fn timestamp(mut self, timestamp: TimestampRef<'a>) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// Fencing token of a SET, DEL or VDEL.
    #[must_use]
    pub const fn fencing_token(mut self, token: FencingTokenRef<'a>) -> Self {
        self.fencing_token = Some(token);
        self
    }

    /// Asks the store to persist the key of a SET.
    #[must_use]
    pub const fn persist(mut self, persist: bool) -> Self {
        self.persist = persist;
        self
    }

    /// The properties in order; `None` for those that are not set.
    pub(crate) fn to_array(self) -> [Option<(&'static str, PropertyValue<'a>)>; 6] {
        let text = |name, value| Some((name, PropertyValue::Text(value)));
        [
            self.timestamp.map(|timestamp| (TIMESTAMP, PropertyValue::Hlc(*timestamp.hlc()))),
            text(SOURCE_ID, self.source_id),
            text(PROTOCOL_VERSION, PROTOCOL_VERSION_VALUE),
            text(INCARNATION, ""),
            self.fencing_token.map(|token| (FENCING_TOKEN, PropertyValue::Hlc(*token.hlc()))),
            if self.persist { text(PERSIST, PERSIST_VALUE) } else { None },
        ]
    }
}

impl<'a> IntoIterator for RequestProperties<'a> {
    type Item = (&'static str, PropertyValue<'a>);
    type IntoIter = core::iter::Flatten<core::array::IntoIter<Option<Self::Item>, 6>>;

    fn into_iter(self) -> Self::IntoIter {
        self.to_array().into_iter().flatten()
    }
}
