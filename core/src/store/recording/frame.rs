//! How a recording is cut into frames.

use alloc::vec::Vec;
use core::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::RecordingError;

/// Bytes before each frame: its length and its checksum, 32 bits each, the lowest byte first.
const HEAD_LEN: usize = 8;

/// Bytes of the longest frame: a record with the longest value that any limit allows by default fits.
const FRAME_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// One frame of a recording, whole and undamaged. See [`next_frame`].
#[derive(Clone, Copy)]
pub struct Frame<'a>(pub(super) &'a [u8]);

/// What a recording begins with, from some place on.
pub enum Next<'a> {
    /// A frame, and what comes behind it.
    Frame(Frame<'a>, &'a [u8]),
    /// A part of a frame, or nothing; this many bytes are needed in all, and perhaps more.
    Part(usize),
}

/// The first frame of `bytes`, which begin where a frame does.
///
/// # Errors
/// [`RecordingError`] when this is no frame, or a damaged one; no later frame can be found then.
pub fn next_frame(bytes: &[u8]) -> Result<Next<'_>, RecordingError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
        return Ok(Next::Part(HEAD_LEN));
    };
    let [a, b, c, d, checksum @ ..] = *head;
    let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if len > FRAME_BYTES_MAX {
        return Err(RecordingError::Damaged);
    }
    let Some((frame, rest)) = rest.split_at_checked(len) else {
        return Ok(Next::Part(HEAD_LEN + len));
    };
    if checksum_of(frame) != checksum {
        return Err(RecordingError::Damaged);
    }
    Ok(Next::Frame(Frame(frame), rest))
}

/// Appends a frame; returns whether it is one, since the longest have no room.
pub(super) fn push(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
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
