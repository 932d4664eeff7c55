//! Patterns of keys, compared with the crate `glob`.

use glob::Pattern as Other;
use statestore_fuzz_bodies::match_in_pieces;
use statestore_proto::glob::Pattern;

use super::strings;

#[test]
fn short_patterns_match_the_same_keys_as_the_glob_crate() {
    let keys = strings(b"a/]-", 4);
    let keys: Vec<&str> = keys.iter().map(|key| std::str::from_utf8(key).unwrap()).collect();
    let (mut valid, mut matched) = (0, 0);
    for pattern in strings(b"*?[]!-a/", 5) {
        let text = std::str::from_utf8(&pattern).unwrap();
        let (own, other) = (Pattern::new(&pattern), Other::new(text));
        assert_eq!(own.is_ok(), other.is_ok(), "{text:?}");
        let (Ok(own), Ok(other)) = (own, other) else { continue };
        valid += 1;
        for key in &keys {
            let matches = own.matches(key.as_bytes());
            assert_eq!(matches, other.matches(key), "{text:?} on {key:?}");
            matched += u64::from(matches);
            // In steps of one unit of work.
            if pattern.len() == 4 && pattern.contains(&b'*') {
                let pieces = match_in_pieces(&own, key.as_bytes(), 1);
                assert_eq!(pieces.0, matches, "{text:?} on {key:?} in {} pieces", pieces.1);
            }
        }
    }
    println!("{valid} patterns, {} keys, {matched} matches", keys.len());
    assert!(valid > 20_000 && matched > 100_000);
}
