//! Limits of options and values.

/// Maximum number of bytes of a key and its value together: 1 MiB. A SET of that size always fits
/// into one etcd transaction, whose default limit is 1.5 MiB.
///
/// Set [`value_bytes_max`](statestore_proto::limits::StoreLimits::value_bytes_max) to this number
/// minus [`key_bytes_max`](statestore_proto::limits::StoreLimits::key_bytes_max): then the store
/// refuses larger values. Otherwise a larger value ends the journal with an error.
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

/// Maximum length of the prefix, which is part of each etcd key.
pub(crate) const PREFIX_BYTES_MAX: usize = 256;

/// Maximum length of a name or an address.
pub(crate) const LABEL_BYTES_MAX: usize = 256;

/// Shortest lease in seconds, limited by etcd.
pub(crate) const LEASE_MIN: u64 = 2;

/// Longest lease in seconds.
pub(crate) const LEASE_MAX: u64 = 600;

/// Returns whether `text` is a valid name or address: one line of limited length.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && !text.contains(char::is_control)
}
