//! Serves one connection, from accept to close.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use statestore_broker::{ConnectionId, Output};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;
use tracing::debug;

use crate::broker::driver::{BrokerDriver, Rank};
use crate::broker::meter::{Meter, poll_in_turns};
use crate::broker::quick_ack::QuickAck;
use crate::broker::write_buffer::{Polled, WriteBuffer};

/// Time for a client to receive its last packet.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Limit of unwritten bytes for a connection that ends. With more bytes it is closed without a
/// DISCONNECT, because those bytes may be why the broker runs out of memory.
const LAST_WRITE_MAX: usize = 16 << 10;

/// Bytes that are discarded after the last packet. A client that sends more is reset.
const DISCARDED_MAX: usize = 1 << 20;

/// Bytes read and handled at a time.
const READ_MAX: usize = 16 << 10;

/// Reads of a client without a turn after it was idle. A client that sends one request at a time
/// needs two: it acknowledges the last response, and then sends the next request.
const FREE_READS: u8 = 2;

/// Serves a registered connection until it ends, and unregisters it. `meter` is that of its socket.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    driver: &Arc<BrokerDriver>,
    id: ConnectionId,
    wakeup: &Notify,
    peer: SocketAddr,
    mut stream: S,
    meter: &Meter,
) {
    // A socket error ends the connection. There is nothing else to do about it.
    let end = match run(driver, id, wakeup, &mut stream, meter).await {
        Ok(end) => {
            debug!(%peer, "connection closed");
            end
        }
        Err(error) => {
            debug!(%peer, %error, "connection lost");
            End::Final
        }
    };
    // The end of a connection can cause more work than all its packets, for example a will.
    let turn = match driver.with_broker(|broker, now| broker.should_defer_close(now, id)) {
        true => driver.acquire_closing_turn().await,
        false => None,
    };
    driver.unregister_connection(id);
    drop(turn);
    // Dropping the stream closes the socket. A shutdown would double the work.
    if matches!(end, End::ByClient) {
        return;
    }
    let is_shut = poll_fn(|context| {
        meter.begin();
        Poll::Ready(Pin::new(&mut stream).poll_shutdown(context).is_ready())
    });
    let is_shut = is_shut.await;
    if is_shut && matches!(end, End::Final) {
        return;
    }
    // Without a permit the socket is closed at once, so that waiting sockets are few.
    let Some(_permit) = driver.try_linger() else { return };
    let close = async {
        if !is_shut {
            let shutdown = |context: &mut Context<'_>| Pin::new(&mut stream).poll_shutdown(context);
            poll_in_turns(driver, meter, Rank::Pending, shutdown).await?;
        }
        match end {
            End::LastPackets => discard_input(driver, meter, &mut stream).await,
            End::ByClient | End::Final => Ok(()),
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, close).await;
}

/// End of a connection.
enum End {
    /// The client closed the connection.
    ByClient,
    /// The broker closes the connection, and its last packets are written.
    LastPackets,
    /// Nothing was written that the client must still receive.
    Final,
}

async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    driver: &Arc<BrokerDriver>,
    id: ConnectionId,
    wakeup: &Notify,
    stream: &mut S,
    meter: &Meter,
) -> io::Result<End> {
    let mut out = WriteBuffer::default();
    // Dropped after each I/O operation, before the task waits.
    let mut turn = None;
    let mut free_reads = FreeReads { left: 1, was_whole: true };
    let mut quick_ack = QuickAck::default();
    // State after a read; otherwise the broker is polled at the start of the loop.
    let mut polled: Option<Polled> = None;
    loop {
        let state = match polled.take() {
            Some(state) => state,
            None => driver.with_broker(|broker, now| out.poll_broker(broker, now, id)),
        };
        if state.output == Output::Close {
            drop(turn);
            return write_last_packets(stream, &mut out.bytes).await;
        }
        if state.has_yielded || (state.output == Output::More && out.bytes.is_empty()) {
            // The connection used up its turn. It gives the turn back before it writes its output.
            // It does not read in the next one, in which the broker continues.
            drop(turn.take());
            turn = driver.acquire_turn(state.rank).await;
            if out.bytes.is_empty() {
                continue;
            }
        }
        tokio::select! {
            progress = poll_fn(|context| {
                meter.begin();
                let (wants_input, is_in_turn) = (state.wants_input, turn.is_some());
                let progress =
                    poll_io(driver, id, stream, &mut out, wants_input, is_in_turn, context);
                turn = None;
                if progress.is_pending() && meter.is_blocked() {
                    return Poll::Ready(Ok(Progress::Blocked));
                }
                if progress.is_pending() && state.wants_input {
                    free_reads.handle_idle(meter);
                }
                progress
            }) => {
                let progress = progress?;
                if matches!(progress, Progress::Wrote) {
                    quick_ack.handle_write(meter);
                }
                match progress {
                    Progress::End => return Ok(End::ByClient),
                    Progress::Read { state, is_whole } => {
                        polled = Some(state);
                        free_reads.handle_read(meter, is_whole);
                        let is_answered = !out.bytes.is_empty() || state.awaits_host;
                        quick_ack.handle_read(meter, is_answered);
                        if !meter.has_read() && !state.has_yielded {
                            // A layer below had more data than one read returns.
                            turn = driver.acquire_turn(state.rank).await;
                        } else if !state.awaits_host && !state.has_yielded {
                            tokio::task::yield_now().await;
                        }
                    }
                    Progress::Blocked => {
                        turn = driver.acquire_turn(state.rank).await;
                        free_reads.left = 0;
                        meter.grant();
                    }
                    Progress::Wrote if out.has_more && out.bytes.is_empty() => {
                        turn = driver.acquire_turn(state.rank).await;
                    }
                    Progress::Wrote => {}
                }
            }
            () = wakeup.notified() => {
                // The broker may have ended the connection while output is unwritten.
                if !out.bytes.is_empty() && driver.with_broker(|broker, _| broker.is_closing(id)) {
                    drop(turn);
                    if out.bytes.len() > LAST_WRITE_MAX {
                        return Ok(End::Final);
                    }
                    write_last_packets(stream, &mut out.bytes).await?;
                    driver.with_broker(|broker, now| {
                        let _ = broker.poll_output(now, id, &mut out.bytes);
                    });
                    return write_last_packets(stream, &mut out.bytes).await;
                }
            }
        }
    }
}

