//! The writers: exact length first, then the bytes into whatever holds them.

use super::Frame;

/// The buffer given is shorter than the encoded message. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message needs {needed} bytes")]
pub struct BufferTooSmall {
    /// Exact length of the message in bytes.
    pub needed: usize,
}

/// Exact length in bytes of the array of these elements.
///
/// ```
/// # use statestore_proto::resp::array_len;
/// assert_eq!(array_len(&[b"GET", b"key"]), b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".len());
/// ```
#[must_use]
pub fn array_len(elements: &[&[u8]]) -> usize {
    Length::of(|length| put_array(elements, length))
}

/// Writes the array of these elements to the start of `out` and returns its length.
///
/// # Errors
/// [`BufferTooSmall`] when `out` is shorter than [`array_len`]; `out` is untouched then.
///
/// ```
/// # use statestore_proto::resp::encode_array;
/// let mut out = [0; 32];
/// let len = encode_array(&[b"GET", b"key"], &mut out)?;
/// assert_eq!(&out[..len], b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
/// # Ok::<(), statestore_proto::resp::BufferTooSmall>(())
/// ```
pub fn encode_array(elements: &[&[u8]], out: &mut [u8]) -> Result<usize, BufferTooSmall> {
    let len = array_len(elements);
    put_array(elements, &mut Slice::new(out, len)?);
    Ok(len)
}

impl<B: AsRef<[u8]>> Frame<B> {
    /// Exact length in bytes of the encoded frame.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        Length::of(|length| put_frame(self, length))
    }

    /// Writes the frame to the start of `out` and returns its length.
    ///
    /// The text of [`Frame::Simple`] and [`Frame::Error`] is written as it is: one that holds CR or LF gives bytes that
    /// no decoder accepts.
    ///
    /// # Errors
    /// [`BufferTooSmall`] when `out` is shorter than [`encoded_len`](Self::encoded_len); `out` is untouched then.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let len = self.encoded_len();
        put_frame(self, &mut Slice::new(out, len)?);
        Ok(len)
    }
}

/// Where encoded bytes go. What is encoded is put twice, into a [`Length`] and into room of that length, so that each
/// message is described once.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);

    /// A number in decimal digits.
    #[inline]
    fn put_decimal(&mut self, number: u64) {
        self.put(Decimal::new(number).as_bytes());
    }

    /// A type byte, a number, CRLF. A piece of constant size needs no call to copy it, and most numbers are short.
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

    /// A blob string.
    #[inline(always)]
    fn put_blob(&mut self, blob: &[u8]) {
        self.put_line(b'$', blob.len() as u64);
        self.put(blob);
        self.put(b"\r\n");
    }
}

/// Counts what is put.
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
        self.0 += Decimal::len(number);
    }

    #[inline]
    fn put_line(&mut self, _: u8, number: u64) {
        self.0 += 1 + Decimal::len(number) + 2;
    }
}

#[cfg(feature = "alloc")]
impl Sink for alloc::vec::Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A caller's buffer, cut to the exact length.
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
        let room = core::mem::take(&mut self.rest);
        debug_assert!(bytes.len() <= room.len(), "the length was computed first");
        if let Some((head, tail)) = room.split_at_mut_checked(bytes.len()) {
            head.copy_from_slice(bytes);
            self.rest = tail;
        }
    }
}

#[inline]
pub(crate) fn put_array(elements: &[&[u8]], sink: &mut impl Sink) {
    sink.put_line(b'*', elements.len() as u64);
    for blob in elements {
        sink.put_blob(blob);
    }
}

#[inline]
pub(crate) fn put_frame<B: AsRef<[u8]>>(frame: &Frame<B>, sink: &mut impl Sink) {
    match frame {
        Frame::Simple(text) => {
            sink.put(b"+");
            sink.put(text.as_ref());
            sink.put(b"\r\n");
        }
        Frame::Error(text) => {
            sink.put(b"-ERR ");
            sink.put(text.as_ref());
            sink.put(b"\r\n");
        }
        Frame::Integer(number) if *number < 0 => {
            sink.put(b":");
            sink.put_line(b'-', number.unsigned_abs());
        }
        Frame::Integer(number) => sink.put_line(b':', number.unsigned_abs()),
        Frame::Blob(blob) => sink.put_blob(blob.as_ref()),
        Frame::Null => sink.put(b"$-1\r\n"),
    }
}

/// A number in decimal digits, on the stack.
pub(crate) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    #[inline]
    pub(crate) fn new(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let start = digits.len() - Self::len(number);
        // Four at a time: their divisions do not wait for each other.
        for four in digits.rchunks_exact_mut(4) {
            let low = number % 10_000;
            let digit = |unit: u64| b'0' + (low / unit % 10) as u8;
            four.copy_from_slice(&[digit(1000), digit(100), digit(10), digit(1)]);
            number /= 10_000;
            if number == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or(&self.digits)
    }

    /// The digits as text, which they always are.
    pub(crate) fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// How many digits `number` has.
    #[inline]
    pub(crate) const fn len(number: u64) -> usize {
        match number.checked_ilog10() {
            Some(log) => log as usize + 1,
            None => 1,
        }
    }
}
