//! Comparison with another implementation: `redis-protocol`, whose RESP3 decoder accepts a superset
//! of this grammar.
//!
//! Intended differences. *They* is `redis-protocol`.
//!
//! | Input | They | We |
//! |---|---|---|
//! | a length or integer with `+`, a length `-0` | accept | refuse: digits only |
//! | any two bytes after the content of a blob string | accept | refuse: CRLF |
//! | lone CR or LF in a `+` or `-` line | accept | refuse |
//! | attributes (`\|`) in front of a blob string | accept | refuse |
//! | other frames, nested arrays | accept | refuse |
//! | `-` line without `ERR` | accept | refuse, except `-1`, an integer of the specification |
//! | `-ERR` line without CRLF | need more | accept |
//! | `$-1` | refuse: the mark of a stream | accept as absent |
//! | bytes after the message | leave them | refuse |
//!
//! Both accept leading zeros. Both refuse `$?` and `*?`: their decoder of complete frames refuses
//! streams.

use std::ops::Range;

use redis_protocol::resp3::decode::complete::decode_range;
use redis_protocol::resp3::types::RangeFrame;
use statestore_proto::resp::{Blobs, Frame, decode_array, decode_frame};

/// Maximum number of elements that are compared. Of longer arrays, the number is compared too.
const COMPARED: usize = 16;

/// Markers of frames that contain frames. Their decoder recurses, and deep nesting exhausts its
/// stack.
const AGGREGATES: &[u8] = b"*~%|>";

/// Greater than the depth of any input that this decoder accepts, and safe for any stack.
const DEPTH_MAX: usize = 32;

/// Oracle: `redis-protocol` decodes the same arrays and reply frames with the same content, except
/// for the differences in the table above. Each of those must occur.
///
/// Input: the payload of a request, a reply or a notification.
pub fn differential(data: &[u8]) {
    // The depth of an input is at most its number of markers. Markers inside of contents count too;
    // this only skips more inputs.
    if data.iter().filter(|byte| AGGREGATES.contains(byte)).count() > DEPTH_MAX {
        return;
    }
    let theirs = match decode_range(data) {
        Ok(Some((frame, consumed))) if consumed == data.len() => Some(frame),
        _ => None,
    };
    check_array(data, decode_array(data).ok(), theirs.as_ref());
    check_frame(data, decode_frame(data).ok(), theirs.as_ref());
}

fn check_array(data: &[u8], ours: Option<Blobs<'_, COMPARED>>, theirs: Option<&RangeFrame>) {
    let theirs = theirs.and_then(blob_ranges).filter(|ranges| strict_array(data, ranges));
    assert_eq!(ours.is_some(), theirs.is_some(), "one of the two refuses this array");
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
    assert_eq!(ours.total(), theirs.len());
    let contents: Vec<&[u8]> =
        theirs.into_iter().take(COMPARED).map(|range| &data[range]).collect();
    assert_eq!(ours.as_slice(), contents);
}

/// The ranges of the elements, if the frame is a flat array of blob strings.
fn blob_ranges(frame: &RangeFrame) -> Option<Vec<Range<usize>>> {
    let RangeFrame::Array { data, .. } = frame else { return None };
    let range = |element: &RangeFrame| match element {
        RangeFrame::BlobString { data, .. } => Some(data.0..data.1),
        _ => None,
    };
    data.iter().map(range).collect()
}

/// Returns whether everything around the contents matches the strict grammar.
fn strict_array(data: &[u8], contents: &[Range<usize>]) -> bool {
    let first = contents.first().map_or(data.len(), |content| content.start);
    // The header of the array ends at the header of the first element.
    let Some(line) = data[..first].iter().position(|byte| *byte == b'\n') else { return false };
    let mut at = line + 1;
    is_header(&data[..at], b'*')
        && contents.iter().all(|content| {
            let strict = strict_blob(data, at, content);
            at = content.end + 2;
            strict
        })
}

/// Returns whether the blob string at `at` consists of its length, this content and CRLF.
fn strict_blob(data: &[u8], at: usize, content: &Range<usize>) -> bool {
    is_header(&data[at..content.start], b'$') && data[content.end..].starts_with(b"\r\n")
}

fn is_header(line: &[u8], marker: u8) -> bool {
    let digits = line.strip_prefix(&[marker]).and_then(|line| line.strip_suffix(b"\r\n"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

fn check_frame(data: &[u8], ours: Option<Frame<&[u8]>>, theirs: Option<&RangeFrame>) {
    let one_line = |text: &[u8]| !text.contains(&b'\r') && !text.contains(&b'\n');
    let expected = match theirs {
        // Attributes before the frame move the content away from its usual offset.
        Some(RangeFrame::SimpleString { data: (1, end), .. }) => {
            Some(&data[1..*end]).filter(|text| one_line(text)).map(Frame::Simple)
        }
        Some(RangeFrame::SimpleError { data: (1, end), .. }) => {
            Some(&data[1..*end]).filter(|line| one_line(line)).and_then(error_frame)
        }
        Some(RangeFrame::Number { data: number, .. }) if data.first() == Some(&b':') => {
            Some(Frame::Integer(*number)).filter(|_| !data.contains(&b'+'))
        }
        Some(RangeFrame::BlobString { data: (start, end), .. }) => Some(&data[*start..*end])
            .filter(|_| strict_blob(data, 0, &(*start..*end)))
            .map(Frame::Blob),
        _ if data == b"$-1\r\n" => Some(Frame::Null),
        _ if one_line(data) => {
            data.strip_prefix(b"-").filter(|line| *line != b"1").and_then(error_frame)
        }
        _ => None,
    };
    assert_eq!(ours, expected);
}

/// Parses a `-` line without its marker and its end.
fn error_frame(line: &[u8]) -> Option<Frame<&[u8]>> {
    if line == b"1" {
        return Some(Frame::Integer(-1));
    }
    let rest = line.strip_prefix(b"ERR")?;
    match rest.strip_prefix(b":").unwrap_or(rest) {
        [] => Some(Frame::Error(&[])),
        [b' ', text @ ..] => Some(Frame::Error(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_forms_are_accepted_and_others_refused() {
        let (data, content) = (b"*1\r\n$1\r\na\r\n".as_slice(), 8..9);
        assert!(strict_array(data, std::slice::from_ref(&content)));
        assert!(!strict_array(b"*1\r\n$1\r\na__", std::slice::from_ref(&content)));
        assert!(!strict_array(b"*+\r\n$1\r\na\r\n", std::slice::from_ref(&content)));
        assert!(!strict_array(b"*1\r\n$+\r\na\r\n", std::slice::from_ref(&content)));
        assert!(strict_array(b"*0\r\n", &[]) && !strict_array(b"*-0\r\n", &[]));
        assert!(
            is_header(b"$007\r\n", b'$')
                && !is_header(b"$\r\n", b'$')
                && !is_header(b"$1\r\n", b'*')
        );
    }

    #[test]
    fn error_lines_are_parsed_and_others_refused() {
        assert_eq!(error_frame(b"ERR a b"), Some(Frame::Error(b"a b".as_slice())));
        assert_eq!(error_frame(b"ERR:"), Some(Frame::Error(b"".as_slice())));
        assert_eq!(error_frame(b"1"), Some(Frame::Integer(-1)));
        assert_eq!((error_frame(b"ERRa"), error_frame(b"WRONG a")), (None, None));
    }
}
