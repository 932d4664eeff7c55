//! What can be wrong with bytes, and what to tell whoever sent them.

use core::fmt;

use crate::reason::Reason;

/// Why bytes are no MQTT 5 packet. [`reason`](Self::reason) is what to put into a DISCONNECT; the connection is of no
/// more use, since nobody knows where the next packet begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Something ends before its length says.
    Truncated,
    /// Bytes follow where something should end.
    Trailing,
    /// A variable byte integer of more than four bytes, or of more than it needs.
    Varint,
    /// A text that is not UTF-8, or holds NUL.
    Text,
    /// There is no packet whose first byte is this: its type is 0, or its flags are others.
    First(u8),
    /// Flags of a CONNECT or CONNACK, or options of a subscription, that are reserved or contradict each other.
    Flags(u8),
    /// Options of a subscription with a QoS or a retain handling of 3.
    Options(u8),
    /// A packet identifier of zero, or none where there must be one.
    PacketId,
    /// A CONNECT that is of another protocol, or of a version of MQTT that is not 5.
    Version(u8),
    /// A reason code that this packet cannot have.
    ReasonCode(u8),
    /// There is no such property.
    Property(u8),
    /// A property that this packet cannot have.
    Misplaced(u8),
    /// A property that may come once came twice.
    Twice(u8),
    /// A property whose value is none that is allowed.
    Value(u8),
    /// There is no property that something else needs.
    Missing(u8),
    /// A topic name that is empty where no alias can stand for it, or holds a wildcard.
    TopicName,
    /// A topic filter that is empty, or whose wildcards or share name stand where they cannot.
    TopicFilter,
    /// A shared subscription that does not want what its own client sends.
    NoLocal,
    /// A SUBSCRIBE or UNSUBSCRIBE for nothing, or a SUBACK or UNSUBACK of nothing.
    Empty,
    /// A packet that is longer than was agreed.
    TooLarge {
        /// Bytes of the whole packet.
        len: usize,
    },
}

impl Malformed {
    /// What the standard calls it in a DISCONNECT or CONNACK.
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
            Self::Truncated => f.write_str("it ends too early"),
            Self::Trailing => f.write_str("bytes follow its end"),
            Self::Varint => f.write_str("a length is not well-formed"),
            Self::Text => f.write_str("a text is not UTF-8, or holds NUL"),
            Self::First(first) => write!(f, "no packet begins with 0x{first:02x}"),
            Self::Flags(flags) => write!(f, "flags 0x{flags:02x} are not allowed there"),
            Self::Options(options) => write!(f, "no subscription has the options 0x{options:02x}"),
            Self::PacketId => f.write_str("its packet identifier is zero or missing"),
            Self::Version(level) => write!(f, "it is not of MQTT 5 but of protocol level {level}"),
            Self::ReasonCode(code) => write!(f, "it cannot have the reason code 0x{code:02x}"),
            Self::Property(id) => write!(f, "there is no property 0x{id:02x}"),
            Self::Misplaced(id) => write!(f, "it cannot have the property 0x{id:02x}"),
            Self::Twice(id) => write!(f, "the property 0x{id:02x} came twice"),
            Self::Value(id) => write!(f, "the property 0x{id:02x} cannot have that value"),
            Self::Missing(id) => write!(f, "it needs the property 0x{id:02x} too"),
            Self::TopicName => f.write_str("a topic name is empty or holds a wildcard"),
            Self::TopicFilter => f.write_str("a topic filter is not well-formed"),
            Self::NoLocal => f.write_str("a shared subscription cannot be without local messages"),
            Self::Empty => f.write_str("it is about no topic filter"),
            Self::TooLarge { len } => write!(f, "it has {len} bytes, more than was agreed"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Why a packet cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritable {
    /// A text or binary field of more than 65,535 bytes, or a packet of more than 256 MiB: MQTT has no such thing.
    TooLong,
    /// A packet at QoS 1 or 2 without an identifier, or one at QoS 0 with it or with DUP.
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
            Self::TooLong => f.write_str("a field or a packet is longer than MQTT allows"),
            Self::PacketId => f.write_str("its packet identifier does not go with its QoS"),
            Self::NoRoom { needed } => write!(f, "the packet takes {needed} bytes"),
        }
    }
}

impl core::error::Error for Unwritable {}
