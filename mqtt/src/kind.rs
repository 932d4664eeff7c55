//! Packet types.

use crate::error::Malformed;
use crate::reason::Reason;

/// Packet type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the variants have the names of the standard")]
pub enum Kind {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl Kind {
    /// Packet type of a first byte, whose flags are checked.
    ///
    /// # Errors
    /// [`Malformed::First`] if the type is 0 or the flags are invalid for the type.
    pub const fn of(first: u8) -> Result<Self, Malformed> {
        let (kind, flags) = match first >> 4 {
            1 => (Self::Connect, 0),
            2 => (Self::ConnAck, 0),
            3 => {
                let (qos, dup) = (first >> 1 & 3, first >> 3 & 1);
                // QoS 3 is invalid, and DUP is invalid at QoS 0.
                let is_legal = qos < 3 && (qos > 0 || dup == 0);
                return if is_legal { Ok(Self::Publish) } else { Err(Malformed::First(first)) };
            }
            4 => (Self::PubAck, 0),
            5 => (Self::PubRec, 0),
            6 => (Self::PubRel, 2),
            7 => (Self::PubComp, 0),
            8 => (Self::Subscribe, 2),
            9 => (Self::SubAck, 0),
            10 => (Self::Unsubscribe, 2),
            11 => (Self::UnsubAck, 0),
            12 => (Self::PingReq, 0),
            13 => (Self::PingResp, 0),
            14 => (Self::Disconnect, 0),
            15 => (Self::Auth, 0),
            _ => return Err(Malformed::First(first)),
        };
        if first & 0x0f == flags { Ok(kind) } else { Err(Malformed::First(first)) }
    }

    /// First byte of a packet of this type; for a PUBLISH without its flags.
    pub(crate) const fn first(self) -> u8 {
        let flags = match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 2,
            _ => 0,
        };
        (self as u8) << 4 | flags
    }

    /// Returns whether the reason code is allowed in this packet (sections 3.2.2.2 to 3.15.2.1).
    #[must_use]
    pub const fn has(self, reason: Reason) -> bool {
        let code = reason.0;
        match self {
            Self::ConnAck => matches!(
                code,
                0x00 | 0x80..=0x8a | 0x8c | 0x90 | 0x95 | 0x97 | 0x99..=0x9d | 0x9f
            ),
            Self::PubAck | Self::PubRec => {
                matches!(code, 0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
            }
            Self::PubRel | Self::PubComp => matches!(code, 0x00 | 0x92),
            Self::SubAck => matches!(
                code,
                0x00..=0x02 | 0x80 | 0x83 | 0x87 | 0x8f | 0x91 | 0x97 | 0x9e | 0xa1 | 0xa2
            ),
            Self::UnsubAck => matches!(code, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8f | 0x91),
            // 0x8c is in table 2-6 and not in section 3.14.2.1: it may end a re-authentication.
            Self::Disconnect => matches!(
                code,
                0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8b..=0x90 | 0x93..=0xa2
            ),
            Self::Auth => matches!(code, 0x00 | 0x18 | 0x19),
            Self::Connect
            | Self::Publish
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::PingReq
            | Self::PingResp => false,
        }
    }
}
