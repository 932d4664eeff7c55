//! Connections of the HTTP server: one request for each, bounded in number, bytes and time.
//!
//! Every client that reaches the port can fill it: [`CONNECTIONS_MAX`] connections, each with a
//! head of [`HEAD_BYTES_MAX`] and one response. This is less than a megabyte, and at most four with
//! `/traffic`. A further connection replaces one of the address that has most of them: one that has
//! not sent its request, or else the oldest. So idle connections keep no other client out.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use statestore_broker::network;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 16;

/// Maximum size of the head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Time limit for a connection, from its acceptance until the response is sent.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Pause after the system has run out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves requests, and never returns. The body of a request is not read.
pub(super) async fn serve(
    listener: TcpListener,
    respond: impl Fn(&Request<Incoming>) -> Response<String> + Send + Sync + 'static,
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
        let task = connections.spawn(serve_one(stream, Arc::clone(&has_request), respond));
        oldest_first.push_back(Connection { task, from: network(from.ip()), has_request });
    }
}

struct Connection {
    task: AbortHandle,
    /// The address of an IPv4 client, or the network of an IPv6 client.
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
    stream: TcpStream,
    has_request: Arc<AtomicBool>,
    respond: Arc<impl Fn(&Request<Incoming>) -> Response<String>>,
) {
    let service = service_fn(|request| {
        has_request.store(true, Ordering::Relaxed);
        ready(Ok::<_, Infallible>(respond(&request)))
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        // A client may close its side after the request.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    // An error concerns only this connection.
    let _ = tokio::time::timeout(TIME_MAX, connection).await;
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Longer than the buffers of sockets.
    const LONG: usize = 32 << 20;

    #[tokio::test]
    async fn request_line_selects_the_response() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let respond = |_: &Request<Incoming>| Response::new("ok".to_owned());
        let server = tokio::spawn(serve(listener, respond));
        for (request, status, body) in [
            ("GET /here HTTP/1.1\r\nHost: h\r\n\r\n", "200", "ok"),
            ("HEAD /here?a=b HTTP/1.0\r\n\r\n", "200", ""),
            ("GET /here HTTP/1.1\nHost: h\n\n", "200", "ok"),
            ("GET /here HTTP/2\r\n\r\n", "400", ""),
            ("GET  /here HTTP/1.1\r\n\r\n", "400", ""),
            ("GET /he re HTTP/1.1\r\n\r\n", "400", ""),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "400", ""),
            ("GET /here HTTP/1.1\r\nHost : h\r\n\r\n", "400", ""),
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            // A client may close its side after the request.
            stream.shutdown().await.unwrap();
            let mut response = Vec::new();
            let _ = stream.read_to_end(&mut response).await;
            let response = String::from_utf8(response).unwrap();
            let (head, found) = response.split_once("\r\n\r\n").expect(request);
            assert_eq!(head.split(' ').nth(1), Some(status), "{request:?}: {head}");
            assert_eq!(found, body, "{request:?}");
        }
        server.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_is_disconnected_after_ten_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let respond = |_: &Request<Incoming>| Response::new("x".repeat(LONG));
        let server = tokio::spawn(serve(listener, respond));
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n";
        let body = b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\nx";
        for (name, sent) in [("silent", &b""[..]), ("slow head", head), ("unread response", body)] {
            let began = tokio::time::Instant::now();
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(sent).await.unwrap();
            tokio::time::sleep(TIME_MAX - Duration::from_millis(10)).await;
            assert_eq!(stream.write(b"x").await.ok(), Some(1), "{name}: still connected");
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut received = Vec::new();
            // The connection may end with a reset.
            let _ = stream.read_to_end(&mut received).await;
            assert!(received.len() < LONG, "{name}");
            assert!(began.elapsed() < TIME_MAX * 2, "{name}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn connection_of_the_network_with_most_connections_is_replaced() {
        let mut tasks = JoinSet::new();
        let mut connections = VecDeque::new();
        for (from, has_request) in [
            ("192.0.2.1", false),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
            ("2001:db8::3", false),
            ("192.0.2.2", false),
            ("192.0.2.1", false),
        ] {
            connections.push_back(Connection {
                task: tasks.spawn(pending::<()>()),
                from: network(from.parse().unwrap()),
                has_request: Arc::new(AtomicBool::new(has_request)),
            });
        }
        assert_eq!(replaceable(&connections), 2, "the oldest without a request of one /64");
        connections.remove(2);
        connections.remove(2);
        assert_eq!(replaceable(&connections), 0, "an IPv4 client has one address");
    }
}
