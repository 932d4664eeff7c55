//! Numbers, each with its reason.

/// What a key and its value may have together, in bytes, so that a SET of them surely fits into one transaction of etcd: 1
/// MiB of the 1.5 that etcd takes unless it is told otherwise.
///
/// Let [`value_bytes_max`](statestore_proto::limits::StoreLimits::value_bytes_max) be this less
/// [`key_bytes_max`](statestore_proto::limits::StoreLimits::key_bytes_max), and the store refuses what is larger. A journal
/// that is given it ends with an error.
///
/// ```
/// use statestore_etcd::MAX_VALUE_BYTES;
/// use statestore_proto::limits::StoreLimits;
///
/// let limits = StoreLimits::default();
/// let value_bytes_max = MAX_VALUE_BYTES - limits.key_bytes_max;
/// let limits = StoreLimits { value_bytes_max, ..limits };
/// # assert!(limits.value_bytes_max > 1_000_000);
/// ```
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Each key of etcd has it.
pub(crate) const PREFIX_BYTES_MAX: usize = 256;

/// Names and addresses are for people.
pub(crate) const LABEL_BYTES_MAX: usize = 256;

/// In seconds; etcd grants no shorter one.
pub(crate) const LEASE_MIN: u64 = 2;

/// In seconds; nobody means to wait for longer.
pub(crate) const LEASE_MAX: u64 = 600;

/// Whether a name or an address can be told to others: one short line.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && !text.contains(char::is_control)
}
