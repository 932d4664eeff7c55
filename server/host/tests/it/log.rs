//! The log identifies clients that are rejected, disconnected or limited, and does not mention
//! clients that follow the rules.

use std::io::{Read, Write};
use std::net::TcpStream;

use statestore_proto::topic::REQUEST;
use statestore_server::Limits;
use statestore_testkit::process::Log;
use statestore_testkit::process::timely;
use statestore_testkit::wire::raw::{Hello, Raw, RawRequest, response_topic, words};

use crate::{options, start};

/// Runs `act` in another thread, because this thread runs the broker and captures the log.
async fn run_blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.expect("thread ends")
}

/// Sends bytes, and returns everything received until the connection ends.
fn exchange(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream.write_all(bytes).expect("write");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[tokio::test(flavor = "current_thread")]
async fn well_behaved_clients_are_not_logged() {
    let log = Log::listen();
    timely(async {
        let (broker, _service) = start(options()).await;
        let port = broker.local_addr().port();
        run_blocking(move || {
            let session = Some(600);
            for _ in 0..2 {
                let mut raw = Raw::open(port, "a", Hello { session, ..Hello::default() });
                raw.subscribe(&response_topic("a"));
                assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
                raw.publish("t", true, "x");
            }
            Raw::open(port, "a", Hello { session, ..Hello::default() }).disconnect();
        })
        .await;
    })
    .await;
    assert_eq!(log.with(&["WARN"]), Vec::<String>::new());
    assert!(!log.with(&["DEBUG statestore_server", "connection closed"]).is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn rejected_and_disconnected_clients_are_logged() {
    let log = Log::listen();
    let line = |words: &[&str]| {
        let lines = log.with(&[&["WARN statestore_server"], words].concat());
        assert_eq!(lines.len(), 1, "{words:?}: {lines:#?}");
        lines.into_iter().next().unwrap_or_default()
    };
    timely(async {
        let mut limits = Limits::default();
        limits.subscriptions = 1;
        limits.messages_per_second = Some(2);
        let (broker, _service) = start(options().limits(limits)).await;
        let port = broker.local_addr().port();
        run_blocking(move || {
            exchange(port, b"GET / HTTP/1.1\r\n\r\n");
            let old = exchange(port, b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02ab");
            assert_eq!(old, [0x20, 0x02, 0x00, 0x01]);
            let mut many = Raw::open(port, "many", Hello::default());
            many.subscribe("one");
            many.subscribe("two");
            for payload in ["secret 1", "secret 2", "secret 3", "secret 4"] {
                many.publish("fast", false, payload);
            }
            let mut thief = Raw::open(port, "thief", Hello::default());
            let mut ask = RawRequest::deployed("thief", words(&["GET", "secret k"]));
            ask.response_topic = Some(REQUEST.into());
            thief.put(&ask);
            thief.ended();
        })
        .await;
    })
    .await;
    let stranger = line(&["not an MQTT CONNECT", "invalid first byte 0x47"]);
    assert!(stranger.contains("peer=127.0.0.1:"), "{stranger}");
    line(&["client rejected", "protocol level 4", "unsupported protocol version"]);
    line(&["client_id=\"many\"", "its client reached a limit", "topic=\"two\"", "quota exceeded"]);
    line(&["client_id=\"many\"", "exceeded the rate limit", "topic=\"fast\""]);
    let offender = line(&["disconnecting client", "client_id=\"thief\""]);
    let offence = "the response topic is the request topic";
    assert!(offender.contains(offence) && offender.contains(REQUEST), "{offender}");
    assert_eq!(log.with(&["secret"]), Vec::<String>::new(), "the log contains no values");
}
