//! TLS files of a client of a broker.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use statestore_client::{Tls, TlsError, tls_config};
use statestore_tokio::adapter::pem_section;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::ConfigError;

/// Bytes of a file that are searched for a key or a certificate, the limit of [`tls_config`].
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Paths of the PEM files of a client of a broker, as the settings `tls-ca`, `tls-cert`, `tls-key`
/// and `tls-key-password-file` name them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTlsFiles<'a> {
    /// CAs to trust. The default is the CAs of the system.
    pub ca: Option<&'a Path>,
    /// Certificate chain of the client.
    pub cert: Option<&'a Path>,
    /// Private key of the client. It is used only with a certificate chain.
    pub key: Option<&'a Path>,
    /// Password of an encrypted private key.
    pub key_password: Option<&'a Path>,
}

impl ClientTlsFiles<'_> {
    /// Returns the TLS settings of a connection. Reads the files once, so that an invalid file is
    /// an error of the configuration. Blocks.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] with the setting that names the file.
    pub fn load(&self) -> Result<Tls, ConfigError> {
        let mut tls = Tls::default();
        if let Some(ca) = self.ca {
            tls = tls.ca_file(ca);
        }
        if let (Some(cert), Some(key)) = (self.cert, self.key) {
            tls = tls.identity(cert, key);
        }
        if let Some(password) = self.key_password {
            tls = tls.key_password_file(password);
        }
        tls_config(&tls).map_err(|error| self.explain(&error))?;
        Ok(tls)
    }

    fn explain(&self, error: &TlsError) -> ConfigError {
        if let (Some(cert), Some(key)) = (self.cert, self.key)
            && is_swapped(cert, key)
        {
            let (cert, key) = (cert.display(), key.display());
            let reason = format!(
                "{cert} contains a private key, and tls-key {key} a certificate: swap them"
            );
            return ConfigError::setting("tls-cert", reason);
        }
        let file = match error {
            TlsError::Identity { chain, key, error: rustls::Error::InconsistentKeys(_) } => {
                let reason = format!("{} is not the key of {}", key.display(), chain.display());
                return ConfigError::setting("tls-key", reason);
            }
            TlsError::File { file, .. }
            | TlsError::Pem { file, .. }
            | TlsError::Ca { file, .. }
            | TlsError::EncryptedKey { file }
            | TlsError::KeyKind { file, .. }
            | TlsError::TraditionalEncryption { file }
            | TlsError::KeyPassword { file, .. }
            | TlsError::KeyAlgorithm { file, .. }
            | TlsError::KeyEncryption { file, .. }
            | TlsError::KeyDerivation { file } => Some(&**file),
            TlsError::UnencryptedKey { password, .. } => Some(&**password),
            _ => None,
        };
        let key = match error {
            TlsError::Password { .. } => "tls-key-password-file",
            TlsError::NoSystemRoots => "tls-ca",
            _ => file.and_then(|file| self.setting_of(file)).unwrap_or("tls-cert"),
        };
        ConfigError::setting(key, error.to_string())
    }

    /// The setting that names a file.
    fn setting_of(&self, file: &Path) -> Option<&'static str> {
        let settings = [
            ("tls-ca", self.ca),
            ("tls-cert", self.cert),
            ("tls-key", self.key),
            ("tls-key-password-file", self.key_password),
        ];
        settings.into_iter().find(|(_, named)| *named == Some(file)).map(|(key, _)| key)
    }
}

/// Returns whether the certificate file contains only a key, and the key file only a certificate.
fn is_swapped(cert: &Path, key: &Path) -> bool {
    let read = |path| {
        let mut pem = Vec::new();
        // A file that cannot be read contains neither.
        let _ = File::open(path).and_then(|file| file.take(PEM_BYTES_MAX).read_to_end(&mut pem));
        pem
    };
    let (cert, key) = (read(cert), read(key));
    let has_certificate = |pem: &[u8]| pem_section::<CertificateDer<'_>>(pem).is_ok();
    let has_key = |pem: &[u8]| pem_section::<PrivateKeyDer<'_>>(pem).is_ok();
    !has_certificate(&cert) && has_key(&cert) && has_certificate(&key) && !has_key(&key)
}
