//! Checks shared by several test modules.

use statestore_proto::BufferTooSmall;

/// The three encoders of a message, which must agree.
pub(crate) struct Writers<F> {
    pub(crate) encoded_len: usize,
    pub(crate) encode: Vec<u8>,
    pub(crate) encode_into: F,
}

impl<F: Fn(&mut [u8]) -> Result<usize, BufferTooSmall>> Writers<F> {
    /// Checks that all three return `expected`, and that a buffer that is too small is unchanged.
    pub(crate) fn check(&self, expected: &[u8]) -> Result<(), String> {
        const FILL: u8 = 0xa5;
        let len = expected.len();
        if self.encode != expected {
            return Err(format!("encode gives {}", self.encode.escape_ascii()));
        }
        if self.encode.capacity() != len || self.encoded_len != len {
            let (capacity, announced) = (self.encode.capacity(), self.encoded_len);
            return Err(format!(
                "{len} bytes, but encoded_len is {announced} and encode reserved {capacity}"
            ));
        }
        for room in [len, len + 3] {
            let mut out = vec![FILL; room];
            let written = (self.encode_into)(&mut out);
            let (head, rest) = out.split_at(len);
            if written != Ok(len) || head != expected || rest.iter().any(|byte| *byte != FILL) {
                return Err(format!("encode_into with room for {room}: {written:?}"));
            }
        }
        for room in (0..len.min(40)).chain(len.checked_sub(1)) {
            let mut out = vec![FILL; room];
            let refused = (self.encode_into)(&mut out);
            if refused != Err(BufferTooSmall { needed: len })
                || out.iter().any(|byte| *byte != FILL)
            {
                return Err(format!("encode_into with room for {room}: {refused:?}"));
            }
        }
        Ok(())
    }
}

/// Compares two values; the error contains both.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}"))
}

/// Checks that every strict prefix and every extension by one byte is accepted if and only if
/// `tolerated` returns true.
pub(crate) fn check_edges(
    payload: &[u8],
    accepts: impl Fn(&[u8]) -> bool,
    tolerated: impl Fn(&[u8]) -> bool,
) -> Result<(), String> {
    let prefixes = (0..payload.len()).map(|len| payload[..len].to_vec());
    let extensions = (0..=u8::MAX).map(|byte| [payload, &[byte]].concat());
    for edge in prefixes.chain(extensions) {
        let (accepted, expected) = (accepts(&edge), tolerated(&edge));
        if accepted != expected {
            return Err(format!("{}: accepted is {accepted}", edge.escape_ascii()));
        }
    }
    Ok(())
}

/// Returns whether the payload is an error reply without a line end: the only message that may end
/// or continue at any byte of its text.
pub(crate) fn open_error(payload: &[u8]) -> bool {
    let text = payload.strip_prefix(b"-ERR").map(|rest| rest.strip_prefix(b":").unwrap_or(rest));
    let text = text.filter(|text| text.is_empty() || text.starts_with(b" "));
    text.is_some_and(|text| !text.iter().any(|byte| matches!(byte, b'\r' | b'\n')))
}
