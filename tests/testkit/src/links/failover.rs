//! Guarantees of a client with several addresses of its broker; each adapter passes these tests.

use std::time::Duration;

use statestore_tokio::{Backoff, CloseReason, Error, Options, StateStore, Status};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::brokers::scripted::{Peer, Scripted, Welcome};

/// A CONNACK that redirects to another server.
pub const ELSEWHERE: [u8; 12] = [0x20, 10, 0, 0x9c, 7, 0x1c, 0, 4, b'e', b'v', b'i', b'l'];

/// A CONNACK for a wrong password.
const WRONG_PASSWORD: [u8; 5] = [0x20, 3, 0, 0x86, 0];

/// Hangs where there is a pause.
const PAUSE_HANGS: Backoff =
    Backoff { first: Duration::from_secs(3_600), longest: Duration::from_secs(3_600) };

/// Connections that are lost as often as here would wait longer and longer.
const PAUSES_ARE_SHORT: Backoff =
    Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(20) };

/// A port that refuses connections.
async fn closed() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Options for a client of these ports of this machine, in their order.
#[must_use]
pub fn options(ports: &[u16]) -> Options {
    let (first, rest) = ports.split_first().expect("a port");
    rest.iter().fold(Options::new("c1", "127.0.0.1", *first), |options, port| {
        options.add_address("127.0.0.1", *port)
    })
}

/// The next connection is sent elsewhere.
pub async fn send_elsewhere(broker: &Scripted) {
    let mut peer = broker.accept().await;
    peer.send(&ELSEWHERE).await;
}

/// The next connection is welcomed and served in the background.
async fn serve(broker: &Scripted) -> tokio::task::JoinHandle<()> {
    tokio::spawn(broker.welcome(Welcome::default()).await.serve())
}

async fn is_served(store: &StateStore) {
    store.wait_connected().await.expect("a connection");
    assert_eq!(store.get("k").await, Ok(None));
}

/// Unreachable brokers, and those that redirect a client, are skipped without a pause; what is
/// silent after its time-out.
///
/// # Panics
/// When it is not so.
pub async fn the_first_that_lets_in_is_used(connect: impl Fn(Options, Backoff) -> StateStore) {
    let (standby, leader) = (Scripted::start().await, Scripted::start().await);
    let store = connect(options(&[closed().await, standby.port(), leader.port()]), PAUSE_HANGS);
    send_elsewhere(&standby).await;
    let served = serve(&leader).await;
    is_served(&store).await;
    store.shutdown().await;
    served.await.expect("it ends");

    let silent = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let ports = [silent.local_addr().expect("its address").port(), leader.port()];
    let since = Instant::now();
    let store = connect(options(&ports).connect_timeout(Duration::from_secs(1)), PAUSE_HANGS);
    let (held, _) = silent.accept().await.expect("a connection");
    let served = serve(&leader).await;
    is_served(&store).await;
    assert!(since.elapsed() >= Duration::from_millis(900), "{:?}", since.elapsed());
    drop::<TcpStream>(held);
    store.shutdown().await;
    served.await.expect("it ends");
}

/// A lost connection is made again at the same address if that lets in, and at the other otherwise;
/// and so back.
///
/// # Panics
/// When it is not so.
pub async fn a_lost_connection_moves_over_and_back(
    connect: impl Fn(Options, Backoff) -> StateStore,
) {
    let brokers = [Scripted::start().await, Scripted::start().await];
    let store = connect(options(&[brokers[0].port(), brokers[1].port()]), PAUSES_ARE_SHORT);
    for (here, there) in [(0, 1), (1, 0), (0, 1)] {
        let (here, there) = (&brokers[here], &brokers[there]);
        let served = serve(here).await;
        is_served(&store).await;
        // It is lost, and the same one lets in again.
        served.abort();
        let served = serve(here).await;
        is_served(&store).await;
        served.abort();
        // Two that did not last are enough: the other one first, which is no leader yet.
        send_elsewhere(there).await;
        let served = serve(here).await;
        is_served(&store).await;
        served.abort();
        send_elsewhere(here).await;
    }
    let served = serve(&brokers[1]).await;
    is_served(&store).await;
    store.shutdown().await;
    served.await.expect("it ends");
}

/// A client that a DISCONNECT redirects to another server does not return before it has tried
/// another
/// one.
///
/// # Panics
/// When it does.
pub async fn who_is_sent_away_goes_to_the_next(connect: impl Fn(Options, Backoff) -> StateStore) {
    let (first, second) = (Scripted::start().await, Scripted::start().await);
    let store = connect(options(&[first.port(), second.port()]), PAUSES_ARE_SHORT);
    // Server busy, server shutting down, use another server, server moved.
    for reason in [0x89, 0x8b, 0x9c, 0x9d] {
        for broker in [&first, &second] {
            let mut peer: Peer = broker.welcome(Welcome::default()).await;
            peer.disconnect(reason).await;
        }
    }
    let served = serve(&first).await;
    is_served(&store).await;
    store.shutdown().await;
    served.await.expect("it ends");
}

/// A wrong password is one everywhere: that is the end, and the other broker never sees it.
///
/// # Panics
/// When it is not.
pub async fn a_wrong_password_is_the_end(connect: impl Fn(Options, Backoff) -> StateStore) {
    let (first, second) = (Scripted::start().await, Scripted::start().await);
    let store = connect(
        options(&[first.port(), second.port()]).credentials("u", "wrong"),
        PAUSES_ARE_SHORT,
    );
    let mut status = store.status();
    first.accept().await.send(&WRONG_PASSWORD).await;
    let status = status.changed().await.expect("a reason");
    let at = format!("(at 127.0.0.1:{})", first.port());
    assert!(
        matches!(
            &status,
            Status::Failed(CloseReason::Credentials(error)) if error.to_string().ends_with(&at)
        ),
        "{status}"
    );
    assert!(matches!(store.get("k").await, Err(Error::Closed(_))));
    assert!(second.is_left_alone(Duration::from_millis(200)).await);
}

/// When there is none, the status names each with its reason.
///
/// # Panics
/// When it does not.
pub async fn when_there_is_none_each_is_named(connect: impl Fn(Options, Backoff) -> StateStore) {
    let (gone, standby) = (closed().await, Scripted::start().await);
    let store = connect(options(&[gone, standby.port()]), PAUSE_HANGS);
    let mut status = store.status();
    send_elsewhere(&standby).await;
    let status = status.changed().await.expect("a reason");
    assert!(matches!(status, Status::Offline { .. }), "{status}");
    let error = status.link_error().expect("a reason");
    let reason = error.to_string();
    assert!(reason.starts_with(&format!("all 2 addresses failed: 127.0.0.1:{gone}: ")), "{reason}");
    let second = format!("; 127.0.0.1:{}: the broker refused", standby.port());
    assert!(reason.contains(&second) && reason.contains("use another server"), "{reason}");
    // The server reference of the stranger's packet is not even resolved.
    assert!(!reason.contains("evil"), "{reason}");
    store.shutdown().await;
}
