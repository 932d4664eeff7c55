//! Patterns of keys.

use statestore_proto::glob::{Pattern, PatternErrorKind};

use super::vectors;
use crate::support::same;

#[test]
fn patterns_match_the_keys_in_the_file() {
    vectors("globs.txt").run(70, |case| {
        let (pattern, key) = (case.bytes("pattern")?, case.bytes("key")?);
        let found = match Pattern::new(&pattern).map_err(|error| error.kind) {
            Ok(pattern) if pattern.matches(&key) => "match",
            Ok(_) => "no",
            Err(PatternErrorKind::Class) => "refused-class",
            Err(PatternErrorKind::Levels) => "refused-levels",
            Err(PatternErrorKind::Stars) => "refused-stars",
            Err(_) => "another problem",
        };
        same("result", &found, &case.text("result")?)
    });
}
