//! Guarantees of a client with several addresses of its broker; each adapter passes these tests.

use std::time::Duration;

use statestore_tokio::{Backoff, CloseReason, Error, Options, StateStore, Status};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::brokers::scripted::{Peer, Scripted, Welcome};
use crate::process::Port;

/// A CONNACK that redirects to another server.
pub const REDIRECT: [u8; 12] = [0x20, 10, 0, 0x9c, 7, 0x1c, 0, 4, b'e', b'v', b'i', b'l'];

/// A CONNACK for a wrong password.
const WRONG_PASSWORD: [u8; 5] = [0x20, 3, 0, 0x86, 0];

/// With this back-off, a test hangs if the client pauses.
const PAUSE_HANGS: Backoff =
    Backoff { first: Duration::from_secs(3_600), longest: Duration::from_secs(3_600) };

/// A back-off with short pauses, for tests that lose many connections.
const PAUSES_ARE_SHORT: Backoff =
    Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(20) };

/// Options for a client with these ports of this machine, in order.
#[must_use]
pub fn options(ports: &[u16]) -> Options {
    let (first, rest) = ports.split_first().expect("a port");
    rest.iter().fold(Options::new("c1", "127.0.0.1", *first), |options, port| {
        options.add_address("127.0.0.1", *port)
    })
}

/// Redirects the next connection to another server.
pub async fn redirect(broker: &Scripted) {
    let mut peer = broker.accept().await;
    peer.send(&REDIRECT).await;
}

/// Accepts the next connection and serves it in the background.
async fn serve(broker: &Scripted) -> tokio::task::JoinHandle<()> {
    tokio::spawn(broker.welcome(Welcome::default()).await.serve())
}

async fn is_served(store: &StateStore) {
    store.wait_connected().await.expect("a connection");
    assert_eq!(store.get("k").await, Ok(None));
}

/// Unreachable and redirecting brokers are skipped without a pause, silent ones after a timeout.
///
/// # Panics
/// If the client does otherwise.
pub async fn first_accepting_address_is_used(connect: impl Fn(Options, Backoff) -> StateStore) {
    let (standby, leader) = (Scripted::start().await, Scripted::start().await);
    let closed = Port::free();
    let store = connect(options(&[closed.number(), standby.port(), leader.port()]), PAUSE_HANGS);
    redirect(&standby).await;
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

/// After a lost connection, the client reconnects to the same address if that accepts it, and fails
/// over otherwise. Later it can fail back.
///
/// # Panics
/// If the client does otherwise.
pub async fn lost_connection_fails_over_and_back(connect: impl Fn(Options, Backoff) -> StateStore) {
    let brokers = [Scripted::start().await, Scripted::start().await];
    let store = connect(options(&[brokers[0].port(), brokers[1].port()]), PAUSES_ARE_SHORT);
    for (here, there) in [(0, 1), (1, 0), (0, 1)] {
        let (here, there) = (&brokers[here], &brokers[there]);
        let served = serve(here).await;
        is_served(&store).await;
        // The connection is lost, and the same broker accepts the next one.
        served.abort();
        let served = serve(here).await;
        is_served(&store).await;
        served.abort();
        // After two short connections the client tries the other broker first, which is not yet the
        // leader.
        redirect(there).await;
        let served = serve(here).await;
        is_served(&store).await;
        served.abort();
        redirect(here).await;
    }
    let served = serve(&brokers[1]).await;
    is_served(&store).await;
    store.shutdown().await;
    served.await.expect("it ends");
}

/// A client that a DISCONNECT redirects tries another address before it returns.
///
/// # Panics
/// If the client does otherwise.
pub async fn redirected_client_tries_the_next_address(
    connect: impl Fn(Options, Backoff) -> StateStore,
) {
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

/// A wrong password ends the client, and the other broker gets no connection.
///
/// # Panics
/// If the client does otherwise.
pub async fn wrong_password_ends_the_client(connect: impl Fn(Options, Backoff) -> StateStore) {
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
    assert!(second.receives_no_connection(Duration::from_millis(200)).await);
}

/// If no address accepts the client, the status contains each address with its reason.
///
/// # Panics
/// If the status differs.
pub async fn status_names_each_failed_address(connect: impl Fn(Options, Backoff) -> StateStore) {
    let (closed, standby) = (Port::free(), Scripted::start().await);
    let gone = closed.number();
    let store = connect(options(&[gone, standby.port()]), PAUSE_HANGS);
    let mut status = store.status();
    redirect(&standby).await;
    let status = status.changed().await.expect("a reason");
    assert!(matches!(status, Status::Offline { .. }), "{status}");
    let error = status.link_error().expect("a reason");
    let reason = error.to_string();
    assert!(reason.starts_with(&format!("all 2 addresses failed: 127.0.0.1:{gone}: ")), "{reason}");
    let second = format!("; 127.0.0.1:{}: the broker refused", standby.port());
    assert!(reason.contains(&second) && reason.contains("use another server"), "{reason}");
    // A server reference of the peer is not even resolved.
    assert!(!reason.contains("evil"), "{reason}");
    store.shutdown().await;
}
