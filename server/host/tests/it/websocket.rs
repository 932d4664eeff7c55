//! MQTT over WebSocket: hand-written frames, and clients behind the WebSocket implementation of
//! tungstenite.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use statestore_proto::client::WatchEvent;
use statestore_server::{Broker, Listener, Options, ServerTls, TlsPem, Users};
use statestore_testkit::conformance::suite::{assert_conformant, every_case};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{Hello, Raw};
use statestore_tokio::StateStore;
use statestore_verify::over_client;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::start;

/// The request of RFC 6455, section 1.3, and the `Sec-WebSocket-Accept` of its response.
const HANDSHAKE: &str = "GET /mqtt HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const ASKS_FOR_MQTT: &str = "Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n";

/// CONNECT of client `a` with Clean Start, and the first byte of a CONNACK.
const CONNECT: &[u8] = b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01a";
const CONNACK: u8 = 0x20;
const PINGREQ: &[u8] = b"\xc0\0";
const PINGRESP: &[u8] = b"\xd0\0";

const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// Options with free ports of the loopback address. No web page may connect.
fn options() -> Options {
    options_for::<&str>([])
}

/// Options that allow web pages of these origins.
fn options_for<O: Into<String>>(origins: impl IntoIterator<Item = O>) -> Options {
    crate::options().listener(Listener::new(([127, 0, 0, 1], 0)).websocket(origins))
}

/// Returns the address of the WebSocket listener.
fn web_address(broker: &Broker) -> SocketAddr {
    broker.local_addrs()[1]
}

async fn socket(broker: &Broker) -> TcpStream {
    TcpStream::connect(web_address(broker)).await.expect("a connection")
}

/// Returns the response to an HTTP request: up to the end of the connection, or up to the upgrade.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &[u8]) -> String {
    let mut answer = Vec::new();
    stream.write_all(request).await.expect("write");
    while !(answer.starts_with(b"HTTP/1.1 101 ") && answer.ends_with(b"\r\n\r\n")) {
        // A reset may follow the response.
        if stream.read_buf(&mut answer).await.unwrap_or_default() == 0 {
            break;
        }
    }
    String::from_utf8(answer).expect("text")
}

/// Opens a WebSocket without sending a packet.
async fn open(broker: &Broker) -> TcpStream {
    let mut stream = socket(broker).await;
    let answer = ask(&mut stream, format!("{HANDSHAKE}{ASKS_FOR_MQTT}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    stream
}

/// Opens a WebSocket and connects client `a`.
async fn connected(broker: &Broker) -> TcpStream {
    let mut stream = open(broker).await;
    send(&mut stream, BINARY, CONNECT).await;
    let (opcode, payload) = frame(&mut stream).await.expect("an answer");
    assert_eq!((opcode, payload[0], payload[3]), (BINARY, CONNACK, 0), "{payload:?}");
    stream
}

/// Returns a TLS client that trusts the CA in this PEM file.
pub(crate) fn tls_connector(authority: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).expect("PEM")).expect("an authority");
    let client = ClientConfig::builder_with_provider(Arc::new(
        tokio_rustls::rustls::crypto::ring::default_provider(),
    ));
    let client = client.with_safe_default_protocol_versions().expect("versions");
    TlsConnector::from(Arc::new(client.with_root_certificates(roots).with_no_client_auth()))
}

/// Opens a WebSocket and sends a CONNECT. Returns whether a CONNACK with success arrives.
pub(crate) async fn can_connect_by_websocket(
    address: SocketAddr,
    tls: Option<&TlsConnector>,
) -> bool {
    let stream = TcpStream::connect(address).await.expect("a connection");
    match tls {
        None => can_connect_over(stream).await,
        Some(tls) => {
            let name = ServerName::try_from("localhost").expect("a name");
            can_connect_over(tls.connect(name, stream).await.expect("its certificate")).await
        }
    }
}

async fn can_connect_over(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> bool {
    let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}\r\n");
    let _ = stream.write_all(upgrade.as_bytes()).await;
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut received).await.unwrap_or_default() == 0 {
            return false;
        }
    }
    stream.write_all(&masked(BINARY, CONNECT)).await.expect("write");
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).await.is_ok() && answer[2] == CONNACK && answer[5] == 0
}

