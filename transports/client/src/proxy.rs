//! TCP connections through an HTTP proxy: the method CONNECT (RFC 9110, section 9.3.6).

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use statestore_tokio::{Address, LinkError, LinkErrorKind as Kind, Proxy};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::dial::connect;

/// Largest head of a response, in bytes. Those of common proxies have a few hundred.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Maximum number of characters of a reason phrase in an error.
const REASON_CHARS_MAX: usize = 100;

/// The end of the head of a response.
const HEAD_END: &[u8] = b"\r\n\r\n";

const PROXY_AUTHENTICATION_REQUIRED: u16 = 407;

/// Opens a TCP connection to an address, with `TCP_NODELAY`. With a proxy, it opens a connection to
/// the proxy and requests a tunnel to the address.
///
/// If a host has several addresses, it tries the next one after 250 ms as well, or as soon as one
/// fails, and alternates between IPv6 and IPv4 (RFC 8305). It tries at most 16 addresses.
///
/// Use it in programs that speak another protocol to a broker, for example to examine it. It has no
/// time limit. It receives at most 8 KiB from the proxy.
///
/// ```no_run
/// use std::time::Duration;
///
/// use statestore_client::{Address, Proxy, open_tcp};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Address::new("broker.example", 1883);
/// let proxy = Proxy::from_url("http://proxy.example:3128")?;
/// let opening = open_tcp(&broker, Some(&proxy));
/// let stream = tokio::time::timeout(Duration::from_secs(5), opening).await??;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`LinkError`] of kind [`Unreachable`](Kind::Unreachable), or of kind [`Proxy`](Kind::Proxy) if
/// the proxy cannot be reached, refuses the connection, or its response is invalid.
pub async fn open_tcp(address: &Address, proxy: Option<&Proxy>) -> Result<TcpStream, LinkError> {
    let Some(proxy) = proxy else {
        return connect(address).await.map_err(|error| LinkError::io(Kind::Unreachable, error));
    };
    let request = request(address, proxy)?;
    let mut stream = connect(&proxy.address).await.map_err(|error| {
        let error = LinkError::io(Kind::Unreachable, error);
        let text = format!("cannot connect to the proxy {proxy}: {error}");
        error.with_diagnosis(Kind::Proxy, text)
    })?;
    let tunnel = async {
        stream.write_all(request.as_bytes()).await?;
        read_response(&mut stream).await
    };
    let response = tunnel.await.map_err(|error| tunnel_error(proxy, error))?;
    check_response(&response, proxy)?;
    Ok(stream)
}

/// Opens a TCP connection as [`open_tcp`]. A proxy has nine tenths of the time limit of the whole
/// attempt, so that its silence is an error that names it.
pub(crate) async fn open_within(
    address: &Address,
    proxy: Option<&Proxy>,
    attempt: Duration,
) -> Result<TcpStream, LinkError> {
    let opening = open_tcp(address, proxy);
    let Some(proxy) = proxy else { return opening.await };
    let limit = attempt / 10 * 9;
    timeout(limit, opening).await.unwrap_or_else(|_| {
        let seconds = limit.as_secs_f32();
        let text =
            format!("the proxy {proxy} opened no connection to the broker within {seconds} s");
        Err(LinkError::new(Kind::Proxy, text))
    })
}

/// The request for a tunnel.
fn request(address: &Address, proxy: &Proxy) -> Result<String, LinkError> {
    // A space or a line end would begin another part of the request.
    if !address.host.bytes().all(|byte| byte.is_ascii_graphic()) {
        let text = "the host has characters that a request to a proxy cannot contain";
        return Err(LinkError::new(Kind::Unsupported, text).address_specific(None));
    }
    let mut request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n");
    if let Some((user, password)) = &proxy.credentials {
        let credentials = BASE64_STANDARD.encode(format!("{user}:{password}"));
        // Writing to a string cannot fail.
        let _ = write!(request, "Proxy-Authorization: Basic {credentials}\r\n");
    }
    request.push_str("\r\n");
    Ok(request)
}

