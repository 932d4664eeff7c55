//! Errors of decoding and encoding.

use crate::reason::Reason;

/// Error of bytes that are not a valid MQTT 5 packet. The connection cannot continue, since the
/// start of the next packet is unknown: send DISCONNECT or CONNACK with [`reason`](Self::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The input ends within a packet or within a field.
    #[error("truncated packet")]
    Truncated,
    /// Bytes follow the end of the packet or of its last field.
    #[error("trailing bytes")]
    Trailing,
    /// A variable byte integer of more than four bytes, or of more bytes than necessary.
    #[error("malformed variable byte integer")]
    Varint,
    /// A string that is not UTF-8 or contains NUL.
    #[error("string is not UTF-8 or contains NUL")]
    Text,
    /// An invalid first byte: packet type 0, or flags that the packet type does not allow.
    #[error("invalid first byte 0x{0:02x}")]
    First(u8),
    /// Flags of a CONNECT or CONNACK, or subscription options, that are reserved or inconsistent.
    #[error("invalid flags 0x{0:02x}")]
    Flags(u8),
    /// Subscription options with a QoS or a retain handling of 3.
    #[error("invalid subscription options 0x{0:02x}")]
    Options(u8),
    /// A packet identifier of zero.
    #[error("packet identifier is zero")]
    PacketId,
    /// A CONNECT of another protocol or of another MQTT version, with its protocol level.
    #[error("not MQTT 5: protocol level {0}")]
    Version(u8),
    /// A reason code that is not allowed in this packet.
    #[error("reason code 0x{0:02x} is not allowed")]
    ReasonCode(u8),
    /// An unknown property identifier.
    #[error("unknown property 0x{0:02x}")]
    Property(u8),
    /// A property that is not allowed in this packet.
    #[error("property 0x{0:02x} is not allowed")]
    Misplaced(u8),
    /// A property that may occur once occurs again.
    #[error("property 0x{0:02x} occurs twice")]
    Twice(u8),
    /// A property with an invalid value.
    #[error("invalid value of property 0x{0:02x}")]
    Value(u8),
    /// A missing property that another field or property requires.
    #[error("property 0x{0:02x} is missing")]
    Missing(u8),
    /// A topic name that contains a wildcard, or an empty topic name of a will.
    #[error("topic name is empty or contains a wildcard")]
    TopicName,
    /// A topic filter that is empty, or with an invalid wildcard or share name.
    #[error("invalid topic filter")]
    TopicFilter,
    /// A shared subscription with No Local.
    #[error("shared subscription with No Local")]
    NoLocal,
    /// A SUBSCRIBE or UNSUBSCRIBE without filters, or a SUBACK or UNSUBACK without reason codes.
    #[error("no topic filters or reason codes")]
    Empty,
    /// A packet that exceeds the maximum packet size.
    #[error("packet of {len} bytes exceeds the size limit")]
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

/// Error of a packet that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// A string or binary field of more than 65,535 bytes, a packet of more than 256 MiB, or an
    /// integer above [`VARINT_MAX`](crate::wire::VARINT_MAX).
    #[error("field or packet exceeds the length limit of MQTT")]
    TooLong,
    /// A PUBLISH at QoS 1 or 2 without a packet identifier, or at QoS 0 with one or with DUP.
    #[error("packet identifier or DUP does not match the QoS")]
    PacketId,
    /// The buffer is too short.
    #[error("buffer too short: the packet has {needed} bytes")]
    NoRoom {
        /// Bytes of the whole packet.
        needed: usize,
    },
}
