//! Decoder of client frames. It works in place and stores no data.

use std::io::Cursor;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

/// Maximum length of a frame header in bytes.
const HEADER_MAX: usize = 14;

/// Maximum length of the payload of a control frame in bytes.
pub(super) const CONTROL_MAX: usize = 125;

/// Maximum number of consecutive frames without data. The caller
/// [resets](FrameDecoder::reset_dataless) the count from time to time. A client that sends more is
/// closed. Clients need
/// few: a library pings every few seconds, and a message may end with an empty frame.
pub(super) const DATALESS_MAX: u32 = 64;

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
    /// Frames without data since the last data.
    dataless: u32,
    /// Parts that were processed, a measure of the work.
    #[cfg(test)]
    steps: usize,
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
    length: u64,
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
        Self {
            part: Part::START,
            in_message: false,
            dataless: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Returns whether the last frame had no data.
    pub(super) const fn is_dataless(&self) -> bool {
        self.dataless > 0
    }

    /// Counts frames without data from zero again.
    pub(super) const fn reset_dataless(&mut self) {
        self.dataless = 0;
    }

    /// Ends a frame. Returns whether the client may send more of this kind.
    const fn end_frame(&mut self, has_data: bool) -> bool {
        self.part = Part::START;
        self.dataless = if has_data { 0 } else { self.dataless + 1 };
        self.dataless <= DATALESS_MAX
    }

    /// Decodes all of `bytes`. Returns the length of the data, which are moved to the front of
    /// `bytes`.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> (usize, Option<Event>) {
        let (mut data, mut at, mut event) = (0, 0, None);
        loop {
            // A frame without a payload is complete after its header, even at the end of `bytes`.
            let Some(rest) = bytes.get_mut(at..) else { return (data, event) };
            #[cfg(test)]
            {
                self.steps += 1;
            }
            let before = rest.len();
            match &mut self.part {
                Part::Header { .. } if before == 0 => return (data, event),
                Part::Header { bytes, length } => {
                    let missing = header_length(bytes, *length) - *length;
                    let taken = missing.min(before);
                    let places = bytes.iter_mut().skip(*length).take(taken);
                    places.zip(&*rest).for_each(|(place, byte)| *place = *byte);
                    *length += taken;
                    at += taken;
                    let header = bytes.get(..*length).unwrap_or_default();
                    if *length < header_length(bytes, *length) {
                        continue;
                    }
                    let parsed = FrameHeader::parse(&mut Cursor::new(header));
                    let Ok(Some((header, length))) = parsed else {
                        return (data, Some(Event::Close(CloseCode::Protocol)));
                    };
                    match self.begin_payload(&header, length) {
                        Ok(part) => self.part = part,
                        Err(code) => return (data, Some(Event::Close(code))),
                    }
                }
                Part::Data(masked) => {
                    let is_empty = masked.length == 0;
                    let taken = masked.unmask(rest).len();
                    let is_over = masked.left == 0;
                    bytes.copy_within(at..at + taken, data);
                    (data, at) = (data + taken, at + taken);
                    if is_over {
                        if !self.end_frame(!is_empty) {
                            return (data, Some(Event::Close(CloseCode::Policy)));
                        }
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
                    if !self.end_frame(false) {
                        return (data, Some(Event::Close(CloseCode::Policy)));
                    }
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
        let masked = Masked { mask, length, left: length };
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

/// Returns the length of a header of which `known` bytes are known.
fn header_length(header: &[u8; HEADER_MAX], known: usize) -> usize {
    let [_, second, ..] = *header;
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    if known < 2 { 2 } else { 2 + extended + mask }
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
