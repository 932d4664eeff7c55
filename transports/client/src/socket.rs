//! An MQTT session on a socket.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use statestore_mqtt::Reason;
use statestore_mqtt::session::{self, Event, Session};
use statestore_tokio::{LinkError, LinkErrorKind};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep, timeout};
use tracing::debug;

use crate::convert;
use crate::stream::Stream;
use crate::token_file::TokenFile;

/// Capacity of the read buffer in bytes. It grows for larger packets, up to the maximum packet
/// size.
const READ_BYTES: usize = 64 << 10;

/// Minimum spare capacity of the read buffer for a read.
const READ_BYTES_MIN: usize = 4 << 10;

/// Slices of one vectored write.
const SLICES_MAX: usize = 64;

/// Reads after which the task yields to other tasks.
const READS_MAX: u8 = 8;

/// Maximum duration of [`SessionSocket::close`].
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// An MQTT 5 [`Session`] on a socket, for any use of MQTT besides the state store.
///
/// Requests to the [session](Self::session_mut) are written by [`next_event`](Self::next_event),
/// all that are ready in one vectored write.
///
/// ```no_run
/// use statestore_client::mqtt::Qos;
/// use statestore_client::mqtt::packet::{Subscription, SubscriptionOptions};
/// use statestore_client::mqtt::session::Event;
/// use statestore_client::{Options, SessionSocket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (mut socket, _) = SessionSocket::connect(&Options::from_url("mqtt://localhost")?).await?;
/// let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
/// socket.session_mut().subscribe(&[Subscription { filter: "lamps/#", options }], (), 1)?;
/// loop {
///     if let Event::Message(message) = socket.next_event().await? {
///         println!("{}: {} bytes", message.topic(), message.payload().len());
///     }
/// }
/// # }
/// ```
pub struct SessionSocket {
    stream: Stream,
    session: Session,
    received: BytesMut,
    last_read: Instant,
    origin: Instant,
    sleep: Pin<Box<Sleep>>,
    deadline: Option<Duration>,
    is_flushed: bool,
    io_error: Option<io::Error>,
    /// Reads since the task yielded.
    reads: u8,
    /// The error that ended the connection.
    end: Option<LinkError>,
    token_file: Option<TokenFile>,
}

impl SessionSocket {
    /// Puts a session on an open stream. The session sends CONNECT.
    pub(crate) fn new(stream: Stream, session: Session, token_file: Option<TokenFile>) -> Self {
        let origin = Instant::now();
        let mut socket = Self {
            stream,
            session,
            received: BytesMut::with_capacity(READ_BYTES),
            last_read: origin,
            origin,
            sleep: Box::pin(tokio::time::sleep_until(origin)),
            deadline: None,
            is_flushed: true,
            io_error: None,
            reads: 0,
            end: None,
            token_file,
        };
        socket.session.handle_connected(Duration::ZERO);
        socket
    }

