//! TLS out of PEM files.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls;
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{CertificateError, RootCertStore, ServerConfig};

/// Why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate chain is no PEM, or there is none in it.
    #[error("no usable certificate chain: {0}")]
    Chain(#[source] pem::Error),
    /// The key is no PEM, or there is none in it.
    #[error("no usable key: {0}")]
    Key(#[source] pem::Error),
    /// The key is encrypted: decrypt it first, as with `openssl pkey -in KEY -out NEW`.
    #[error("the key is encrypted; decrypt it first, as with `openssl pkey -in KEY -out NEW`")]
    EncryptedKey,
    /// The certificate of this broker has expired, so that no client would connect.
    #[error("the certificate expired on {}; get a new one", humantime::format_rfc3339_seconds(*.0))]
    Expired(SystemTime),
    /// The certificate of this broker is not valid yet, so that no client would connect.
    #[error(
        "the certificate is valid from {} on only; is the clock of this machine right?",
        humantime::format_rfc3339_seconds(*.0)
    )]
    NotYetValid(SystemTime),
    /// The certificates of the authorities are no PEM, or there are none.
    #[error("no usable certificates of the authorities for clients: {0}")]
    AuthorityPem(#[source] pem::Error),
    /// The certificates or the key cannot be used, or do not belong together.
    #[error("no usable TLS configuration: {0}")]
    Rustls(#[from] rustls::Error),
    /// The authorities cannot prove a client's certificate.
    #[error("no usable authorities for clients: {0}")]
    Authorities(#[from] VerifierBuilderError),
}

/// A configuration with a certificate chain and key of this broker, and with the authorities that a client must have its
/// certificate from; without them clients need none. All are the contents of PEM files.
///
/// # Errors
/// [`TlsError`] when there is nothing in them that can be used, or nothing that is valid now.
pub fn tls_config(
    chain: &[u8],
    key: &[u8],
    client_authorities: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match client_authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let roots = Arc::new(roots(authorities)?);
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()?,
            )
        }
    };
    let chain = certificates(chain).map_err(TlsError::Chain)?;
    check_dates(&chain, &provider)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match is_encrypted(key) {
        true => TlsError::EncryptedKey,
        false => TlsError::Key(error),
    })?;
    Ok(Arc::new(builder.with_single_cert(chain, key)?))
}

/// The authorities in a PEM file.
pub(crate) fn roots(authorities: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities).map_err(TlsError::AuthorityPem)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Refuses a certificate that no client takes today.
fn check_dates(chain: &[CertificateDer<'_>], provider: &CryptoProvider) -> Result<(), TlsError> {
    let Some(Ok(own)) = chain.first().map(ParsedCertificate::try_from) else { return Ok(()) };
    // Nobody is trusted here, so it always fails; but it looks at the dates first.
    let (nobody, algorithms) = (RootCertStore::empty(), provider.signature_verification_algorithms);
    let now = UnixTime::now();
    let checked =
        verify_server_cert_signed_by_trust_anchor(&own, &nobody, &[], now, algorithms.all);
    let at = |time: UnixTime| UNIX_EPOCH + Duration::from_secs(time.as_secs());
    match checked {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after,
            ..
        })) => Err(TlsError::Expired(at(not_after))),
        Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before,
            ..
        })) => Err(TlsError::NotYetValid(at(not_before))),
        _ => Ok(()),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(found) }
}

/// Both kinds of PEM say so with this word.
fn is_encrypted(key: &[u8]) -> bool {
    key.windows(9).any(|word| word == b"ENCRYPTED")
}
