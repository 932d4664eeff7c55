//! TLS configuration from PEM files, with rustls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::options::Tls;
#[cfg(feature = "encrypted-keys")]
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::crypto::ring;
#[cfg(feature = "encrypted-keys")]
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, OtherError, RootCertStore};

/// Error of a TLS configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
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
        error: pem::Error,
    },
    /// The key of this client is encrypted, and there is no password, or the encryption is not that
    /// of PKCS #8. `openssl pkey -in KEY -out NEW` decrypts a key.
    #[error(
        "{}: the key is encrypted; set a password file (for PKCS #8), or decrypt the key, for \
         example with `openssl pkey -in KEY -out NEW`",
        file.display()
    )]
    EncryptedKey {
        /// The file.
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
    /// The password does not decrypt the key of this client, or its encryption is not supported:
    /// PBES2 with PBKDF2 or scrypt and AES is.
    #[cfg(feature = "encrypted-keys")]
    #[error(
        "{}: the key cannot be decrypted with the password in {}: {error}",
        file.display(),
        password.display()
    )]
    KeyPassword {
        /// The file of the key.
        file: PathBuf,
        /// The file of the password.
        password: PathBuf,
        /// Cause.
        #[source]
        error: pkcs8::Error,
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
            let der = private_key(key, tls)?;
            let identity = builder.with_client_auth_cert(certificates(chain)?, der);
            identity.map_err(|error| match is_version_one(&error) {
                true => TlsError::VersionOne { chain: chain.clone() },
                false => TlsError::Identity { chain: chain.clone(), key: key.clone(), error },
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

fn private_key(file: &Path, tls: &Tls) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(file)?;
    if let (Some(password), Some(encrypted)) = (&tls.key_password_file, encrypted_key(&pem)) {
        let text = tls.read_key_password();
        let text = text.map_err(|error| TlsError::Password { error })?.unwrap_or_default();
        return decrypt_key(file, encrypted, password, &text);
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match is_encrypted(&pem) {
        true => TlsError::EncryptedKey { file: file.to_owned() },
        false => TlsError::Pem { file: file.to_owned(), error },
    })
}

/// The first encrypted PKCS #8 key in a PEM file, which may contain certificates too.
fn encrypted_key(pem: &[u8]) -> Option<&str> {
    const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";
    // Other lines of the file need not be UTF-8.
    let start = find(pem, b"-----BEGIN ENCRYPTED PRIVATE KEY-----")?;
    let key = pem.get(start..)?;
    let end = find(key, END.as_bytes()).map_or(key.len(), |end| end + END.len());
    std::str::from_utf8(key.get(..end)?).ok()
}

/// Returns whether a PEM file contains a key that is encrypted by PKCS #8 or in the traditional
/// way.
fn is_encrypted(pem: &[u8]) -> bool {
    find(pem, b"-----BEGIN ENCRYPTED PRIVATE KEY-----").is_some()
        || find(pem, b"Proc-Type: 4,ENCRYPTED").is_some()
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}

#[cfg(feature = "encrypted-keys")]
fn decrypt_key(
    file: &Path,
    pem: &str,
    password: &Path,
    text: &str,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let decrypt = || {
        let (_, encrypted) = SecretDocument::from_pem(pem)?;
        EncryptedPrivateKeyInfoRef::try_from(encrypted.as_bytes())?.decrypt(text)
    };
    let key = decrypt().map_err(|error| TlsError::KeyPassword {
        file: file.to_owned(),
        password: password.to_owned(),
        error,
    })?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

#[cfg(not(feature = "encrypted-keys"))]
fn decrypt_key(
    file: &Path,
    _pem: &str,
    _password: &Path,
    _text: &str,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    Err(TlsError::NoDecryption { file: file.to_owned() })
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
    let found = CertificateDer::pem_slice_iter(&read(file)?).collect::<Result<Vec<_>, _>>();
    let error = match found {
        Ok(found) if !found.is_empty() => return Ok(found),
        Ok(_) => pem::Error::NoItemsFound,
        Err(error) => error,
    };
    Err(TlsError::Pem { file: file.to_owned(), error })
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|error| TlsError::File { file: file.to_owned(), error })
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
        std::fs::remove_file(&file).expect("the file exists");
        let gone = tls_config(&Tls::default().ca_file(&file)).map(drop);
        assert!(matches!(gone, Err(TlsError::File { .. })), "{gone:?}");
    }
    #[test]
    fn encrypted_key_is_found_between_lines_that_are_not_utf8() {
        let key =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----";
        let pem = [b"friendlyName: M\xfcller\n", key.as_bytes(), b"\n\xff"].concat();
        assert_eq!(encrypted_key(&pem), Some(key));
        assert!(is_encrypted(&pem) && is_encrypted(b"Proc-Type: 4,ENCRYPTED\n"));
        assert!(!is_encrypted(b"an ENCRYPTED word") && encrypted_key(b"ENCRYPTED").is_none());
    }
}
