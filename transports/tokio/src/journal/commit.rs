//! What a journal persists at once.

use statestore_proto::store::Record;

/// Records that become durable together.
///
/// With the default [`record_bytes_max`](statestore_proto::limits::StoreLimits::record_bytes_max),
/// the records take at most 4 MiB, or are those of one request, and a part of a snapshot 1 MiB.
#[derive(Debug, Default)]
pub struct Commit {
    /// New records of the store, in order. Empty if the commit contains only a part of a snapshot,
    /// if a linearizable read waits for it, or if it only
    /// [frees space](super::Journal::can_free_space).
    pub records: Vec<Record>,
    /// A part of a snapshot in progress.
    pub snapshot: Option<SnapshotPart>,
}

/// A part of a snapshot.
///
/// The complete state consists of all parts of a snapshot, in order, and then the records of all
/// commits from that of the first part on. Until the last part is durable, the earlier records
/// remain authoritative.
#[derive(Debug)]
pub struct SnapshotPart {
    /// A portion of the state of the store. It ends with the record that reaches its size, which is
    /// at most 1 MiB.
    pub records: Vec<Record>,
    /// Set if this is the first part of a snapshot. An unfinished earlier snapshot is then
    /// discarded.
    pub is_first: bool,
    /// Set if this is the last part of the snapshot, which then replaces everything before its
    /// first part.
    pub is_last: bool,
}
