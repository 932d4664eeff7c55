//! Against another implementation: `redis-protocol`, whose RESP3 decoder reads a superset of our
//! grammar.
//!
//! Where the two differ on purpose. *They* is `redis-protocol`.
//!
//! | Input | They | We |
//! |---|---|---|
//! | a length or integer with `+`, a length `-0` | accept | refuse: digits only |
//! | any two bytes after the content of a blob string | accept | refuse: CRLF |
//! | lone CR or LF in a `+` or `-` line | accept | refuse |
//! | attributes (`\|`) in front of a blob string | accept | refuse |
//! | other frames, nested arrays | accept | refuse |
//! | `-` line without `ERR` | accept | refuse, but for `-1`, an integer of the protocol page |
//! | `-ERR` line without CRLF | need more | accept |
//! | `$-1` | refuse: the mark of a stream | accept as absent |
//! | bytes after the message | leave them | refuse |
//!
//! Leading zeros are no difference: both accept them. Neither are `$?` and `*?`: streams are
//! refused by their decoder of complete frames.

use std::ops::Range;

use redis_protocol::resp3::decode::complete::decode_range;
use redis_protocol::resp3::types::RangeFrame;
use statestore_proto::resp::{Blobs, Frame, decode_array, decode_frame};

/// Elements that are compared; longer arrays are compared by these and their number.
const COMPARED: usize = 16;

/// Markers of frames that hold frames. Their decoder recurses into those, and enough of them
/// exhaust its stack.
const AGGREGATES: &[u8] = b"*~%|>";

/// More than any input needs that we accept, and nothing for any stack.
const DEPTH_MAX: usize = 32;

/// Oracle: what we read as an array or a reply frame, `redis-protocol` reads with the same content
/// to the same end, and the other way round, apart from the differences in the table above, each of
/// which must show.
pub fn differential(data: &[u8]) {
    // No input nests deeper than it has markers. Aggregates inside of contents count too, which
    // only skips inputs.
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

/// Where the elements are, when the frame is a flat array of blob strings.
fn blob_ranges(frame: &RangeFrame) -> Option<Vec<Range<usize>>> {
    let RangeFrame::Array { data, .. } = frame else { return None };
    let range = |element: &RangeFrame| match element {
        RangeFrame::BlobString { data, .. } => Some(data.0..data.1),
        _ => None,
    };
    data.iter().map(range).collect()
}

/// Returns whether everything around the contents is what our grammar demands.
fn strict_array(data: &[u8], contents: &[Range<usize>]) -> bool {
    let first = contents.first().map_or(data.len(), |content| content.start);
    // The line of the array itself ends where the line of the first element begins.
    let Some(line) = data[..first].iter().position(|byte| *byte == b'\n') else { return false };
    let mut at = line + 1;
    is_header(&data[..at], b'*')
        && contents.iter().all(|content| {
            let strict = strict_blob(data, at, content);
            at = content.end + 2;
            strict
        })
}

/// Returns whether the blob string that begins at `at` is its length, this content and CRLF.
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
        // Attributes in front move the content away from where the frame begins.
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

/// The frame of a `-` line without marker and end.
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
    fn strictness() {
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
    fn error_lines() {
        assert_eq!(error_frame(b"ERR a b"), Some(Frame::Error(b"a b".as_slice())));
        assert_eq!(error_frame(b"ERR:"), Some(Frame::Error(b"".as_slice())));
        assert_eq!(error_frame(b"1"), Some(Frame::Integer(-1)));
        assert_eq!((error_frame(b"ERRa"), error_frame(b"WRONG a")), (None, None));
    }
}
