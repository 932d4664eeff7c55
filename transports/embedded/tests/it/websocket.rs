//! MQTT over WebSocket: frames written byte by byte, and clients behind another one's WebSocket.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use statestore_embedded::{Broker, Options, Users, tls_config};
use statestore_proto::client::WatchEvent;
use statestore_tests::certificates::Certificates;
use statestore_tests::mqttbytes::v5::ConnectReturnCode;
use statestore_tests::raw::{Hello, Raw};
use statestore_tests::timely::timely;
use statestore_tests::verify::{assert_ours, every_case};
use statestore_tokio::StateStore;
use statestore_verify::over_rumqttc;
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

/// The request of the standard, RFC 6455 section 1.3, and the answer to it.
const HANDSHAKE: &str = "GET /mqtt HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const ASKS_FOR_MQTT: &str = "Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n";

/// A CONNECT of client `a` with a clean start, and what it is answered with begins.
const CONNECT: &[u8] = b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01a";
const CONNACK: u8 = 0x20;
const PINGREQ: &[u8] = b"\xc0\0";
const PINGRESP: &[u8] = b"\xd0\0";

const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// On free ports of this machine.
fn options() -> Options {
    crate::options().websocket(([127, 0, 0, 1], 0))
}

async fn socket(broker: &Broker) -> TcpStream {
    let address = broker.websocket_addr().expect("it listens");
    TcpStream::connect(address).await.expect("a connection")
}

/// What a request is answered with, until the connection ends or is upgraded.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &[u8]) -> String {
    let mut answer = Vec::new();
    stream.write_all(request).await.expect("it reads");
    while !(answer.starts_with(b"HTTP/1.1 101 ") && answer.ends_with(b"\r\n\r\n")) {
        // A connection that is reset had its answer.
        if stream.read_buf(&mut answer).await.unwrap_or_default() == 0 {
            break;
        }
    }
    String::from_utf8(answer).expect("text")
}

