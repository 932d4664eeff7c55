//! The text form and the order of clock values.

use std::hash::{DefaultHasher, Hash, Hasher};

use statestore_proto::hlc::{Hlc, HlcRef, NodeIdError, ParseHlcError, ParseHlcErrorKind};

use super::{check_writer, naive};

/// Oracle: a naive parser with 128-bit numbers accepts the same texts with the same parts, and
/// reports the same first error. The bare form parses to the same value. Two values compare like
/// tuples of their parts.
///
/// Input: the text of one value, or of two values with a newline between them.
pub fn hlc_text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (first, second) = text.split_once('\n').unwrap_or((&text, &text));
    let (first, second) = (check_text(first), check_text(second));
    if let (Some(first), Some(second)) = (first, second) {
        check_order(&first, &second);
        check_order(&second, &first);
    }
}

fn check_text(text: &str) -> Option<HlcRef<'_>> {
    let read = HlcRef::parse(text);
    let parts = read.map(|hlc| (hlc.wall().as_millis(), hlc.counter(), hlc.node().as_str()));
    assert_eq!(parts, parse(text), "the naive reading of {text:?}");
    let owned = text.parse::<Hlc>();
    assert_eq!(owned.as_ref().err(), read.as_ref().err(), "both readers fail alike");

    let (hlc, owned) = (read.ok()?, owned.ok()?);
    let bare = format!("{}:{}:{}", hlc.wall().as_millis(), hlc.counter(), hlc.node().as_str());
    assert_eq!(
        (hlc.to_string(), owned.encode(), owned.to_string()),
        (bare.clone(), bare.clone(), bare.clone())
    );
    check_writer(hlc.encoded_len(), bare.as_bytes(), |out| hlc.encode_into(out));
    assert!(bare.len() <= text.len(), "the bare form is the shortest");
    assert_eq!(HlcRef::parse(&bare), Ok(hlc));
    assert_eq!(hlc.try_into_owned(), Ok(owned));
    Some(hlc)
}

/// Checks the order for every combination of owned and borrowed values.
fn check_order(first: &HlcRef<'_>, second: &HlcRef<'_>) {
    let expected = key(first).cmp(&key(second));
    let [own_first, own_second]: [Hlc; 2] = [(*first).into(), (*second).into()];
    assert_eq!(first.cmp(second), expected);
    assert_eq!(own_first.cmp(&own_second), expected);
    assert_eq!(own_first.partial_cmp(second), Some(expected));
    assert_eq!(first.partial_cmp(&own_second), Some(expected));
    assert_eq!(own_first == *second, expected.is_eq());
    if expected.is_eq() {
        assert_eq!(hash(first), hash(&own_second), "equal values hash alike");
    }
}

fn key<'a>(hlc: &'a HlcRef<'_>) -> (u64, u64, &'a [u8]) {
    (hlc.wall().as_millis(), hlc.counter(), hlc.node().as_str().as_bytes())
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Parses by colons: the part before the first is the wall time, the part after the second is the
/// node.
fn parse(text: &str) -> Result<(u64, u64, &str), ParseHlcError> {
    let colons: Vec<usize> = text.match_indices(':').map(|(at, _)| at).collect();
    let mut numbers = [0; 2];
    let mut from = 0;
    for (number, nth) in numbers.iter_mut().zip(0..) {
        let fail = |kind| Err(ParseHlcError { kind, at: from });
        let Some(&to) = colons.get(nth) else { return fail(ParseHlcErrorKind::MissingPart) };
        let Some(wide) = naive::number(&text.as_bytes()[from..to]) else {
            return fail(ParseHlcErrorKind::NotDecimal);
        };
        let Ok(narrow) = u64::try_from(wide) else { return fail(ParseHlcErrorKind::Overflow) };
        *number = narrow;
        from = to + 1;
    }
    let fail = |error| Err(ParseHlcError { kind: ParseHlcErrorKind::Node(error), at: from });
    match &text[from..] {
        "" => fail(NodeIdError::Empty),
        node if node.len() > 256 => fail(NodeIdError::TooLong),
        _ if colons.len() > 2 => fail(NodeIdError::Colon),
        node => Ok((numbers[0], numbers[1], node)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naive_parser_reports_the_first_error() {
        assert_eq!(parse("001:02:n"), Ok((1, 2, "n")));
        assert_eq!(parse("18446744073709551615:0: é"), Ok((u64::MAX, 0, " é")));
        let fault = |text| parse(text).map_err(|error| (error.kind, error.at)).unwrap_err();
        assert_eq!(fault(""), (ParseHlcErrorKind::MissingPart, 0));
        assert_eq!(fault("1:2"), (ParseHlcErrorKind::MissingPart, 2));
        assert_eq!(fault("1:+2:n"), (ParseHlcErrorKind::NotDecimal, 2));
        assert_eq!(fault("18446744073709551616:0:n"), (ParseHlcErrorKind::Overflow, 0));
        assert_eq!(fault("1:2:"), (ParseHlcErrorKind::Node(NodeIdError::Empty), 4));
        let long = format!("1:2:{}:", "n".repeat(256));
        assert_eq!(fault(&long), (ParseHlcErrorKind::Node(NodeIdError::TooLong), 4));
        assert_eq!(fault("1:2:a:b"), (ParseHlcErrorKind::Node(NodeIdError::Colon), 4));
    }
}