/// Returns a masked frame.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 11, 13, 17];
    let mut frame = vec![opcode];
    match u8::try_from(payload.len()) {
        Ok(length @ 0..=125) => frame.push(0x80 | length),
        _ => {
            frame.push(0x80 | 127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

async fn send(stream: &mut TcpStream, opcode: u8, payload: &[u8]) {
    stream.write_all(&masked(opcode, payload)).await.expect("write");
}

/// Returns the first byte and the payload of the next frame, or `None` at the end.
async fn frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let opcode = stream.read_u8().await.ok()?;
    let length = match stream.read_u8().await.ok()? {
        126 => stream.read_u16().await.ok()?.into(),
        127 => stream.read_u64().await.ok()?,
        short => short.into(),
    };
    let mut payload = vec![0; usize::try_from(length).expect("no more than there is")];
    stream.read_exact(&mut payload).await.ok()?;
    Some((opcode, payload))
}

#[tokio::test]
async fn invalid_http_request_gets_status_and_explanation() {
    timely(async {
        let allowed = "https://panel.example";
        let (broker, _service) = start(options_for([allowed])).await;
        let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}");
        let local = upgrade.replace("Host: server.example.com", "Host: 127.0.0.1:9001");
        for (name, request, status, part) in [
            ("valid", upgrade.clone(), "101 ", ACCEPTED),
            (
                "allowed origin",
                format!("{upgrade}Origin: {allowed}\r\n"),
                "101 ",
                "Protocol: mqtt\r\n",
            ),
            (
                "other origin",
                format!("{upgrade}Origin: https://evil.example\r\n"),
                "403 ",
                "origin",
            ),
            (
                "two origins",
                format!("{upgrade}Origin: {allowed}\r\nOrigin: x\r\n"),
                "403 ",
                "origin",
            ),
            ("own address", format!("{local}Origin: https://127.0.0.1:9001\r\n"), "101 ", ACCEPTED),
            ("other port", format!("{local}Origin: http://127.0.0.1:9002\r\n"), "403 ", "origin"),
            // The name may resolve to this machine: DNS rebinding.
            (
                "own name",
                format!("{upgrade}Origin: http://server.example.com\r\n"),
                "403 ",
                "origin",
            ),
            ("null origin", format!("{upgrade}Origin: null\r\n"), "403 ", "origin"),
            ("no subprotocol", HANDSHAKE.into(), "400 ", "subprotocol mqtt"),
            (
                "other subprotocol",
                format!("{HANDSHAKE}Sec-WebSocket-Protocol: xmqtt\r\n"),
                "400 ",
                "subprotocol mqtt",
            ),
            ("a browser", "GET / HTTP/1.1\r\nHost: h\r\n".into(), "426 ", "MQTT 5 over WebSocket"),
            ("an old version", upgrade.replace(": 13", ": 8"), "426 ", "Sec-WebSocket-Version: 13"),
            ("POST", upgrade.replace("GET", "POST"), "400 ", "MQTT 5 over WebSocket"),
            ("too long", format!("{upgrade}X: {}\r\n", "x".repeat(8_192)), "431 ", "too long"),
        ] {
            let mut stream = socket(&broker).await;
            let answer = ask(&mut stream, format!("{request}\r\n").as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {answer}");
            assert!(answer.to_lowercase().contains(&part.to_lowercase()), "{name}: {answer}");
        }
        for (name, bytes) in [("plain MQTT", CONNECT), ("TLS", b"\x16\x03\x01\x02\0\x01\0\x01")] {
            let answer = ask(&mut socket(&broker).await, bytes).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
        }
        let early = [format!("{upgrade}\r\n").as_bytes(), &masked(BINARY, CONNECT)].concat();
        assert!(ask(&mut socket(&broker).await, &early).await.starts_with("HTTP/1.1 400 "));
    })
    .await;
}

#[tokio::test]
async fn origins_are_rejected_by_default_and_allowed_by_wildcard() {
    timely(async {
        let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}Origin: https://a.example\r\n\r\n");
        for (options, status) in [(options(), "403 "), (options_for(["*"]), "101 ")] {
            let (broker, _service) = start(options).await;
            let answer = ask(&mut socket(&broker).await, upgrade.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn handshake_and_connect_time_out_after_ten_seconds() {
    let (broker, _service) = start(options()).await;
    let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}\r\n");
    for (name, begin, then) in [
        ("silent", String::new(), ""),
        ("half a request", HANDSHAKE.into(), ""),
        ("byte by byte", HANDSHAKE.into(), "X"),
        ("a silent WebSocket", upgrade.clone(), ""),
        ("a WebSocket with pings", upgrade, "\u{9}\0\0\0\0"),
    ] {
        let begun = Instant::now();
        let (mut from, mut to) = socket(&broker).await.into_split();
        let slowly = tokio::spawn(async move {
            to.write_all(begin.as_bytes()).await.expect("write");
            let mut wait = tokio::time::interval(Duration::from_secs(1));
            wait.tick().await;
            // The bytes of a ping are not text, so `then` marks it with a tab.
            let then = match then.starts_with('\u{9}') {
                true => masked(PING, &[]),
                false => then.as_bytes().to_vec(),
            };
            while !then.is_empty() {
                wait.tick().await;
                if to.write_all(&then).await.is_err() {
                    break;
                }
            }
            to
        });
        let mut received = Vec::new();
        let _ = from.read_to_end(&mut received).await;
        let took = begun.elapsed().as_secs_f32();
        assert!((9.9..12.0).contains(&took), "{name}: {took} s");
        slowly.abort();
    }
    assert_eq!(broker.stats().connections, 0);
}

/// MQTT-6.0.0-2
#[tokio::test]
async fn packet_and_frame_boundaries_are_independent() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut stream = open(&broker).await;
        // One packet in three frames of a message, with an empty frame and a ping in between.
        let (one, two) = CONNECT.split_at(5);
        send(&mut stream, 0x02, one).await;
        send(&mut stream, 0x00, b"").await;
        send(&mut stream, PING, b"between").await;
        assert_eq!(frame(&mut stream).await, Some((PONG, b"between".to_vec())));
        send(&mut stream, 0x80, two).await;
        let (opcode, payload) = frame(&mut stream).await.expect("an answer");
        assert_eq!((opcode, payload[0]), (BINARY, CONNACK));
        // One frame with two packets and the first byte of a third one, sent together with the next
        // frame.
        let first = masked(BINARY, &[PINGREQ, PINGREQ, &PINGREQ[..1]].concat());
        let both = [first, masked(BINARY, &PINGREQ[1..])].concat();
        stream.write_all(&both).await.expect("write");
        let mut received = Vec::new();
        while received.len() < 3 * PINGRESP.len() {
            let (opcode, payload) = frame(&mut stream).await.expect("an answer");
            assert_eq!(opcode, BINARY);
            received.extend(payload);
        }
        assert_eq!(received, PINGRESP.repeat(3));
        // An unsolicited pong is ignored.
        send(&mut stream, PONG, b"x").await;
        send(&mut stream, CLOSE, b"\x03\xe9going").await;
        assert_eq!(frame(&mut stream).await, Some((CLOSE, b"\x03\xe9".to_vec())));
        assert_eq!(frame(&mut stream).await, None);
    })
    .await;
}

/// MQTT-6.0.0-1
#[tokio::test]
async fn invalid_frame_closes_the_connection_with_its_code() {
    timely(async {
        let (broker, _service) = start(options()).await;
        for (name, bytes, code) in [
            ("text", masked(0x81, PINGREQ), 1003_u16),
            ("not masked", [&[BINARY, 2], PINGREQ].concat(), 1002),
            ("a ping that is too long", masked(PING, &[0; 200]), 1002),
        ] {
            let mut stream = connected(&broker).await;
            // Packets before the invalid frame are processed.
            stream.write_all(&[masked(BINARY, PINGREQ), bytes].concat()).await.expect("write");
            let mut received = Vec::new();
            while let Some(frame) = frame(&mut stream).await {
                received.push(frame);
            }
            assert_eq!(received.last(), Some(&(CLOSE, code.to_be_bytes().to_vec())), "{name}");
        }
        while broker.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn flood_of_pings_uses_no_memory() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut stream = connected(&broker).await;
        let before = broker.stats().bytes;
        // A PUBLISH at QoS 0. Without data, the flood would soon be closed.
        let publish = masked(BINARY, b"\x30\x04\0\x01t\0");
        let flood = [masked(PING, &[b'x'; 125]).repeat(64), publish].concat().repeat(8);
        // More than the socket buffers of both directions can hold, if every ping got a pong.
        for _ in 0..256 {
            stream.write_all(&flood).await.expect("write");
            assert!(broker.stats().bytes < before + 1_000, "{broker:?}");
        }
        while broker.stats().bytes != before {
            tokio::task::yield_now().await;
        }
        send(&mut stream, PING, b"last").await;
        send(&mut stream, BINARY, PINGREQ).await;
        let mut pongs = 0;
        let (mut is_over, mut is_alive) = (false, false);
        while !(is_over && is_alive) {
            match frame(&mut stream).await.expect("connected") {
                (PONG, payload) => {
                    is_over = payload == b"last";
                    pongs += 1;
                }
                (BINARY, payload) => is_alive = payload == PINGRESP,
                other => panic!("{other:?}"),
            }
        }
        assert!(pongs < 256 * 512, "{pongs}");
    })
    .await;
}

#[tokio::test]
async fn incomplete_packet_in_a_frame_counts_as_memory() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut stream = connected(&broker).await;
        let before = broker.stats().bytes;
        // An endless frame with the first half megabyte of a packet.
        let mut begin = masked(BINARY, &[]);
        begin.splice(1..2, [[0xff].as_slice(), &(u64::MAX >> 1).to_be_bytes()].concat());
        let mask = [7, 11, 13, 17].into_iter().cycle();
        let packet = [&[0x30, 0x80, 0x80, 0x40][..], &[b't'; 500_000]].concat();
        begin.extend(packet.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        stream.write_all(&begin).await.expect("write");
        while broker.stats().bytes < before + 500_000 {
            tokio::task::yield_now().await;
        }
        assert!(broker.stats().bytes < before + 1_100_000, "{broker:?}");
        drop(stream);
        while broker.stats().bytes > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn close_handshake_is_completed_or_times_out() {
    let (broker, _service) = start(options()).await;
    let disconnect = masked(BINARY, b"\xe0\0");
    let mut polite = connected(&broker).await;
    polite.write_all(&disconnect).await.expect("write");
    assert_eq!(frame(&mut polite).await, Some((CLOSE, 1000_u16.to_be_bytes().to_vec())));
    let begun = Instant::now();
    send(&mut polite, CLOSE, b"\x03\xe8").await;
    assert_eq!(frame(&mut polite).await, None);
    assert_eq!(begun.elapsed(), Duration::ZERO, "the broker waited for the close frame");
    let mut silent = connected(&broker).await;
    silent.write_all(&disconnect).await.expect("write");
    assert!(matches!(frame(&mut silent).await, Some((CLOSE, _))));
    let begun = Instant::now();
    assert_eq!(frame(&mut silent).await, None);
    assert_eq!(begun.elapsed().as_secs(), 1);
    assert_eq!(broker.stats().connections, 0);
}

/// Starts a proxy from plain MQTT to the WebSocket listener of the broker. Its frames are short.
/// Returns its port.
async fn start_proxy(broker: &Broker) -> u16 {
    let to = web_address(broker);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(web) = TcpStream::connect(to).await {
                    web.set_nodelay(true).expect("a socket");
                    let _ = proxy(stream, web, "ws").await;
                }
            });
        }
    });
    port
}

