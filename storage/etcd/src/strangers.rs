//! What somebody else has left below the prefix: not used, and named.

use std::collections::BTreeSet;

use tracing::warn;

use crate::error::preview;

/// Keys that are named; more would fill the log, and whoever may write there can make as many as etcd holds.
const NAMED_MAX: usize = 8;

/// Names each once.
#[derive(Debug, Default)]
pub(crate) struct Strangers(BTreeSet<String>);

impl Strangers {
    /// Something is wrong with this key.
    pub(crate) fn name(&mut self, key: &[u8], what: &str) {
        if self.take(key) {
            warn!(key = preview(key), "{what}");
            if self.0.len() == NAMED_MAX {
                warn!("somebody else writes below the prefix of the store; no more of it is named");
            }
        }
    }

    /// A key that no store makes.
    pub(crate) fn stray(&mut self, key: &[u8]) {
        self.name(key, "a key that no store has made, below the prefix of the store, is ignored");
    }

    /// Whether it is news.
    fn take(&mut self, key: &[u8]) -> bool {
        self.0.len() < NAMED_MAX && self.0.insert(preview(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named_once_and_few_are() {
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
