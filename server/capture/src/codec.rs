//! The fields of a frame: unsigned LEB128 numbers, and bytes after their length.

use alloc::vec::Vec;
use core::time::Duration;

pub(crate) const FORMAT: u8 = 1;

pub(crate) fn number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

pub(crate) fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn duration(out: &mut Vec<u8>, duration: Duration) {
    number(out, duration.as_secs());
    number(out, duration.subsec_nanos().into());
}

/// Writes an optional field: a byte that is 0 or 1, and the field if it is 1.
pub(crate) fn option<T>(out: &mut Vec<u8>, field: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(field.is_some()));
    if let Some(field) = field {
        write(out, field);
    }
}

/// The bytes that are not decoded yet. Each method returns `None` for a field that is truncated or
/// malformed.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.chunk().map(|[byte]| *byte)
    }

    pub(crate) fn bool(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << shift;
            if shifted >> shift != bits {
                return None;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn duration(&mut self) -> Option<Duration> {
        let (seconds, nanos) = (self.number()?, u32::try_from(self.number()?).ok()?);
        (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
    }

    /// Reads a field that [`option`] wrote; the outer `None` is a malformed one.
    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Some(None) }
    }
}
