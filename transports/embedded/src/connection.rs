//! One connection from its first byte to its last.

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
use statestore_mqtt::broker::{ConnectionId, Output};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tracing::debug;

use crate::running::Running;

/// How long a client has to take its last packet.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Bytes that a connection may still have to write when it has to end. With more it ends at once, since memory may be what it
/// has to end for.
const LAST_MAX: usize = 64 << 10;

/// Bytes read at a time, and handled in one go.
const READ_MAX: usize = 16 << 10;

/// A buffer for writing that is larger than this is given back when it is empty.
const KEPT_MAX: usize = 4 << 10;

/// Serves a connection that was accepted, until it ends.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    running: &Arc<Running>,
    id: ConnectionId,
    peer: SocketAddr,
    mut stream: S,
) {
    // What goes wrong with the socket ends the connection, and that is all there is to do about it.
    match converse(running, id, peer, &mut stream).await {
        Ok(()) => debug!(%peer, "a connection has ended"),
        Err(error) => debug!(%peer, %error, "a connection was lost"),
    }
    // Its end may mean more than it ever sent.
    let turn = match running.with(|machine, now| machine.rests_before_end(now, id)) {
        true => running.last_turn().await,
        false => None,
    };
    running.closed(id);
    drop(turn);
    let _ = tokio::time::timeout(GOODBYE_MAX, stream.shutdown()).await;
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    running: &Arc<Running>,
    id: ConnectionId,
    peer: SocketAddr,
    stream: &mut S,
) -> io::Result<()> {
    let Some(told) = running.connected(id, peer) else { return Ok(()) };
    let mut out = Outgoing::default();
    // Not held while it waits for anything.
    let mut turn = None;
    // Whether there was a time, since it was read from, when there was nothing to read.
    let mut has_paused = true;
    // Whether there is more to be written than the piece that is being written.
    let mut has_more = false;
    loop {
        let mut output = Output::Idle;
        let (wants_input, rests) = running.with(|machine, now| {
            if out.bytes.is_empty() {
                output = machine.poll_output(now, id, &mut out.bytes);
                has_more = output == Output::More;
            }
            (machine.wants_input(id), machine.rests(id))
        });
        out.is_flushed &= out.bytes.is_empty();
        out.most = out.most.max(out.bytes.len());
        if output == Output::Close {
            drop(turn);
            return say_goodbye(stream, &mut out.bytes).await;
        }
        if rests {
            // It had its turn, and writing what came of it may be no reason to wait.
            drop(turn.take());
            turn = running.turn().await;
            if out.bytes.is_empty() {
                continue;
            }
        }
        tokio::select! {
            step = poll_fn(|context| {
                let step = step(running, id, stream, &mut out, wants_input, context);
                turn = None;
                has_paused |= wants_input && step.is_pending();
                step
            }) => {
                match step? {
                    Step::Read(0) => return Ok(()),
                    Step::Read(_) => {
                        let rests = running.with(|machine, _| machine.rests(id));
                        if mem::take(&mut has_paused) && !rests {
                            tokio::task::yield_now().await;
                        } else {
                            // Whoever sends faster than is read may do so without end.
                            turn = running.turn().await;
                        }
                    }
                    Step::Wrote if has_more && out.bytes.is_empty() => {
                        turn = running.turn().await;
                    }
                    Step::Wrote => {}
                }
            }
            () = told.notified() => {
                turn = None;
                // It may be that the connection has to end, whatever is left to be written.
                if running.with(|machine, _| machine.is_closing(id)) {
                    if out.bytes.len() > LAST_MAX {
                        return Ok(());
                    }
                    say_goodbye(stream, &mut out.bytes).await?;
                    running.with(|machine, now| {
                        let _ = machine.poll_output(now, id, &mut out.bytes);
                    });
                    return say_goodbye(stream, &mut out.bytes).await;
                }
            }
        }
    }
}

