//! Latest head of the chain that a process has seen, across all of its journals.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::head::Head;

/// The latest head that was seen.
#[derive(Clone, Default)]
pub(crate) struct KnownHead(Arc<Mutex<Option<Head>>>);

impl KnownHead {
    pub(crate) fn observe(&self, head: &Head) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.position() < head.position()) {
            *known = Some(head.clone());
        }
    }

    /// Returns the latest head that was seen.
    pub(crate) fn current(&self) -> Option<Head> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the latest head that was seen, if the head `found` is earlier or missing.
    pub(crate) fn contradicts(&self, found: Option<&Head>) -> Option<Head> {
        self.current().filter(|known| found.is_none_or(|found| found.position() < known.position()))
    }
}

impl fmt::Debug for KnownHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownHead")
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::time::UnixTime;

    use super::*;

    #[test]
    fn earlier_or_missing_head_contradicts_the_latest_one() {
        let head = |epoch, sequence| Head { epoch, sequence, ..Head::first(UnixTime::default()) };
        let known = KnownHead::default();
        assert_eq!(known.contradicts(None), None, "no head was seen");
        known.observe(&head(2, 10));
        known.observe(&head(2, 9));
        known.observe(&head(1, 99));
        for found in [None, Some(head(2, 9)), Some(head(1, 99)), Some(head(0, 0))] {
            assert_eq!(known.contradicts(found.as_ref()), Some(head(2, 10)), "{found:?}");
        }
        for found in [head(2, 10), head(2, 11), head(3, 0)] {
            assert_eq!(known.contradicts(Some(&found)), None, "{found:?}");
        }
    }
}
