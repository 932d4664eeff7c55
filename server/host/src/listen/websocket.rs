//! MQTT over WebSocket: a byte stream in binary frames. Packet boundaries and frame boundaries are
//! independent.
//!
//! A connection stores only the header and the payload of one control frame for each direction, 300
//! bytes. Data frames are decoded in the read buffer, so a frame may have any length.

mod frames;
mod upgrade;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use frames::{CONTROL_MAX, Event, FrameDecoder, Payload};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};
pub(crate) use upgrade::UpgradeError;

/// Size of the buffer for input that is discarded after a close frame was sent.
const DISCARD_BUFFER: usize = 1 << 10;

/// Bytes that are discarded after a close frame was sent: what a client has sent before it could
/// read the close frame. A client that sends more is reset.
const DISCARDED_MAX: usize = 1 << 20;

/// Time after which the count of frames without data is reset, so that a client may ping for days without
/// sending data. See [`DATALESS_MAX`](frames::DATALESS_MAX).
const DATALESS_WINDOW: Duration = Duration::from_secs(10);

/// Performs the WebSocket handshake. Rejects web pages whose origin is not in `origins`.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    origins: &[String],
) -> Result<WebSocket<S>, UpgradeError> {
    upgrade::upgrade(&mut stream, origins).await?;
    Ok(WebSocket {
        stream,
        decoder: FrameDecoder::new(),
        dataless_reset_at: Instant::now(),
        discarded: 0,
        has_ended: false,
        has_sent_close: false,
        head: FrameHead::default(),
        left: 0,
        pending: None,
        is_flushed: true,
    })
}

/// The byte stream in the binary frames of a WebSocket.
pub(crate) struct WebSocket<S> {
    stream: S,
    decoder: FrameDecoder,
    /// Time at which the count of frames without data was last reset.
    dataless_reset_at: Instant,
    /// Bytes that were discarded after a close frame was sent.
    discarded: usize,
    /// Set after a close frame or the end of the stream. Later input is ignored.
    has_ended: bool,
    /// Set when this side has started to close.
    has_sent_close: bool,
    /// Unwritten header, or control frame, of the frame being written.
    head: FrameHead,
    /// Unwritten payload bytes of the data frame being written.
    left: usize,
    /// Control frame to be written before the next data frame.
    pending: Option<ControlFrame>,
    is_flushed: bool,
}

/// A control frame to be written.
enum ControlFrame {
    Pong(Payload),
    Close(CloseCode),
}

/// The header of a frame, with the payload of a control frame. `at..end` is not written yet.
struct FrameHead {
    bytes: [u8; 2 + CONTROL_MAX],
    at: usize,
    end: usize,
}

impl Default for FrameHead {
    fn default() -> Self {
        Self { bytes: [0; 2 + CONTROL_MAX], at: 0, end: 0 }
    }
}

impl FrameHead {
    fn set(&mut self, opcode: OpCode, length: usize, payload: &[u8]) {
        let all = self.bytes.len();
        let mut space = self.bytes.as_mut_slice();
        let header = FrameHeader { opcode, ..FrameHeader::default() };
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        // The array has capacity for both, so neither fails.
        let _ = header.format(length, &mut space);
        let _ = io::Write::write_all(&mut space, payload);
        (self.at, self.end) = (0, all - space.len());
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Decodes input in place. Returns the length of the data, which are moved to the front of
    /// `bytes`.
    fn decode(&mut self, bytes: &mut [u8]) -> usize {
        if self.decoder.is_dataless() && self.dataless_reset_at.elapsed() >= DATALESS_WINDOW {
            self.dataless_reset_at = Instant::now();
            self.decoder.reset_dataless();
        }
        let (data, event) = self.decoder.decode(bytes);
        match event {
            Some(Event::Ping(payload)) => self.pending = Some(ControlFrame::Pong(payload)),
            Some(Event::Close(code)) => {
                self.pending = Some(ControlFrame::Close(code));
                self.has_ended = true;
            }
            None => {}
        }
        data
    }

    /// Writes control frames. Does nothing in the middle of a data frame.
    fn poll_control(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left == 0 {
            while !self.head.rest().is_empty() {
                let written = Pin::new(&mut self.stream).poll_write(context, self.head.rest());
                self.head.at += check_written(ready!(written)?)?;
                self.is_flushed = false;
            }
            match self.pending.take() {
                Some(ControlFrame::Pong(payload)) => {
                    let payload = payload.as_slice();
                    self.head.set(OpCode::Control(Control::Pong), payload.len(), payload);
                }
                Some(ControlFrame::Close(code)) => {
                    let code = u16::from(code).to_be_bytes();
                    self.head.set(OpCode::Control(Control::Close), code.len(), &code);
                }
                None => break,
            }
        }
        if !self.is_flushed && self.left == 0 {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A client that does not read its pongs is still read from.
        let _ = this.poll_control(context)?;
        if this.has_ended {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        // Frames without data are read until the stream is empty, or its [`Meter`] ends the poll.
        loop {
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let bytes = buffer.filled_mut().get_mut(before..).unwrap_or_default();
            this.has_ended = bytes.is_empty();
            let data = this.decode(bytes);
            buffer.set_filled(before + data);
            let _ = this.poll_control(context)?;
            if data > 0 || this.has_ended {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.left == 0 && !bytes.is_empty() {
            ready!(this.poll_control(context))?;
            if this.has_ended {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            this.head.set(OpCode::Data(Data::Binary), bytes.len(), &[]);
            this.left = bytes.len();
        }
        loop {
            let head = this.head.rest();
            let data = bytes.get(..this.left).unwrap_or(bytes);
            if data.is_empty() {
                return Poll::Ready(Ok(0));
            }
            let both = [IoSlice::new(head), IoSlice::new(data)];
            let both = if head.is_empty() { &both[1..] } else { &both[..] };
            let written = Pin::new(&mut this.stream).poll_write_vectored(context, both);
            let written = check_written(ready!(written)?)?;
            let head_written = written.min(head.len());
            this.is_flushed = false;
            this.head.at += head_written;
            this.left -= written - head_written;
            if written > head_written {
                return Poll::Ready(Ok(written - head_written));
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_control(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    /// Sends a close frame, waits for the close frame of the client, and shuts the stream down.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // An unfinished data frame cannot be interrupted by a close frame.
        if this.left == 0 {
            if !this.has_sent_close && !this.has_ended {
                this.pending = Some(ControlFrame::Close(CloseCode::Normal));
                this.has_sent_close = true;
            }
            ready!(this.poll_control(context))?;
            // Read until the client closes. Closing a socket with unread input would reset the
            // connection, and the client would lose output that it has not read.
            while !this.has_ended && this.discarded <= DISCARDED_MAX {
                let mut space = [0; DISCARD_BUFFER];
                let mut buffer = ReadBuf::new(&mut space);
                ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer))?;
                let bytes = buffer.filled_mut();
                this.has_ended = bytes.is_empty();
                this.discarded += bytes.len();
                this.decode(bytes);
                this.pending = None;
            }
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

fn check_written(written: usize) -> io::Result<usize> {
    if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) }
}
