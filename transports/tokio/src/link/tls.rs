//! TLS configuration from PEM files, with rustls.

mod key;
mod pem;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{file, options::Tls};
use crate::diagnostics::SUPPORTED_KEYS;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, ClientConfig, OtherError, RootCertStore};

pub use pem::{PemError, pem_section, pem_sections};

/// Largest file with certificates or a key, in bytes. The CA certificates of an operating system
/// have a quarter of it.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Error of a TLS configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or has more than 1 MiB.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Cause.
        #[source]
        error: io::Error,
    },
    /// The password file of the key cannot be read. The cause names it.
    #[error("password of the key: {error}")]
    Password {
        /// Cause.
        #[source]
        error: io::Error,
    },
    /// A file is not PEM, or contains no certificate or key.
    #[error("{}: no usable certificate or key: {error}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// Cause.
        #[source]
        error: PemError,
    },
    /// The key of this client is encrypted, and no file with its password is set.
    #[error(
        "{}: the key is encrypted; set a file with its password, or decrypt the key with \
         `openssl pkey -in KEY -out NEW`",
        file.display()
    )]
    EncryptedKey {
        /// The file of the key.
        file: PathBuf,
    },
    /// A file with the password of the key is set, and the key of this client is not encrypted.
    #[error(
        "{}: the key is not encrypted; unset the password file {}, or encrypt the key with \
         `openssl pkcs8 -topk8 -in KEY -out NEW`",
        file.display(),
        password.display()
    )]
    UnencryptedKey {
        /// The file of the key.
        file: PathBuf,
        /// The file of the password.
        password: PathBuf,
    },
    /// The key of this client is encrypted in the traditional PEM format, which is not supported:
    /// its key derivation is a single MD5.
    #[error(
        "{}: the key is encrypted in the traditional format (Proc-Type: 4,ENCRYPTED), which is not \
         supported; convert it with `openssl pkcs8 -topk8 -in KEY -out NEW`",
        file.display()
    )]
    TraditionalEncryption {
        /// The file of the key.
        file: PathBuf,
    },
    /// There is a password for the key, and this crate was built without its feature
    /// `encrypted-keys`.
    #[cfg(not(feature = "encrypted-keys"))]
    #[error(
        "{}: cannot decrypt the key: built without the feature `encrypted-keys`",
        file.display()
    )]
    NoDecryption {
        /// The file of the key.
        file: PathBuf,
    },
    /// The password does not decrypt the key of this client.
    #[cfg(feature = "encrypted-keys")]
    #[error("{}: the password in {} does not decrypt the key", file.display(), password.display())]
    KeyPassword {
        /// The file of the key.
        file: PathBuf,
        /// The file of the password.
        password: PathBuf,
        /// Cause.
        #[source]
        error: pkcs8::Error,
    },
    /// The key of this client is encrypted with an algorithm that is not supported. PBES2 with
    /// PBKDF2 or scrypt, SHA-2 and AES is supported.
    #[cfg(feature = "encrypted-keys")]
    #[error(
        "{}: the key is encrypted with {algorithm}, which is not supported; encrypt it with AES by \
         `openssl pkcs8 -topk8 -in KEY -out NEW`",
        file.display()
    )]
    KeyAlgorithm {
        /// The file of the key.
        file: PathBuf,
        /// Name of the algorithm, or its object identifier.
        algorithm: String,
    },
    /// The encryption of the key of this client is malformed.
    #[cfg(feature = "encrypted-keys")]
    #[error(
        "{}: the encryption of the key is malformed: {error}; encrypt it again with `openssl pkcs8 \
         -topk8 -in KEY -out NEW`",
        file.display()
    )]
    KeyEncryption {
        /// The file of the key.
        file: PathBuf,
        /// Cause.
        #[source]
        error: pkcs8::Error,
    },
    /// The file of the key requires a key derivation that is not allowed: zero or more than 2,000,000
    /// iterations of PBKDF2 with SHA-256, 1,000,000 with SHA-384 or SHA-512, or 128 MiB of scrypt.
    #[cfg(feature = "encrypted-keys")]
    #[error(
        "{}: the key derivation is outside of the limits: 1 to 2,000,000 iterations of PBKDF2 \
         (1,000,000 with SHA-384 or SHA-512), or 128 MiB of scrypt; encrypt the key with `openssl \
         pkcs8 -topk8 -in KEY -out NEW`",
        file.display()
    )]
    KeyDerivation {
        /// The file of the key.
        file: PathBuf,
    },
    /// The certificate of this client is of X.509 version 1, which brokers reject. `openssl x509
    /// -req -extfile FILE` creates one with extensions.
    #[error(
        "{}: the certificate is of X.509 version 1, which brokers reject; create it with \
         extensions, with openssl by `openssl x509 -req -extfile FILE`",
        chain.display()
    )]
    VersionOne {
        /// The file of the certificate chain.
        chain: PathBuf,
    },
    /// The key of this client is damaged, or of a kind that rustls with ring does not support, for
    /// example P-521.
    #[error(
        "{}: the key is damaged or of an unsupported kind: {error}; {SUPPORTED_KEYS}",
        file.display()
    )]
    KeyKind {
        /// The file of the key.
        file: PathBuf,
        /// Cause.
        #[source]
        error: rustls::Error,
    },
    /// The certificate and the key of this client are invalid or do not match.
    #[error("{} and {}: {error}", chain.display(), key.display())]
    Identity {
        /// The file of the certificate chain.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Cause.
        #[source]
        error: rustls::Error,
    },
    /// A certificate in the CA file is invalid.
    #[error("{}: invalid CA certificate: {error}", file.display())]
    Ca {
        /// The file.
        file: PathBuf,
        /// Cause.
        #[source]
        error: rustls::Error,
    },
    /// The configuration is invalid.
    #[error("invalid TLS configuration: {0}")]
    Rustls(#[from] rustls::Error),
    /// No trusted CA certificates were found on the system.
    #[error("no trusted CA certificates on this system; set a CA file")]
    NoSystemRoots,
}

