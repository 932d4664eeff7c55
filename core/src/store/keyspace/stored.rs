//! A stored value as the embedder sees it.

use core::fmt;

use super::{Entry, Keyspace};
use crate::debug::{Key, Value, show};
use crate::hlc::{FencingToken, Version};
use crate::time::Instant;

/// A stored value.
#[derive(Clone)]
pub struct StoredEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The version.
    pub version: Version,
    /// The fence of the key.
    pub fencing_token: Option<&'a FencingToken>,
    /// When the value expires.
    pub expires: Option<Instant>,
    /// True if the value expires and was set on a condition (NX or NEX), as a lock is.
    pub is_lease: bool,
    /// True if the value is durable with [`Durability::Requested`](crate::store::Durability::Requested): its SET or its key asks for it.
    pub persist: bool,
}

impl fmt::Debug for StoredEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, version, fencing_token, expires, is_lease, persist } = self;
        show!(f, StoredEntry {
            key = Key(key), value = Value(value), version, fencing_token, expires, is_lease, persist
        })
    }
}

impl Keyspace {
    pub(in crate::store) fn stored_entry<'a>(&self, entry: &'a Entry) -> StoredEntry<'a> {
        StoredEntry {
            key: entry.key(),
            value: entry.value(),
            version: Version::new(self.version_of(entry)),
            fencing_token: entry.fence(),
            expires: entry.expires(),
            is_lease: entry.is_lease(),
            persist: entry.is_persistent(),
        }
    }
}
