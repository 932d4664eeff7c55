//! The text form `{wall}:{counter}:{node}`: padded or bare when parsing, bare when writing.

use core::fmt;
use core::str::FromStr;

use super::{Hlc, HlcRef, Node, NodeIdError, NodeIdRef};
use crate::buffer::{BufferTooSmall, Sink, Slice, decimal_len};

/// The text is not a clock value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct ParseHlcError {
    /// The error.
    pub kind: ParseHlcErrorKind,
    /// Offset of the invalid part in bytes.
    pub at: usize,
}

/// The kind of a [`ParseHlcError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseHlcErrorKind {
    /// Fewer than three parts.
    #[error("missing part")]
    MissingPart,
    /// The wall clock or counter is empty or contains a byte other than a decimal digit.
    #[error("not a decimal number")]
    NotDecimal,
    /// The wall clock or counter exceeds 64 bits.
    #[error("number out of range")]
    Overflow,
    /// The third part is not a node id.
    #[error(transparent)]
    Node(NodeIdError),
}

impl<'a> HlcRef<'a> {
    /// Parses a clock value and borrows its node id, without an allocation.
    ///
    /// Deployed clients pad the wall clock to 15 digits and the counter to 5. Any number of leading
    /// zeros is accepted.
    ///
    /// # Errors
    /// [`ParseHlcError`] for the first invalid part.
    ///
    /// ```
    /// use statestore_proto::hlc::{HlcRef, ParseHlcErrorKind};
    ///
    /// let padded = HlcRef::parse("001696374425000:00000:CLIENT")?;
    /// assert_eq!(padded.to_string(), "1696374425000:0:CLIENT");
    /// let error = HlcRef::parse("+1:0:CLIENT").unwrap_err();
    /// assert_eq!(error.kind, ParseHlcErrorKind::NotDecimal);
    /// # Ok::<(), statestore_proto::hlc::ParseHlcError>(())
    /// ```
    pub fn parse(text: &'a str) -> Result<Self, ParseHlcError> {
        Self::parse_parts(text).map(|(hlc, _)| hlc)
    }

    /// Parses a clock value; returns the offset of its node id too.
    fn parse_parts(text: &'a str) -> Result<(Self, usize), ParseHlcError> {
        let (wall, rest) = number(text, 0)?;
        let counter_at = text.len() - rest.len();
        let (counter, node) = number(rest, counter_at)?;
        let node_at = text.len() - node.len();
        match NodeIdRef::new(node) {
            Ok(node) => Ok((Hlc { wall, counter, node }, node_at)),
            Err(error) => Err(ParseHlcError { kind: ParseHlcErrorKind::Node(error), at: node_at }),
        }
    }
}

/// Parses digits up to a colon; returns the number and the text after the colon.
fn number(text: &str, at: usize) -> Result<(u64, &str), ParseHlcError> {
    let fail = |kind| Err(ParseHlcError { kind, at });
    let mut number = Some(0_u64);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => {
                number = number
                    .and_then(|number| number.checked_mul(10)?.checked_add(u64::from(byte - b'0')));
            }
            b':' if index > 0 => {
                let rest = text.get(index + 1..).unwrap_or_default();
                return number.map_or_else(
                    || fail(ParseHlcErrorKind::Overflow),
                    |number| Ok((number, rest)),
                );
            }
            _ if text.contains(':') => return fail(ParseHlcErrorKind::NotDecimal),
            _ => break,
        }
    }
    fail(ParseHlcErrorKind::MissingPart)
}

impl<N: Node> Hlc<N> {
    /// Length of the bare text form in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        decimal_len(self.wall) + 1 + decimal_len(self.counter) + 1 + self.node.as_bytes().len()
    }

    /// Writes the bare text form to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BufferTooSmall`] when `out` is shorter than [`encoded_len`](Self::encoded_len); `out` is
    /// then unchanged.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let len = self.encoded_len();
        self.put(&mut Slice::new(out, len)?);
        Ok(len)
    }

    /// The bare text form, in one allocation of its exact length.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn encode(&self) -> alloc::string::String {
        let mut text = alloc::vec::Vec::with_capacity(self.encoded_len());
        self.put(&mut text);
        // Digits, colons and a node id, which is text.
        alloc::string::String::from_utf8(text).unwrap_or_default()
    }

    fn put(&self, sink: &mut impl Sink) {
        sink.put_decimal(self.wall);
        sink.put(b":");
        sink.put_decimal(self.counter);
        sink.put(b":");
        sink.put(self.node.as_bytes());
    }
}

impl<N: Node> fmt::Display for Hlc<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Most node ids fit. One part is checked and written in less time than five.
        let mut buffer = [0; 64];
        let written = self.encode_into(&mut buffer).ok().and_then(|len| buffer.get(..len));
        if let Some(text) = written {
            return f.write_str(core::str::from_utf8(text).map_err(|_| fmt::Error)?);
        }
        write!(f, "{}:{}:{}", self.wall, self.counter, self.node.as_str())
    }
}

impl FromStr for Hlc {
    type Err = ParseHlcError;

    fn from_str(text: &str) -> Result<Self, ParseHlcError> {
        let (hlc, at) = HlcRef::parse_parts(text)?;
        hlc.try_into_owned()
            .map_err(|error| ParseHlcError { kind: ParseHlcErrorKind::Node(error), at })
    }
}
