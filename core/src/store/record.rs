//! Writes as records: what an embedder keeps on disk, and what a store is rebuilt from.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::debug;
use crate::hlc::{FencingToken, Version};
use crate::time::UnixTime;

/// One applied write. The last record of a key says what the key holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Box<[u8]>,
    /// What became of it.
    pub change: RecordChange,
}

/// What a write made of its key.
#[derive(Clone, PartialEq, Eq)]
pub enum RecordChange {
    /// The key has this value.
    Put {
        /// The value.
        value: Box<[u8]>,
        /// Its version.
        version: Version,
        /// The token that fences the key.
        fencing_token: Option<FencingToken>,
        /// When the value expires, by the wall clock.
        expires: Option<UnixTime>,
        /// Whether the requester asked for durability.
        persist: bool,
    },
    /// The key is gone: deleted, expired, or not to be kept any more.
    Removed {
        /// The version of the value that was removed. A rebuilt clock must be past it.
        version: Version,
    },
}

/// Names a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub(super) u64);

/// Records of consecutive writes, in order, to be persisted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// To be reported when all of it is persisted.
    pub id: BatchId,
    /// At least one.
    pub records: Vec<Record>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("key", &debug::Key(&self.key))
            .field("change", &self.change)
            .finish()
    }
}

impl fmt::Debug for RecordChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { value, version, fencing_token, expires, persist } => f
                .debug_struct("Put")
                .field("value", &debug::Value(value))
                .field("version", version)
                .field("fencing_token", fencing_token)
                .field("expires", expires)
                .field("persist", persist)
                .finish(),
            Self::Removed { version } => {
                f.debug_struct("Removed").field("version", version).finish()
            }
        }
    }
}