/// The error of a connection to a proxy that failed after it was opened.
fn tunnel_error(proxy: &Proxy, error: io::Error) -> LinkError {
    let text = match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            format!("the proxy {proxy} closed the connection without a complete response")
        }
        _ => format!("the connection to the proxy {proxy} failed: {error}"),
    };
    LinkError::new(Kind::Proxy, text).with_source(error)
}

/// A response of a proxy.
struct Response {
    head: Vec<u8>,
    /// Set if more bytes than the head have arrived.
    has_more: bool,
}

/// Reads up to the end of the head. Skips the interim responses before it (RFC 9110, section 15.2).
/// All heads together have at most [`HEAD_BYTES_MAX`] bytes.
async fn read_response(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Response> {
    let mut received = Vec::with_capacity(512);
    let (mut start, mut searched) = (0, 0);
    loop {
        let rest = received.get(searched..).unwrap_or_default();
        if let Some(at) = rest.windows(HEAD_END.len()).position(|window| window == HEAD_END) {
            let end = searched + at + HEAD_END.len();
            let head = received.get(start..end).unwrap_or_default();
            if !is_interim(head) {
                return Ok(Response { head: head.to_vec(), has_more: end < received.len() });
            }
            (start, searched) = (end, end);
            continue;
        }
        // The end may be split between two reads.
        searched = searched.max(received.len().saturating_sub(HEAD_END.len() - 1));
        let spare = HEAD_BYTES_MAX - received.len();
        if spare == 0 {
            let text = format!("its response has no end within {HEAD_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let limit = u64::try_from(spare).unwrap_or(u64::MAX);
        if (&mut *stream).take(limit).read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns whether another response follows. 101 is final, since it ends HTTP; it is an error here,
/// since the client did not request another protocol.
fn is_interim(head: &[u8]) -> bool {
    status(head).is_some_and(|(status, _)| (100..200).contains(&status) && status != 101)
}

/// Returns an error unless the response opens the tunnel.
fn check_response(response: &Response, proxy: &Proxy) -> Result<(), LinkError> {
    let Some((status, reason)) = status(&response.head) else {
        let text = format!("the response of the proxy {proxy} is not HTTP/1.1");
        return Err(LinkError::new(Kind::Proxy, text));
    };
    match status {
        200..=299 if !response.has_more => Ok(()),
        // In every protocol below MQTT, the client sends first.
        200..=299 => {
            let text = format!("the proxy {proxy} sent data before the client did");
            Err(LinkError::new(Kind::Proxy, text))
        }
        _ => {
            let text = format!("the proxy {proxy} refused the connection: {status} {reason}");
            let error = LinkError::new(Kind::Proxy, text.trim_end());
            Err(match status {
                PROXY_AUTHENTICATION_REQUIRED => error
                    .permanent()
                    .with_advice("check the user name and the password of the proxy"),
                _ => error,
            })
        }
    }
}

/// The status code and the reason phrase of a response.
fn status(response: &[u8]) -> Option<(u16, String)> {
    let line = response.split(|byte| *byte == b'\r').next()?;
    let line = line.strip_prefix(b"HTTP/1.")?;
    let [b'0'..=b'9', b' ', code @ ..] = line else { return None };
    let (code, rest) = code.split_at_checked(3)?;
    if !code.iter().all(u8::is_ascii_digit) || !matches!(rest, [] | [b' ', ..]) {
        return None;
    }
    let code = std::str::from_utf8(code).ok()?.parse().ok()?;
    let reason = String::from_utf8_lossy(rest);
    let reason = reason.trim().chars().take(REASON_CHARS_MAX);
    Some((code, reason.flat_map(char::escape_debug).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> Proxy {
        Proxy::new("proxy", 3128)
    }

    #[test]
    fn request_names_the_broker_and_has_the_credentials() {
        let broker = Address::new("broker.example", 1883);
        let plain = "CONNECT broker.example:1883 HTTP/1.1\r\nHost: broker.example:1883\r\n\r\n";
        assert_eq!(request(&broker, &proxy()).expect("a request"), plain);
        let ipv6 = request(&Address::new("::1", 8883), &proxy()).expect("a request");
        assert!(ipv6.starts_with("CONNECT [::1]:8883 HTTP/1.1\r\n"), "{ipv6}");
        // The example of RFC 7617, section 2.
        let with_login = proxy().credentials("Aladdin", "open sesame");
        let request = request(&broker, &with_login).expect("a request");
        let header = "\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n";
        assert!(request.ends_with(header), "{request}");
    }

    #[test]
    fn host_cannot_add_a_header() {
        for host in ["a\r\nX: y", "a b", "a\0", "bücher.example"] {
            let error = request(&Address::new(host, 1), &proxy()).expect_err(host);
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(!error.is_transient() && error.is_address_specific(), "{error}");
        }
    }

    #[tokio::test]
    async fn only_a_successful_status_without_further_data_opens_the_tunnel() {
        let check = async |mut bytes: &[u8]| {
            let response = read_response(&mut bytes).await.expect("a head");
            check_response(&response, &proxy()).map_err(|error| (error.to_string(), error))
        };
        for response in [
            &b"HTTP/1.1 200 Connection established\r\n\r\n"[..],
            b"HTTP/1.0 200\r\nVia: x\r\n\r\n",
            b"HTTP/1.1 204 \r\nContent-Length: 5\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200\r\n\r\n",
        ] {
            assert!(check(response).await.is_ok(), "{}", response.escape_ascii());
        }
        for (response, text) in [
            (&b"HTTP/1.1 403 Forbidden\r\n\r\n"[..], "refused the connection: 403 Forbidden"),
            (b"HTTP/1.1 502 x\x1b[31m\r\n\r\npage", "refused the connection: 502 x\\u{1b}[31m"),
            (b"HTTP/1.1 101 Switching\r\n\r\n", "refused the connection: 101 Switching"),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 No\r\n\r\n", "connection: 403 No"),
            (b"HTTP/1.1 200 OK\r\n\r\n\x20\x03", "sent data before the client did"),
            (b"HTTP/1.1 200 OK\r\n\r\nx\r\n\r\n", "sent data before the client did"),
            (b"HTTP/2 200 OK\r\n\r\n", "is not HTTP/1.1"),
            (b"HTTP/1.1 2000\r\n\r\n", "is not HTTP/1.1"),
            (b"HTTP/1.1 +20\r\n\r\n", "is not HTTP/1.1"),
            (b"HTTP/1.1 20\r\n\r\n", "is not HTTP/1.1"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", "is not HTTP/1.1"),
            (b"\r\n\r\n", "is not HTTP/1.1"),
        ] {
            let (found, error) = check(response).await.expect_err(text);
            assert!(found.ends_with(text), "{found}");
            assert!(error.is_transient() && error.kind() == Kind::Proxy, "{error:?}");
        }
        let (text, error) = check(b"HTTP/1.1 407 \r\n\r\n").await.expect_err("no login");
        assert_eq!(
            text,
            "the proxy http://proxy:3128 refused the connection: 407; check the user name and the \
             password of the proxy"
        );
        assert!(!error.is_transient(), "{error:?}");
        let long = format!("HTTP/1.1 500 {}\r\n\r\n", "x".repeat(8_000));
        assert!(check(long.as_bytes()).await.expect_err("long").0.len() < 200);
    }

    #[tokio::test]
    async fn head_is_found_at_any_split_and_bounded() {
        let response = b"HTTP/1.1 200 OK\r\nVia: a\r\n\r\n";
        for split in 0..response.len() {
            let (first, second) = response.split_at(split);
            let mut stream = first.chain(second);
            assert_eq!(read_response(&mut stream).await.expect("a head").head, response);
            let end =
                read_response(&mut &*first).await.map(|_| ()).expect_err("an incomplete head");
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        }
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(HEAD_BYTES_MAX);
        let error = async |mut stream: &mut (dyn AsyncRead + Unpin)| {
            read_response(&mut stream).await.map(|_| ()).expect_err("no end").kind()
        };
        assert_eq!(error(&mut tokio::io::repeat(b'x')).await, io::ErrorKind::InvalidData);
        assert_eq!(error(&mut &*interim).await, io::ErrorKind::InvalidData);
        let longest = [&[b'x'; HEAD_BYTES_MAX - 4], HEAD_END].concat();
        assert_eq!(read_response(&mut &*longest).await.expect("a head").head.len(), HEAD_BYTES_MAX);
    }
}
