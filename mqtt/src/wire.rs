//! Data types of the wire format: integers, strings, binary data and lengths.
//!
//! Reading borrows, and checks each length against the available bytes. Writing accepts any
//! [`Sink`]. The sink [`Length`] only counts, since MQTT writes lengths before contents.

use core::fmt::{self, Write as _};

use crate::error::{Malformed, Unwritable};
use crate::hidden::Hidden;

/// Maximum of a variable byte integer: four times seven bits.
pub const VARINT_MAX: u32 = (1 << 28) - 1;

/// Reads from a byte slice.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Reader<'a>(&'a [u8]);

/// Omits the bytes.
impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&Hidden(self.0)).finish()
    }
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether all bytes were read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The remaining bytes, without reading them.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Reads the remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    /// Reads the next `len` bytes.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Malformed::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }

    /// Reads a byte.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a two byte integer.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn two(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a four byte integer.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn four(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a variable byte integer of minimal length.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::Varint`].
    pub fn varint(&mut self) -> Result<u32, Malformed> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let padded = byte == 0 && shift > 0;
                return if padded { Err(Malformed::Varint) } else { Ok(number) };
            }
        }
        Err(Malformed::Varint)
    }

    /// Reads binary data with a length of two bytes.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.two()?;
        self.take(len.into())
    }

    /// Reads a string with a length of two bytes.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::Text`].
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.binary()?;
        let text = core::str::from_utf8(bytes).map_err(|_| Malformed::Text)?;
        if is_plain(bytes) || !bytes.contains(&0) { Ok(text) } else { Err(Malformed::Text) }
    }

    /// Reads a string and returns its bytes. Checks it as [`text`](Self::text) does, but in less time:
    /// an ASCII string is not decoded.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::Text`].
    pub(crate) fn text_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let bytes = self.binary()?;
        let is_text =
            is_plain(bytes) || (!bytes.contains(&0) && core::str::from_utf8(bytes).is_ok());
        if is_text { Ok(bytes) } else { Err(Malformed::Text) }
    }

    /// Reads a string that was checked before. Does not search for NUL again.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::Text`].
    pub(crate) fn checked_text(&mut self) -> Result<&'a str, Malformed> {
        core::str::from_utf8(self.binary()?).map_err(|_| Malformed::Text)
    }

    /// Reads a block with a variable byte integer as its length.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::Varint`].
    pub fn block(&mut self) -> Result<Self, Malformed> {
        let len = usize::try_from(self.varint()?).map_err(|_| Malformed::Truncated)?;
        self.take(len).map(Self)
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// [`Malformed::Trailing`].
    pub const fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }
}

/// Returns whether all bytes are ASCII characters other than NUL, which is true for most strings.
/// Reads eight bytes at a time.
fn is_plain(bytes: &[u8]) -> bool {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // The high bit of a byte is set if the byte is not ASCII, or after the subtraction if it is 0.
    // Only a byte of 0 borrows from another byte. A word without one has no wrong mark.
    let marks = |word: u64| (word.wrapping_sub(LOW) | word) & HIGH;
    let (mut rest, mut found) = (bytes, 0);
    while let Some((word, after)) = rest.split_first_chunk() {
        found |= marks(u64::from_ne_bytes(*word));
        rest = after;
    }
    found == 0 && rest.iter().all(|byte| (0x01..0x80).contains(byte))
}

/// A destination of encoded bytes, or a counter of them.
pub trait Sink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Counts `len` bytes without their contents and returns true, if the sink is a counter.
    /// Otherwise does nothing and returns false.
    fn skip(&mut self, len: usize) -> bool {
        let _ = len;
        false
    }
}

/// A sink that counts bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Length(pub usize);

impl Sink for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 = self.0.saturating_add(bytes.len());
    }

    fn skip(&mut self, len: usize) -> bool {
        self.0 = self.0.saturating_add(len);
        true
    }
}

/// A sink that writes to a fixed buffer. Bytes beyond its end are discarded.
pub struct Fixed<'a>(&'a mut [u8]);

/// Omits the bytes.
impl fmt::Debug for Fixed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fixed").field(&Hidden(self.0)).finish()
    }
}

impl<'a> Fixed<'a> {
    /// Writes to the start of `out`.
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self(out)
    }
}

impl Sink for Fixed<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let space = core::mem::take(&mut self.0);
        if bytes.len() > space.len() {
            return space.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        }
        // The length is often known when this is compiled.
        if let Some((head, tail)) = space.split_at_mut_checked(bytes.len()) {
            head.copy_from_slice(bytes);
            self.0 = tail;
        }
    }
}

#[cfg(feature = "alloc")]
impl Sink for bytes::BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn put(&mut self, bytes: &[u8]) {
        (**self).put(bytes);
    }

    fn skip(&mut self, len: usize) -> bool {
        (**self).skip(len)
    }
}

