//! What a port speaks: TLS, or MQTT without it. Asked after a connection has failed, and never with credentials.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use statestore_tokio::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long the port may take to say something.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Whether an MQTT broker answers without TLS, be it with a refusal.
pub(crate) async fn speaks_mqtt(at: &Address) -> bool {
    let client_id = format!("statestore-probe-{:08x}", fastrand::u32(..));
    let connack = 0x20;
    answer(at, &connect(&client_id)).await.is_some_and(|answer| answer[0] == connack)
}

/// Whether the port answers a TLS handshake, be it with an alert.
pub(crate) async fn speaks_tls(at: &Address) -> bool {
    let Some(hello) = client_hello() else { return false };
    let (alert, handshake, version) = (21, 22, 3);
    let answer = answer(at, &hello).await;
    answer.is_some_and(|[kind, major]| [alert, handshake].contains(&kind) && major == version)
}

/// The first two bytes that come back.
async fn answer(at: &Address, what: &[u8]) -> Option<[u8; 2]> {
    let asked = async {
        let mut stream = TcpStream::connect((at.bare_host(), at.port)).await.ok()?;
        stream.write_all(what).await.ok()?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await.ok()?;
        Some(answer)
    };
    tokio::time::timeout(ANSWER_MAX, asked).await.ok().flatten()
}

/// A CONNECT of MQTT 5 with a clean start and nothing else.
fn connect(client_id: &str) -> Vec<u8> {
    let (clean_start, keep_alive, properties) = (2, [0, 60], 0);
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 5, clean_start];
    body.extend(keep_alive);
    body.extend([properties, 0]);
    // Both lengths are far below what takes a second byte.
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
        // Whom to trust does not matter before the first answer, and there is no second.
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").ok()?;
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).ok()?;
    Some(hello)
}