/// What is to be written, and what of it the stream has.
#[derive(Default)]
struct Outgoing {
    bytes: BytesMut,
    is_flushed: bool,
    /// The most that was to be written at a time since the buffer was new.
    most: usize,
}

impl Outgoing {
    /// Gives the buffer back when it is empty and was large.
    fn shrink(&mut self) {
        if self.bytes.is_empty() && self.most > KEPT_MAX {
            (self.bytes, self.most) = (BytesMut::new(), 0);
        }
    }
}

/// What was done with a stream.
enum Step {
    Wrote,
    Read(usize),
}

/// Writes the last packets, if its client takes them in time.
async fn say_goodbye<S: AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: &mut BytesMut,
) -> io::Result<()> {
    let written = async {
        stream.write_all_buf(bytes).await?;
        stream.flush().await
    };
    tokio::time::timeout(GOODBYE_MAX, written).await?
}

/// Writes some of what there is to write, or reads what there is to read: who does not read is listened to all the same.
fn step<S: AsyncRead + AsyncWrite + Unpin>(
    running: &Arc<Running>,
    id: ConnectionId,
    stream: &mut S,
    out: &mut Outgoing,
    wants_input: bool,
    context: &mut Context<'_>,
) -> Poll<io::Result<Step>> {
    if !out.bytes.is_empty() {
        match Pin::new(&mut *stream).poll_write(context, &out.bytes)? {
            Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(written) => {
                running.sent.fetch_add(written as u64, Ordering::Relaxed);
                out.bytes.advance(written);
                out.shrink();
                return Poll::Ready(Ok(Step::Wrote));
            }
            Poll::Pending => {}
        }
    } else if !out.is_flushed {
        out.is_flushed = Pin::new(&mut *stream).poll_flush(context)?.is_ready();
    }
    if wants_input { read(running, id, stream, context) } else { Poll::Pending }
}