/// Copies bytes to a WebSocket and back until one side ends.
async fn proxy<S: AsyncRead + AsyncWrite + Unpin>(
    stream: TcpStream,
    web: S,
    scheme: &str,
) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let mut request = format!("{scheme}://localhost/mqtt").into_client_request()?;
    let name = HeaderValue::from_static("mqtt");
    request.headers_mut().insert("Sec-WebSocket-Protocol", name);
    let (web, answer) = tokio_tungstenite::client_async(request, web).await?;
    assert_eq!(
        answer.headers().get("Sec-WebSocket-Protocol"),
        Some(&HeaderValue::from_static("mqtt"))
    );
    let (mut from, mut to) = stream.into_split();
    let (mut sink, mut source) = web.split();
    let to_web = async {
        let mut bytes = [0; 1_000];
        loop {
            match from.read(&mut bytes).await? {
                0 => return sink.close().await,
                length => sink.send(Message::Binary(bytes[..length].to_vec().into())).await?,
            }
        }
    };
    let from_web = async {
        while let Some(message) = source.next().await {
            match message? {
                Message::Binary(bytes) => to.write_all(&bytes).await?,
                Message::Close(_) => break,
                other => panic!("{other:?} instead of a binary frame"),
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = to_web => ended,
        ended = from_web => ended,
    }
}

fn options_at(port: u16, client_id: &str) -> statestore_client::Options {
    statestore_client::Options::new(client_id, "127.0.0.1", port)
}

#[tokio::test(flavor = "multi_thread")]
async fn store_behind_a_websocket_passes_the_conformance_suite() {
    let (broker, service) = start(options()).await;
    let place = over_client::Broker(options_at(start_proxy(&broker).await, ""));
    assert_conformant(&every_case(Arc::new(place)).await, &[]);
    assert_eq!(service.stats().keys, 0);
}

async fn sets_gets_and_watches(store: &StateStore, other: &StateStore) {
    let mut changes = store.watch("k").await.expect("watch");
    assert_eq!(changes.next().await, Some(WatchEvent::Live));
    // Larger than a frame of either side.
    let value = vec![b'v'; 300_000];
    let version = other.set("k", value.clone()).await.expect("a version");
    let found = store.get("k").await.expect("an answer").expect("a value");
    assert_eq!((found.version, &found.value[..]), (Some(version.clone()), &value[..]));
    let expected = WatchEvent::Changed { value: Some(value.into()), version: Some(version) };
    assert_eq!(changes.next().await, Some(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_both_listeners_share_the_store() {
    timely(async {
        let mut users = Users::default();
        users.set("alice", "one").expect("a user");
        let (broker, _service) = start(options().users(users)).await;
        let port = start_proxy(&broker).await;
        let login = |options: statestore_client::Options| options.credentials("alice", "one");
        let connect = |options| statestore_client::connect(login(options)).expect("a client id");
        let web = connect(options_at(port, "alice-web"));
        let plain = connect(options_at(broker.local_addr().port(), "alice"));
        sets_gets_and_watches(&web, &plain).await;
        let wrong_password = Hello { login: Some(("alice", "two")), ..Hello::default() };
        let refused =
            Raw::try_open(port, "wrong_password", wrong_password).expect_err("a wrong password");
        assert_eq!(refused, Some(Reason::BAD_USER_NAME_OR_PASSWORD));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_with_tls_works_and_rejects_plain_http() {
    let Some(made) = Certificates::make("websocket_uses_tls") else { return };
    let pem = TlsPem::new(made.read("broker.pem"), made.read("broker.key"));
    let config = ServerTls::from_pem(&pem).expect("valid files");
    let tls = tls_connector(&made.read("ca.pem"));
    timely(async {
        let web = Listener::new(([127, 0, 0, 1], 0)).tls(config).websocket(["*"]);
        let (broker, _service) = start(crate::options().listener(web)).await;
        let name = ServerName::try_from("localhost").expect("a name");
        let web = tls.connect(name, socket(&broker).await).await.expect("its certificate");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("the client");
            let _ = proxy(stream, web, "wss").await;
        });
        let store = statestore_client::connect(options_at(port, "alice-web")).expect("a client id");
        let other = StateStore::builder().spawn(broker.link("other")).expect("a client id");
        sets_gets_and_watches(&store, &other).await;
        // Without TLS there is no HTTP response.
        let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}\r\n");
        let answer = {
            let mut received = Vec::new();
            let mut plain = socket(&broker).await;
            plain.write_all(upgrade.as_bytes()).await.expect("write");
            let _ = plain.read_to_end(&mut received).await;
            received
        };
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    })
    .await;
}
