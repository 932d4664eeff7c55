//! A small HTTP/1.1 server: one GET for each connection.
//!
//! Every client that reaches the port can fill it: [`CONNECTIONS_MAX`] connections, each with a head
//! of [`HEAD_BYTES_MAX`] and one response. This is less than a megabyte, and at most three with
//! `/traffic`. A further connection replaces one of the address that has most of them: one that has
//! not sent its request, or else the oldest. So idle connections keep no other client out.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 16;

/// Maximum size of the head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Time limit for a connection.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Pause after the system has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A response.
pub(super) struct Response {
    /// Status code and phrase.
    pub(super) status: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Response {
    /// A line of text.
    pub(super) fn text(status: &'static str, line: &str) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self { status, content_type, body: format!("{line}\n") }
    }
}

/// Serves requests, and never returns. `respond` returns `None` for an unknown path.
pub(super) async fn serve(
    listener: TcpListener,
    respond: impl Fn(&str) -> Option<Response> + Send + Sync + 'static,
) {
    let respond = Arc::new(respond);
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<Connection> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, from)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if oldest_first.len() >= CONNECTIONS_MAX {
            // Requests that have arrived on earlier connections are read first.
            tokio::task::yield_now().await;
        }
        oldest_first.retain(|connection| !connection.task.is_finished());
        while oldest_first.len() >= CONNECTIONS_MAX {
            let Some(replaced) = oldest_first.remove(replaceable(&oldest_first)) else { break };
            replaced.task.abort();
        }
        let (respond, has_request) = (Arc::clone(&respond), Arc::new(AtomicBool::new(false)));
        let request = Arc::clone(&has_request);
        let task = connections.spawn(async move {
            // An error concerns only this connection.
            let _ = tokio::time::timeout(TIME_MAX, serve_one(stream, &request, &*respond)).await;
        });
        oldest_first.push_back(Connection { task, from: from.ip(), has_request });
    }
}

struct Connection {
    task: AbortHandle,
    from: IpAddr,
    /// Set when the head of its request is complete.
    has_request: Arc<AtomicBool>,
}

/// The index of the connection to replace.
fn replaceable(oldest_first: &VecDeque<Connection>) -> usize {
    let of_address =
        |from| oldest_first.iter().filter(|connection| connection.from == from).count();
    let indexed = oldest_first.iter().enumerate();
    let first = indexed.min_by_key(|(index, connection)| {
        let has_request = connection.has_request.load(Ordering::Relaxed);
        (Reverse(of_address(connection.from)), has_request, *index)
    });
    first.map_or(0, |(index, _)| index)
}

/// Reads one request and writes its response.
async fn serve_one(
    mut stream: TcpStream,
    has_request: &AtomicBool,
    respond: &impl Fn(&str) -> Option<Response>,
) -> io::Result<()> {
    let mut head = Vec::new();
    let response = loop {
        let mut part = [0; 1 << 10];
        let count = stream.read(&mut part).await?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(part.get(..count).unwrap_or_default());
        if head.len() > HEAD_BYTES_MAX {
            break Response::text("431 Request Header Fields Too Large", "the head is too long");
        }
        if is_complete(&head) {
            break response(&head, respond);
        }
    };
    has_request.store(true, Ordering::Relaxed);
    let Response { status, content_type, body } = response;
    let shown = if head.starts_with(b"HEAD ") { "" } else { &*body };
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{shown}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

/// Whether a head ends with an empty line.
fn is_complete(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

/// The response to a head.
fn response(head: &[u8], respond: &impl Fn(&str) -> Option<Response>) -> Response {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, words.next())
    else {
        return Response::text("400 Bad Request", "not a request of HTTP/1.1");
    };
    if !matches!(method, "GET" | "HEAD") {
        return Response::text("405 Method Not Allowed", "use GET");
    }
    let path = target.split('?').next().unwrap_or_default();
    let missing = || {
        Response::text(
            "404 Not Found",
            "paths: /metrics, /healthz, /readyz, and /traffic if it is enabled",
        )
    };
    respond(path).unwrap_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_line_selects_the_response() {
        let code = |head: &str| {
            let known = |path: &str| (path == "/here").then(|| Response::text("200 OK", "ok"));
            response(head.as_bytes(), &known).status.split(' ').next().map(ToOwned::to_owned)
        };
        assert!(!is_complete(b"GET /here HTTP/1.1\r\nHost: h\r\n"));
        for (head, expected) in [
            ("GET /here HTTP/1.1\r\nHost: h\r\n\r\n", "200"),
            ("HEAD /here?a=b HTTP/1.0\r\n\r\n", "200"),
            ("GET /here/ HTTP/1.1\r\n\r\n", "404"),
            ("POST /here HTTP/1.1\r\n\r\n", "405"),
            ("GET /here HTTP/2\r\n\r\n", "400"),
            ("GET  /here HTTP/1.1\r\n\r\n", "400"),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            ("GET /here HTTP/1.1\nHost: h\n\n", "200"),
        ] {
            assert!(is_complete(head.as_bytes()));
            assert_eq!(code(head).as_deref(), Some(expected), "{head:?}");
        }
    }
}