/// A WebSocket, and nothing said on it.
async fn open(broker: &Broker) -> TcpStream {
    let mut stream = socket(broker).await;
    let answer = ask(&mut stream, format!("{HANDSHAKE}{ASKS_FOR_MQTT}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    stream
}

/// The same, and the client is connected.
async fn connected(broker: &Broker) -> TcpStream {
    let mut stream = open(broker).await;
    send(&mut stream, BINARY, CONNECT).await;
    let (opcode, payload) = frame(&mut stream).await.expect("an answer");
    assert_eq!((opcode, payload[0], payload[3]), (BINARY, CONNACK, 0), "{payload:?}");
    stream
}

/// A frame of a client.
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
    stream.write_all(&masked(opcode, payload)).await.expect("it reads");
}

/// The next frame of the broker: its first byte, and its payload; nothing at the end.
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
async fn who_asks_for_no_mqtt_is_told_what_is_spoken() {
    timely(async {
        let allowed = "https://panel.example";
        let (broker, _service) = start(options().websocket_origin(allowed)).await;
        let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}");
        for (name, request, status, part) in [
            ("all is well", upgrade.clone(), "101 ", ACCEPTED),
            (
                "its page may",
                format!("{upgrade}Origin: {allowed}\r\n"),
                "101 ",
                "Protocol: mqtt\r\n",
            ),
            (
                "another page",
                format!("{upgrade}Origin: https://evil.example\r\n"),
                "403 ",
                "origin",
            ),
            ("two pages", format!("{upgrade}Origin: {allowed}\r\nOrigin: x\r\n"), "403 ", "origin"),
            ("a file", format!("{upgrade}Origin: null\r\n"), "403 ", "origin"),
            ("no subprotocol", HANDSHAKE.into(), "400 ", "subprotocol mqtt"),
            (
                "another one",
                format!("{HANDSHAKE}Sec-WebSocket-Protocol: xmqtt\r\n"),
                "400 ",
                "subprotocol mqtt",
            ),
            ("a browser", "GET / HTTP/1.1\r\nHost: h\r\n".into(), "426 ", "MQTT 5 over WebSocket"),
            ("an old version", upgrade.replace(": 13", ": 8"), "426 ", "Sec-WebSocket-Version: 13"),
            ("no GET", upgrade.replace("GET", "POST"), "400 ", "MQTT 5 over WebSocket"),
            ("a long one", format!("{upgrade}X: {}\r\n", "x".repeat(8_192)), "431 ", "too long"),
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
async fn all_pages_may_connect_where_that_is_wanted_and_none_unless_it_is() {
    timely(async {
        let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}Origin: https://a.example\r\n\r\n");
        for (options, status) in [(options(), "403 "), (options().websocket_origin("*"), "101 ")] {
            let (broker, _service) = start(options).await;
            let answer = ask(&mut socket(&broker).await, upgrade.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_has_ten_seconds_to_connect_however_it_spends_them() {
    let (broker, _service) = start(options()).await;
    let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}\r\n");
    for (name, begin, then) in [
        ("it says nothing", String::new(), ""),
        ("half a request", HANDSHAKE.into(), ""),
        ("byte by byte", HANDSHAKE.into(), "X"),
        ("a WebSocket and nothing on it", upgrade.clone(), ""),
        ("a WebSocket with pings", upgrade, "\u{9}\0\0\0\0"),
    ] {
        let begun = Instant::now();
        let (mut from, mut to) = socket(&broker).await.into_split();
        let slowly = tokio::spawn(async move {
            to.write_all(begin.as_bytes()).await.expect("it reads");
            let mut wait = tokio::time::interval(Duration::from_secs(1));
            wait.tick().await;
            // A ping begins with bytes that are no text.
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
        let mut heard = Vec::new();
        let _ = from.read_to_end(&mut heard).await;
        let took = begun.elapsed().as_secs_f32();
        assert!((9.9..12.0).contains(&took), "{name}: {took} s");
        slowly.abort();
    }
    assert_eq!(broker.stats().connections, 0);
}

#[tokio::test]
async fn packets_and_frames_begin_and_end_where_they_like() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut stream = open(&broker).await;
        // One packet in three frames of a message, the second of them empty, with a ping between.
        let (one, two) = CONNECT.split_at(5);
        send(&mut stream, 0x02, one).await;
        send(&mut stream, 0x00, b"").await;
        send(&mut stream, PING, b"between").await;
        assert_eq!(frame(&mut stream).await, Some((PONG, b"between".to_vec())));
        send(&mut stream, 0x80, two).await;
        let (opcode, payload) = frame(&mut stream).await.expect("an answer");
        assert_eq!((opcode, payload[0]), (BINARY, CONNACK));
        // Two packets and the first byte of a third in one, which is the first of two that come at once.
        let first = masked(BINARY, &[PINGREQ, PINGREQ, &PINGREQ[..1]].concat());
        let both = [first, masked(BINARY, &PINGREQ[1..])].concat();
        stream.write_all(&both).await.expect("it reads");
        let mut heard = Vec::new();
        while heard.len() < 3 * PINGRESP.len() {
            let (opcode, payload) = frame(&mut stream).await.expect("an answer");
            assert_eq!(opcode, BINARY);
            heard.extend(payload);
        }
        assert_eq!(heard, PINGRESP.repeat(3));
        // A pong that nobody asked for is nothing.
        send(&mut stream, PONG, b"x").await;
        send(&mut stream, CLOSE, b"\x03\xe9going").await;
        assert_eq!(frame(&mut stream).await, Some((CLOSE, b"\x03\xe9".to_vec())));
        assert_eq!(frame(&mut stream).await, None);
    })
    .await;
}

#[tokio::test]
async fn what_is_no_binary_frame_ends_the_connection() {
    timely(async {
        let (broker, _service) = start(options()).await;
        for (name, bytes, code) in [
            ("text", masked(0x81, PINGREQ), 1003_u16),
            ("not masked", [&[BINARY, 2], PINGREQ].concat(), 1002),
            ("a ping that is too long", masked(PING, &[0; 200]), 1002),
        ] {
            let mut stream = connected(&broker).await;
            // What came before counts.
            stream.write_all(&[masked(BINARY, PINGREQ), bytes].concat()).await.expect("it reads");
            let mut heard = Vec::new();
            while let Some(frame) = frame(&mut stream).await {
                heard.push(frame);
            }
            assert_eq!(heard.last(), Some(&(CLOSE, code.to_be_bytes().to_vec())), "{name}");
        }
        while broker.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_pings_is_kept_nowhere() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut stream = connected(&broker).await;
        let before = broker.stats().bytes;
        // More than the system has room for in both directions, if all of them were answered.
        for _ in 0..256 {
            stream.write_all(&masked(PING, &[b'x'; 125]).repeat(512)).await.expect("it reads");
        }
        assert_eq!(broker.stats().bytes, before);
        send(&mut stream, PING, b"last").await;
        send(&mut stream, BINARY, PINGREQ).await;
        let mut pongs = 0;
        let (mut is_over, mut is_alive) = (false, false);
        while !(is_over && is_alive) {
            match frame(&mut stream).await.expect("it is connected") {
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
async fn what_is_half_there_counts_as_elsewhere() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut stream = connected(&broker).await;
        let before = broker.stats().bytes;
        // A frame without an end, and in it a packet of which half a megabyte is there.
        let mut begin = masked(BINARY, &[]);
        begin.splice(1..2, [[0xff].as_slice(), &(u64::MAX >> 1).to_be_bytes()].concat());
        let mask = [7, 11, 13, 17].into_iter().cycle();
        let packet = [&[0x30, 0x80, 0x80, 0x40][..], &[b't'; 500_000]].concat();
        begin.extend(packet.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        stream.write_all(&begin).await.expect("it reads");
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
async fn a_goodbye_is_said_in_both_ways_and_nobody_waits_long_for_it() {
    let (broker, _service) = start(options()).await;
    let goodbye = masked(BINARY, b"\xe0\0");
    let mut polite = connected(&broker).await;
    polite.write_all(&goodbye).await.expect("it reads");
    assert_eq!(frame(&mut polite).await, Some((CLOSE, 1000_u16.to_be_bytes().to_vec())));
    let begun = Instant::now();
    send(&mut polite, CLOSE, b"\x03\xe8").await;
    assert_eq!(frame(&mut polite).await, None);
    assert_eq!(begun.elapsed(), Duration::ZERO, "it was waited for");
    let mut silent = connected(&broker).await;
    silent.write_all(&goodbye).await.expect("it reads");
    assert!(matches!(frame(&mut silent).await, Some((CLOSE, _))));
    let begun = Instant::now();
    assert_eq!(frame(&mut silent).await, None);
    assert_eq!(begun.elapsed().as_secs(), 1);
    assert_eq!(broker.stats().connections, 0);
}

/// A port for MQTT without WebSocket, from which another one's client goes to the broker; its frames are short.
async fn bridge(broker: &Broker) -> u16 {
    let to = broker.websocket_addr().expect("it listens");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(web) = TcpStream::connect(to).await {
                    web.set_nodelay(true).expect("a socket");
                    let _ = carry(stream, web, "ws").await;
                }
            });
        }
    });
    port
}

/// Carries bytes to a WebSocket and back until one of both ends.
async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
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
    let there = async {
        let mut bytes = [0; 1_000];
        loop {
            match from.read(&mut bytes).await? {
                0 => return sink.close().await,
                length => sink.send(Message::Binary(bytes[..length].to_vec().into())).await?,
            }
        }
    };
    let back = async {
        while let Some(message) = source.next().await {
            match message? {
                Message::Binary(bytes) => to.write_all(&bytes).await?,
                Message::Close(_) => break,
                other => panic!("{other:?} instead of bytes"),
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = there => ended,
        ended = back => ended,
    }
}

fn options_at(port: u16, client_id: &str) -> statestore_rumqttc::Options {
    statestore_rumqttc::Options::new(client_id, "127.0.0.1", port)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_behind_a_websocket_passes_every_case_of_the_kit() {
    let (broker, service) = start(options()).await;
    let place = over_rumqttc::Rumqttc(options_at(bridge(&broker).await, ""));
    assert_ours(&every_case(Arc::new(place)).await, &[]);
    assert_eq!(service.stats().keys, 0);
}

async fn sets_gets_and_watches(store: &StateStore, other: &StateStore) {
    let mut changes = store.watch("k").await.expect("it watches");
    assert_eq!(changes.next().await, Some(WatchEvent::Live));
    // More than a frame of either end.
    let value = vec![b'v'; 300_000];
    let version = other.set("k", value.clone()).await.expect("a version");
    let found = store.get("k").await.expect("an answer").expect("a value");
    assert_eq!((found.version, &found.value[..]), (Some(version.clone()), &value[..]));
    let news = WatchEvent::Changed { value: Some(value.into()), version: Some(version) };
    assert_eq!(changes.next().await, Some(news));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_both_ports_share_the_store() {
    timely(async {
        let mut users = Users::default();
        users.set("alice", "one").expect("a user");
        let (broker, _service) = start(options().users(users)).await;
        let port = bridge(&broker).await;
        let login = |options: statestore_rumqttc::Options| options.credentials("alice", "one");
        let connect = |options| statestore_rumqttc::connect(login(options)).expect("a client id");
        let web = connect(options_at(port, "alice-web"));
        let plain = connect(options_at(broker.local_addr().port(), "alice"));
        sets_gets_and_watches(&web, &plain).await;
        let stranger = Hello { login: Some(("alice", "two")), ..Hello::default() };
        let refused = Raw::try_open(port, "stranger", stranger).expect_err("a wrong password");
        assert_eq!(refused, Some(ConnectReturnCode::BadUserNamePassword));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_encrypted_where_the_rest_is() {
    let Some(made) = Certificates::make("a_websocket_is_encrypted") else { return };
    let config = tls_config(&made.read("broker.pem"), &made.read("broker.key"), None);
    let mut roots = RootCertStore::empty();
    let authority = made.read("ca.pem");
    roots.add(CertificateDer::from_pem_slice(&authority).expect("PEM")).expect("an authority");
    let client = ClientConfig::builder_with_provider(Arc::new(
        tokio_rustls::rustls::crypto::ring::default_provider(),
    ));
    let client = client.with_safe_default_protocol_versions().expect("versions");
    let client = client.with_root_certificates(roots).with_no_client_auth();
    timely(async {
        let (broker, _service) = start(options().tls(config.expect("good files"))).await;
        let tls = TlsConnector::from(Arc::new(client));
        let name = ServerName::try_from("localhost").expect("a name");
        let web = tls.connect(name, socket(&broker).await).await.expect("its certificate");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("the client");
            let _ = carry(stream, web, "wss").await;
        });
        let store =
            statestore_rumqttc::connect(options_at(port, "alice-web")).expect("a client id");
        let other = StateStore::builder().spawn(broker.link("other")).expect("a client id");
        sets_gets_and_watches(&store, &other).await;
        // Without TLS there is nothing for it.
        let upgrade = format!("{HANDSHAKE}{ASKS_FOR_MQTT}\r\n");
        let answer = {
            let mut heard = Vec::new();
            let mut plain = socket(&broker).await;
            plain.write_all(upgrade.as_bytes()).await.expect("it reads");
            let _ = plain.read_to_end(&mut heard).await;
            heard
        };
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    })
    .await;
}
