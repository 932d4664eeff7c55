//! Warnings about keys below the prefix that no store has written.

use std::collections::BTreeSet;

use tracing::warn;

use crate::error::preview;

/// Maximum number of keys that are logged, because another program can write any number of them.
const NAMED_MAX: usize = 8;

/// Keys that were logged.
#[derive(Debug, Default)]
pub(crate) struct Strangers(BTreeSet<String>);

impl Strangers {
    /// Logs a warning about this key, once.
    pub(crate) fn name(&mut self, key: &[u8], what: &str) {
        if self.take(key) {
            warn!(key = preview(key), "{what}");
            if self.0.len() == NAMED_MAX {
                warn!("another program writes below the prefix; no more of its keys are logged");
            }
        }
    }

    /// Logs that this key is ignored, because it does not have the form of a store's key.
    pub(crate) fn stray(&mut self, key: &[u8]) {
        self.name(key, "key below the prefix ignored: no store has written it");
    }

    /// Returns whether a warning about this key must be logged.
    fn take(&mut self, key: &[u8]) -> bool {
        self.0.len() < NAMED_MAX && self.0.insert(preview(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_logged_once_up_to_the_limit() {
        let mut strangers = Strangers::default();
        let mut named = 0;
        for _ in 0..2 {
            for key in 0..100_u8 {
                named += usize::from(strangers.take(&[key]));
            }
        }
        assert_eq!(named, NAMED_MAX);
    }
}
