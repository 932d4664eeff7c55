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
pub(crate) struct Answers {
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    bytes: usize,
    /// Time for which the entry is retained.
    kept: Duration,
    /// End of that time, by a clock that is zero when this writer begins.
    until: Duration,
}

/// Place of a new entry in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the new entry.
    pub(crate) number: u64,
    /// Number of the first entry that remains.
    pub(crate) first: u64,
    /// Entries before `first` must be removed.
    pub(crate) drops: bool,
}

impl Answers {
    /// Adds an entry that another writer has written. Its time counts from
    /// [`restart`](Self::restart) on.
    pub(crate) fn found(&mut self, number: u64, bytes: usize, kept: Duration) {
        self.dropped(number);
        self.bytes += bytes;
        self.entries.insert(number, Entry { bytes, kept, until: Duration::MAX });
    }

    /// Forgets an entry that another writer has removed.
    pub(crate) fn dropped(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.bytes -= entry.bytes;
        }
    }

    /// Begins to write, at zero of the clock. The age of the existing entries is unknown, so their
    /// time begins again.
    pub(crate) fn restart(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.until = entry.kept);
    }

    /// Adds an entry, and removes entries that are expired or exceed the limits.
    pub(crate) fn place(&mut self, now: Duration, bytes: usize, kept: Duration) -> Place {
        let number = self.entries.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        let mut drops = false;
        loop {
            let is_over = self.bytes + bytes > BYTES_MAX || self.entries.len() >= ENTRIES_MAX;
            let Some(first) = self.entries.first_entry() else { break };
            if first.get().until > now && !is_over {
                break;
            }
            self.bytes -= first.remove().bytes;
            drops = true;
        }
        let entry = Entry { bytes, kept, until: now.saturating_add(kept) };
        self.bytes += bytes;
        self.entries.insert(number, entry);
        let first = self.entries.first_key_value().map_or(number, |(first, _)| *first);
        Place { number, first, drops }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn expired_entries_are_removed_from_the_beginning() {
        let mut log = Answers::default();
        assert_eq!(log.place(SECOND, 10, SECOND), Place { number: 0, first: 0, drops: false });
        assert_eq!(log.place(SECOND, 10, 9 * SECOND), Place { number: 1, first: 0, drops: false });
        // The first entry is expired. The second is not, and delays the removal of the third.
        assert_eq!(log.place(2 * SECOND, 10, SECOND), Place { number: 2, first: 1, drops: true });
        assert_eq!(log.place(5 * SECOND, 10, SECOND), Place { number: 3, first: 1, drops: false });
        assert_eq!(log.place(10 * SECOND, 10, SECOND), Place { number: 4, first: 4, drops: true });
        assert_eq!(log.bytes, 10);
    }

    #[test]
    fn log_is_bounded_in_bytes_and_entries() {
        let mut log = Answers::default();
        for _ in 0..200 {
            log.place(SECOND, 1 << 20, 1000 * SECOND);
            assert!(log.bytes <= BYTES_MAX, "{} bytes", log.bytes);
        }
        assert_eq!(log.entries.len(), 64);
        for _ in 0..70_000 {
            log.place(SECOND, 1, 1000 * SECOND);
            assert!(log.entries.len() <= ENTRIES_MAX);
        }
        assert_eq!(log.entries.len(), ENTRIES_MAX);
    }

    #[test]
    fn entries_of_another_writer_are_retained_for_their_whole_time_again() {
        let mut log = Answers::default();
        log.found(7, 10, 3 * SECOND);
        log.found(8, 10, SECOND);
        log.found(7, 12, 3 * SECOND);
        log.dropped(8);
        log.dropped(8);
        assert_eq!(log.bytes, 12);
        log.restart();
        assert_eq!(log.place(2 * SECOND, 1, SECOND), Place { number: 8, first: 7, drops: false });
        assert_eq!(log.place(3 * SECOND, 1, SECOND), Place { number: 9, first: 9, drops: true });
    }
}
