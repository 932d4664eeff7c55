//! The token of a Kubernetes service account, for the authentication method `K8S-SAT`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use statestore_tokio::{LinkError, LinkErrorKind as Kind};
use tracing::warn;

/// The method that Azure IoT Operations uses for service account tokens.
pub(crate) const METHOD: &str = "K8S-SAT";

/// Interval between checks for a new token. Kubernetes replaces a token at 80 % of its life, which
/// is at least ten minutes. Tests have tokens that live for half a minute.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Largest token in bytes, which is the largest value of an MQTT property.
const TOKEN_BYTES_MAX: u64 = 65_535;

/// The login of one connection: the token that the broker has, and the file that may contain a new
/// one.
pub(crate) struct TokenFile {
    path: PathBuf,
    token: Bytes,
    /// Time of the next check, since the connection was opened.
    next_check: Duration,
    /// Set while the token cannot be renewed, so that one problem causes one warning.
    has_warned: bool,
}

impl TokenFile {
    /// Reads the token of a new connection.
    pub(crate) fn open(path: PathBuf) -> Result<Self, LinkError> {
        match read(&path) {
            Ok(token) => Ok(Self { path, token, next_check: CHECK_INTERVAL, has_warned: false }),
            Err(error) => {
                let text = format!("{}: cannot read the token: {error}", path.display());
                Err(LinkError::new(Kind::Credentials, text).retriable().with_source(error))
            }
        }
    }

    /// The token that the broker has.
    pub(crate) fn token(&self) -> Bytes {
        self.token.clone()
    }

    /// Time of the next check, since the connection was opened.
    pub(crate) const fn next_check(&self) -> Duration {
        self.next_check
    }

    /// Reads the file if a check is due. Returns its token if that is a new one. Without
    /// [`set_token`](Self::set_token), the next check returns it again.
    pub(crate) fn check(&mut self, now: Duration) -> Option<Bytes> {
        if now < self.next_check {
            return None;
        }
        self.next_check = now + CHECK_INTERVAL;
        match read(&self.path) {
            Ok(token) if token == self.token => {
                self.has_warned = false;
                None
            }
            Ok(token) => Some(token),
            Err(error) => {
                self.warn(&error);
                None
            }
        }
    }

    /// Sets the token that the broker has.
    pub(crate) fn set_token(&mut self, token: Bytes) {
        self.token = token;
        self.has_warned = false;
    }

    /// Logs why the token cannot be renewed, unless that was logged since the last success.
    pub(crate) fn warn(&mut self, error: &dyn fmt::Display) {
        if !std::mem::replace(&mut self.has_warned, true) {
            let file = self.path.display();
            warn!(%file, %error, "cannot renew the login: the broker has the earlier token");
        }
    }
}

fn read(path: &Path) -> io::Result<Bytes> {
    // Opening a FIFO would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    let len = File::open(path)?.take(TOKEN_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if u64::try_from(len).is_ok_and(|len| len > TOKEN_BYTES_MAX) {
        let text = format!("more than {TOKEN_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let bytes = Bytes::from(bytes);
    let token = bytes.trim_ascii();
    if token.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
    }
    Ok(bytes.slice_ref(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of one test.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(test: &str, content: &[u8]) -> Self {
            let name = format!("statestore-token-{}-{test}", std::process::id());
            let file = Self(std::env::temp_dir().join(name));
            file.write(content);
            file
        }

        fn write(&self, content: &[u8]) {
            std::fs::write(&self.0, content).expect("a file");
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn new_token_is_returned_at_each_check_until_it_is_set() {
        let file = Temporary::new("renewed", b"first\n");
        let mut login = TokenFile::open(file.0.clone()).expect("a token");
        assert_eq!(&*login.token(), b"first");
        file.write(b" second\r\n");
        assert_eq!(login.check(CHECK_INTERVAL - Duration::from_millis(1)), None, "not due");
        for number in 1..=2 {
            assert_eq!(login.next_check(), CHECK_INTERVAL * number);
            assert_eq!(login.check(login.next_check()).as_deref(), Some(&b"second"[..]));
        }
        login.set_token(Bytes::from_static(b"second"));
        assert_eq!(login.check(login.next_check()), None);
        assert_eq!(&*login.token(), b"second");
    }

    #[test]
    fn file_without_a_valid_token_is_an_error_that_names_it() {
        let file = Temporary::new("invalid", b"");
        let largest = vec![b'x'; 65_535];
        for (content, reason) in [
            (&b""[..], "the file is empty"),
            (b"\n", "the file is empty"),
            (&[b'x'; 65_536], "more than 65535 bytes"),
        ] {
            file.write(content);
            let error = TokenFile::open(file.0.clone()).map(drop).expect_err(reason);
            let expected = format!("{}: cannot read the token: {reason}", file.0.display());
            assert_eq!(error.to_string(), expected);
            assert!(error.is_transient(), "the file may be replaced");
        }
        file.write(&largest);
        assert_eq!(TokenFile::open(file.0.clone()).expect("a token").token().len(), 65_535);
        let folder = TokenFile::open(std::env::temp_dir()).map(drop).expect_err("a directory");
        assert!(folder.to_string().ends_with("not a regular file"), "{folder}");
    }

    #[test]
    fn file_that_becomes_invalid_leaves_the_earlier_token() {
        let file = Temporary::new("vanished", b"first");
        let mut login = TokenFile::open(file.0.clone()).expect("a token");
        file.write(b"");
        assert_eq!(login.check(login.next_check()), None);
        std::fs::remove_file(&file.0).expect("the file exists");
        assert_eq!(login.check(login.next_check()), None);
        assert_eq!(&*login.token(), b"first");
        file.write(b"second");
        assert_eq!(login.check(login.next_check()).as_deref(), Some(&b"second"[..]));
    }
}
