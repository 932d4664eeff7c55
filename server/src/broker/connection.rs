//! Serves one connection, from accept to close.

use std::future::poll_fn;
use std::io;
use std::mem::{self, MaybeUninit};
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

use crate::broker::driver::BrokerDriver;
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

/// Serves a registered connection until it ends, and unregisters it.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    driver: &Arc<BrokerDriver>,
    id: ConnectionId,
    wakeup: &Notify,
    peer: SocketAddr,
    mut stream: S,
) {
    // A socket error ends the connection. There is nothing else to do about it.
    let end = match run(driver, id, wakeup, &mut stream).await {
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
    // Without a permit the socket is closed at once, so that waiting sockets are few.
    let permit = match end {
        // Dropping the stream closes the socket. A shutdown would double the work.
        End::ByClient => return,
        End::LastPackets => driver.try_linger(),
        End::Final => None,
    };
    let close = async {
        stream.shutdown().await?;
        match permit {
            Some(_) => discard_input(&mut stream).await,
            None => Ok(()),
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
) -> io::Result<End> {
    let mut out = WriteBuffer::default();
    // Dropped after each I/O operation, before the task waits.
    let mut turn = None;
    // Set when the socket had nothing to read since the last read.
    let mut was_idle = true;
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
        if state.has_yielded {
            // The connection used up its turn. It gives the turn back before it writes its output.
            drop(turn.take());
            turn = driver.acquire_turn().await;
            if out.bytes.is_empty() {
                continue;
            }
        }
        tokio::select! {
            progress = poll_fn(|context| {
                let progress = poll_io(driver, id, stream, &mut out, state.wants_input, context);
                turn = None;
                was_idle |= state.wants_input && progress.is_pending();
                progress
            }) => {
                match progress? {
                    Progress::End => return Ok(End::ByClient),
                    Progress::Read(state) => {
                        polled = Some(state);
                        if mem::take(&mut was_idle) && !state.has_yielded {
                            if !state.awaits_host {
                                tokio::task::yield_now().await;
                            }
                        } else if !state.has_yielded {
                            // The client may send faster than it is read, so this loop might never
                            // end.
                            turn = driver.acquire_turn().await;
                        }
                    }
                    Progress::Wrote if out.has_more && out.bytes.is_empty() => {
                        turn = driver.acquire_turn().await;
                    }
                    Progress::Wrote => {}
                }
            }
            () = wakeup.notified() => {
                turn = None;
                // The broker may have ended the connection while output is unwritten.
                if !out.bytes.is_empty() && driver.with_broker(|broker, _| broker.is_closing(id)) {
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

/// Result of one I/O operation on a stream.
enum Progress {
    Wrote,
    Read(Polled),
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
async fn discard_input<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut discarded = 0;
    while discarded <= DISCARDED_MAX {
        let read = poll_fn(|context| {
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
    if wants_input { poll_read(driver, id, stream, out, context) } else { Poll::Pending }
}

/// Reads available input and passes it to the broker. The buffer is on the stack, so an idle
/// connection uses no memory for it.
fn poll_read<S: AsyncRead + Unpin>(
    driver: &Arc<BrokerDriver>,
    id: ConnectionId,
    stream: &mut S,
    out: &mut WriteBuffer,
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
    let polled = driver.with_broker(|broker, now| {
        broker.handle_bytes(now, id, bytes);
        match broker.has_yielded(id) {
            // Its packets wait for the turn of the connection.
            true => Polled::new(broker, id, Output::Idle, false),
            false => out.poll_broker(broker, now, id),
        }
    });
    Poll::Ready(Ok(Progress::Read(polled)))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::num::NonZeroU16;

    use statestore_broker::Limits;
    use statestore_mqtt::packet::{
        Connect, Packet, Publish, Subscribe, Subscription, SubscriptionOptions, Subscriptions,
    };
    use statestore_mqtt::property::Property;
    use statestore_mqtt::{Qos, Reason};
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::options::Options;

    /// Starts a broker and one connection with a stream buffer of `space` bytes. Returns the task
    /// that serves the connection.
    fn start(space: usize) -> (Arc<BrokerDriver>, DuplexStream, JoinHandle<()>) {
        start_with(space, Duration::ZERO)
    }

    fn start_with(
        space: usize,
        probation: Duration,
    ) -> (Arc<BrokerDriver>, DuplexStream, JoinHandle<()>) {
        let mut limits = Limits::default();
        limits.slow_start = probation;
        let options = Options::new((Ipv4Addr::LOCALHOST, 0)).limits(limits);
        let driver = Arc::new(BrokerDriver::new(&options));
        let (client, serving) = open_another(&driver, space);
        (driver, client, serving)
    }

    /// Opens one more connection.
    fn open_another(driver: &Arc<BrokerDriver>, space: usize) -> (DuplexStream, JoinHandle<()>) {
        let id =
            driver.with_broker(|broker, now| broker.handle_accept(now, None)).expect("capacity");
        let (client, server) = tokio::io::duplex(space);
        let (served, peer) = (Arc::clone(driver), ([127, 0, 0, 1], 1).into());
        let wakeup = driver.register_connection(id, peer, &driver.authenticators[0]);
        let wakeup = wakeup.expect("not stopped");
        let serving = async move { serve(&served, id, &wakeup, peer, server).await };
        (client, tokio::spawn(serving))
    }

    /// Returns the CONNECT of client `a`.
    fn connect() -> BytesMut {
        connect_as("a")
    }

    fn connect_as(client_id: &str) -> BytesMut {
        let mut bytes = BytesMut::new();
        let properties: &[Property<'_>] = &[];
        let connect = Connect {
            clean_start: true,
            keep_alive: 0,
            properties,
            client_id,
            will: None,
            user_name: None,
            password: None,
        };
        Packet::Connect(connect).encode(&mut bytes).expect("encode packet");
        bytes
    }

    /// Unread output takes memory, which may be why the client is disconnected.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn client_with_large_unread_output_is_closed_at_once() {
        for (len, is_waited_for) in [(10_000, true), (100_000, false)] {
            let (driver, mut client, serving) = start(1_000);
            client.write_all(&connect()).await.expect("capacity");
            while !driver.with_broker(|broker, _| broker.is_connected("a")) {
                tokio::task::yield_now().await;
            }
            let publish = Publish {
                dup: false,
                qos: Qos::AtMostOnce,
                retain: false,
                topic: "t",
                id: None,
                properties: (),
                payload: &vec![b'x'; len],
            };
            assert_eq!(
                driver.with_broker(|broker, now| broker.deliver(now, "a", &publish)),
                Reason::SUCCESS
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
            let started = tokio::time::Instant::now();
            driver.with_broker(|broker, now| {
                broker.terminate_session(now, "a", Reason::QUOTA_EXCEEDED)
            });
            serving.await.expect("the task ends");
            assert_eq!(started.elapsed() >= CLOSE_TIMEOUT, is_waited_for, "{len}");
            drop(client);
        }
    }

    /// A wake for the end of a connection is not lost while earlier output is unwritten.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn client_with_unread_output_that_violates_the_protocol_is_closed() {
        let (driver, mut client, serving) = start(1_000);
        client.write_all(&connect()).await.expect("capacity");
        while !driver.with_broker(|broker, _| broker.is_connected("a")) {
            tokio::task::yield_now().await;
        }
        let mut message = Publish {
            dup: false,
            qos: Qos::AtMostOnce,
            retain: false,
            topic: "t",
            id: None,
            properties: (),
            payload: &vec![b'x'; 100_000],
        };
        let _ = driver.with_broker(|broker, now| broker.deliver(now, "a", &message));
        // Until the end of the slow start, packets of the client wait for a turn.
        tokio::time::sleep(Duration::from_secs(10)).await;
        (message.qos, message.id) = (Qos::AtLeastOnce, NonZeroU16::new(1));
        (message.topic, message.payload) = (statestore_proto::topic::REQUEST, b"x");
        let mut bytes = BytesMut::new();
        Packet::Publish(message).encode(&mut bytes).expect("encode packet");
        bytes.extend_from_slice(&[0xf0, 0x00]);
        client.write_all(&bytes).await.expect("capacity");
        let ended = tokio::time::timeout(Duration::from_secs(60), serving).await;
        ended.expect("the connection is closed").expect("the task ends");
    }

    /// The time and the bytes for which a client can delay the end of its socket are limited.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn disconnected_client_is_read_for_a_limited_time_and_length() {
        for (len, is_waited_for) in [(1_000, true), (2 * DISCARDED_MAX, false)] {
            let (_driver, mut client, serving) = start(1_000);
            client.write_all(&connect()).await.expect("capacity");
            client.write_all(&[0xc1, 0x00]).await.expect("capacity");
            let started = tokio::time::Instant::now();
            // Fails if the broker closes the stream before it has read everything.
            let written = client.write_all(&vec![0; len]).await;
            serving.await.expect("the task ends");
            assert_eq!(started.elapsed() >= CLOSE_TIMEOUT, is_waited_for, "{len}");
            assert_eq!(written.is_ok(), is_waited_for, "{len}");
        }
    }

    /// A client that reads its responses immediately still gets one turn at a time.
    #[tokio::test(flavor = "current_thread")]
    async fn other_tasks_run_between_two_turns_of_a_connection() {
        const PACKETS: usize = 100;
        let mut bytes = connect();
        let properties: &[Property<'_>] = &[];
        let filters: Vec<String> = (0..900).map(|at| format!("{at}/+/#")).collect();
        let options = SubscriptionOptions::default();
        let list: Vec<_> = filters.iter().map(|filter| Subscription { filter, options }).collect();
        let subscriptions = Subscriptions::new(&list);
        let subscribe = Subscribe { id: NonZeroU16::MIN, properties, subscriptions };
        for _ in 0..PACKETS {
            Packet::Subscribe(subscribe).encode(&mut bytes).expect("encode packet");
        }
        let (_running, mut client, serving) = start(4 << 20);
        client.write_all(&bytes).await.expect("capacity");
        // Each read shows how many responses the broker wrote in one turn.
        let (mut count, mut most) = (0, 0);
        let mut space = vec![0; 1 << 20];
        while count < PACKETS * 900 {
            let read = client.read(&mut space).await.expect("responses");
            (count, most) = (count + read, most.max(read));
        }
        assert!(most < 10 * 900, "{most} responses in one turn");
        drop(client);
        serving.await.expect("the task ends");
    }

    /// Returns the maximum growth of `count` between a PINGREQ of a quiet client and its PINGRESP.
    async fn max_growth_between_pings(
        mut quiet: DuplexStream,
        count: impl Fn() -> u64 + Send + 'static,
    ) -> u64 {
        const PINGREQ: [u8; 2] = [0xc0, 0];
        // In a task, so that it is scheduled like the connections.
        let pings = async move {
            let mut most = 0;
            for ping in 0..50 {
                let before = count();
                quiet.write_all(&PINGREQ).await.expect("capacity");
                assert_eq!(quiet.read(&mut [0; 100]).await.expect("PINGRESP"), 2);
                // The busy clients have not started before the first ping.
                if ping > 0 {
                    most = most.max(count() - before);
                }
            }
            most
        };
        tokio::spawn(pings).await.expect("the task ends")
    }

    async fn connect_and_await(client: &mut DuplexStream, client_id: &str) {
        client.write_all(&connect_as(client_id)).await.expect("capacity");
        assert!(client.read(&mut [0; 1_000]).await.expect("CONNACK") > 0);
    }

    const fn publish(payload: &[u8]) -> Publish<'_, ()> {
        let qos = Qos::AtMostOnce;
        Publish { dup: false, qos, retain: false, topic: "t", id: None, properties: (), payload }
    }

    /// While 20 clients send without pause, in large or small pieces, a quiet client waits for one
    /// or two of their turns, not for a turn of each.
    #[tokio::test(flavor = "current_thread")]
    async fn quiet_client_waits_for_few_turns_of_busy_senders() {
        const BUSY: usize = 20;
        let mut publishes = BytesMut::new();
        while publishes.len() < 2 << 20 {
            Packet::Publish(publish(&[b'x'; 100])).encode(&mut publishes).expect("encode packet");
        }
        let publishes = publishes.freeze();
        for space in [4 << 20, 1 << 10] {
            let (driver, mut quiet, _serving) = start(1 << 10);
            connect_and_await(&mut quiet, "quiet").await;
            for at in 0..BUSY {
                let (mut client, _) = open_another(&driver, space);
                let publishes = publishes.clone();
                tokio::spawn(async move {
                    client.write_all(&connect_as(&format!("busy-{at}"))).await.expect("capacity");
                    client.write_all(&publishes).await.expect("capacity");
                });
            }
            let counted = Arc::clone(&driver);
            let published = move || counted.with_broker(|broker, _| broker.stats().published);
            let most = max_growth_between_pings(quiet, published.clone()).await;
            let each = u64::try_from(space.min(READ_MAX) / 100).expect("small");
            assert!(most <= 4 * each, "{most} publishes, {each} in a turn");
            let all = u64::try_from(BUSY * (publishes.len() / 110)).expect("small");
            assert!(
                (1..all).contains(&published()),
                "the busy clients were still sending: {}",
                published()
            );
        }
    }

    /// While many clients connect, publish and disconnect, an established client waits for one or
    /// two of their turns.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn established_client_is_served_before_clients_that_reconnect() {
        const CLIENTS: usize = 50;
        const EACH: u64 = 100;
        let second = Duration::from_secs(1);
        let (driver, mut quiet, _serving) = start_with(1 << 10, second);
        connect_and_await(&mut quiet, "quiet").await;
        tokio::time::advance(second).await;
        let mut publishes = BytesMut::new();
        for _ in 0..EACH {
            Packet::Publish(publish(b"x")).encode(&mut publishes).expect("encode packet");
        }
        publishes.extend_from_slice(&[0xc0, 0]);
        let publishes = publishes.freeze();
        let mut tasks = Vec::new();
        for at in 0..CLIENTS {
            let (driver, publishes) = (Arc::clone(&driver), publishes.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let (mut client, _) = open_another(&driver, 4 << 20);
                    connect_and_await(&mut client, &format!("client-{at}")).await;
                    client.write_all(&publishes).await.expect("capacity");
                    assert!(client.read(&mut [0; 100]).await.expect("PINGRESP") > 0);
                }
            }));
        }
        let counted = Arc::clone(&driver);
        let published = move || counted.with_broker(|broker, _| broker.stats().published);
        let most = max_growth_between_pings(quiet, published.clone()).await;
        assert!(most <= 4 * EACH, "{most} publishes");
        let (published, left) =
            (published(), tasks.iter().filter(|task| !task.is_finished()).count());
        assert!(published > 2 * EACH && left > 0, "{published} publishes, {left} clients");
    }

    /// A quiet client also waits for few turns while 20 others have much to receive.
    #[tokio::test(flavor = "current_thread")]
    async fn quiet_client_waits_for_few_turns_of_busy_readers() {
        const BUSY: usize = 20;
        const LEN: usize = 30_000;
        let (driver, mut quiet, _serving) = start(1 << 10);
        connect_and_await(&mut quiet, "quiet").await;
        let mut busy = Vec::new();
        for at in 0..BUSY {
            let (mut client, serving) = open_another(&driver, 4 << 20);
            connect_and_await(&mut client, &format!("busy-{at}")).await;
            busy.push((client, serving));
        }
        driver.with_broker(|broker, now| {
            for message in 0..BUSY * 50 {
                let client_id = format!("busy-{}", message % BUSY);
                let reason = broker.deliver(now, &client_id, &publish(&[b'x'; LEN]));
                assert_eq!(reason, Reason::SUCCESS);
            }
        });
        let counted = Arc::clone(&driver);
        let full = driver.with_broker(|broker, _| broker.stats().bytes);
        let written = move || {
            let bytes = counted.with_broker(|broker, _| broker.stats().bytes);
            u64::try_from(full.saturating_sub(bytes)).expect("small")
        };
        let most = max_growth_between_pings(quiet, written.clone()).await;
        // `stats().bytes` includes the output being written, so the measurement is one output late.
        assert!(most <= 5 * 64 * 1_024, "{most} bytes");
        assert!(
            written() < u64::try_from(BUSY * 50 * LEN).expect("small"),
            "the busy clients were still reading"
        );
    }
}
