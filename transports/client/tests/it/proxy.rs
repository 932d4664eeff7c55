//! Connections through an HTTP proxy.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_client::{CloseReason, Error, LinkErrorKind, Options, Proxy, StateStore, connect};
use statestore_server::{Broker, Listener, StoreService, serve};
use statestore_testkit::process::{Port, timely};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// Behaviour of the proxy on one connection.
#[derive(Clone, Copy, Debug)]
enum Response {
    /// Opens the tunnel.
    Tunnel,
    /// Sends these bytes and closes the connection.
    Bytes(&'static [u8]),
    /// Sends nothing.
    Silence,
    /// Sends a header without an end, a byte each second.
    Slow,
    /// Sends a header without an end, as fast as it is read.
    Endless,
}

/// A proxy that connects each tunnel to one address, whatever the request names.
struct TestProxy {
    address: SocketAddr,
    /// The heads of all requests.
    requests: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
}

impl TestProxy {
    /// Starts a proxy. It uses each response once, and then opens tunnels.
    async fn start(target: SocketAddr, responses: &[Response]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let heads = Arc::clone(&requests);
        let mut responses: VecDeque<Response> = responses.iter().copied().collect();
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let head = head(&mut client).await;
                heads.lock().expect("no panic").push(head);
                let response = responses.pop_front().unwrap_or(Response::Tunnel);
                tokio::spawn(respond(client, response, target));
            }
        });
        Self { address, requests, task: task.abort_handle() }
    }

    fn settings(&self) -> Proxy {
        Proxy::new(self.address.ip().to_string(), self.address.port())
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads the head of a request, byte by byte: the rest belongs to the tunnel.
async fn head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("a complete request"));
    }
    String::from_utf8(head).expect("a text")
}

async fn respond(mut client: TcpStream, response: Response, target: SocketAddr) {
    // The client may have closed the connection.
    match response {
        Response::Tunnel => {
            let mut broker = TcpStream::connect(target).await.expect("the broker");
            broker.set_nodelay(true).expect("a socket");
            let _ = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
            let _ = copy_bidirectional(&mut client, &mut broker).await;
        }
        Response::Bytes(bytes) => _ = client.write_all(bytes).await,
        Response::Silence => _ = client.read_u8().await,
        Response::Slow => {
            while client.write_all(b"x").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        }
        Response::Endless => while client.write_all(&[b'x'; 1_024]).await.is_ok() {},
    }
}

/// A server on free ports, over TCP and WebSocket.
async fn server() -> (Broker, StoreService) {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = statestore_server::Options::new(loopback);
    serve(options.listener(Listener::new(loopback).websocket::<&str>([])))
        .await
        .expect("a free port")
}

async fn check(options: Options) {
    let store = connect(options).expect("a client id");
    check_store(&store).await;
    store.shutdown().await;
}

async fn check_store(store: &StateStore) {
    let version = store.set("key", "value").await.expect("set");
    let found = store.get("key").await.expect("answered").expect("found");
    assert_eq!((&*found.value, found.version), (&b"value"[..], Some(version)));
}

