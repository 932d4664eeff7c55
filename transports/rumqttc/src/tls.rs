//! TLS out of PEM files.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Why there is no TLS configuration.
#[derive(Debug)]
pub enum TlsError {
    /// A certificate or key is no PEM, or there is none.
    Pem(pem::Error),
    /// The certificates or the key cannot be used.
    Rustls(rustls::Error),
}

/// A configuration that trusts the certificates of `authorities` and nobody else, with a certificate chain and key of
/// this client where the broker asks for one. All are the contents of PEM files.
///
/// # Errors
/// [`TlsError`] when there is nothing in them that can be used.
pub fn tls_config(
    authorities: &[u8],
    identity: Option<(&[u8], &[u8])>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(certificates(chain)?, PrivateKeyDer::from_pem_slice(key)?)?,
    };
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() { Err(pem::Error::NoItemsFound.into()) } else { Ok(found) }
}

impl From<pem::Error> for TlsError {
    fn from(error: pem::Error) -> Self {
        Self::Pem(error)
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Rustls(error)
    }
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pem(error) => write!(f, "no usable certificate or key: {error}"),
            Self::Rustls(error) => write!(f, "no usable TLS configuration: {error}"),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pem(error) => Some(error),
            Self::Rustls(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused() {
        for pem in [&b""[..], b"not a certificate", b"-----BEGIN CERTIFICATE-----\n"] {
            assert!(matches!(tls_config(pem, None), Err(TlsError::Pem(_))), "{pem:?}");
        }
        let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(tls_config(nonsense, None), Err(TlsError::Rustls(_))));
    }
}
