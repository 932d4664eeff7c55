//! Messages about changes that are skipped, refused or repeated: one line for each kind, at an
//! interval.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

use crate::output::notice;

/// Minimum time between two lines of one kind: devices may send thousands of messages a second.
const INTERVAL: Duration = Duration::from_secs(10);

/// The kinds of lines of a command. They are constants of the program, so their number is bounded.
#[derive(Default)]
pub(crate) struct Notices(BTreeMap<&'static str, Kind>);

#[derive(Default)]
struct Kind {
    /// Time of the last line.
    printed: Option<Instant>,
    /// Events since the last line, which were not printed.
    omitted: u64,
}

impl Notices {
    /// Prints a line, unless one of this kind was printed within [`INTERVAL`]. The next line
    /// contains the number of omitted ones.
    pub(crate) fn print(&mut self, kind: &'static str, text: impl Display) {
        if let Some(omitted) = self.count(kind, Instant::now()) {
            match omitted {
                0 => notice(text),
                omitted => notice(format_args!("{text} ({omitted} others since the last line)")),
            }
        }
    }

    /// Counts an event. If it must be printed, returns the number of events since the last line.
    fn count(&mut self, kind: &'static str, now: Instant) -> Option<u64> {
        let kind = self.0.entry(kind).or_default();
        if kind.printed.is_some_and(|printed| now.duration_since(printed) < INTERVAL) {
            kind.omitted += 1;
            return None;
        }
        kind.printed = Some(now);
        Some(std::mem::take(&mut kind.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_one_line_for_each_interval() {
        let (mut notices, start) = (Notices::default(), Instant::now());
        assert_eq!(notices.count("a", start), Some(0));
        assert_eq!(notices.count("b", start), Some(0), "another kind");
        assert_eq!([notices.count("a", start), notices.count("a", start)], [None, None]);
        assert_eq!(notices.count("a", start + INTERVAL), Some(2));
        assert_eq!(notices.count("a", start + INTERVAL), None);
        assert_eq!(notices.count("b", start + 3 * INTERVAL), Some(0));
    }
}
