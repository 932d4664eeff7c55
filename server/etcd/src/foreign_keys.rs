//! Warnings about keys below the prefix that no store has written.

use std::collections::BTreeSet;

use tracing::warn;

use crate::error::preview;

/// Maximum number of keys that are logged, because another program can write any number of them.
const LOGGED_MAX: usize = 8;

/// Keys that were logged.
#[derive(Debug, Default)]
pub(crate) struct ForeignKeys(BTreeSet<String>);

impl ForeignKeys {
    /// Logs a warning about this key, once.
    pub(crate) fn warn_once(&mut self, key: &[u8], message: &str) {
        if self.insert(key) {
            warn!(key = preview(key), "{message}");
            if self.0.len() == LOGGED_MAX {
                warn!("another program writes below the prefix; no more of its keys are logged");
            }
        }
    }

    /// Logs that this key is ignored, because it does not have the form of a store's key.
    pub(crate) fn warn_ignored(&mut self, key: &[u8]) {
        self.warn_once(key, "key below the prefix ignored: no store has written it");
    }

    /// Returns whether a warning about this key must be logged.
    fn insert(&mut self, key: &[u8]) -> bool {
        self.0.len() < LOGGED_MAX && self.0.insert(preview(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_logged_once_up_to_the_limit() {
        let mut foreign_keys = ForeignKeys::default();
        let mut logged = 0;
        for _ in 0..2 {
            for key in 0..100_u8 {
                logged += usize::from(foreign_keys.insert(&[key]));
            }
        }
        assert_eq!(logged, LOGGED_MAX);
    }
}
