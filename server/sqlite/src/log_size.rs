//! Sizes of SQLite's write-ahead log, in bytes.

/// Limit of the log on a disk of at least 512 MiB. Copying starts at a quarter of this limit.
/// Commits are slower during copying, so it should be rare. When copying started at 4 MiB, the 99th
/// percentile of the latency of a SET was 1.7 to 6 times as long.
const LOG_BYTES_MAX: i64 = 64 << 20;

/// Limit of the log on the smallest disks.
const LOG_BYTES_MIN: i64 = 4 << 20;

/// Bytes of the disk for each byte of the log's limit. The log never shrinks below its limit, so on
/// a small disk a higher limit would leave too few bytes for the database.
const DISK_BYTES_PER_LOG_BYTE: u64 = 8;

/// Bytes of the other pages that a commit changes, for example those of the free list.
const CHANGED_BYTES: i64 = 1 << 20;

/// Returns the maximum bytes that a commit of this many bytes adds to the log: those of its own
/// pages, and of others that it changes.
pub(crate) const fn commit_bytes_max(bytes: i64) -> i64 {
    bytes.saturating_add(bytes / 16).saturating_add(CHANGED_BYTES)
}

/// Returns the limit of the log. `disk_bytes` is the length of the journal's files plus the free
/// bytes of their disk.
pub(crate) fn limit(disk_bytes: Option<u64>) -> i64 {
    let part = disk_bytes.and_then(|bytes| i64::try_from(bytes / DISK_BYTES_PER_LOG_BYTE).ok());
    part.map_or(LOG_BYTES_MAX, |bytes| bytes.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn log_limit_is_an_eighth_of_the_disk_from_4_to_64_mib() {
        for (disk, expected) in
            [(0, 4), (32, 4), (112, 14), (512, 64), (1 << 20, 64), (u64::MAX / MIB, 64)]
        {
            assert_eq!(limit(Some(disk * MIB)), expected << 20, "{disk} MiB");
        }
        assert_eq!(limit(None), LOG_BYTES_MAX);
    }
}
