//! As much of HTTP/1.1 as it takes to be scraped: one GET on each connection.
//!
//! Whoever can connect can fill it: [`CONNECTIONS_MAX`] connections, each with a head of [`HEAD_BYTES_MAX`] and one answer, so
//! less than a megabyte in all, and three where names of clients and keys are told that are as long and odd as can be. Who comes when all places are taken takes one of the address that has most of
//! them: that of a connection that has not said what it wants, or else of the one that is there for longest. So those who connect and
//! say nothing keep nobody out.

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

/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;

/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// How long a connection may take, from its first byte to its end.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Before the next try when the system has no socket to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is answered.
pub(super) struct Response {
    /// Status code and phrase.
    pub(super) code: &'static str,
    /// Content type.
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Response {
    /// A line of text.
    pub(super) fn text(code: &'static str, line: &str) -> Self {
        Self { code, kind: "text/plain; charset=utf-8", body: format!("{line}\n") }
    }
}

/// Answers requests for paths, for ever; `None` is for a path that there is not.
pub(super) async fn serve(
    listener: TcpListener,
    answer: impl Fn(&str) -> Option<Response> + Send + Sync + 'static,
) {
    let answer = Arc::new(answer);
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
            // What has arrived from those who came before is read first.
            tokio::task::yield_now().await;
        }
        oldest_first.retain(|connection| !connection.task.is_finished());
        while oldest_first.len() >= CONNECTIONS_MAX {
            let Some(given_up) = oldest_first.remove(least_wanted(&oldest_first)) else { break };
            given_up.task.abort();
        }
        let (answer, has_asked) = (Arc::clone(&answer), Arc::new(AtomicBool::new(false)));
        let asks = Arc::clone(&has_asked);
        let task = connections.spawn(async move {
            // Nobody hears of it when it fails.
            let _ = tokio::time::timeout(TIME_MAX, one(stream, &asks, &*answer)).await;
        });
        oldest_first.push_back(Connection { task, from: from.ip(), has_asked });
    }
}

struct Connection {
    task: AbortHandle,
    from: IpAddr,
    /// Whether it has said all of what it wants.
    has_asked: Arc<AtomicBool>,
}

/// The place of the connection that has to go first.
fn least_wanted(oldest_first: &VecDeque<Connection>) -> usize {
    let of_address =
        |from| oldest_first.iter().filter(|connection| connection.from == from).count();
    let places = oldest_first.iter().enumerate();
    let least = places.min_by_key(|(place, connection)| {
        let has_asked = connection.has_asked.load(Ordering::Relaxed);
        (Reverse(of_address(connection.from)), has_asked, *place)
    });
    least.map_or(0, |(place, _)| place)
}

/// One request and its answer.
async fn one(
    mut stream: TcpStream,
    has_asked: &AtomicBool,
    answer: &impl Fn(&str) -> Option<Response>,
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
        if is_whole(&head) {
            break respond(&head, answer);
        }
    };
    has_asked.store(true, Ordering::Relaxed);
    let Response { code, kind, body } = response;
    let shown = if head.starts_with(b"HEAD ") { "" } else { &*body };
    let text = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{shown}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

/// Whether a head has come to its end, an empty line.
fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

/// What is answered to a head.
fn respond(head: &[u8], answer: &impl Fn(&str) -> Option<Response>) -> Response {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, words.next())
    else {
        return Response::text("400 Bad Request", "that is no request of HTTP/1.1");
    };
    if !matches!(method, "GET" | "HEAD") {
        return Response::text("405 Method Not Allowed", "there is only GET");
    }
    let path = target.split('?').next().unwrap_or_default();
    let missing = || {
        Response::text(
            "404 Not Found",
            "there are /metrics, /healthz and /readyz, and with --traffic /traffic",
        )
    };
    answer(path).unwrap_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let code = |head: &str| {
            let answer = |path: &str| (path == "/here").then(|| Response::text("200 OK", "ok"));
            respond(head.as_bytes(), &answer).code.split(' ').next().map(ToOwned::to_owned)
        };
        assert!(!is_whole(b"GET /here HTTP/1.1\r\nHost: h\r\n"));
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
            assert!(is_whole(head.as_bytes()));
            assert_eq!(code(head).as_deref(), Some(expected), "{head:?}");
        }
    }
}