/// The error with which a handle ends.
async fn end(store: StateStore) -> CloseReason {
    match store.get("k").await {
        Err(Error::Closed(closed)) => closed.reason.expect("a reason"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tcp_connection_goes_through_the_proxy_which_resolves_the_name() {
    let (broker, _service) = server().await;
    let proxy = TestProxy::start(broker.local_addr(), &[]).await;
    let options = Options::new("c1", "broker.invalid", 1_883);
    let with_login = proxy.settings().credentials("lamp", "secret");
    timely(check(options.proxy(with_login))).await;
    assert_eq!(
        proxy.requests(),
        ["CONNECT broker.invalid:1883 HTTP/1.1\r\nHost: broker.invalid:1883\r\n\
          Proxy-Authorization: Basic bGFtcDpzZWNyZXQ=\r\n\r\n"]
    );
}

#[cfg(feature = "websocket")]
#[tokio::test]
async fn websocket_connection_goes_through_the_proxy() {
    let (broker, _service) = server().await;
    let proxy = TestProxy::start(broker.local_addrs()[1], &[]).await;
    let options = Options::from_url("ws://broker.invalid/mqtt").expect("a URL");
    timely(check(options.proxy(proxy.settings()))).await;
    assert_eq!(proxy.requests().len(), 1);
    assert!(proxy.requests()[0].starts_with("CONNECT broker.invalid:80 "));
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_connection_through_the_proxy_verifies_the_broker() {
    use statestore_client::{StoreService, Tls};
    use statestore_testkit::brokers::Mosquitto;
    use statestore_testkit::credentials::Certificates;

    let test = "client_tls_connection_through_the_proxy";
    let Some(made) = Certificates::make(test) else { return };
    let Some(broker) = Mosquitto::start_with(test, &made.broker_lines()) else { return };
    let proxy = TestProxy::start(SocketAddr::from(([127, 0, 0, 1], broker.port())), &[]).await;
    let tls = Tls::default().ca_file(made.path("ca.pem"));
    let tls = tls.identity(made.path("client.pem"), made.path("client.key"));
    let options = |id: &str, host: &str| {
        Options::new(id, host, broker.port()).tls(tls.clone()).proxy(proxy.settings())
    };
    timely(async {
        let store = statestore_client::ClientLink::for_store(options("statestore", "localhost"));
        let _service = StoreService::builder().spawn(store);
        let store = connect(options("c1", "localhost")).expect("a client id");
        // The store may still be connecting.
        while store.set("k", "v").timeout(Duration::from_secs(1)).await.is_err() {}
        // The certificate is for `localhost`.
        let other = connect(options("c2", "other.invalid")).expect("a client id");
        assert!(other.get("k").timeout(Duration::from_millis(500)).await.is_err());
        let error = other.status().current().link_error().cloned().expect("a reason");
        assert_eq!(error.kind(), LinkErrorKind::Tls, "{error}");
    })
    .await;
}

#[tokio::test]
async fn next_address_is_tried_if_the_proxy_refuses_the_first() {
    let (broker, _service) = server().await;
    let refusal = Response::Bytes(b"HTTP/1.1 403 Forbidden\r\n\r\n");
    let proxy = TestProxy::start(broker.local_addr(), &[refusal]).await;
    let options = Options::new("c1", "a.invalid", 1).add_address("b.invalid", 2);
    timely(check(options.proxy(proxy.settings()))).await;
    let requests = proxy.requests();
    assert!(requests[0].starts_with("CONNECT a.invalid:1 "), "{requests:?}");
    assert!(requests[1].starts_with("CONNECT b.invalid:2 "), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_proxy_are_retried_and_take_the_time_limit_at_most() {
    let (broker, _service) = server().await;
    for (response, text, seconds) in [
        (Response::Bytes(b"HTTP/1.1 502 Bad Gateway\r\n\r\n"), "502 Bad Gateway", 0..1),
        (Response::Bytes(b"HTTP/1.1 200"), "without a complete response", 0..1),
        (Response::Bytes(b"220 mail ESMTP\r\n\r\n"), "is not HTTP/1.1", 0..1),
        (Response::Endless, "no end within 8192 bytes", 0..1),
        (Response::Silence, "opened no connection to the broker within 4.5 s", 4..5),
        (Response::Slow, "opened no connection to the broker within 4.5 s", 4..5),
    ] {
        let proxy = TestProxy::start(broker.local_addr(), &[response]).await;
        let begun = Instant::now();
        let options = Options::new("c1", "broker.invalid", 1).proxy(proxy.settings());
        let store = connect(options).expect("a client id");
        let status = store.status().changed().await.expect("the handle continues");
        let error = status.link_error().expect("a reason");
        assert_eq!(error.kind(), LinkErrorKind::Proxy);
        let error = error.to_string();
        assert!(error.contains(text), "{response:?}: {error}");
        let name = format!("the proxy http://{}", proxy.address);
        assert!(error.contains(&name), "{error}");
        let took = begun.elapsed().as_secs();
        assert!(seconds.contains(&took), "{response:?}: {took} s");
        check_store(&store).await;
        store.shutdown().await;
    }
}

#[tokio::test]
async fn missing_login_at_the_proxy_ends_the_handle() {
    let response = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
    let target = SocketAddr::from(([127, 0, 0, 1], 1));
    let proxy = TestProxy::start(target, &[Response::Bytes(response)]).await;
    let options = Options::new("c1", "broker.invalid", 1).proxy(proxy.settings());
    let CloseReason::Link(error) = timely(end(connect(options).expect("a client id"))).await else {
        panic!("not an error of the proxy");
    };
    assert_eq!(error.kind(), LinkErrorKind::Proxy);
    assert!(error.to_string().contains("407 Proxy Authentication Required"), "{error}");
}

#[tokio::test]
async fn proxy_that_does_not_listen_is_named() {
    let port = Port::free();
    let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
    let proxy = Proxy::new("127.0.0.1", address.port());
    let store = connect(Options::new("c1", "broker.invalid", 1).proxy(proxy)).expect("an id");
    let status = timely(store.status().changed()).await.expect("the handle continues");
    let error = status.link_error().expect("a reason");
    assert_eq!(error.kind(), LinkErrorKind::Proxy);
    let expected = format!("cannot connect to the proxy http://{address}: connection refused");
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[tokio::test]
async fn unix_socket_excludes_a_proxy() {
    let options = Options::new("c1", "/run/broker.sock", 0).proxy(Proxy::new("proxy", 1));
    let reason = timely(end(connect(options).expect("a client id"))).await;
    assert!(matches!(reason, CloseReason::Unsupported(_)), "{reason}");
}
