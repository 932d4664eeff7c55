//! The token of a Kubernetes service account, for the authentication method `K8S-SAT`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use statestore_tokio::{LinkError, LinkErrorKind as Kind};

/// The method that Azure IoT Operations uses for service account tokens.
pub(crate) const METHOD: &str = "K8S-SAT";

/// Interval between checks for a new token. Kubernetes replaces a token at 80 % of its life, which
/// is at least ten minutes.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Largest token in bytes, which is the largest value of an MQTT property.
const TOKEN_BYTES_MAX: u64 = 65_535;

/// A file with a token, and the token that the broker has.
pub(crate) struct TokenFile {
    path: PathBuf,
    token: Bytes,
}

impl TokenFile {
    /// Reads the token.
    pub(crate) fn open(path: PathBuf) -> Result<Self, LinkError> {
        match read(&path) {
            Ok(token) => Ok(Self { path, token }),
            Err(error) => {
                let text = format!("{}: cannot read the token: {error}", path.display());
                Err(LinkError::new(Kind::Credentials, text).retriable().with_source(error))
            }
        }
    }

    /// The current token.
    pub(crate) fn token(&self) -> Bytes {
        self.token.clone()
    }

    /// Reads the file again and returns the token if it is a new one.
    pub(crate) fn renewed(&mut self) -> Option<Bytes> {
        // A file that is being replaced is read at the next check.
        let token = read(&self.path).ok().filter(|token| *token != self.token)?;
        self.token = token.clone();
        Some(token)
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
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the token is too large"));
    }
    let bytes = Bytes::from(bytes);
    let token = bytes.trim_ascii();
    if token.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
    }
    Ok(bytes.slice_ref(token))
}
