//! MQTT over WebSocket: a stream of the bytes in binary frames, which need not begin and end where packets do.
//!
//! A connection keeps the header and the payload of one control frame each way, 300 bytes, and nothing of a message: data are
//! taken out of their frames where they were read, so a frame may be as long as it likes.

mod frames;
mod upgrade;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use frames::{CONTROL_MAX, Event, Frames, Payload};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};
pub(crate) use upgrade::Refused;

/// Bytes read at a time from a client that has been said goodbye to.
const IGNORED_MAX: usize = 1 << 10;

/// Takes a connection on which a client asks for a WebSocket, and refuses web pages of origins other than these.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    origins: &[String],
) -> Result<WebSocket<S>, Refused> {
    upgrade::upgrade(&mut stream, origins).await?;
    Ok(WebSocket {
        stream,
        frames: Frames::new(),
        has_ended: false,
        has_said_goodbye: false,
        head: Head::default(),
        left: 0,
        waiting: None,
        is_flushed: true,
    })
}

/// The bytes in the binary frames of a WebSocket.
pub(crate) struct WebSocket<S> {
    stream: S,
    frames: Frames,
    /// Whether nothing that is read counts any more: it was closed.
    has_ended: bool,
    /// Whether a close frame of our own accord is under way.
    has_said_goodbye: bool,
    /// Of the frame that is being written.
    head: Head,
    /// Bytes of data that its header has promised.
    left: usize,
    /// Between two frames this is written.
    waiting: Option<Reply>,
    is_flushed: bool,
}

/// A control frame to be written.
enum Reply {
    Pong(Payload),
    Close(CloseCode),
}

/// A header, with its payload where it is a control frame: as much of it as is to be written yet.
struct Head {
    bytes: [u8; 2 + CONTROL_MAX],
    at: usize,
    end: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; 2 + CONTROL_MAX], at: 0, end: 0 }
    }
}

impl Head {
    fn set(&mut self, opcode: OpCode, length: usize, payload: &[u8]) {
        let all = self.bytes.len();
        let mut space = self.bytes.as_mut_slice();
        let header = FrameHeader { opcode, ..FrameHeader::default() };
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        // There is room for both.
        let _ = header.format(length, &mut space);
        let _ = io::Write::write_all(&mut space, payload);
        (self.at, self.end) = (0, all - space.len());
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Takes what was read, and says how much of it is data, which are at its front then.
    fn take(&mut self, bytes: &mut [u8]) -> usize {
        let (data, event) = self.frames.take(bytes);
        match event {
            Some(Event::Ping(payload)) => self.waiting = Some(Reply::Pong(payload)),
            Some(Event::Close(code)) => {
                self.waiting = Some(Reply::Close(code));
                self.has_ended = true;
            }
            None => {}
        }
        data
    }

    /// Writes what goes between two frames of data; nothing while there is one.
    fn poll_between(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left == 0 {
            while !self.head.rest().is_empty() {
                let written = Pin::new(&mut self.stream).poll_write(context, self.head.rest());
                self.head.at += at_least_one(ready!(written)?)?;
                self.is_flushed = false;
            }
            match self.waiting.take() {
                Some(Reply::Pong(payload)) => {
                    let payload = payload.as_slice();
                    self.head.set(OpCode::Control(Control::Pong), payload.len(), payload);
                }
                Some(Reply::Close(code)) => {
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
        // Whoever does not read its pongs is listened to all the same.
        let _ = this.poll_between(context)?;
        if this.has_ended {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let bytes = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        this.has_ended = bytes.is_empty();
        let data = this.take(bytes);
        buffer.set_filled(before + data);
        let _ = this.poll_between(context)?;
        if data > 0 || this.has_ended {
            return Poll::Ready(Ok(()));
        }
        // Frames without data; others have their turn first.
        context.waker().wake_by_ref();
        Poll::Pending
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
            ready!(this.poll_between(context))?;
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
            let written = at_least_one(ready!(written)?)?;
            let of_head = written.min(head.len());
            this.is_flushed = false;
            this.head.at += of_head;
            this.left -= written - of_head;
            if written > of_head {
                return Poll::Ready(Ok(written - of_head));
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_between(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    /// Closes the WebSocket, waits until the client has, and ends the connection.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Not within a frame that cannot be ended.
        if this.left == 0 {
            if !this.has_said_goodbye && !this.has_ended {
                this.waiting = Some(Reply::Close(CloseCode::Normal));
                this.has_said_goodbye = true;
            }
            ready!(this.poll_between(context))?;
            // What it has not read yet would be lost if something of it came later.
            while !this.has_ended {
                let mut space = [0; IGNORED_MAX];
                let mut buffer = ReadBuf::new(&mut space);
                ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer))?;
                let bytes = buffer.filled_mut();
                this.has_ended = bytes.is_empty();
                this.take(bytes);
                this.waiting = None;
            }
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

fn at_least_one(written: usize) -> io::Result<usize> {
    if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) }
}
