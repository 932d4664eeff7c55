//! Every string over a small alphabet, through each decoder.
//!
//! The expected strings are generated from the grammar, so that test and decoder share no
//! technique. A decoder must accept exactly the generated strings and decode them to the same
//! value. The canonical form of that value must decode to it again.

mod arrays;
mod frames;
mod globs;
mod texts;

use std::collections::BTreeMap;

/// Calls `check` with `prefix` followed by every string of up to `max` letters. Returns their
/// number.
fn every_string(prefix: &[u8], letters: &[u8], max: usize, mut check: impl FnMut(&[u8])) -> usize {
    let mut count = 0;
    for len in 0..=max {
        let mut picks = vec![0; len];
        let mut text = [prefix, &vec![letters[0]; len]].concat();
        loop {
            check(&text);
            count += 1;
            let Some(at) = picks.iter().rposition(|pick| pick + 1 < letters.len()) else { break };
            picks[at] += 1;
            picks[at + 1..].fill(0);
            for (slot, pick) in text[prefix.len() + at..].iter_mut().zip(&picks[at..]) {
                *slot = letters[*pick];
            }
        }
    }
    count
}

/// Every string of up to `max` letters.
fn strings(letters: &[u8], max: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    every_string(b"", letters, max, |text| all.push(text.to_vec()));
    all
}

/// Runs `decode` over every string and compares the accepted ones with those of the grammar.
fn compare<T: PartialEq + std::fmt::Debug>(
    prefix: &[u8],
    (letters, max): (&[u8], usize),
    valid: &BTreeMap<Vec<u8>, T>,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> usize {
    let mut accepted = 0;
    let tried = every_string(prefix, letters, max, |text| {
        if let Some(found) = decode(text) {
            accepted += 1;
            assert_eq!(Some(&found), valid.get(text), "{}", text.escape_ascii());
        }
    });
    assert_eq!(
        accepted,
        valid.len(),
        "a valid string after {:?} was refused",
        prefix.escape_ascii()
    );
    tried
}

#[test]
fn every_string_is_generated_once() {
    let all = strings(b"xy", 2);
    assert_eq!(all, [&b""[..], b"x", b"y", b"xx", b"xy", b"yx", b"yy"]);
    let mut unlike = strings(b"abc", 5);
    assert_eq!(unlike.len(), 1 + 3 + 9 + 27 + 81 + 243);
    unlike.sort();
    unlike.dedup();
    assert_eq!(unlike.len(), 364);
}
