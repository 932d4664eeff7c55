//! Detects whether a port speaks TLS or plain MQTT, after a failed connection and without
//! credentials.

use std::sync::Arc;
use std::time::Duration;

use statestore_client::{Address, Proxy, open_tcp};
use statestore_mqtt::session::{Options, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Timeout of a probe.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Returns whether an MQTT broker responds without TLS.
pub(super) async fn speaks_mqtt(at: &Address, proxy: Option<&Proxy>) -> bool {
    let client_id = format!("statestore-probe-{:08x}", fastrand::u32(..));
    let connack = 0x20;
    response(at, proxy, &connect(&client_id)).await.is_some_and(|[kind, _]| kind == connack)
}

/// Returns whether the port responds to a TLS handshake.
pub(super) async fn speaks_tls(at: &Address, proxy: Option<&Proxy>) -> bool {
    let Some(hello) = client_hello() else { return false };
    let (alert, handshake, version) = (21, 22, 3);
    let response = response(at, proxy, &hello).await;
    response.is_some_and(|[kind, major]| [alert, handshake].contains(&kind) && major == version)
}

/// The first two bytes of the response.
async fn response(at: &Address, proxy: Option<&Proxy>, request: &[u8]) -> Option<[u8; 2]> {
    let exchange = async {
        let mut stream = open_tcp(at, proxy).await.ok()?;
        stream.write_all(request).await.ok()?;
        let mut response = [0; 2];
        stream.read_exact(&mut response).await.ok()?;
        Some(response)
    };
    tokio::time::timeout(TIMEOUT, exchange).await.ok().flatten()
}

/// A CONNECT of MQTT 5 with a clean start.
fn connect(client_id: &str) -> Vec<u8> {
    let mut session = Session::new(Options::new(client_id));
    session.handle_connected(Duration::ZERO);
    session.chunks().flatten().copied().collect()
}

fn client_hello() -> Option<Vec<u8>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .ok()?
        // The handshake ends after the first response, so trusted CAs do not matter.
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").ok()?;
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).ok()?;
    Some(hello)
}
