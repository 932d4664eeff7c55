//! Decoder of client frames. It works in place and stores no data.

use std::io::Cursor;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

/// Maximum length of a frame header in bytes.
const HEADER_MAX: usize = 14;

/// Maximum length of the payload of a control frame in bytes.
pub(super) const CONTROL_MAX: usize = 125;

/// The payload of a control frame.
#[derive(Clone, Copy)]
pub(super) struct Payload {
    bytes: [u8; CONTROL_MAX],
    length: usize,
}

impl Payload {
    pub(super) const EMPTY: Self = Self { bytes: [0; CONTROL_MAX], length: 0 };

    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
}

/// A control frame found between the data.
pub(super) enum Event {
    /// A ping, to be answered with a pong of the same payload. If there are several pings, only the
    /// last one is reported; RFC 6455 allows to answer only that one.
    Ping(Payload),
    /// The connection ends. Answer with a close frame of this code, and ignore later input.
    Close(CloseCode),
}

/// Decoder state between two reads.
pub(super) struct FrameDecoder {
    part: Part,
    /// Set if the last data frame was not the final frame of its message.
    in_message: bool,
}

enum Part {
    Header { bytes: [u8; HEADER_MAX], length: usize },
    Data(Masked),
    Control { control: Control, masked: Masked, payload: Payload },
}

/// The rest of a masked payload.
#[derive(Clone, Copy)]
struct Masked {
    mask: [u8; 4],
    left: u64,
}

impl Masked {
    /// Unmasks the part of the payload that is in `bytes`, and returns it.
    fn unmask<'a>(&mut self, bytes: &'a mut [u8]) -> &'a [u8] {
        let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let payload = bytes.get_mut(..taken).unwrap_or_default();
        for four in payload.chunks_mut(4) {
            four.iter_mut().zip(self.mask).for_each(|(byte, mask)| *byte ^= mask);
        }
        self.mask.rotate_left(taken % 4);
        self.left = self.left.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
        payload
    }
}

impl Part {
    const START: Self = Self::Header { bytes: [0; HEADER_MAX], length: 0 };
}

impl FrameDecoder {
    pub(super) const fn new() -> Self {
        Self { part: Part::START, in_message: false }
    }

    /// Decodes all of `bytes`. Returns the length of the data, which are moved to the front of
    /// `bytes`.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> (usize, Option<Event>) {
        let (mut data, mut at, mut event) = (0, 0, None);
        loop {
            // A frame without a payload is complete after its header, even at the end of `bytes`.
            let Some(rest) = bytes.get_mut(at..) else { return (data, event) };
            let before = rest.len();
            match &mut self.part {
                Part::Header { .. } if before == 0 => return (data, event),
                Part::Header { bytes, length } => {
                    let Some((place, byte)) = bytes.get_mut(*length).zip(rest.first()) else {
                        return (data, Some(Event::Close(CloseCode::Protocol)));
                    };
                    *place = *byte;
                    *length += 1;
                    at += 1;
                    let header = bytes.get(..*length).unwrap_or_default();
                    match FrameHeader::parse(&mut Cursor::new(header)) {
                        Ok(None) => {}
                        Ok(Some((header, length))) => match self.begin_payload(&header, length) {
                            Ok(part) => self.part = part,
                            Err(code) => return (data, Some(Event::Close(code))),
                        },
                        Err(_) => return (data, Some(Event::Close(CloseCode::Protocol))),
                    }
                }
                Part::Data(masked) => {
                    let taken = masked.unmask(rest).len();
                    let is_over = masked.left == 0;
                    bytes.copy_within(at..at + taken, data);
                    (data, at) = (data + taken, at + taken);
                    if is_over {
                        self.part = Part::START;
                    } else if taken == before {
                        return (data, event);
                    }
                }
                Part::Control { control, masked, payload } => {
                    let taken = masked.unmask(rest);
                    taken.iter().for_each(|byte| payload.push(*byte));
                    at += taken.len();
                    if masked.left > 0 {
                        return (data, event);
                    }
                    match control {
                        Control::Close => return (data, Some(Event::Close(close_code(payload)))),
                        Control::Ping => event = Some(Event::Ping(*payload)),
                        Control::Pong | Control::Reserved(_) => {}
                    }
                    self.part = Part::START;
                }
            }
        }
    }

    /// Returns the state after a header, or the close code if the header is invalid.
    fn begin_payload(&mut self, header: &FrameHeader, length: u64) -> Result<Part, CloseCode> {
        let is_extended = header.rsv1 || header.rsv2 || header.rsv3;
        let Some(mask) = header.mask.filter(|_| !is_extended && length <= u64::MAX >> 1) else {
            return Err(CloseCode::Protocol);
        };
        let masked = Masked { mask, left: length };
        match header.opcode {
            OpCode::Data(Data::Binary) if !self.in_message => {}
            OpCode::Data(Data::Continue) if self.in_message => {}
            // MQTT 5 section 6.0: MQTT packets must be sent in binary frames.
            OpCode::Data(Data::Text) => return Err(CloseCode::Unsupported),
            OpCode::Control(control) if header.is_final && length <= CONTROL_MAX as u64 => {
                return Ok(Part::Control { control, masked, payload: Payload::EMPTY });
            }
            OpCode::Data(_) | OpCode::Control(_) => return Err(CloseCode::Protocol),
        }
        self.in_message = !header.is_final;
        Ok(Part::Data(masked))
    }
}

/// Returns the code for the response to a close frame.
fn close_code(payload: &Payload) -> CloseCode {
    match payload.as_slice() {
        [] => CloseCode::Normal,
        [high, low, reason @ ..] if std::str::from_utf8(reason).is_ok() => {
            let code = CloseCode::from(u16::from_be_bytes([*high, *low]));
            if code.is_allowed() { code } else { CloseCode::Protocol }
        }
        _ => CloseCode::Protocol,
    }
}

#[cfg(test)]
mod tests;
