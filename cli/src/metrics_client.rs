//! HTTP client for the metrics listener of a store (`serve --metrics-listen`).

use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::escape::on_one_line;

/// Maximum size of a response in bytes. A store sends about 200 KiB.
const RESPONSE_MAX: u64 = 1 << 20;

/// Maximum number of characters of a text that are printed.
const REASON_CHARS_MAX: usize = 1_000;

/// Time limit of a response.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The URL of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsUrl {
    /// Host and port.
    authority: String,
    path: String,
}

/// An HTTP response.
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) body: String,
}

impl Response {
    /// Returns the text as one line, cut to [`REASON_CHARS_MAX`].
    pub(crate) fn text(&self) -> String {
        let text: String = self.body.trim_end().chars().take(REASON_CHARS_MAX).collect();
        on_one_line(&text)
    }
}

impl MetricsUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // Without a host, a password is where the port should be, so the URL is not quoted.
        let bad = || "--metrics-url: invalid URL; write it as http://HOST:PORT".to_owned();
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if uri.scheme_str() != Some("http") || uri.port_u16().is_none() || authority.contains('@') {
            return Err(bad());
        }
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = if path == "/" { "/metrics" } else { path };
        Ok(Self { authority, path: path.to_owned() })
    }

    /// Fetches the metrics.
    #[cfg(feature = "top")]
    pub(crate) async fn fetch(&self) -> Result<Response, String> {
        self.get(&self.path).await
    }

    /// Fetches another page in the same directory, such as `readyz`.
    pub(crate) async fn fetch_sibling(&self, name: &str) -> Result<Response, String> {
        let directory = self.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        self.get(&format!("{directory}/{name}")).await
    }

    /// Returns the text of an error, with the address.
    pub(crate) fn error(&self, error: impl std::fmt::Display) -> String {
        format!("http://{}: {error}", self.authority)
    }

    /// Returns the text of an error for an unexpected response.
    pub(crate) fn unexpected(&self, response: &Response) -> String {
        match response.code {
            // Its text names the option that allows the host name.
            421 => self.error(response.text()),
            code => self.error(format_args!(
                "HTTP status {code}: is this the address of `serve --metrics-listen`?"
            )),
        }
    }

    async fn get(&self, path: &str) -> Result<Response, String> {
        match tokio::time::timeout(TIMEOUT, self.request(path)).await {
            Ok(response) => response.map_err(|error| self.error(error)),
            Err(_) => Err(self.error(format_args!("no response within {TIMEOUT:?}"))),
        }
    }

    async fn request(&self, path: &str) -> Result<Response, String> {
        let text = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect(&self.authority).await.map_err(text)?;
        let authority = &self.authority;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(text)?;
        let mut response = Vec::new();
        stream.take(RESPONSE_MAX).read_to_end(&mut response).await.map_err(text)?;
        let response = String::from_utf8_lossy(&response);
        let (head, body) = response.split_once("\r\n\r\n").ok_or("the response is not HTTP")?;
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok(Response { code: code.ok_or("the response is not HTTP")?, body: body.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_scheme_host_and_port() {
        for (text, authority, path) in [
            ("http://localhost:9464", "localhost:9464", "/metrics"),
            ("http://localhost:9464/", "localhost:9464", "/metrics"),
            ("http://[::1]:1/other", "[::1]:1", "/other"),
        ] {
            let url = MetricsUrl::parse(text).expect(text);
            assert_eq!((&*url.authority, &*url.path), (authority, path));
        }
        for bad in [
            "localhost:9464",
            "https://h:1",
            "http://h",
            "http://h:1/a b",
            "http://h:x",
            "http://u:p@h:1",
            "",
        ] {
            assert!(MetricsUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