    /// Waits for the CONNACK.
    pub(crate) async fn wait_connected(&mut self) -> Result<Box<session::Server>, LinkError> {
        loop {
            if let Event::Connected(server) = self.next_event().await? {
                return Ok(server);
            }
        }
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// The session, for requests. Their packets are written by the next call of
    /// [`next_event`](Self::next_event).
    pub const fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The time of the session: since the socket was opened.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns whether the connection is over. [`next_event`](Self::next_event) returns the error
    /// after the events before it.
    pub(crate) fn has_ended(&self) -> bool {
        self.io_error.is_some() || !self.session.is_connected()
    }

    /// Time of the latest read.
    pub(crate) const fn last_read(&self) -> Instant {
        self.last_read
    }

    /// Writes and reads until there is an event. Cancel safe.
    ///
    /// # Errors
    /// [`LinkError`] at the end of the connection, and at each later call.
    pub async fn next_event(&mut self) -> Result<Event, LinkError> {
        loop {
            match self.poll_event() {
                Some(event) => return event,
                None => self.io().await,
            }
        }
    }

    /// Writes, reads, or waits. Cancel safe.
    pub(crate) async fn io(&mut self) {
        if self.reads >= READS_MAX {
            self.reads = 0;
            tokio::task::yield_now().await;
        }
        poll_fn(|cx| self.poll_io(cx)).await;
    }

    /// Writes the packets that the session may send now. Publishes beyond the broker's Receive
    /// Maximum wait for acknowledgements, which [`next_event`](Self::next_event) reads. Cancel
    /// safe.
    ///
    /// # Errors
    /// [`LinkError`] if the connection is over.
    pub async fn flush(&mut self) -> Result<(), LinkError> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        if let Some(end) = &self.end {
            return Poll::Ready(Err(end.clone()));
        }
        self.poll_write(cx);
        match self.io_error.take() {
            Some(error) => {
                let end = LinkError::io(LinkErrorKind::Lost, error);
                self.end = Some(end.clone());
                Poll::Ready(Err(end))
            }
            None if self.session.output_len() == 0 && self.is_flushed => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    /// The next event that needs no I/O.
    pub(crate) fn poll_event(&mut self) -> Option<Result<Event, LinkError>> {
        loop {
            match self.session.poll_event() {
                Some(Event::Authenticate(_)) => self.authenticate(),
                Some(Event::Disconnected(error)) => {
                    let end = convert::error(error, self.io_error.take());
                    self.end = Some(end.clone());
                    return Some(Err(end));
                }
                Some(event) => return Some(Ok(event)),
                None => return self.end.clone().map(Err),
            }
        }
    }

    /// Sends the token again. The method has a single step.
    fn authenticate(&mut self) {
        let token = self.token_file.as_ref().map(TokenFile::token);
        if let Err(error) = self.session.authenticate(token.as_deref(), ()) {
            debug!(%error, "cannot respond to an authentication challenge");
        }
    }

    /// Writes, reads, and waits for the next deadline. Ready if it has made progress.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.renew_token();
        // Before reading: a broker that sends without a pause must not delay a PINGREQ.
        let now = self.now();
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
        }
        let has_written = self.poll_write(cx);
        // A DISCONNECT was written above, unless the socket did not accept it.
        if self.io_error.is_some() || self.session.is_closing() {
            self.session.handle_disconnected();
            return Poll::Ready(());
        }
        if self.handle_received() || (self.session.wants_input() && self.poll_read(cx).is_ready()) {
            return Poll::Ready(());
        }
        let has_timed_out = self.poll_deadline(cx).is_ready();
        if has_written || has_timed_out { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Writes as much output as the socket accepts. Returns whether anything was written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_written = false;
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, chunk) in slices.iter_mut().zip(self.session.chunks()) {
                *slice = IoSlice::new(chunk);
                count += 1;
            }
            if count == 0 {
                break;
            }
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]) {
                Poll::Ready(Ok(0)) => {
                    self.io_error = Some(io::ErrorKind::WriteZero.into());
                    return has_written;
                }
                Poll::Ready(Ok(len)) => {
                    let now = self.now();
                    self.session.written(now, len);
                    self.is_flushed = false;
                    has_written = true;
                }
                Poll::Ready(Err(error)) => {
                    self.io_error = Some(error);
                    return has_written;
                }
                Poll::Pending => break,
            }
        }
        if !self.is_flushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.is_flushed = true,
                Poll::Ready(Err(error)) => self.io_error = Some(error),
                Poll::Pending => {}
            }
        }
        has_written
    }

    /// Handles packets that the session did not accept before, because too many events waited.
    /// Returns whether it accepted any.
    fn handle_received(&mut self) -> bool {
        let before = self.received.len();
        if before == 0 || !self.session.wants_input() {
            return false;
        }
        let now = self.now();
        self.session.handle_bytes(now, &mut self.received);
        self.received.len() < before
    }

    /// Reads once.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let spare = self.received.capacity() - self.received.len();
        if spare < READ_BYTES_MIN {
            self.received.reserve(READ_BYTES);
        }
        let read = ready!(pin!(self.stream.read_buf(&mut self.received)).poll(cx));
        let now = self.now();
        self.reads += 1;
        match read {
            Ok(0) => self.session.handle_disconnected(),
            Ok(_) => {
                self.last_read = self.origin + now;
                self.session.handle_bytes(now, &mut self.received);
            }
            Err(error) => {
                self.io_error = Some(error);
                self.session.handle_disconnected();
            }
        }
        Poll::Ready(())
    }

    /// Ready if a deadline of the session has passed.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let check = self.token_file.as_ref().map(TokenFile::next_check);
        let Some(deadline) = self.session.poll_timeout().into_iter().chain(check).min() else {
            return Poll::Pending;
        };
        if self.deadline.replace(deadline) != Some(deadline) {
            // A deadline beyond what a clock can count is never reached.
            let Some(at) = self.origin.checked_add(deadline) else { return Poll::Pending };
            self.sleep.as_mut().reset(at);
        }
        ready!(self.sleep.as_mut().poll(cx));
        self.deadline = None;
        let now = self.now();
        self.session.handle_timeout(now);
        Poll::Ready(())
    }

    /// Authenticates again if the file has a new token.
    fn renew_token(&mut self) {
        let now = self.now();
        let Some(file) = &mut self.token_file else { return };
        let Some(token) = file.check(now) else { return };
        match self.session.reauthenticate(Some(&token), ()) {
            Ok(()) => {
                debug!("authenticating again, with a new service account token");
                file.set_token(token);
            }
            // The next check tries again. Until then, a new connection has the new token.
            Err(error) => file.warn(&error),
        }
    }

    /// Waits for the outcomes of all publishes, sends a DISCONNECT, and waits for the broker to
    /// close the connection: for at most a second in all. Received messages and outcomes are
    /// discarded.
    pub async fn close(mut self) {
        let closing = async {
            while self.session.publishes() > 0 && self.next_event().await.is_ok() {}
            self.session.disconnect(Reason::SUCCESS, ());
            if self.flush().await.is_err() {
                return;
            }
            // The broker closes the connection after it has read everything; closing it first on
            // this side might discard the rest.
            let stream = &mut self.stream;
            let _ = poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await;
            loop {
                self.received.clear();
                if !matches!(self.stream.read_buf(&mut self.received).await, Ok(1..)) {
                    return;
                }
            }
        };
        let _ = timeout(CLOSE_MAX, closing).await;
    }
}

impl fmt::Debug for SessionSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionSocket").field("session", &self.session).finish_non_exhaustive()
    }
}
