//! The log names the remedy for a failed TLS handshake.

use statestore_server::ServerTls;
use statestore_testkit::process::Log;
use statestore_testkit::process::timely;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::renewal::{Live, connect};
use crate::{secured, start};

/// Waits for the line: the client may learn of the failure before the server logs it.
async fn logged(log: &Log, remedy: &str) {
    while log.with(&["TLS handshake failed", remedy]).is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn log_names_the_remedy_for_usual_causes() {
    let Some(live) = Live::new("log_names_the_remedy_for_usual_causes") else { return };
    live.0.make_authority("other-ca");
    live.0.make_client("foreign", "/CN=foreign", "", "other-ca");
    live.0.make_dated("expired", "20200101000000Z", "20200102000000Z");
    live.0.make_dated("early", "20900101000000Z", "20900102000000Z");
    live.install("broker.key", "expired.key");
    live.install("broker.key", "early.key");
    live.0.make_version_1("old", "ca");
    live.0.make_client("revoked", "/CN=revoked", "", "ca");
    live.0.make_revocation_list("one", "ca", &["revoked"], None);
    live.install("one.crl", "live.crl");
    let log = Log::listen();
    timely(async {
        let tls = ServerTls::load(live.mutual_files()).expect("valid files");
        let (broker, _service) = start(secured(tls)).await;
        for (client, remedy) in [
            (None, "give the client a certificate of a client CA"),
            (Some("foreign"), "add the CA of the client certificate to the client CAs"),
            (Some("expired"), "renew the client certificate"),
            (Some("early"), "the client certificate is not valid yet"),
            (Some("old"), "X.509 version 1: create it with extensions"),
            (Some("ca"), "create one with basicConstraints=CA:FALSE"),
            (Some("revoked"), "the client certificate was revoked"),
        ] {
            assert!(connect(&broker, &live.connector(client)).await.is_none(), "{client:?}");
            logged(&log, remedy).await;
        }
        // A client without TLS.
        let mut plain = TcpStream::connect(broker.local_addr()).await.expect("connect");
        plain.write_all(b"\x10\x0d\0\x04MQTT\x05\x02\0\x3c\0\0\0").await.expect("write");
        let _ = plain.read_to_end(&mut Vec::new()).await;
        logged(&log, "the client does not speak TLS").await;
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn log_names_the_remedy_if_the_client_does_not_trust_the_server() {
    let test = "log_names_the_remedy_if_the_client_does_not_trust_the_server";
    let Some(live) = Live::new(test) else { return };
    live.0.make_authority("other-ca");
    live.0.make_broker("other", "other-ca");
    live.install("other.pem", "live.pem");
    live.install("other.key", "live.key");
    let log = Log::listen();
    timely(async {
        let tls = ServerTls::load(live.mutual_files()).expect("valid files");
        let (broker, _service) = start(secured(tls)).await;
        assert!(connect(&broker, &live.connector(Some("client"))).await.is_none());
        logged(&log, "trust the CA of the server certificate").await;
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn unfinished_handshakes_do_not_block_other_clients() {
    let Some(live) = Live::new("unfinished_handshakes_do_not_block_other_clients") else { return };
    timely(async {
        let tls = ServerTls::load(live.mutual_files()).expect("valid files");
        let (broker, _service) = start(secured(tls)).await;
        let mut silent = Vec::new();
        for _ in 0..300 {
            let mut stream = TcpStream::connect(broker.local_addr()).await.expect("connect");
            // The type of a TLS record.
            let _ = stream.write_all(&[0x16]).await;
            silent.push(stream);
        }
        assert!(connect(&broker, &live.connector(Some("client"))).await.is_some());
        // The limit of pending connections, and the client.
        while broker.stats().connections > 257 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn connection_that_ends_early_is_logged_at_debug() {
    let Some(live) = Live::new("connection_that_ends_early_is_logged_at_debug") else { return };
    let log = Log::listen();
    timely(async {
        let tls = ServerTls::load(live.mutual_files()).expect("valid files");
        let (broker, _service) = start(secured(tls)).await;
        // A port scanner sends nothing, or only a part of a ClientHello.
        for part in [&b""[..], b"\x16\x03\x01\x02\0\x01"] {
            let mut stream = TcpStream::connect(broker.local_addr()).await.expect("connect");
            stream.write_all(part).await.expect("write");
            stream.shutdown().await.expect("shut down");
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        while log.with(&["DEBUG", "closed during the TLS handshake"]).len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(log.with(&["WARN"]), Vec::<String>::new());
    })
    .await;
}
