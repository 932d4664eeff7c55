use std::net::Ipv4Addr;
use std::num::NonZeroU16;

use statestore_broker::Limits;
use statestore_mqtt::packet::{
    Connect, Packet, Publish, Subscribe, Subscription, SubscriptionOptions, Subscriptions,
};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};
use tokio::io::{AsyncReadExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;

use super::*;
use crate::broker::meter::Metered;
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
    let id = driver.with_broker(|broker, now| broker.handle_accept(now, None)).expect("capacity");
    let (client, server) = tokio::io::duplex(space);
    let meter = Arc::new(Meter::default());
    meter.grant();
    let server = Metered::new(BufReader::with_capacity(READ_MAX, server), Arc::clone(&meter));
    let (served, peer) = (Arc::clone(driver), ([127, 0, 0, 1], 1).into());
    let wakeup = driver.register_connection(id, peer, &driver.authenticators[0]);
    let wakeup = wakeup.expect("not stopped");
    let serving = async move {
        serve(&served, id, &wakeup, peer, server, &meter).await;
    };
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

/// Connects client `a`, without reading its CONNACK.
async fn log_in(driver: &Arc<BrokerDriver>, client: &mut DuplexStream) {
    client.write_all(&connect()).await.expect("capacity");
    while !driver.with_broker(|broker, _| broker.is_connected("a")) {
        tokio::task::yield_now().await;
    }
}

/// Unread output takes memory, which may be why the client is disconnected.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn client_with_large_unread_output_is_closed_at_once() {
    for (len, is_waited_for) in [(10_000, true), (100_000, false)] {
        let (driver, mut client, serving) = start(1_000);
        log_in(&driver, &mut client).await;
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
        driver
            .with_broker(|broker, now| broker.terminate_session(now, "a", Reason::QUOTA_EXCEEDED));
        serving.await.expect("the task ends");
        assert_eq!(started.elapsed() >= CLOSE_TIMEOUT, is_waited_for, "{len}");
        drop(client);
    }
}

/// A wake for the end of a connection is not lost while earlier output is unwritten.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn client_with_unread_output_that_violates_the_protocol_is_closed() {
    let (driver, mut client, serving) = start(1_000);
    log_in(&driver, &mut client).await;
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
    let (published, left) = (published(), tasks.iter().filter(|task| !task.is_finished()).count());
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

/// Lets all other tasks run until they wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Returns what the client has received.
async fn received(client: &mut DuplexStream) -> Vec<u8> {
    settle().await;
    let mut bytes = vec![0; 1_000];
    let mut buffer = ReadBuf::new(&mut bytes);
    let read = poll_fn(|context| {
        Poll::Ready(Pin::new(&mut *client).poll_read(context, &mut buffer).is_ready())
    });
    let length = if read.await { buffer.filled().len() } else { 0 };
    bytes.truncate(length);
    bytes
}

/// A connection that sends a part of a packet waits for a turn before it is read again, before
/// and after the login, although it was idle before.
#[tokio::test(flavor = "current_thread")]
async fn part_of_a_packet_takes_a_turn() {
    let (driver, mut client, _serving) = start(1 << 10);
    for (name, packet) in [("CONNECT", connect()), ("PINGREQ", [0xc0, 0][..].into())] {
        let turn = driver.acquire_turn(Rank::Accepted).await;
        client.write_all(&packet[..1]).await.expect("capacity");
        settle().await;
        client.write_all(&packet[1..]).await.expect("capacity");
        assert_eq!(received(&mut client).await, b"", "{name}");
        drop(turn);
        assert!(!received(&mut client).await.is_empty(), "{name}");
    }
    let turn = driver.acquire_turn(Rank::Accepted).await;
    for _ in 0..3 {
        client.write_all(&[0xc0, 0]).await.expect("capacity");
        assert_eq!(received(&mut client).await, [0xd0, 0], "a whole packet needs no turn");
    }
    drop(turn);
}

#[cfg(feature = "websocket")]
mod websocket {
    use super::*;
    use crate::listen::websocket;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

    const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
    const PONG: [u8; 2] = [0x8a, 0];

    /// Starts a broker with one WebSocket.
    async fn open() -> (Arc<BrokerDriver>, DuplexStream, JoinHandle<()>) {
        let driver = Arc::new(BrokerDriver::new(&Options::new((Ipv4Addr::LOCALHOST, 0))));
        let id = driver.with_broker(|broker, now| broker.handle_accept(now, None));
        let id = id.expect("capacity");
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let (served, peer) = (Arc::clone(&driver), ([127, 0, 0, 1], 1).into());
        let wakeup = driver.register_connection(id, peer, &driver.authenticators[0]);
        let wakeup = wakeup.expect("not stopped");
        client.write_all(REQUEST).await.expect("capacity");
        let serving = tokio::spawn(async move {
            let meter = Arc::new(Meter::default());
            meter.grant();
            let stream =
                Metered::new(BufReader::with_capacity(READ_MAX, server), Arc::clone(&meter));
            let accepted = websocket::accept(stream, &[]).await;
            let stream = accepted.map_err(|error| error.to_string()).expect("a WebSocket");
            serve(&served, id, &wakeup, peer, stream, &meter).await;
        });
        assert!(received(&mut client).await.starts_with(b"HTTP/1.1 101 "));
        (driver, client, serving)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn frame_without_data_takes_a_turn() {
        let (driver, mut client, _serving) = open().await;
        client.write_all(&PING).await.expect("capacity");
        assert_eq!(received(&mut client).await, PONG, "the first read is free");
        for _ in 0..3 {
            let turn = driver.acquire_turn(Rank::Accepted).await;
            client.write_all(&PING).await.expect("capacity");
            assert_eq!(received(&mut client).await, b"");
            drop(turn);
            assert_eq!(received(&mut client).await, PONG);
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn too_many_frames_without_data_are_closed_unless_they_are_slow() {
        let (_driver, mut client, serving) = open().await;
        for _ in 0..300 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            client.write_all(&PING).await.expect("capacity");
            assert_eq!(received(&mut client).await, PONG);
        }
        client.write_all(&PING.repeat(150)).await.expect("capacity");
        serving.await.expect("the task ends");
        let closed = received(&mut client).await;
        assert!(closed.ends_with(&[0x88, 2, 0x03, 0xf0]), "{closed:?}");
    }

    /// A WebSocket without a permit to linger does not wait for the client's close frame.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn waiting_sockets_of_closed_websockets_are_few() {
        for may_linger in [true, false] {
            let (driver, mut client, serving) = open().await;
            let permits: Vec<_> = std::iter::from_fn(|| driver.try_linger()).collect();
            if may_linger {
                drop(permits);
            }
            let mut frame = vec![0x82, 0x80 | 0x10, 0, 0, 0, 0];
            // A CONNECT of MQTT 3.1.1, which is rejected with a CONNACK.
            frame.extend_from_slice(b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02ab");
            let started = tokio::time::Instant::now();
            client.write_all(&frame).await.expect("capacity");
            serving.await.expect("the task ends");
            assert_eq!(started.elapsed() >= CLOSE_TIMEOUT, may_linger, "{may_linger}");
        }
    }
}
