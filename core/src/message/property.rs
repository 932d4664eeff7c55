//! MQTT 5 properties of requests, replies and notifications: the one place where their names stand.

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

/// Request, reply, notification: which [`Incarnation`](super::Incarnation) of the store answers.
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

/// Content type of requests; on replies absent or exactly this.
pub const CONTENT_TYPE: &str = "application/octet-stream";
