//! How far a process has seen the chain get, over all of its journals.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::head::Head;

/// The furthest head that was seen.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Mutex<Option<Head>>>);

impl Known {
    pub(crate) fn see(&self, head: &Head) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.place() < head.place()) {
            *known = Some(head.clone());
        }
    }

    /// The head that was seen.
    pub(crate) fn current(&self) -> Option<Head> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The head that was seen, if what is found now cannot follow on it.
    pub(crate) fn contradicts(&self, found: Option<&Head>) -> Option<Head> {
        self.current().filter(|known| found.is_none_or(|found| found.place() < known.place()))
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::time::UnixTime;

    use super::*;

    #[test]
    fn what_is_behind_what_was_seen_contradicts_it() {
        let head = |epoch, sequence| Head { epoch, sequence, ..Head::first(UnixTime::default()) };
        let known = Known::default();
        assert_eq!(known.contradicts(None), None, "nothing was seen");
        known.see(&head(2, 10));
        known.see(&head(2, 9));
        known.see(&head(1, 99));
        for found in [None, Some(head(2, 9)), Some(head(1, 99)), Some(head(0, 0))] {
            assert_eq!(known.contradicts(found.as_ref()), Some(head(2, 10)), "{found:?}");
        }
        for found in [head(2, 10), head(2, 11), head(3, 0)] {
            assert_eq!(known.contradicts(Some(&found)), None, "{found:?}");
        }
    }
}
