//! MQTT over WebSocket: a byte stream in binary messages.

use std::future::Future;
use std::io;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_core::Stream as _;
use futures_sink::Sink;
use statestore_tokio::{Address, LinkError, LinkErrorKind as Kind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

/// Largest message that is received, in bytes. A server may put many packets into one message.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes that wait to be written, pongs included. The socket fails beyond that. It exceeds the
/// output of a session and its largest packet.
const WRITE_BYTES_MAX: usize = 8 << 20;

/// A WebSocket as a byte stream.
///
/// Memory: a received message of at most 4 MiB, while the next one of the same size arrives, and 8
/// MiB to be written.
pub(crate) struct WebSocket<S> {
    socket: WebSocketStream<S>,
    /// The part of the last message that was not read yet.
    unread: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Performs the handshake. `stream` is a TCP or TLS stream.
    pub(crate) async fn open(stream: S, address: &Address, path: &str) -> Result<Self, LinkError> {
        let failed = |error: Error| {
            let text = format!("WebSocket handshake failed: {error}");
            LinkError::new(Kind::Refused, text).with_source(error)
        };
        // The scheme only selects the default port, which the Host header names anyway.
        let url = format!("ws://{address}/{}", path.trim_start_matches('/'));
        let mut request = url.into_client_request().map_err(failed)?;
        let protocol = HeaderValue::from_static("mqtt");
        request.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX))
            .max_write_buffer_size(WRITE_BYTES_MAX);
        // Boxed: the handshake is large, and the stream inside is itself one of the variants.
        let opened = Box::pin(client_async_with_config(request, stream, Some(config))).await;
        let (socket, _) = opened.map_err(failed)?;
        Ok(Self { socket, unread: Bytes::new() })
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.unread = bytes,
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                // MQTT is in binary messages only (6.0.0-1); tungstenite responds to pings.
                Some(Ok(Message::Text(_))) => {
                    let text = "the broker sent a text message";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                Some(Ok(_)) => {}
                Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => {
                    return Poll::Ready(Ok(()));
                }
                Some(Err(error)) => return Poll::Ready(Err(io_error(error))),
            }
        }
        let len = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..len]);
        self.unread.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    /// All slices become one message.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut socket = Pin::new(&mut self.socket);
        ready!(socket.as_mut().poll_ready(cx)).map_err(io_error)?;
        let mut message = BytesMut::with_capacity(slices.iter().map(|slice| slice.len()).sum());
        slices.iter().for_each(|slice| message.extend_from_slice(slice));
        let len = message.len();
        socket.start_send(Message::Binary(message.freeze())).map_err(io_error)?;
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(io_error)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let close = pin!(self.socket.close(None));
        match ready!(close.poll(cx)) {
            Ok(()) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(io_error(error))),
        }
    }
}
