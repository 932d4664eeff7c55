//! Stage 8: limits that a request would exceed.

use core::fmt;

/// A limit that a request would exceed, with what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exceeded {
    /// The limit.
    pub limit: Limit,
    /// The total that the request would need.
    pub needed: usize,
    /// The total that is allowed.
    pub max: usize,
}

/// The limits of [`StoreLimits`](crate::limits::StoreLimits) that a request can exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of one key, or of a pattern.
    KeyBytes,
    /// Bytes of one value.
    ValueBytes,
    /// Keys of all clients.
    Keys,
    /// Bytes of all keys and values.
    Bytes,
    /// Keys of one client.
    ClientKeys,
    /// Bytes of the keys and values of one client.
    ClientBytes,
    /// Bytes of a notification topic.
    TopicBytes,
    /// Registrations of all clients.
    Registrations,
    /// Bytes of the registrations of all clients.
    RegistrationBytes,
    /// Registrations for one key.
    RegistrationsPerKey,
    /// Registrations of one client.
    ClientRegistrations,
    /// Bytes of the registrations of one client.
    ClientRegistrationBytes,
    /// Bytes of the largest packet that the requester accepts.
    PacketBytes,
    /// Free bytes of the storage for durable keys.
    StorageBytes,
}

impl Limit {
    /// A noun phrase for messages, such as `keys of all clients`.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::KeyBytes => "bytes of one key",
            Self::ValueBytes => "bytes of one value",
            Self::Keys => "keys of all clients",
            Self::Bytes => "bytes of all keys and values",
            Self::ClientKeys => "keys of one client",
            Self::ClientBytes => "bytes of the keys and values of one client",
            Self::TopicBytes => "bytes of a notification topic",
            Self::Registrations => "registrations of all clients",
            Self::RegistrationBytes => "bytes of the registrations of all clients",
            Self::RegistrationsPerKey => "registrations for one key",
            Self::ClientRegistrations => "registrations of one client",
            Self::ClientRegistrationBytes => "bytes of the registrations of one client",
            Self::PacketBytes => "bytes of a response that the requester accepts",
            Self::StorageBytes => "free bytes of the storage",
        }
    }
}

impl Exceeded {
    /// A limit that is exceeded, for stores that count what they hold themselves.
    #[must_use]
    pub const fn new(limit: Limit, needed: usize, max: usize) -> Self {
        Self { limit, needed, max }
    }

    /// Checks a total against its limit.
    ///
    /// # Errors
    /// [`Exceeded`] when `needed` is greater than `max`.
    pub const fn check(limit: Limit, needed: usize, max: usize) -> Result<(), Self> {
        if needed > max { Err(Self { limit, needed, max }) } else { Ok(()) }
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} needed, {} allowed", self.limit.text(), self.needed, self.max)
    }
}

impl core::error::Error for Exceeded {}
