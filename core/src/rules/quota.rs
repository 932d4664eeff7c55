//! Stage 8: limits that a request would exceed.

/// A limit that a request would exceed, with what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {needed} needed, {max} allowed", limit.text())]
#[non_exhaustive]
pub struct Exceeded {
    /// The limit.
    pub limit: Limit,
    /// The total that the request would need.
    pub needed: usize,
    /// The total that is allowed.
    pub max: usize,
}

/// Declares the limits with their texts.
macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident = $text:literal;)*) => {
        /// The limits of [`StoreLimits`](crate::limits::StoreLimits) that a request can exceed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Limit { $($(#[$doc])* $limit,)* }

        impl Limit {
            /// A noun phrase for messages, such as `keys of all clients`.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$limit => $text,)* }
            }
        }
    };
}

limits! {
    /// Bytes of one key, or of a pattern.
    KeyBytes = "bytes of one key";
    /// Bytes of one value.
    ValueBytes = "bytes of one value";
    /// Keys of all clients.
    Keys = "keys of all clients";
    /// Bytes of all keys and values.
    Bytes = "bytes of all keys and values";
    /// Keys of one client.
    ClientKeys = "keys of one client";
    /// Bytes of the keys and values of one client.
    ClientBytes = "bytes of the keys and values of one client";
    /// Bytes of a notification topic.
    TopicBytes = "bytes of a notification topic";
    /// Registrations of all clients.
    Registrations = "registrations of all clients";
    /// Bytes of the registrations of all clients.
    RegistrationBytes = "bytes of the registrations of all clients";
    /// Registrations for one key.
    RegistrationsPerKey = "registrations for one key";
    /// Registrations of one client.
    ClientRegistrations = "registrations of one client";
    /// Bytes of the registrations of one client.
    ClientRegistrationBytes = "bytes of the registrations of one client";
    /// Bytes of the largest packet that the requester accepts.
    PacketBytes = "bytes of a response that the requester accepts";
    /// Free bytes of the storage for durable keys.
    StorageBytes = "free bytes of the storage";
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
