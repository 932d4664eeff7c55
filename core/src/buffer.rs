//! Output buffers: the exact length is computed first, then the bytes are written.

/// The output buffer is shorter than the encoded message. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("buffer too small: the message needs {needed} bytes")]
pub struct BufferTooSmall {
    /// Exact length of the message in bytes.
    pub needed: usize,
}

/// A destination for encoded bytes.
///
/// An encoder runs twice: into a [`Length`], then into a buffer of that length. One description of
/// a message thus gives both.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);

    /// Writes a number in decimal digits.
    #[inline]
    fn put_decimal(&mut self, number: u64) {
        self.put(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Writes a marker byte, a number and CRLF.
    ///
    /// Most numbers are short, and copying a piece of constant size needs no call.
    #[inline(always)]
    fn put_line(&mut self, marker: u8, number: u64) {
        let digit = |unit: u64| b'0' + (number / unit % 10) as u8;
        match number {
            0..=9 => self.put(&[marker, digit(1), b'\r', b'\n']),
            10..=99 => self.put(&[marker, digit(10), digit(1), b'\r', b'\n']),
            100..=999 => self.put(&[marker, digit(100), digit(10), digit(1), b'\r', b'\n']),
            _ => {
                self.put(&[marker]);
                self.put_decimal(number);
                self.put(b"\r\n");
            }
        }
    }

    /// Writes a RESP blob string.
    #[inline(always)]
    fn put_blob(&mut self, blob: &[u8]) {
        self.put_line(b'$', blob.len() as u64);
        self.put(blob);
        self.put(b"\r\n");
    }
}

/// Counts the bytes instead of storing them.
pub(crate) struct Length(usize);

impl Length {
    #[inline]
    pub(crate) fn of(put: impl FnOnce(&mut Self)) -> usize {
        let mut length = Self(0);
        put(&mut length);
        length.0
    }
}

impl Sink for Length {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    #[inline]
    fn put_decimal(&mut self, number: u64) {
        self.0 += decimal_len(number);
    }

    #[inline]
    fn put_line(&mut self, _: u8, number: u64) {
        self.0 += 1 + decimal_len(number) + 2;
    }
}

#[cfg(feature = "alloc")]
impl Sink for alloc::vec::Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A caller's buffer, cut to the exact length of the message.
pub(crate) struct Slice<'a> {
    rest: &'a mut [u8],
}

impl<'a> Slice<'a> {
    #[inline]
    pub(crate) fn new(out: &'a mut [u8], needed: usize) -> Result<Self, BufferTooSmall> {
        out.get_mut(..needed).map(|rest| Self { rest }).ok_or(BufferTooSmall { needed })
    }
}

impl Sink for Slice<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let rest = core::mem::take(&mut self.rest);
        debug_assert!(bytes.len() <= rest.len(), "the length was computed first");
        if let Some((head, tail)) = rest.split_at_mut_checked(bytes.len()) {
            head.copy_from_slice(bytes);
            self.rest = tail;
        }
    }
}

/// Number of decimal digits of `number`.
#[inline]
pub(crate) const fn decimal_len(number: u64) -> usize {
    match number.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}
