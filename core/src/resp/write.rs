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
    elements.iter().fold(header_len(elements.len()), |len, blob| len + blob_len(blob))
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
        match self {
            Self::Simple(text) => 1 + text.as_ref().len() + 2,
            Self::Error(text) => 5 + text.as_ref().len() + 2,
            Self::Integer(number) => {
                1 + usize::from(*number < 0) + Decimal::len(number.unsigned_abs()) + 2
            }
            Self::Blob(blob) => blob_len(blob.as_ref()),
            Self::Null => 5,
        }
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

/// Where encoded bytes go. Room for the exact length was made before the first call.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
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
    put_line(b'*', elements.len() as u64, sink);
    for blob in elements {
        put_blob(blob, sink);
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
            sink.put(b":-");
            sink.put(Decimal::new(number.unsigned_abs()).as_bytes());
            sink.put(b"\r\n");
        }
        Frame::Integer(number) => put_line(b':', number.unsigned_abs(), sink),
        Frame::Blob(blob) => put_blob(blob.as_ref(), sink),
        Frame::Null => sink.put(b"$-1\r\n"),
    }
}

#[inline]
fn put_blob(blob: &[u8], sink: &mut impl Sink) {
    put_line(b'$', blob.len() as u64, sink);
    sink.put(blob);
    sink.put(b"\r\n");
}

/// A type byte, a number, CRLF, in one piece.
#[inline]
fn put_line(marker: u8, number: u64, sink: &mut impl Sink) {
    if number < 10 {
        // Most lengths of this protocol have one digit.
        #[expect(clippy::cast_possible_truncation, reason = "less than ten")]
        sink.put(&[marker, b'0' + number as u8, b'\r', b'\n']);
    } else {
        sink.put(&[marker]);
        sink.put(Decimal::new(number).as_bytes());
        sink.put(b"\r\n");
    }
}

fn blob_len(blob: &[u8]) -> usize {
    header_len(blob.len()) + blob.len() + 2
}

/// Length of a type byte, a number and CRLF.
fn header_len(number: usize) -> usize {
    1 + Decimal::len(number as u64) + 2
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
        let mut start = digits.len();
        for slot in digits.iter_mut().rev() {
            *slot = b'0' + (number % 10) as u8;
            start -= 1;
            number /= 10;
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
