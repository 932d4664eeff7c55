//! The log of answers: one entry for the answers of each transaction, dropped from its beginning.
//!
//! What is old enough, or too much, goes with the transaction that adds the next entry. So it is bounded, and a store that
//! writes nothing leaves it as it is.

use std::collections::BTreeMap;
use std::time::Duration;

/// Entries that are kept, at most. A store remembers 16,384 answers unless it is told otherwise; here there may be one for
/// each entry, and those of a client that asks seldom must not give way to those of one that asks often.
const ENTRIES_MAX: usize = 65_536;

/// Bytes of all entries, at most: four times what a store remembers unless it is told otherwise.
const BYTES_MAX: usize = 64 << 20;

/// What is known of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    bytes: usize,
    /// For how long it is wanted.
    kept: Duration,
    /// Until when, by a clock of the writer that begins at zero.
    until: Duration,
}

/// Where the next entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its number.
    pub(crate) number: u64,
    /// All entries before this one are dropped.
    pub(crate) first: u64,
    /// Whether there are any.
    pub(crate) drops: bool,
}

impl Answers {
    /// An entry that another has written. How long it is wanted counts from [`restart`](Self::restart).
    pub(crate) fn found(&mut self, number: u64, bytes: usize, kept: Duration) {
        self.dropped(number);
        self.bytes += bytes;
        self.entries.insert(number, Entry { bytes, kept, until: Duration::MAX });
    }

    /// An entry is gone.
    pub(crate) fn dropped(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.bytes -= entry.bytes;
        }
    }

    /// From now on this side writes, at zero of its clock. No clock says for how long what was found has been wanted.
    pub(crate) fn restart(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.until = entry.kept);
    }

    /// Adds an entry, and drops what is in its way.
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
    fn what_has_expired_goes_from_the_beginning() {
        let mut log = Answers::default();
        assert_eq!(log.place(SECOND, 10, SECOND), Place { number: 0, first: 0, drops: false });
        assert_eq!(log.place(SECOND, 10, 9 * SECOND), Place { number: 1, first: 0, drops: false });
        // The first is over, the second is not, and holds up the third.
        assert_eq!(log.place(2 * SECOND, 10, SECOND), Place { number: 2, first: 1, drops: true });
        assert_eq!(log.place(5 * SECOND, 10, SECOND), Place { number: 3, first: 1, drops: false });
        assert_eq!(log.place(10 * SECOND, 10, SECOND), Place { number: 4, first: 4, drops: true });
        assert_eq!(log.bytes, 10);
    }

    #[test]
    fn it_is_bounded_in_bytes_and_entries() {
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
    fn what_another_wrote_is_kept_for_its_whole_time_again() {
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
