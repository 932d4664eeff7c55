//! MQTT 5 properties of requests, replies and notifications: the one place where their names stand.

use core::fmt;

use super::Incarnation;
use crate::hlc::HlcRef;

/// Request, reply, notification: a clock value. Mandatory on SET.
pub const TIMESTAMP: &str = "__ts";

/// Request (SET, DEL, VDEL): the fencing token, a clock value.
pub const FENCING_TOKEN: &str = "__ft";

/// Request (SET): with the value [`PERSIST_VALUE`], keep this key on disk. No reply tells whether that was honoured.
pub const PERSIST: &str = "aio-persistence";

/// The value of [`PERSIST`].
pub const PERSIST_VALUE: &str = "true";

/// Request: the MQTT client id of the sender, by its own claim.
pub const SOURCE_ID: &str = "__srcId";

/// Request: [`PROTOCOL_VERSION_VALUE`]. Its presence marks a requester of the deployed dialect.
pub const PROTOCOL_VERSION: &str = "__protVer";

/// The value of [`PROTOCOL_VERSION`].
pub const PROTOCOL_VERSION_VALUE: &str = "1.0";

/// Reply: always [`STATUS_VALUE`], on errors too. Deployed clients refuse a reply without it.
pub const STATUS: &str = "__stat";

/// The value of [`STATUS`].
pub const STATUS_VALUE: &str = "200";

/// Request: the MQTT client id again; deployed clients send it and no store needs it.
pub const PARTITION: &str = "$partition";

/// Request: empty; deployed clients send it and no store needs it.
pub const HIGH_PRIORITY: &str = "$high_priority";

/// Request, reply, notification: which [`Incarnation`] of the store answers.
///
/// An extension of this project; deployed stores and clients ignore it, and a name that begins with `__` is theirs to give.
/// A request that carries it asks; clients of this crate send it with an empty value, and a store does not look at the
/// value. A store that has an incarnation then puts its text, 16 lower-case hexadecimal digits, on the reply, whatever the
/// reply says and however often it is repeated; and after a KEYNOTIFY that asks, on every notification of that
/// registration. A client takes any other text there for none.
///
/// A client to which another incarnation answers than before knows that its registrations are gone, and with them
/// whatever was not durable: values, fencing tokens, locks. A client whose store says no incarnation knows nothing of the
/// kind and goes by what it reads.
pub const INCARNATION: &str = "statestore-incarnation";

/// Reply to a refused request: why it was refused, in a line for people, of [`REASON_BYTES_MAX`] at most.
///
/// An extension of this project, which a store adds where it is told to; deployed clients ignore it. The error in the payload
/// is what programs go by: this text may be another with each release. Text of a peer, so show it escaped.
pub const REASON: &str = "statestore-reason";

/// Bytes of a [`REASON`]; a longer one is cut.
pub const REASON_BYTES_MAX: usize = 256;

/// Content type of requests; on replies absent or exactly this.
pub const CONTENT_TYPE: &str = "application/octet-stream";

/// The value of a user property; its text is made by `Display`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PropertyValue<'a> {
    /// Text.
    Text(&'a str),
    /// A clock value.
    Hlc(HlcRef<'a>),
    /// Which run of a store it comes from.
    Incarnation(Incarnation),
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

/// The user properties of a request, for a client that writes its packets itself. The machine of this crate sends these.
///
/// ```
/// use statestore_proto::hlc::HlcRef;
/// use statestore_proto::message::property::RequestProperties;
///
/// let now = HlcRef::parse("1696374425000:0:thermostat-7")?;
/// let set = RequestProperties::new("thermostat-7").timestamp(now);
/// let texts: Vec<_> = set.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
/// assert_eq!(
///     texts,
///     ["__ts=1696374425000:0:thermostat-7", "__srcId=thermostat-7", "__protVer=1.0", "statestore-incarnation="],
/// );
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestProperties<'a> {
    pub(crate) source_id: &'a str,
    pub(crate) timestamp: Option<HlcRef<'a>>,
    pub(crate) fencing_token: Option<HlcRef<'a>>,
    pub(crate) persist: bool,
}

impl<'a> RequestProperties<'a> {
    /// Those of a request of the client with this MQTT client id.
    #[must_use]
    pub const fn new(client_id: &'a str) -> Self {
        Self { source_id: client_id, timestamp: None, fencing_token: None, persist: false }
    }

    /// What the clock of the client shows; mandatory on SET.
    #[must_use]
    pub const fn timestamp(mut self, timestamp: HlcRef<'a>) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// The fencing token of a SET, DEL or VDEL.
    #[must_use]
    pub const fn fencing_token(mut self, token: HlcRef<'a>) -> Self {
        self.fencing_token = Some(token);
        self
    }

    /// Asks the store to keep the key of a SET on disk.
    #[must_use]
    pub const fn persist(mut self, persist: bool) -> Self {
        self.persist = persist;
        self
    }
}

impl<'a> IntoIterator for RequestProperties<'a> {
    type Item = (&'static str, PropertyValue<'a>);
    type IntoIter = core::iter::Flatten<core::array::IntoIter<Option<Self::Item>, 6>>;

    fn into_iter(self) -> Self::IntoIter {
        let text = |name, value| Some((name, PropertyValue::Text(value)));
        let properties = [
            self.timestamp.map(|hlc| (TIMESTAMP, PropertyValue::Hlc(hlc))),
            text(SOURCE_ID, self.source_id),
            text(PROTOCOL_VERSION, PROTOCOL_VERSION_VALUE),
            text(INCARNATION, ""),
            self.fencing_token.map(|token| (FENCING_TOKEN, PropertyValue::Hlc(token))),
            if self.persist { text(PERSIST, PERSIST_VALUE) } else { None },
        ];
        properties.into_iter().flatten()
    }
}