/// Writes a variable byte integer.
///
/// # Errors
/// [`Unwritable::TooLong`] for more than [`VARINT_MAX`].
pub fn put_varint(sink: &mut impl Sink, number: usize) -> Result<(), Unwritable> {
    let number = u32::try_from(number).ok().filter(|number| *number <= VARINT_MAX);
    let mut rest = number.ok_or(Unwritable::TooLong)?;
    loop {
        let [.., low] = rest.to_be_bytes();
        rest >>= 7;
        sink.put(&[if rest == 0 { low & 0x7f } else { low | 0x80 }]);
        if rest == 0 {
            return Ok(());
        }
    }
}

/// Bytes of a variable byte integer; 4 if it exceeds [`VARINT_MAX`], so that the size of the packet
/// exceeds its limit.
#[must_use]
pub const fn varint_len(number: usize) -> usize {
    match number {
        ..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Writes binary data with a length of two bytes.
///
/// # Errors
/// [`Unwritable::TooLong`] for more than 65,535.
pub fn put_binary(sink: &mut impl Sink, bytes: &[u8]) -> Result<(), Unwritable> {
    let len = u16::try_from(bytes.len()).map_err(|_| Unwritable::TooLong)?;
    sink.put(&len.to_be_bytes());
    sink.put(bytes);
    Ok(())
}

/// Formats a value as a string with a length of two bytes.
///
/// # Errors
/// [`Unwritable::TooLong`] for more than 65,535 bytes.
pub fn put_text(sink: &mut impl Sink, text: &dyn fmt::Display) -> Result<(), Unwritable> {
    put_text_with_len(sink, formatted_len(text), text)
}

/// As [`put_text`], for a text whose length in bytes is known: it is formatted once, and not at all
/// for a sink that counts. With another length, the packet is malformed.
///
/// ```
/// use statestore_mqtt::wire::{Fixed, Length, put_text_with_len};
///
/// let (mut written, mut length) = ([0; 4], Length::default());
/// put_text_with_len(&mut Fixed::new(&mut written), 2, &21)?;
/// put_text_with_len(&mut length, 2, &21)?;
/// assert_eq!((&written, length.0), (b"\0\x0221", 4));
/// # Ok::<(), statestore_mqtt::Unwritable>(())
/// ```
///
/// # Errors
/// [`Unwritable::TooLong`] for more than 65,535 bytes.
pub fn put_text_with_len(
    sink: &mut impl Sink,
    len: usize,
    text: &dyn fmt::Display,
) -> Result<(), Unwritable> {
    let length = u16::try_from(len).map_err(|_| Unwritable::TooLong)?;
    sink.put(&length.to_be_bytes());
    if sink.skip(len) {
        return Ok(());
    }
    write!(Text(sink), "{text}").map_err(|_| Unwritable::TooLong)
}

/// Length of a formatted value, without a buffer.
fn formatted_len(text: &dyn fmt::Display) -> usize {
    let mut length = Length::default();
    match write!(Text(&mut length), "{text}") {
        Ok(()) => length.0,
        // A value whose formatting fails must not get a valid length.
        Err(fmt::Error) => usize::MAX,
    }
}

/// Adapter from a sink to [`fmt::Write`].
struct Text<'a, S>(&'a mut S);

impl<S: Sink> fmt::Write for Text<'_, S> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.put(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_end_of_a_fixed_buffer_are_discarded() {
        let mut out = [0; 5];
        let mut sink = Fixed::new(&mut out);
        for part in [b"abc", b"def", b"ghi"] {
            sink.put(part);
        }
        assert_eq!(&out, b"abcde");
    }

    /// A NUL or a byte beyond ASCII is found at every position: in whole words and after them.
    #[test]
    fn strings_are_valid_if_they_are_utf_8_without_nul() {
        for len in 0..=20_u8 {
            for at in 0..usize::from(len) {
                for pair in [[0, b'x'], [1, 0x7f], [0x80, b'x'], [0xc3, 0xa4], [0xff, 0]] {
                    let mut bytes = [b'a'; 22];
                    bytes[..2].copy_from_slice(&[0, len]);
                    let end = usize::from(len) + 2;
                    bytes[..end]
                        .iter_mut()
                        .skip(2 + at)
                        .zip(pair)
                        .for_each(|(to, from)| *to = from);
                    let expected = core::str::from_utf8(&bytes[2..end])
                        .ok()
                        .filter(|text| !text.contains('\0'))
                        .ok_or(Malformed::Text);
                    assert_eq!(Reader::new(&bytes[..end]).text(), expected, "{bytes:?}");
                    assert_eq!(
                        Reader::new(&bytes[..end]).text_bytes(),
                        expected.map(str::as_bytes),
                        "{bytes:?}"
                    );
                }
            }
        }
    }
}
