//! Patterns for keys.

use std::ops::ControlFlow;

use glob::Pattern as Other;
use statestore_proto::glob::{Pattern, PatternErrorKind, Progress};

use crate::glob_text::text_for_glob;

/// The other implementation tries every choice for every star, so it gets only a few stars.
const STARS_MAX: usize = 5;
const LEN_MAX: usize = 96;

/// Matches with a limited amount of work per call. Returns the result and the number of calls.
///
/// # Panics
/// If a call makes no progress, or stops before it has used its work.
#[must_use]
pub fn match_in_pieces(pattern: &Pattern<'_>, key: &[u8], each: usize) -> (bool, usize) {
    let (mut from, mut pieces) = (Progress::default(), 1);
    loop {
        let mut work = each;
        match pattern.matches_within(key, from, &mut work) {
            ControlFlow::Break(matches) => return (matches, pieces),
            ControlFlow::Continue(next) => {
                assert!((from.pattern, from.key) < (next.pattern, next.key) && work == 0);
                (from, pieces) = (next, pieces + 1);
            }
        }
    }
}

/// Oracle: the crate `glob` accepts the same patterns and matches the same keys.
///
/// Input: a pattern, a newline and a key.
pub fn glob(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (pattern, key) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let read = Pattern::new(pattern);
    let (text, other_key) = (text_for_glob(pattern), text_for_glob(key));
    let other = Other::new(&text);
    let shown = pattern.escape_ascii();
    assert_eq!(read.is_ok(), other.is_ok(), "{shown}");
    let (Ok(read), Ok(other)) = (read, other) else {
        let error = read.expect_err("both refuse");
        let begins = if error.kind == PatternErrorKind::Class { b'[' } else { b'*' };
        assert_eq!(pattern.get(error.at), Some(&begins), "{shown}: {error}");
        return;
    };
    let matches = read.matches(key);
    for each in [1, 7] {
        assert_eq!(match_in_pieces(&read, key, each).0, matches, "{shown}");
    }
    // No progress value causes a panic.
    let (at, of) = (data.len() / 3, data.first().copied().unwrap_or_default().into());
    _ = read.matches_within(key, Progress { pattern: at, key: of }, &mut 100);
    let prefix = read.literal_prefix();
    assert!(pattern.starts_with(prefix) && (!matches || key.starts_with(prefix)), "{shown}");
    // These characters would be taken for bytes.
    let is_ambiguous = |bytes: &[u8]| {
        bytes.utf8_chunks().any(|chunk| chunk.valid().chars().any(|char| char >= '\u{10ff00}'))
    };
    let stars = text.matches('*').count();
    if stars <= STARS_MAX
        && text.len() <= LEN_MAX
        && other_key.len() <= LEN_MAX
        && !is_ambiguous(pattern)
        && !is_ambiguous(key)
    {
        assert_eq!(matches, other.matches(&other_key), "{shown} on {}", key.escape_ascii());
    }
}
