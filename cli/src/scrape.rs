//! What a store says under the address of `serve --metrics`.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes of an answer at most; a store has some 200 KiB to say.
const ANSWER_MAX: u64 = 1 << 20;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where numbers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    authority: String,
    path: String,
}

/// A status code and what comes with it.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: String,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("--metrics {text}: write it as http://HOST:PORT, as `serve --metrics` says it")
        };
        let rest = text.strip_prefix("http://").ok_or_else(bad)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() || !is_plain(authority) || !is_plain(path) {
            return Err(bad());
        }
        let path = if path.is_empty() { "metrics" } else { path };
        Ok(Self { authority: authority.to_owned(), path: format!("/{path}") })
    }

    /// The numbers themselves.
    pub(crate) async fn numbers(&self) -> Result<Answer, String> {
        self.get(&self.path).await
    }

    /// Another page beside them.
    pub(crate) async fn beside(&self, name: &str) -> Result<Answer, String> {
        let directory = self.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        self.get(&format!("{directory}/{name}")).await
    }

    /// Says of whom an error is.
    pub(crate) fn error(&self, error: impl std::fmt::Display) -> String {
        format!("http://{}: {error}", self.authority)
    }

    async fn get(&self, path: &str) -> Result<Answer, String> {
        match tokio::time::timeout(PATIENCE, self.ask(path)).await {
            Ok(answer) => answer.map_err(|error| self.error(error)),
            Err(_) => Err(self.error(format_args!("no answer in {PATIENCE:?}"))),
        }
    }

    async fn ask(&self, path: &str) -> Result<Answer, String> {
        let text = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect(&self.authority).await.map_err(text)?;
        let authority = &self.authority;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(text)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_MAX).read_to_end(&mut answer).await.map_err(text)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("that is not HTTP")?;
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok(Answer { code: code.ok_or("that is not HTTP")?, body: body.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        let url = Url::parse("http://localhost:9464").expect("an address");
        assert_eq!((&*url.authority, &*url.path), ("localhost:9464", "/metrics"));
        assert!(Url::parse("http://[::1]:1/other").is_ok());
        for bad in ["localhost:9464", "https://h:1", "http://h", "http://h:1/a b", "http://h:x"] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }
}
