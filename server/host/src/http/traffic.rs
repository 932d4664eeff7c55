//! The busiest clients and keys of a store, as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use statestore_tokio::service::{self, ClientTraffic, KeyTraffic};

use statestore_tokio::diagnostics::text::{one_line, printable};

use crate::json;

/// Content type of the table.
pub(super) const CONTENT_TYPE: &str = "application/json";

/// Maximum number of clients, and of keys.
const ROWS_MAX: usize = 100;

/// The busiest clients and keys of a store, as `/traffic` serves them. The busiest is first.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[non_exhaustive]
pub struct TrafficTable {
    /// At most 100 clients.
    pub clients: Vec<ClientRow>,
    /// At most 100 keys.
    pub keys: Vec<KeyRow>,
}

/// Requests of a client.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[non_exhaustive]
pub struct ClientRow {
    client: String,
    /// Set if the broker has verified the client id.
    pub verified: bool,
    /// Number of requests.
    pub requests: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Requests per second.
    pub per_second: f64,
    /// Milliseconds by which the clock of the client is ahead; negative if it is behind.
    pub ahead_ms: Option<i64>,
}

/// Requests for a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[non_exhaustive]
pub struct KeyRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// A key that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    /// Number of requests.
    pub requests: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Requests per second.
    pub per_second: f64,
}

impl TrafficTable {
    pub(super) fn new(traffic: &service::Traffic) -> Self {
        let clients = traffic.clients.iter().take(ROWS_MAX).map(ClientRow::new).collect();
        let keys = traffic.keys.iter().take(ROWS_MAX).map(KeyRow::new).collect();
        Self { clients, keys }
    }

    /// Returns the table as JSON.
    pub(super) fn encode(&self) -> String {
        printable(&serde_json::to_string(self).unwrap_or_default()) + "\n"
    }

    /// Parses the JSON that `/traffic` serves.
    ///
    /// # Errors
    /// A description of the error if it is not such JSON.
    pub fn decode(json: &str) -> Result<Self, String> {
        serde_json::from_str(json).map_err(|error| json::cause(&error))
    }
}

impl ClientRow {
    fn new(client: &ClientTraffic) -> Self {
        Self {
            client: client.client_id.clone(),
            verified: client.verified,
            requests: client.requests,
            refused: client.refused,
            per_second: rounded(client.per_second),
            ahead_ms: client.ahead_ms,
        }
    }

    /// Returns the client id as [one line](statestore_tokio::diagnostics::text::one_line).
    #[must_use]
    pub fn name(&self) -> String {
        one_line(self.client.as_bytes()).into_owned()
    }
}

impl KeyRow {
    fn new(key: &KeyTraffic) -> Self {
        let text = std::str::from_utf8(&key.key).ok();
        Self {
            key: text.map(ToOwned::to_owned),
            key_base64: text.is_none().then(|| STANDARD.encode(&key.key)),
            requests: key.requests,
            writes: key.writes,
            refused: key.refused,
            per_second: rounded(key.per_second),
        }
    }

    /// Returns the key as [one line](statestore_tokio::diagnostics::text::one_line).
    #[must_use]
    pub fn name(&self) -> String {
        let base64 = || STANDARD.decode(self.key_base64.as_ref()?).ok();
        let bytes = self.key.clone().map(String::into_bytes).or_else(base64);
        one_line(&bytes.unwrap_or_default()).into_owned()
    }
}

/// Rounds to thousandths; further digits mean nothing.
fn rounded(rate: f64) -> f64 {
    (rate * 1_000.0).round() / 1_000.0
}
