//! Patterns of keys, compared with the crate `glob`.

use glob::Pattern as Other;
use statestore_fuzz_bodies::glob_text::text_for_glob;
use statestore_fuzz_bodies::match_in_pieces;
use statestore_proto::glob::Pattern;

use super::strings;

/// Compares all patterns with all keys. Returns the numbers of valid patterns and of matches.
fn compare(patterns: &[Vec<u8>], keys: &[Vec<u8>]) -> (u64, u64) {
    let keys: Vec<_> = keys.iter().map(|key| (key, text_for_glob(key))).collect();
    let (mut valid, mut matched) = (0, 0);
    for pattern in patterns {
        let (own, other) = (Pattern::new(pattern), Other::new(&text_for_glob(pattern)));
        let shown = pattern.escape_ascii();
        assert_eq!(own.is_ok(), other.is_ok(), "{shown}");
        let (Ok(own), Ok(other)) = (own, other) else { continue };
        valid += 1;
        for (key, text) in &keys {
            let matches = own.matches(key);
            assert_eq!(matches, other.matches(text), "{shown} on {}", key.escape_ascii());
            matched += u64::from(matches);
            // In steps of one unit of work.
            if pattern.len() == 4 && pattern.contains(&b'*') {
                let pieces = match_in_pieces(&own, key, 1);
                assert_eq!(pieces.0, matches, "{shown} on {text:?} in {} pieces", pieces.1);
            }
        }
    }
    println!("{valid} patterns, {} keys, {matched} matches", keys.len());
    (valid, matched)
}

#[test]
fn short_patterns_match_the_same_keys_as_the_glob_crate() {
    let (valid, matched) = compare(&strings(b"*?[]!-a/", 5), &strings(b"a/]-", 4));
    assert!(valid > 20_000 && matched > 100_000);
}

#[test]
fn byte_that_is_not_utf8_matches_like_a_character() {
    let (valid, matched) = compare(&strings(b"*?[]!\xc3\xa9", 4), &strings(b"a\xc3\xa9\xe2", 4));
    assert!(valid > 1_000 && matched > 10_000);
}
