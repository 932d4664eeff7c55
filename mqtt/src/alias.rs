//! Topic aliases for sent packets.

/// Bytes that a topic alias adds to a packet.
const PROPERTY_BYTES: usize = 3;

/// The topic alias of a packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// The packet has no alias.
    None,
    /// Sent together with the topic.
    New(u16),
    /// Sent instead of the topic.
    Known(u16),
}

impl Alias {
    /// Chooses the alias of a topic: the `known` one, or the next of `maximum` if `count` topics
    /// have one. The first topics of a connection get aliases and keep them.
    #[must_use]
    pub fn choose(topic: &str, known: Option<u16>, count: usize, maximum: u16) -> Self {
        if maximum == 0 || topic.len() <= PROPERTY_BYTES {
            return Self::None;
        }
        match (known, u16::try_from(count + 1)) {
            (Some(number), _) => Self::Known(number),
            (None, Ok(next)) if next <= maximum => Self::New(next),
            _ => Self::None,
        }
    }

    /// The number of the alias.
    #[must_use]
    pub const fn number(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::New(number) | Self::Known(number) => Some(number),
        }
    }

    /// Bytes that the alias adds to the properties.
    #[must_use]
    pub const fn property_bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::New(_) | Self::Known(_) => PROPERTY_BYTES,
        }
    }
}
