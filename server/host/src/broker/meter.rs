//! Reads of a socket, and the turns that they need.
//!
//! A read needs a turn, unless the client was idle lately and sends whole packets. So a client pays
//! with turns for bytes that are no packets, at every layer: TLS handshakes, key updates and empty
//! records, HTTP requests, WebSocket pings and empty frames, and parts of packets. A turn is taken
//! before the read: thousands of clients that send at once do not delay the others.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;

use crate::broker::driver::{BrokerDriver, Rank};

/// Bytes that may be read in a turn. The last read may exceed them by its own length. A TLS record
/// of maximum size has little more than 16 KiB, and must not need two turns.
const TURN_BYTES: usize = 20 << 10;

/// Reads of one connection.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Bytes that may be read before the next turn.
    allowance: AtomicUsize,
    /// Set when the current poll has read from the socket.
    has_read: AtomicBool,
    /// Set when the current poll found input, but has no allowance.
    is_blocked: AtomicBool,
    /// Set if the client may wait for an acknowledgement by TCP, as soon as no input is left.
    is_acknowledgement_due: AtomicBool,
}

impl Meter {
    /// Allows the reads of one turn.
    pub(crate) fn grant(&self) {
        self.allowance.store(TURN_BYTES, Ordering::Relaxed);
    }

    /// Lets the next read wait for a turn.
    pub(crate) fn revoke(&self) {
        self.allowance.store(0, Ordering::Relaxed);
    }

    /// Begins a poll of the stream.
    pub(crate) fn begin(&self) {
        self.has_read.store(false, Ordering::Relaxed);
        self.is_blocked.store(false, Ordering::Relaxed);
    }

    /// Returns whether the poll has read from the socket.
    pub(crate) fn has_read(&self) -> bool {
        self.has_read.load(Ordering::Relaxed)
    }

    /// Acknowledges the last read by TCP when no input is left, instead of with the next write.
    pub(crate) fn set_acknowledgement_due(&self, is_due: bool) {
        self.is_acknowledgement_due.store(is_due, Ordering::Relaxed);
    }

    /// Returns whether the poll is pending because its next read needs a turn. It waits for no
    /// wake: the caller takes a turn, calls [`grant`](Self::grant) and polls again.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }
}

/// A stream that can be asked for input without reading it.
pub(crate) trait Readable {
    /// Returns ready if there may be input, or the end of the stream.
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Acknowledges everything that was read, now.
    fn acknowledge(&self) {}
}

impl Readable for TcpStream {
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(context)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn acknowledge(&self) {
        let _ = self.set_quickack(true);
    }
}

/// A socket with a [`Meter`].
pub(crate) struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
}

impl<S> Metered<S> {
    pub(crate) const fn new(stream: S, meter: Arc<Meter>) -> Self {
        Self { stream, meter }
    }
}

impl<S: AsyncRead + Readable + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, meter } = self.get_mut();
        let allowance = meter.allowance.load(Ordering::Relaxed);
        let before = buffer.filled().len();
        let polled = match allowance {
            0 => stream.poll_readable(context),
            _ => Pin::new(&mut *stream).poll_read(context, buffer),
        };
        // What this poll has read was not handled yet. Its response acknowledges it.
        if polled.is_pending()
            && !meter.has_read()
            && meter.is_acknowledgement_due.swap(false, Ordering::Relaxed)
        {
            stream.acknowledge();
        }
        ready!(polled)?;
        if allowance == 0 {
            meter.is_blocked.store(true, Ordering::Relaxed);
            return Poll::Pending;
        }
        let read = buffer.filled().len() - before;
        meter.allowance.store(allowance.saturating_sub(read), Ordering::Relaxed);
        meter.has_read.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Polls until the result is ready, with a turn for each read beyond the allowance.
