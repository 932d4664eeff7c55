//! TLS; see [`statestore_testkit::links::tls_suite`].

use statestore_client::{Connector, LinkErrorKind, Options, Tls, TlsError, tls_config};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::links::tls_suite;
use statestore_testkit::process::timely;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::suite::Links;

#[tokio::test]
async fn peers_verify_their_certificates() {
    tls_suite::peers_verify_their_certificates::<Links>("client_peers_verify_their_certificates")
        .await;
}

#[cfg(feature = "encrypted-keys")]
#[tokio::test]
async fn encrypted_key_needs_its_password() {
    tls_suite::encrypted_key_needs_its_password::<Links>("client_encrypted_key_needs_its_password")
        .await;
}

#[test]
fn client_certificate_of_version_1_is_explained() {
    let test = "client_certificate_of_version_1_is_explained";
    let Some(made) = Certificates::make(test) else { return };
    made.make_version_1("old", "ca");
    let tls = Tls::default().ca_file(made.path("ca.pem"));
    let tls = tls.identity(made.path("old.pem"), made.path("old.key"));
    let error = tls_config(&tls).map(drop).expect_err("no broker accepts version 1");
    assert!(matches!(error, TlsError::VersionOne { .. }), "{error:?}");
    assert!(error.to_string().contains("create it with extensions"), "{error}");
}

#[tokio::test]
async fn wrong_port_is_explained() {
    let made = Certificates::make("wrong_port_is_explained");
    let Some(made) = made else { return };
    for (tls, response, text) in [
        (
            None,
            &b"\x15\x03\x03\x00\x02\x02\x0a"[..],
            "set the URL of the broker to mqtts://HOST:PORT",
        ),
        (Some(Tls::default().ca_file(made.path("ca.pem"))), b"", "to mqtt://HOST:PORT"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut options =
            Options::new("c", "localhost", listener.local_addr().expect("its port").port());
        options.tls = tls;
        let peer = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            stream.read_buf(&mut Vec::new()).await.expect("its first packet");
            stream.write_all(response).await.expect("a response");
        };
        let connector = Connector::default();
        let (error, ()) = timely(async { tokio::join!(connector.connect(&options), peer) }).await;
        let error = error.expect_err("the wrong port");
        assert_eq!(error.kind(), LinkErrorKind::Tls, "{error}");
        assert!(error.is_transient() && error.to_string().ends_with(text), "{error}");
    }
}
