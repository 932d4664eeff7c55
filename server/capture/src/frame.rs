//! The frames of a capture.

use alloc::vec::Vec;
use core::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use crate::CaptureError;

/// Begins the first frame of each capture, followed by the format. Other formats are refused.
pub(crate) const MAGIC: &[u8] = b"state store capture";

/// Length of the head of a frame: its length and its checksum, 32 bits each, little-endian.
const HEAD_LEN: usize = 8;

/// Maximum length of a frame. A record with the longest value of the default limits fits.
const FRAME_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// One intact frame of a capture. See [`next_frame`].
#[derive(Clone, Copy)]
pub struct Frame<'a>(pub(crate) &'a [u8]);

/// The result of [`next_frame`].
pub enum Next<'a> {
    /// A frame, and the bytes after it.
    Frame(Frame<'a>, &'a [u8]),
    /// Less than a frame. It has at least this many bytes.
    Part(usize),
}

/// The first frame of `bytes`, which must begin at the start of a frame.
///
/// # Errors
/// [`CaptureError::Damaged`] if the frame is corrupt. Later frames cannot be found then.
pub fn next_frame(bytes: &[u8]) -> Result<Next<'_>, CaptureError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
        return Ok(Next::Part(HEAD_LEN));
    };
    let [a, b, c, d, checksum @ ..] = *head;
    let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if len > FRAME_BYTES_MAX {
        return Err(CaptureError::Damaged);
    }
    let Some((frame, rest)) = rest.split_at_checked(len) else {
        return Ok(Next::Part(HEAD_LEN + len));
    };
    if checksum_of(frame) != checksum {
        return Err(CaptureError::Damaged);
    }
    Ok(Next::Frame(Frame(frame), rest))
}

/// Appends a frame. Returns whether its length is allowed; nothing is appended if not.
pub(crate) fn push(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD_LEN]);
    write(out);
    let frame = out.get(at + HEAD_LEN..).unwrap_or_default();
    let len = u32::try_from(frame.len()).ok().filter(|_| frame.len() <= FRAME_BYTES_MAX);
    let Some(len) = len else {
        out.truncate(at);
        return false;
    };
    let checksum = checksum_of(frame);
    if let Some(head) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<HEAD_LEN>) {
        let (first, second) = head.split_at_mut(4);
        first.copy_from_slice(&len.to_le_bytes());
        second.copy_from_slice(&checksum);
    }
    true
}

fn checksum_of(frame: &[u8]) -> [u8; 4] {
    let mut hasher = SipHasher13::new();
    hasher.write(frame);
    let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
    [a, b, c, d]
}