/// Returns the configuration of rustls for these settings.
///
/// # Errors
/// [`TlsError`] if a file cannot be read or its content is invalid.
pub fn tls_config(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(tls.ca_file.as_deref())?);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let der = key::private_key(key, tls)?;
            let identity = builder.with_client_auth_cert(certificates(chain)?, der);
            identity.map_err(|error| match error {
                error @ rustls::Error::General(_) => TlsError::KeyKind { file: key.clone(), error },
                error if is_version_one(&error) => TlsError::VersionOne { chain: chain.clone() },
                error => TlsError::Identity { chain: chain.clone(), key: key.clone(), error },
            })?
        }
    };
    Ok(Arc::new(config))
}

/// Returns whether a certificate was rejected because it is of X.509 version 1.
fn is_version_one(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(error))) = error
    else {
        return false;
    };
    error.downcast_ref() == Some(&webpki::Error::UnsupportedCertVersion)
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let Some(ca_file) = ca_file else {
        // Unreadable system certificates are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { Err(TlsError::NoSystemRoots) } else { Ok(roots) };
    };
    for certificate in certificates(ca_file)? {
        roots.add(certificate).map_err(|error| TlsError::Ca { file: ca_file.to_owned(), error })?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    pem_sections(&read(file)?).map_err(|error| TlsError::Pem { file: file.to_owned(), error })
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    file::read(file, PEM_BYTES_MAX).map_err(|error| TlsError::File { file: file.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_certificates_are_errors_that_name_the_file() {
        let folder = std::env::temp_dir();
        let file = folder.join(format!("statestore-tls-{}.pem", std::process::id()));
        let config = |pem: &[u8]| {
            std::fs::write(&file, pem).expect("a file");
            tls_config(&Tls::default().ca_file(&file)).map(drop)
        };
        for pem in [&b""[..], b"not a certificate", b"-----BEGIN CERTIFICATE-----\n"] {
            let error = config(pem).expect_err("not a certificate");
            assert!(matches!(error, TlsError::Pem { .. }), "{error:?}");
            assert!(error.to_string().starts_with(&file.display().to_string()), "{error}");
        }
        let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let error = config(nonsense).expect_err("not a certificate");
        assert!(matches!(error, TlsError::Ca { .. }), "{error:?}");
        let error = config(&vec![b'x'; (1 << 20) + 1]).expect_err("too large");
        assert!(error.to_string().ends_with("the file has more than 1048576 bytes"), "{error}");
        std::fs::remove_file(&file).expect("the file exists");
        let gone = tls_config(&Tls::default().ca_file(&file)).map(drop);
        assert!(matches!(gone, Err(TlsError::File { .. })), "{gone:?}");
    }
}