/// Reads of a connection that need no turn.
struct FreeReads {
    /// Number of free reads until the client is idle again.
    left: u8,
    /// Set if the last bytes completed a packet. Only then an idle client gets free reads.
    was_whole: bool,
}

impl FreeReads {
    /// The client has sent nothing more.
    fn handle_idle(&mut self, meter: &Meter) {
        self.was_whole &= !meter.has_read();
        if self.was_whole {
            self.left = FREE_READS;
            meter.grant();
        } else {
            meter.revoke();
        }
    }

    /// The client has sent bytes. `is_whole` is set if they completed a packet.
    fn handle_read(&mut self, meter: &Meter, is_whole: bool) {
        self.was_whole = is_whole;
        self.left = self.left.saturating_sub(1);
        if is_whole && self.left > 0 {
            meter.grant();
        } else {
            meter.revoke();
        }
    }
}

/// Result of one I/O operation on a stream.
enum Progress {
    Wrote,
    Read {
        state: Polled,
        /// False if the next read needs a turn, even if the client is idle before.
        is_whole: bool,
    },
    /// The client has sent more, but the next read needs a turn.
    Blocked,
    /// The client closed the connection.
    End,
}

/// Writes the last packets. Fails if the client does not receive them in time.
async fn write_last_packets<S: AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: &mut BytesMut,
) -> io::Result<End> {
    let end = if bytes.is_empty() { End::Final } else { End::LastPackets };
    let written = async {
        stream.write_all_buf(bytes).await?;
        stream.flush().await
    };
    tokio::time::timeout(CLOSE_TIMEOUT, written).await??;
    Ok(end)
}

/// Reads and discards input until the client closes the connection or exceeds `DISCARDED_MAX`.
///
/// A socket that is closed with unread input is reset. The client then cannot write, and may lose a
/// DISCONNECT that it has not read yet.
async fn discard_input<S: AsyncRead + Unpin>(
    driver: &BrokerDriver,
    meter: &Meter,
    stream: &mut S,
) -> io::Result<()> {
    let mut discarded = 0;
    while discarded <= DISCARDED_MAX {
        let read = poll_in_turns(driver, meter, Rank::Pending, |context| {
            let mut space = [const { MaybeUninit::uninit() }; READ_MAX];
            let mut buffer = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
            Poll::Ready(io::Result::Ok(buffer.filled().len()))
        });
        match read.await? {
            0 => break,
            read => discarded += read,
        }
    }
    Ok(())
}

/// Writes pending output, or reads input. Also reads from a client that does not read its output.
fn poll_io<S: AsyncRead + AsyncWrite + Unpin>(
    driver: &Arc<BrokerDriver>,
    id: ConnectionId,
    stream: &mut S,
    out: &mut WriteBuffer,
    wants_input: bool,
    is_in_turn: bool,
    context: &mut Context<'_>,
) -> Poll<io::Result<Progress>> {
    if !out.bytes.is_empty() {
        match Pin::new(&mut *stream).poll_write(context, &out.bytes)? {
            Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(written) => {
                driver.sent.fetch_add(written as u64, Ordering::Relaxed);
                out.bytes.advance(written);
                out.shrink();
                return Poll::Ready(Ok(Progress::Wrote));
            }
            Poll::Pending => {}
        }
    } else if !out.is_flushed {
        out.is_flushed = Pin::new(&mut *stream).poll_flush(context)?.is_ready();
    }
    match wants_input {
        true => poll_read(driver, id, stream, out, is_in_turn, context),
        false => Poll::Pending,
    }
}

/// Reads available input and passes it to the broker. The buffer is on the stack, so an idle
/// connection uses no memory for it. A connection that has the turn does not wait for another one.
fn poll_read<S: AsyncRead + Unpin>(
    driver: &Arc<BrokerDriver>,
    id: ConnectionId,
    stream: &mut S,
    out: &mut WriteBuffer,
    is_in_turn: bool,
    context: &mut Context<'_>,
) -> Poll<io::Result<Progress>> {
    let mut space = [const { MaybeUninit::uninit() }; READ_MAX];
    let mut buffer = ReadBuf::uninit(&mut space);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    let bytes = buffer.filled();
    if bytes.is_empty() {
        return Poll::Ready(Ok(Progress::End));
    }
    driver.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    let (state, is_whole) = driver.with_broker(|broker, now| {
        let is_whole = broker.handle_bytes(now, id, bytes);
        let state = match broker.has_yielded(id) && !is_in_turn {
            // Its packets wait for the turn of the connection.
            true => Polled::new(broker, id, Output::Idle, false),
            false => out.poll_broker(broker, now, id),
        };
        (state, is_whole)
    });
    Poll::Ready(Ok(Progress::Read { state, is_whole }))
}

#[cfg(test)]
mod tests;
