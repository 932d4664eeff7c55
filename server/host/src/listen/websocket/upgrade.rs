//! The HTTP handshake of a WebSocket.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tungstenite::handshake::machine::TryParse as _;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::HeaderValue;
use tungstenite::http::header::{HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use tungstenite::http::uri::Authority;

use crate::host_name::is_address_or_localhost;

/// Maximum length of a request in bytes, as in most web servers.
const REQUEST_MAX: usize = 8 << 10;

/// The subprotocol that a client must request.
const MQTT: &str = "mqtt";

/// Reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("not an HTTP request for a WebSocket")]
    Request,
    #[error("the request is longer than {REQUEST_MAX} bytes")]
    Length,
    #[error("an HTTP request without a WebSocket upgrade")]
    NoUpgrade,
    #[error("the client did not request the subprotocol mqtt")]
    Subprotocol,
    #[error("origin {0:?} is not allowed; see `statestore serve --websocket-origin`")]
    Origin(String),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl UpgradeError {
    /// Returns the status line with its additional headers, and the body.
    const fn response(&self) -> Option<(&'static str, &'static str)> {
        const PROTOCOL_HINT: &str = "This port serves MQTT 5 over WebSocket: connect with an \
             MQTT client, with ws:// or wss://.\n";
        Some(match self {
            Self::Request => ("400 Bad Request", PROTOCOL_HINT),
            Self::Length => ("431 Request Header Fields Too Large", "The request is too long.\n"),
            Self::NoUpgrade => (
                "426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
                PROTOCOL_HINT,
            ),
            Self::Subprotocol => {
                ("400 Bad Request", "Request the subprotocol mqtt: this port supports no other.\n")
            }
            Self::Origin(_) => (
                "403 Forbidden",
                "This origin is not allowed: the operator of this broker has to allow it.\n",
            ),
            Self::Socket(_) => return None,
        })
    }
}

/// Reads a request and writes the response. No part of the request is retained.
pub(super) async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    origins: &[String],
) -> Result<(), UpgradeError> {
    let result = match read_request(stream).await {
        Ok(request) => accept_request(&request, origins),
        Err(error) => Err(error),
    };
    let response = match &result {
        Ok(response) => response.clone(),
        Err(error) => {
            error.response().map(|(head, text)| error_response(head, text)).unwrap_or_default()
        }
    };
    stream.write_all(&response).await?;
    stream.flush().await?;
    if result.is_err() {
        stream.shutdown().await?;
    }
    result.map(drop)
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Request, UpgradeError> {
    let mut bytes = Vec::new();
    let mut attempts = Attempts::default();
    let mut source = stream.take(REQUEST_MAX as u64);
    while source.read_buf(&mut bytes).await? > 0 {
        if !attempts.is_due(&bytes) {
            continue;
        }
        match Request::try_parse(&bytes) {
            Ok(None) => {}
            // A client must not send more before it receives the response.
            Ok(Some((length, request))) if length == bytes.len() => return Ok(request),
            Ok(Some(_)) | Err(_) => return Err(UpgradeError::Request),
        }
    }
    match bytes.len() < REQUEST_MAX {
        true => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        false => Err(UpgradeError::Length),
    }
}

/// Decides when a request that arrives in pieces is parsed: when its length has doubled, and when
/// it has another empty line. Parsing it with each piece would take quadratic time.
#[derive(Default)]
struct Attempts {
    /// Length at the last call.
    length: usize,
    /// Length at the last attempt.
    parsed: usize,
}

impl Attempts {
    fn is_due(&mut self, bytes: &[u8]) -> bool {
        let new = bytes.get(self.length.saturating_sub(2)..).unwrap_or_default();
        let has_end = new.windows(2).any(|two| two == b"\n\n")
            || new.windows(3).any(|three| three == b"\n\r\n");
        self.length = bytes.len();
        let is_due = has_end || self.length >= 2 * self.parsed;
        if is_due {
            self.parsed = self.length;
        }
        is_due
    }
}

/// Returns the response that accepts a request.
fn accept_request(request: &Request, origins: &[String]) -> Result<Vec<u8>, UpgradeError> {
    let mut accepted = create_response(request).map_err(|_| UpgradeError::NoUpgrade)?;
    // A browser lets any web page connect to any address, including this machine, and sends the
    // origin of the page in this header.
    for origin in request.headers().get_all(ORIGIN) {
        let is_this = |allowed: &String| {
            allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(origin.as_bytes())
        };
        if !is_own_origin(request, origin) && !origins.iter().any(is_this) {
            return Err(UpgradeError::Origin(
                String::from_utf8_lossy(origin.as_bytes()).into_owned(),
            ));
        }
    }
    let asked = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let mut asked =
        asked.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    if !asked.any(|name| name.trim() == MQTT) {
        return Err(UpgradeError::Subprotocol);
    }
    accepted.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(MQTT));
    let mut bytes = Vec::new();
    write_response(&mut bytes, &accepted).map_err(|_| UpgradeError::Request)?;
    Ok(bytes)
}

/// Returns whether an origin is the address to which the request was sent, as Python's Paho sends it.
/// Only for IP addresses and `localhost`: an attacker can let the name of a page resolve to this
/// machine (DNS rebinding).
fn is_own_origin(request: &Request, origin: &HeaderValue) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let origin = origin.to_str().unwrap_or_default();
    let origin = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    let is_same = origin.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(host.as_bytes()));
    let authority = Authority::try_from(host.as_bytes()).ok();
    is_same && authority.is_some_and(|authority| is_address_or_localhost(authority.host()))
}

fn error_response(head: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!(
        "HTTP/1.1 {head}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_in_pieces_is_parsed_in_linear_time() {
        let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(8_000));
        for piece in [1, 2, 3, 100, 8_192] {
            let mut attempts = Attempts::default();
            let (mut length, mut parsed, mut is_last_due) = (0, 0, false);
            while length < head.len() {
                length = head.len().min(length + piece);
                is_last_due = attempts.is_due(&head.as_bytes()[..length]);
                parsed += if is_last_due { length } else { 0 };
            }
            assert!(is_last_due, "the end of the request is noticed, in pieces of {piece}");
            assert!(parsed <= 4 * head.len(), "{parsed} bytes parsed, in pieces of {piece}");
        }
    }
}
