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

/// Content type of requests; on replies absent or exactly this.
pub const CONTENT_TYPE: &str = "application/octet-stream";
