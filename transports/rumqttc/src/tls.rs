//! TLS out of PEM files, with rustls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use statestore_tokio::Tls;

/// Why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A certificate or key is no PEM, or there is none.
    #[error("{}: no usable certificate or key: {error}", file.display())]
    Pem {
        /// In which file.
        file: PathBuf,
        /// Why.
        #[source]
        error: pem::Error,
    },
    /// The key of this client is encrypted: decrypt it first, as with `openssl pkey -in KEY -out NEW`.
    #[error("{}: the key is encrypted; decrypt it first, as with `openssl pkey -in KEY -out NEW`", file.display())]
    EncryptedKey {
        /// In which file.
        file: PathBuf,
    },
    /// The certificate and the key of this client cannot be used, or do not belong together.
    #[error("{} and {}: {error}", chain.display(), key.display())]
    Identity {
        /// The file of the certificate chain.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        #[source]
        error: rustls::Error,
    },
    /// The certificates of the authorities cannot be used.
    #[error("no usable TLS configuration: {0}")]
    Rustls(#[from] rustls::Error),
    /// This machine has no certificates that it trusts.
    #[error("no trusted certificates on this machine; name a file of them")]
    NoSystemRoots,
}

/// What rustls needs for a connection that is encrypted like this.
///
/// # Errors
/// [`TlsError`] when there is nothing in the files that can be used.
pub fn tls_config(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(tls.ca_file.as_deref())?);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let pem = read(key)?;
            let der = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
                // Both kinds of encrypted PEM say so with this word.
                match pem.windows(9).any(|word| word == b"ENCRYPTED") {
                    true => TlsError::EncryptedKey { file: key.clone() },
                    false => TlsError::Pem { file: key.clone(), error },
                }
            })?;
            let identity = builder.with_client_auth_cert(certificates(chain)?, der);
            identity.map_err(|error| TlsError::Identity {
                chain: chain.clone(),
                key: key.clone(),
                error,
            })?
        }
    };
    Ok(Arc::new(config))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let Some(ca_file) = ca_file else {
        // One that cannot be read is of no use to anybody on this machine.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { Err(TlsError::NoSystemRoots) } else { Ok(roots) };
    };
    for certificate in certificates(ca_file)? {
        roots.add(certificate)?;
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
    fn what_is_no_certificate_is_refused_and_the_file_is_named() {
        let folder = std::env::temp_dir();
        let file = folder.join(format!("statestore-tls-{}.pem", std::process::id()));
        let config = |pem: &[u8]| {
            std::fs::write(&file, pem).expect("a file");
            tls_config(&Tls::default().ca_file(&file)).map(drop)
        };
        for pem in [&b""[..], b"not a certificate", b"-----BEGIN CERTIFICATE-----\n"] {
            let error = config(pem).expect_err("no certificate");
            assert!(matches!(error, TlsError::Pem { .. }), "{error:?}");
            assert!(error.to_string().starts_with(&file.display().to_string()), "{error}");
        }
        let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(config(nonsense), Err(TlsError::Rustls(_))));
        std::fs::remove_file(&file).expect("it is there");
        let gone = tls_config(&Tls::default().ca_file(&file)).map(drop);
        assert!(matches!(gone, Err(TlsError::File { .. })), "{gone:?}");
    }
}
