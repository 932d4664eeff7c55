//! Who asks a store, and for which keys: `/traffic` of `serve --metrics`, as it is written there and read by `top`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use statestore_tokio::{ClientTraffic, KeyTraffic};

use crate::escape::{one_line, printable};

/// The content type.
pub(crate) const KIND: &str = "application/json";

/// Rows of clients, and of keys: what fits on a screen.
const ROWS_MAX: usize = 100;

/// Those who ask most at the time, and what they ask for; most first.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Traffic {
    pub(crate) clients: Vec<Client>,
    pub(crate) keys: Vec<Key>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Client {
    client: String,
    /// Whether a broker vouches for it.
    pub(crate) verified: bool,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) per_second: f64,
    /// How far its clock is ahead; behind if negative.
    pub(crate) ahead_ms: Option<i64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Key {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// What is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    pub(crate) requests: u64,
    pub(crate) writes: u64,
    pub(crate) refused: u64,
    pub(crate) per_second: f64,
}

impl Traffic {
    pub(crate) fn of(traffic: &statestore_tokio::Traffic) -> Self {
        let clients = traffic.clients.iter().take(ROWS_MAX).map(Client::of).collect();
        let keys = traffic.keys.iter().take(ROWS_MAX).map(Key::of).collect();
        Self { clients, keys }
    }

    /// As JSON.
    pub(crate) fn encode(&self) -> String {
        printable(&serde_json::to_string(self).unwrap_or_default()) + "\n"
    }

    /// Reads that.
    pub(crate) fn decode(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

impl Client {
    fn of(client: &ClientTraffic) -> Self {
        Self {
            client: client.client_id.clone(),
            verified: client.verified,
            requests: client.requests,
            refused: client.refused,
            per_second: rounded(client.per_second),
            ahead_ms: client.ahead_ms,
        }
    }

    /// In a line.
    pub(crate) fn name(&self) -> String {
        one_line(self.client.as_bytes()).into_owned()
    }
}

impl Key {
    fn of(key: &KeyTraffic) -> Self {
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

    /// In a line.
    pub(crate) fn name(&self) -> String {
        let base64 = || STANDARD.decode(self.key_base64.as_ref()?).ok();
        let bytes = self.key.clone().map(String::into_bytes).or_else(base64);
        one_line(&bytes.unwrap_or_default()).into_owned()
    }
}

/// More digits say nothing.
fn rounded(rate: f64) -> f64 {
    (rate * 1_000.0).round() / 1_000.0
}
