//! Errors of decoding and encoding.

use core::fmt;

use crate::reason::Reason;

/// Error of bytes that are not a valid MQTT 5 packet. The connection cannot continue, since the
/// start of the next packet is unknown: send DISCONNECT or CONNACK with [`reason`](Self::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The input ends within a packet or within a field.
    Truncated,
    /// Bytes follow the end of the packet or of its last field.
    Trailing,
    /// A variable byte integer of more than four bytes, or of more bytes than necessary.
    Varint,
    /// A string that is not UTF-8 or contains NUL.
    Text,
    /// An invalid first byte: packet type 0, or flags that the packet type does not allow.
    First(u8),
    /// Flags of a CONNECT or CONNACK, or subscription options, that are reserved or inconsistent.
    Flags(u8),
    /// Subscription options with a QoS or a retain handling of 3.
    Options(u8),
    /// A packet identifier of zero.
    PacketId,
    /// A CONNECT of another protocol or of another MQTT version, with its protocol level.
    Version(u8),
    /// A reason code that is not allowed in this packet.
    ReasonCode(u8),
    /// An unknown property identifier.
    Property(u8),
    /// A property that is not allowed in this packet.
    Misplaced(u8),
    /// A property that may occur once occurs again.
    Twice(u8),
    /// A property with an invalid value.
    Value(u8),
    /// A missing property that another field or property requires.
    Missing(u8),
    /// A topic name that contains a wildcard, or an empty topic name of a will.
    TopicName,
    /// A topic filter that is empty, or with an invalid wildcard or share name.
    TopicFilter,
    /// A shared subscription with No Local.
    NoLocal,
    /// A SUBSCRIBE or UNSUBSCRIBE without filters, or a SUBACK or UNSUBACK without reason codes.
    Empty,
    /// A packet that exceeds the maximum packet size.
    TooLarge {
        /// Bytes of the whole packet.
        len: usize,
    },
}

impl Malformed {
    /// Returns the reason code for a DISCONNECT or CONNACK.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Version(_) => Reason::UNSUPPORTED_PROTOCOL_VERSION,
            Self::TooLarge { .. } => Reason::PACKET_TOO_LARGE,
            Self::TopicName => Reason::TOPIC_NAME_INVALID,
            Self::TopicFilter => Reason::TOPIC_FILTER_INVALID,
            Self::Options(_)
            | Self::Twice(_)
            | Self::Value(_)
            | Self::Missing(_)
            | Self::PacketId
            | Self::NoLocal
            | Self::Empty => Reason::PROTOCOL_ERROR,
            Self::Truncated
            | Self::Trailing
            | Self::Varint
            | Self::Text
            | Self::First(_)
            | Self::Flags(_)
            | Self::ReasonCode(_)
            | Self::Property(_)
            | Self::Misplaced(_) => Reason::MALFORMED_PACKET,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("truncated packet"),
            Self::Trailing => f.write_str("trailing bytes"),
            Self::Varint => f.write_str("malformed variable byte integer"),
            Self::Text => f.write_str("string is not UTF-8 or contains NUL"),
            Self::First(first) => write!(f, "invalid first byte 0x{first:02x}"),
            Self::Flags(flags) => write!(f, "invalid flags 0x{flags:02x}"),
            Self::Options(options) => write!(f, "invalid subscription options 0x{options:02x}"),
            Self::PacketId => f.write_str("packet identifier is zero"),
            Self::Version(level) => write!(f, "not MQTT 5: protocol level {level}"),
            Self::ReasonCode(code) => write!(f, "reason code 0x{code:02x} is not allowed"),
            Self::Property(id) => write!(f, "unknown property 0x{id:02x}"),
            Self::Misplaced(id) => write!(f, "property 0x{id:02x} is not allowed"),
            Self::Twice(id) => write!(f, "property 0x{id:02x} occurs twice"),
            Self::Value(id) => write!(f, "invalid value of property 0x{id:02x}"),
            Self::Missing(id) => write!(f, "property 0x{id:02x} is missing"),
            Self::TopicName => f.write_str("topic name is empty or contains a wildcard"),
            Self::TopicFilter => f.write_str("invalid topic filter"),
            Self::NoLocal => f.write_str("shared subscription with No Local"),
            Self::Empty => f.write_str("no topic filters or reason codes"),
            Self::TooLarge { len } => write!(f, "packet of {len} bytes exceeds the size limit"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Error of a packet that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritable {
    /// A string or binary field of more than 65,535 bytes, a packet of more than 256 MiB, or an
    /// integer above [`VARINT_MAX`](crate::wire::VARINT_MAX).
    TooLong,
    /// A PUBLISH at QoS 1 or 2 without a packet identifier, or at QoS 0 with one or with DUP.
    PacketId,
    /// The buffer is too short.
    NoRoom {
        /// Bytes of the whole packet.
        needed: usize,
    },
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("field or packet exceeds the length limit of MQTT"),
            Self::PacketId => f.write_str("packet identifier or DUP does not match the QoS"),
            Self::NoRoom { needed } => write!(f, "buffer too short: the packet has {needed} bytes"),
        }
    }
}

impl core::error::Error for Unwritable {}
