//! Identifiers of properties.

/// Payload Format Indicator
pub const PAYLOAD_FORMAT: u8 = 0x01;
/// Message Expiry Interval
pub const MESSAGE_EXPIRY: u8 = 0x02;
/// Content Type
pub const CONTENT_TYPE: u8 = 0x03;
/// Response Topic
pub const RESPONSE_TOPIC: u8 = 0x08;
/// Correlation Data
pub const CORRELATION_DATA: u8 = 0x09;
/// Subscription Identifier
pub const SUBSCRIPTION: u8 = 0x0b;
/// Session Expiry Interval
pub const SESSION_EXPIRY: u8 = 0x11;
/// Assigned Client Identifier
pub const ASSIGNED_CLIENT_ID: u8 = 0x12;
/// Server Keep Alive
pub const SERVER_KEEP_ALIVE: u8 = 0x13;
/// Authentication Method
pub const AUTHENTICATION_METHOD: u8 = 0x15;
/// Authentication Data
pub const AUTHENTICATION_DATA: u8 = 0x16;
/// Request Problem Information
pub const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
/// Will Delay Interval
pub const WILL_DELAY: u8 = 0x18;
/// Request Response Information
pub const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
/// Response Information
pub const RESPONSE_INFORMATION: u8 = 0x1a;
/// Server Reference
pub const SERVER_REFERENCE: u8 = 0x1c;
/// Reason String
pub const REASON_STRING: u8 = 0x1f;
/// Receive Maximum
pub const RECEIVE_MAXIMUM: u8 = 0x21;
/// Topic Alias Maximum
pub const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
/// Topic Alias
pub const TOPIC_ALIAS: u8 = 0x23;
/// Maximum QoS
pub const MAXIMUM_QOS: u8 = 0x24;
/// Retain Available
pub const RETAIN_AVAILABLE: u8 = 0x25;
/// User Property
pub const USER: u8 = 0x26;
/// Maximum Packet Size
pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;
/// Wildcard Subscription Available
pub const WILDCARD_AVAILABLE: u8 = 0x28;
/// Subscription Identifier Available
pub const SUBSCRIPTION_IDS_AVAILABLE: u8 = 0x29;
/// Shared Subscription Available
pub const SHARED_AVAILABLE: u8 = 0x2a;