pub(crate) async fn poll_in_turns<T>(
    driver: &BrokerDriver,
    meter: &Meter,
    rank: Rank,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    let mut turn: Option<SemaphorePermit<'_>> = None;
    loop {
        let progress = poll_fn(|context| {
            meter.begin();
            let progress = poll(context);
            turn = None;
            meter.revoke();
            match progress {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if meter.is_blocked() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        match progress.await {
            Some(result) => return result,
            None => turn = driver.acquire_turn(rank).await,
        }
        meter.grant();
    }
}

/// Runs a handshake, with a turn for each read beyond the allowance.
#[cfg(any(feature = "tls", feature = "websocket"))]
pub(crate) async fn run_in_turns<T>(
    driver: &BrokerDriver,
    meter: &Meter,
    handshake: impl Future<Output = T>,
) -> T {
    let mut handshake = std::pin::pin!(handshake);
    poll_in_turns(driver, meter, Rank::Pending, |context| handshake.as_mut().poll(context)).await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncBufRead as _, AsyncWriteExt as _, BufReader, DuplexStream};

    use super::*;
    use crate::options::Options;

    impl Readable for BufReader<DuplexStream> {
        fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(self).poll_fill_buf(context).map_ok(drop)
        }
    }

    /// A layer that returns no data, such as TLS during a handshake, reads a limited length in a
    /// turn, and nothing before its first turn.
    #[tokio::test(flavor = "current_thread")]
    async fn layer_without_data_reads_a_limited_length_in_a_turn() {
        const LENGTH: usize = 200 << 10;
        let driver = BrokerDriver::new(&Options::new((Ipv4Addr::LOCALHOST, 0)));
        let (mut client, server) = tokio::io::duplex(LENGTH);
        client.write_all(&[0; LENGTH]).await.expect("capacity");
        drop(client);
        let meter = Arc::default();
        let mut stream = Metered::new(BufReader::new(server), Arc::clone(&meter));
        let mut polls = Vec::new();
        let read_all = poll_in_turns(&driver, &meter, Rank::Pending, |context| {
            polls.push(0);
            loop {
                let mut space = [0; 4 << 10];
                let mut buffer = ReadBuf::new(&mut space);
                ready!(Pin::new(&mut stream).poll_read(context, &mut buffer))?;
                match buffer.filled().len() {
                    0 => return Poll::Ready(io::Result::Ok(())),
                    read => polls.last_mut().map(|total| *total += read),
                };
            }
        });
        read_all.await.expect("the end of the stream");
        assert_eq!(polls.iter().sum::<usize>(), LENGTH);
        assert_eq!(polls.first(), Some(&0), "the first read waits for a turn");
        assert!(polls.iter().all(|read| *read < TURN_BYTES + (4 << 10)), "{polls:?}");
    }

    /// However many connections without a login wait for a turn, an accepted client gets at least
    /// every second one.
    #[tokio::test(flavor = "current_thread")]
    async fn accepted_client_waits_for_one_turn_of_connections_without_a_login() {
        const PENDING: usize = 50;
        const TURNS: usize = 20;
        let driver = Arc::new(BrokerDriver::new(&Options::new((Ipv4Addr::LOCALHOST, 0))));
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..PENDING {
            let (driver, count) = (Arc::clone(&driver), Arc::clone(&count));
            tokio::spawn(async move {
                loop {
                    let turn = driver.acquire_turn(Rank::Pending).await;
                    count.fetch_add(1, Ordering::Relaxed);
                    drop(turn);
                }
            });
        }
        let accepted = tokio::spawn(async move {
            for turn in 0..TURNS {
                drop(driver.acquire_turn(Rank::Accepted).await);
                let pending = count.load(Ordering::Relaxed);
                assert!(pending <= 2 * (turn + 1), "{pending} turns before turn {turn}");
            }
            assert!(count.load(Ordering::Relaxed) >= TURNS / 2, "the others get turns too");
        });
        accepted.await.expect("the task ends");
    }
}
