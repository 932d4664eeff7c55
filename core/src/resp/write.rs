//! Encoders of arrays and frames.

use super::Frame;
use crate::buffer::{BufferTooSmall, Length, Sink, Slice};

impl<B: AsRef<[u8]>> Frame<B> {
    /// Exact length of the encoded frame in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        Length::of(|length| put_frame(self, length))
    }

    /// Writes the frame to the start of `out` and returns its length.
    ///
    /// The text of [`Frame::Simple`] and [`Frame::Error`] is not checked: decoders reject a frame
    /// whose text contains CR or LF.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if `out` is shorter than [`encoded_len`](Self::encoded_len); `out` is
    /// then unchanged.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let len = self.encoded_len();
        put_frame(self, &mut Slice::new(out, len)?);
        Ok(len)
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
