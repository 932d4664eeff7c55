//! Detects whether a port speaks TLS or plain MQTT, after a failed connection and without
//! credentials.

use std::sync::Arc;
use std::time::Duration;

use statestore_client::{Address, Proxy, open_tcp};
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

/// A CONNECT of MQTT 5 with a clean start and nothing else.
fn connect(client_id: &str) -> Vec<u8> {
    let (clean_start, keep_alive, properties) = (2, [0, 60], 0);
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 5, clean_start];
    body.extend(keep_alive);
    body.extend([properties, 0]);
    // Both lengths fit one byte.
    body.extend(u8::try_from(client_id.len()));
    body.extend(client_id.as_bytes());
    let mut packet = vec![0x10];
    packet.extend(u8::try_from(body.len()));
    packet.extend(body);
    packet
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
