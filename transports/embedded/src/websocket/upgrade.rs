//! From an HTTP request to a WebSocket, or to an answer that says why not.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tungstenite::handshake::machine::TryParse as _;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::HeaderValue;
use tungstenite::http::header::{ORIGIN, SEC_WEBSOCKET_PROTOCOL};

/// Bytes of the longest request; as much as most web servers take.
const REQUEST_MAX: usize = 8 << 10;

/// The subprotocol that a client has to ask for.
const MQTT: &str = "mqtt";

/// Why there is no WebSocket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the request is no HTTP that begins a WebSocket")]
    Request,
    #[error("the request is longer than {REQUEST_MAX} bytes")]
    Length,
    #[error("an HTTP request that asks for no WebSocket")]
    NoUpgrade,
    #[error("the WebSocket is not for the subprotocol mqtt")]
    Subprotocol,
    #[error(
        "a web page from {0:?}, which is not allowed; see `statestore serve --websocket-origin`"
    )]
    Origin(String),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl Refused {
    /// The status of the answer, with headers of its own, and its text.
    const fn answer(&self) -> Option<(&'static str, &'static str)> {
        const SPOKEN: &str = "This port speaks MQTT 5 over WebSocket: connect with an MQTT client, with ws:// or wss://.\n";
        Some(match self {
            Self::Request => ("400 Bad Request", SPOKEN),
            Self::Length => ("431 Request Header Fields Too Large", "The request is too long.\n"),
            Self::NoUpgrade => {
                ("426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13", SPOKEN)
            }
            Self::Subprotocol => (
                "400 Bad Request",
                "Ask for the subprotocol mqtt: this port speaks nothing else.\n",
            ),
            Self::Origin(_) => (
                "403 Forbidden",
                "Web pages of this origin may not connect: whoever runs this broker has to allow it.\n",
            ),
            Self::Socket(_) => return None,
        })
    }
}

/// Reads a request and answers it. Nothing is kept of it.
pub(super) async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    origins: &[String],
) -> Result<(), Refused> {
    let judged = match read(stream).await {
        Ok(request) => judge(&request, origins),
        Err(refused) => Err(refused),
    };
    let answer = match &judged {
        Ok(answer) => answer.clone(),
        Err(refused) => {
            refused.answer().map(|(head, text)| refusal(head, text)).unwrap_or_default()
        }
    };
    stream.write_all(&answer).await?;
    stream.flush().await?;
    if judged.is_err() {
        stream.shutdown().await?;
    }
    judged.map(drop)
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Request, Refused> {
    let mut bytes = Vec::new();
    let mut source = stream.take(REQUEST_MAX as u64);
    while source.read_buf(&mut bytes).await? > 0 {
        match Request::try_parse(&bytes) {
            Ok(None) => {}
            // No client sends more before it has the answer.
            Ok(Some((length, request))) if length == bytes.len() => return Ok(request),
            Ok(Some(_)) | Err(_) => return Err(Refused::Request),
        }
    }
    match bytes.len() < REQUEST_MAX {
        true => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        false => Err(Refused::Length),
    }
}

/// The answer to a request that is granted.
fn judge(request: &Request, origins: &[String]) -> Result<Vec<u8>, Refused> {
    let mut response = create_response(request).map_err(|_| Refused::NoUpgrade)?;
    // A browser lets every page connect to every address, this machine included, and says here whose page it is.
    for origin in request.headers().get_all(ORIGIN) {
        let is_this = |allowed: &String| {
            allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(origin.as_bytes())
        };
        if !origins.iter().any(is_this) {
            return Err(Refused::Origin(String::from_utf8_lossy(origin.as_bytes()).into_owned()));
        }
    }
    let asked = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let mut asked =
        asked.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    if !asked.any(|name| name.trim() == MQTT) {
        return Err(Refused::Subprotocol);
    }
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(MQTT));
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response).map_err(|_| Refused::Request)?;
    Ok(bytes)
}

fn refusal(head: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!(
        "HTTP/1.1 {head}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
    .into_bytes()
}
