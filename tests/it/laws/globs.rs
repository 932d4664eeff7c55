//! The cost of matching.

use core::ops::ControlFlow;

use proptest::prelude::*;
use statestore_fuzz_bodies::match_in_pieces;
use statestore_proto::glob::{Pattern, Progress};

/// Returns whether the pattern matches, and the work that this takes.
fn matching(pattern: &Pattern<'_>, key: &[u8]) -> (bool, usize) {
    let mut left = usize::MAX;
    match pattern.matches_within(key, Progress::default(), &mut left) {
        ControlFlow::Break(matches) => (matches, usize::MAX - left),
        ControlFlow::Continue(at) => panic!("interrupted at {at:?}"),
    }
}

#[test]
fn work_is_the_number_of_bytes_read() {
    for (pattern, key, matches, work) in [
        ("", "", true, 0),
        ("abc", "abc", true, 3),
        ("abc", "abx", false, 3),
        ("abc", "ab", false, 3),
        ("[a-c]?", "b\u{1f980}", true, 6),
        ("*", "any length", true, 0),
        ("a*", "a and any length", true, 1),
        // `z` is compared with each of the three bytes, and each is skipped.
        ("*z", "abc", false, 1 + 4 + 3),
        ("*bc", "abbc", true, 1 + 1 + 2 + 2 + 2),
        // Whole levels are skipped: `x` is compared three times, and the two levels have seven
        // bytes.
        ("**/x", "one/two/three", false, 3 + 3 + 8),
        ("[!]]*", "ab", true, 4),
        // A star costs its own length, regardless of what it matches.
        ("**/**/**/x", "y", false, 3 * 3 + 1),
    ] {
        let read = Pattern::new(pattern.as_bytes()).unwrap();
        assert_eq!(matching(&read, key.as_bytes()), (matches, work), "{pattern:?} on {key:?}");
    }
}

#[test]
fn match_stops_when_its_work_is_used_up() {
    let pattern = Pattern::new(b"a*bc*d").unwrap();
    let stop = |work: usize| {
        let found = pattern.matches_within(b"a--bc-bc-", Progress::default(), &mut work.clone());
        match found {
            ControlFlow::Continue(Progress { pattern, key }) => (pattern, key),
            ControlFlow::Break(matches) => panic!("{matches}"),
        }
    };
    // After the first star, at the second dash; at the `b`; after the second star.
    assert_eq!((stop(1), stop(4), stop(5), stop(10)), ((2, 2), (2, 2), (2, 3), (5, 6)));
}

proptest! {
    /// Work is at most pattern × key, and an interrupted match takes at most one step per unit of
    /// work.
    #[test]
    fn matching_is_bounded_and_can_be_interrupted(
        pattern in "([ab/?*]|[*]{2}/|\\[[a-b]\\]|\\[!a\\]){0,12}",
        key in "[ab/\u{e9}]{0,40}",
        each in 1_usize..50,
    ) {
        let Ok(read) = Pattern::new(pattern.as_bytes()) else { return Ok(()) };
        let (matches, work) = matching(&read, key.as_bytes());
        prop_assert!(work <= (pattern.len() + 1) * (key.len() + 1));
        let (found, pieces) = match_in_pieces(&read, key.as_bytes(), each);
        prop_assert_eq!(found, matches);
        prop_assert!(pieces <= work / each + 1, "{} pieces, {} work", pieces, work);
    }
}
