//! Log of recorded responses: one entry for the responses of each transaction. Old entries are
//! removed from its beginning.
//!
//! The transaction that adds an entry also removes entries that are expired or exceed the limits.
//! So the log is bounded, and a store that writes nothing does not change it.

use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of entries. A store remembers 16,384 responses by default. An entry can contain
/// just one response, and a busy client must not evict the responses of other clients too early.
const ENTRIES_MAX: usize = 65_536;

/// Maximum number of bytes of all entries: four times the default of a store.
const BYTES_MAX: usize = 64 << 20;

/// Sizes and expiries of the entries in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseLog {
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    bytes: usize,
    /// Time for which the entry is retained.
    retention: Duration,
    /// End of that time, by a clock that is zero when this writer begins.
    expires: Duration,
}

/// Slot of a new entry in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Number of the new entry.
    pub(crate) number: u64,
    /// Number of the first entry that remains.
    pub(crate) first: u64,
    /// Entries before `first` must be removed.
    pub(crate) removes_older: bool,
}

impl ResponseLog {
    /// Adds an entry that another writer has written. Its time counts from
    /// [`restart`](Self::restart) on.
    pub(crate) fn insert(&mut self, number: u64, bytes: usize, retention: Duration) {
        self.remove(number);
        self.bytes += bytes;
        self.entries.insert(number, Entry { bytes, retention, expires: Duration::MAX });
    }

    /// Forgets an entry that another writer has removed.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.bytes -= entry.bytes;
        }
    }

    /// Begins to write, at zero of the clock. The age of the existing entries is unknown, so their
    /// time begins again.
    pub(crate) fn restart(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.expires = entry.retention);
    }

    /// Adds an entry, and removes entries that are expired or exceed the limits.
    pub(crate) fn append(&mut self, now: Duration, bytes: usize, retention: Duration) -> Slot {
        let number = self.entries.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        let mut removes_older = false;
        loop {
            let is_over = self.bytes + bytes > BYTES_MAX || self.entries.len() >= ENTRIES_MAX;
            let Some(first) = self.entries.first_entry() else { break };
            if first.get().expires > now && !is_over {
                break;
            }
            self.bytes -= first.remove().bytes;
            removes_older = true;
        }
        let entry = Entry { bytes, retention, expires: now.saturating_add(retention) };
        self.bytes += bytes;
        self.entries.insert(number, entry);
        let first = self.entries.first_key_value().map_or(number, |(first, _)| *first);
        Slot { number, first, removes_older }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const fn slot(number: u64, first: u64, removes_older: bool) -> Slot {
        Slot { number, first, removes_older }
    }

    #[test]
    fn expired_entries_are_removed_from_the_beginning() {
        let mut log = ResponseLog::default();
        assert_eq!(log.append(SECOND, 10, SECOND), slot(0, 0, false));
        assert_eq!(log.append(SECOND, 10, 9 * SECOND), slot(1, 0, false));
        // The first entry is expired. The second is not, and delays the removal of the third.
        assert_eq!(log.append(2 * SECOND, 10, SECOND), slot(2, 1, true));
        assert_eq!(log.append(5 * SECOND, 10, SECOND), slot(3, 1, false));
        assert_eq!(log.append(10 * SECOND, 10, SECOND), slot(4, 4, true));
        assert_eq!(log.bytes, 10);
    }

    #[test]
    fn log_is_bounded_in_bytes_and_entries() {
        let mut log = ResponseLog::default();
        for _ in 0..200 {
            log.append(SECOND, 1 << 20, 1000 * SECOND);
            assert!(log.bytes <= BYTES_MAX, "{} bytes", log.bytes);
        }
        assert_eq!(log.entries.len(), 64);
        for _ in 0..70_000 {
            log.append(SECOND, 1, 1000 * SECOND);
            assert!(log.entries.len() <= ENTRIES_MAX);
        }
        assert_eq!(log.entries.len(), ENTRIES_MAX);
    }

    #[test]
    fn entries_of_another_writer_are_retained_for_their_whole_time_again() {
        let mut log = ResponseLog::default();
        log.insert(7, 10, 3 * SECOND);
        log.insert(8, 10, SECOND);
        log.insert(7, 12, 3 * SECOND);
        log.remove(8);
        log.remove(8);
        assert_eq!(log.bytes, 12);
        log.restart();
        assert_eq!(log.append(2 * SECOND, 1, SECOND), slot(8, 7, false));
        assert_eq!(log.append(3 * SECOND, 1, SECOND), slot(9, 9, true));
    }
}