/// Reads what there is, and hands it to the broker. Nothing is kept for a connection that says nothing.
fn read<S: AsyncRead + Unpin>(
    running: &Arc<Running>,
    id: ConnectionId,
    stream: &mut S,
    context: &mut Context<'_>,
) -> Poll<io::Result<Step>> {
    let mut space = [const { MaybeUninit::uninit() }; READ_MAX];
    let mut buffer = ReadBuf::uninit(&mut space);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    let bytes = buffer.filled();
    if !bytes.is_empty() {
        running.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        running.with(|machine, now| machine.handle_bytes(now, id, bytes));
    }
    Poll::Ready(Ok(Step::Read(bytes.len())))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::num::NonZeroU16;

    use statestore_mqtt::broker::Limits;
    use statestore_mqtt::packet::{
        Connect, Packet, Publish, Subscribe, Subscription, SubscriptionOptions, Subscriptions,
    };
    use statestore_mqtt::property::Property;
    use statestore_mqtt::{Qos, Reason};
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::options::Options;

    /// A connection whose stream keeps that many bytes, and the task that serves it.
    fn start(space: usize) -> (Arc<Running>, DuplexStream, JoinHandle<()>) {
        start_with(space, Duration::ZERO)
    }

    fn start_with(
        space: usize,
        probation: Duration,
    ) -> (Arc<Running>, DuplexStream, JoinHandle<()>) {
        let mut limits = Limits::default();
        limits.probation = probation;
        let options = Options::new((Ipv4Addr::LOCALHOST, 0)).limits(limits);
        let running = Arc::new(Running::new(&options));
        let (client, serving) = another(&running, space);
        (running, client, serving)
    }

    /// Another one.
    fn another(running: &Arc<Running>, space: usize) -> (DuplexStream, JoinHandle<()>) {
        let id = running.with(|machine, now| machine.handle_accept(now, None)).expect("room");
        let (client, server) = tokio::io::duplex(space);
        let served = Arc::clone(running);
        let serving = async move { serve(&served, id, ([127, 0, 0, 1], 1).into(), server).await };
        (client, tokio::spawn(serving))
    }

    /// The CONNECT of `a`.
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
        Packet::Connect(connect).encode(&mut bytes).expect("a packet");
        bytes
    }

    /// What it has not read takes memory, which may be what it is ended for.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn nobody_waits_for_a_client_that_has_much_to_read() {
        for (len, is_waited_for) in [(10_000, true), (100_000, false)] {
            let (running, mut client, serving) = start(1_000);
            client.write_all(&connect()).await.expect("room");
            while !running.with(|machine, _| machine.is_connected("a")) {
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
                running.with(|machine, now| machine.deliver(now, "a", &publish)),
                Reason::SUCCESS
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
            let begun = tokio::time::Instant::now();
            running.with(|machine, now| machine.expel(now, "a", Reason::QUOTA_EXCEEDED));
            serving.await.expect("it ends");
            assert_eq!(begun.elapsed() >= GOODBYE_MAX, is_waited_for, "{len}");
            drop(client);
        }
    }

    /// A client that takes its answers as fast as they come still has one turn after the other, and not all at once.
    #[tokio::test(flavor = "current_thread")]
    async fn between_two_turns_others_have_theirs() {
        const PACKETS: usize = 100;
        let mut bytes = connect();
        let properties: &[Property<'_>] = &[];
        let filters: Vec<String> = (0..900).map(|at| format!("{at}/+/#")).collect();
        let options = SubscriptionOptions::default();
        let list: Vec<_> = filters.iter().map(|filter| Subscription { filter, options }).collect();
        let subscriptions = Subscriptions::new(&list);
        let subscribe = Subscribe { id: NonZeroU16::MIN, properties, subscriptions };
        for _ in 0..PACKETS {
            Packet::Subscribe(subscribe).encode(&mut bytes).expect("a packet");
        }
        let (_running, mut client, serving) = start(4 << 20);
        client.write_all(&bytes).await.expect("room");
        // Each time that this task has its turn it looks how much has been answered.
        let (mut answers, mut most) = (0, 0);
        let mut space = vec![0; 1 << 20];
        while answers < PACKETS * 900 {
            let count = client.read(&mut space).await.expect("answers");
            (answers, most) = (answers + count, most.max(count));
        }
        assert!(most < 10 * 900, "{most} answers in one turn");
        drop(client);
        serving.await.expect("it ends");
    }

    /// The most that `count` grows by from a question of one who says little to the answer.
    async fn most_between(
        mut quiet: DuplexStream,
        count: impl Fn() -> u64 + Send + 'static,
    ) -> u64 {
        const PINGREQ: [u8; 2] = [0xc0, 0];
        // In a task, which has its turns like those of others.
        let pings = async move {
            let mut most = 0;
            for ping in 0..50 {
                let before = count();
                quiet.write_all(&PINGREQ).await.expect("room");
                assert_eq!(quiet.read(&mut [0; 100]).await.expect("PINGRESP"), 2);
                // Nobody is busy who has just begun.
                if ping > 0 {
                    most = most.max(count() - before);
                }
            }
            most
        };
        tokio::spawn(pings).await.expect("it ends")
    }

    async fn welcome(client: &mut DuplexStream, client_id: &str) {
        client.write_all(&connect_as(client_id)).await.expect("room");
        assert!(client.read(&mut [0; 1_000]).await.expect("CONNACK") > 0);
    }

    const fn publish(payload: &[u8]) -> Publish<'_, ()> {
        let qos = Qos::AtMostOnce;
        Publish { dup: false, qos, retain: false, topic: "t", id: None, properties: (), payload }
    }

    /// However many send without end, and however little at a time, whoever says little waits for a turn or two of them, and
    /// not for one of each.
    #[tokio::test(flavor = "current_thread")]
    async fn who_says_little_waits_for_few_of_those_who_never_stop() {
        const BUSY: usize = 20;
        let mut publishes = BytesMut::new();
        while publishes.len() < 2 << 20 {
            Packet::Publish(publish(&[b'x'; 100])).encode(&mut publishes).expect("a packet");
        }
        let publishes = publishes.freeze();
        for space in [4 << 20, 1 << 10] {
            let (running, mut quiet, _serving) = start(1 << 10);
            welcome(&mut quiet, "quiet").await;
            for at in 0..BUSY {
                let (mut client, _) = another(&running, space);
                let publishes = publishes.clone();
                tokio::spawn(async move {
                    client.write_all(&connect_as(&format!("busy-{at}"))).await.expect("room");
                    client.write_all(&publishes).await.expect("room");
                });
            }
            let counted = Arc::clone(&running);
            let published = move || counted.with(|machine, _| machine.stats().published);
            let most = most_between(quiet, published.clone()).await;
            let each = u64::try_from(space.min(READ_MAX) / 100).expect("small");
            assert!(most <= 4 * each, "{most} publishes, {each} in a turn");
            let all = u64::try_from(BUSY * (publishes.len() / 110)).expect("small");
            assert!((1..all).contains(&published()), "they had not ended: {}", published());
        }
    }

    /// However many come, send something and go, whoever was there before waits for a turn or two of them.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn who_has_been_there_goes_before_those_who_come_and_go() {
        const COMING: usize = 50;
        const EACH: u64 = 100;
        let second = Duration::from_secs(1);
        let (running, mut quiet, _serving) = start_with(1 << 10, second);
        welcome(&mut quiet, "quiet").await;
        tokio::time::advance(second).await;
        let mut publishes = BytesMut::new();
        for _ in 0..EACH {
            Packet::Publish(publish(b"x")).encode(&mut publishes).expect("a packet");
        }
        publishes.extend_from_slice(&[0xc0, 0]);
        let publishes = publishes.freeze();
        let mut coming = Vec::new();
        for at in 0..COMING {
            let (running, publishes) = (Arc::clone(&running), publishes.clone());
            coming.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let (mut client, _) = another(&running, 4 << 20);
                    welcome(&mut client, &format!("coming-{at}")).await;
                    client.write_all(&publishes).await.expect("room");
                    assert!(client.read(&mut [0; 100]).await.expect("PINGRESP") > 0);
                }
            }));
        }
        let counted = Arc::clone(&running);
        let published = move || counted.with(|machine, _| machine.stats().published);
        let most = most_between(quiet, published.clone()).await;
        assert!(most <= 4 * EACH, "{most} publishes");
        let (published, left) =
            (published(), coming.iter().filter(|one| !one.is_finished()).count());
        assert!(published > 2 * EACH && left > 0, "{published} publishes, {left} clients");
    }

    /// However many have much to be written to them.
    #[tokio::test(flavor = "current_thread")]
    async fn who_says_little_waits_for_few_of_those_who_have_much_to_read() {
        const BUSY: usize = 20;
        const LEN: usize = 30_000;
        let (running, mut quiet, _serving) = start(1 << 10);
        welcome(&mut quiet, "quiet").await;
        let mut busy = Vec::new();
        for at in 0..BUSY {
            let (mut client, serving) = another(&running, 4 << 20);
            welcome(&mut client, &format!("busy-{at}")).await;
            busy.push((client, serving));
        }
        running.with(|machine, now| {
            for message in 0..BUSY * 50 {
                let client_id = format!("busy-{}", message % BUSY);
                let reason = machine.deliver(now, &client_id, &publish(&[b'x'; LEN]));
                assert_eq!(reason, Reason::SUCCESS);
            }
        });
        let counted = Arc::clone(&running);
        let full = running.with(|machine, _| machine.stats().bytes);
        let written = move || {
            let bytes = counted.with(|machine, _| machine.stats().bytes);
            u64::try_from(full.saturating_sub(bytes)).expect("small")
        };
        let most = most_between(quiet, written.clone()).await;
        // What is written was counted until then, a piece later.
        assert!(most <= 5 * 64 * 1_024, "{most} bytes");
        assert!(written() < u64::try_from(BUSY * 50 * LEN).expect("small"), "they had not ended");
    }
}
