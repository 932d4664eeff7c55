//! Bytes for the server: small packets in one buffer, payloads as they are.

use alloc::collections::VecDeque;
use alloc::collections::vec_deque;
use alloc::vec::Vec;
use core::fmt;

use bytes::{Buf as _, Bytes};

use super::event::Events;
use crate::packet::Packet;
use crate::wire::Sink;

/// Largest payload that is copied, in bytes. A separate chunk would cost more than the copy.
const COPIED_MAX: usize = 256;

/// Consumed bytes at the front of the buffer after which it is compacted, in bytes.
const COMPACTED_MIN: usize = 4 << 10;

/// Capacity that the empty buffer retains, in bytes.
const RETAINED_CAPACITY: usize = 64 << 10;

enum Piece {
    /// So many bytes of the buffer.
    Small(usize),
    Shared(Bytes),
}

/// What a session produces: bytes for the server, and events for the caller.
#[derive(Default)]
pub(super) struct Out {
    pub(super) output: Output,
    pub(super) events: Events,
}

/// Bytes that are to be sent, in order.
#[derive(Default)]
pub(super) struct Output {
    small: Vec<u8>,
    /// Bytes of `small` that were sent.
    start: usize,
    pieces: VecDeque<Piece>,
    len: usize,
}

impl Output {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Appends a packet of a few bytes, even if the output is full.
    pub(super) fn put_ack(&mut self, packet: Packet<'_, ()>) {
        let written = packet.encode(self);
        debug_assert!(written.is_ok(), "the packet has no variable part");
    }

    /// Appends a payload.
    pub(super) fn put_payload(&mut self, payload: &Bytes) {
        if payload.len() <= COPIED_MAX {
            return self.put(payload);
        }
        self.len += payload.len();
        self.pieces.push_back(Piece::Shared(payload.clone()));
    }

    /// Removes bytes that were sent; all of them if `len` exceeds their number.
    pub(super) fn consume(&mut self, len: usize) {
        let mut left = len.min(self.len);
        self.len -= left;
        while left > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let size = match piece {
                Piece::Small(size) => *size,
                Piece::Shared(bytes) => bytes.len(),
            };
            let step = size.min(left);
            left -= step;
            match piece {
                Piece::Small(size) => {
                    *size -= step;
                    self.start += step;
                }
                Piece::Shared(bytes) => bytes.advance(step),
            }
            if step == size {
                self.pieces.pop_front();
            }
        }
        self.compact();
    }

    fn compact(&mut self) {
        if self.start >= self.small.len() {
            self.small.clear();
            self.start = 0;
            self.small.shrink_to(RETAINED_CAPACITY);
        } else if self.start >= COMPACTED_MIN && self.start >= self.small.len() / 2 {
            self.small.drain(..self.start);
            self.start = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        self.consume(self.len);
    }

    pub(super) fn chunks(&self) -> Chunks<'_> {
        let small = self.small.get(self.start..).unwrap_or_default();
        Chunks { small, pieces: self.pieces.iter() }
    }
}

impl Sink for Output {
    fn put(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.small.extend_from_slice(bytes);
        self.len += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Small(size)) => *size += bytes.len(),
            _ => self.pieces.push_back(Piece::Small(bytes.len())),
        }
    }
}

/// Output in order, as slices for one vectored write; none of them is empty.
#[derive(Clone)]
pub struct Chunks<'a> {
    small: &'a [u8],
    pieces: vec_deque::Iter<'a, Piece>,
}

/// The bytes are omitted.
impl fmt::Debug for Chunks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} chunks>", self.pieces.len())
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.pieces.next()? {
            Piece::Small(size) => {
                let (head, tail) = self.small.split_at_checked(*size)?;
                self.small = tail;
                Some(head)
            }
            Piece::Shared(bytes) => Some(bytes),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pieces.size_hint()
    }
}
