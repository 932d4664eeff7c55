//! Parses and checks the PEM files of a TLS configuration.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use statestore_tokio::PemError;
use statestore_tokio::adapter::{pem_section, pem_sections};
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime,
};
use tokio_rustls::rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{CertificateError, InconsistentKeys, RootCertStore, ServerConfig};
use x509_cert::Certificate;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};

use super::client_trust::{ClientTrust, RevocationPolicy};
use super::error::{TlsError, TlsWarning};
use crate::clock::system_now;

/// The contents of the PEM files of a TLS configuration.
///
/// ```
/// use statestore_server::{ServerTls, TlsPem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # fn read(_: &str) -> std::io::Result<Vec<u8>> { Err(std::io::ErrorKind::NotFound.into()) }
/// # let run = || -> Result<(), Box<dyn std::error::Error>> {
/// let pem = TlsPem::new(read("broker.pem")?, read("broker.key")?);
/// let tls = ServerTls::from_pem(&pem.client_ca(read("clients-ca.pem")?))?;
/// # Ok(()) }; assert!(run().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TlsPem {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
    pub(super) revocation_lists: Vec<Vec<u8>>,
    pub(super) policy: RevocationPolicy,
}

impl TlsPem {
    /// The certificate chain of this broker, its own certificate first, and the private key.
    #[must_use]
    pub fn new(chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self {
            chain: chain.into(),
            key: key.into(),
            client_ca: None,
            revocation_lists: Vec::new(),
            policy: RevocationPolicy::default(),
        }
    }

    /// Requires a client certificate from one of these CAs.
    #[must_use]
    pub fn client_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.client_ca = Some(pem.into());
        self
    }

    /// Adds certificate revocation lists: one or several `X509 CRL` sections.
    #[must_use]
    pub fn revocation_list(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.revocation_lists.push(pem.into());
        self
    }

    /// Sets what a missing and an expired revocation list mean.
    #[must_use]
    pub const fn revocation_policy(mut self, policy: RevocationPolicy) -> Self {
        self.policy = policy;
        self
    }
}

impl std::fmt::Debug for TlsPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsPem").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// The result of parsing a [`TlsPem`].
pub(super) struct ParsedTls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) trust: Option<ClientTrust>,
    pub(super) not_after: Option<SystemTime>,
    pub(super) warnings: Vec<TlsWarning>,
}

impl ParsedTls {
    pub(super) fn new(pem: &TlsPem) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let chain = parse_chain(&pem.chain)?;
        check_dates(&chain, &provider)?;
        let key = parse_key(&pem.key)?;
        let mut warnings = Vec::new();
        let trust = match &pem.client_ca {
            None if pem.revocation_lists.is_empty() => None,
            None => return Err(TlsError::RevocationWithoutAuthority),
            Some(authorities) => Some(parse_trust(authorities, pem, &provider, &mut warnings)?),
        };
        let own = chain.first().and_then(|own| Certificate::from_der(own).ok());
        let not_after = own
            .as_ref()
            .map(|own| UNIX_EPOCH + own.tbs_certificate().validity().not_after.to_unix_duration());
        warnings.extend(own.iter().flat_map(certificate_warnings));
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match &trust {
            None => builder.with_no_client_auth(),
            Some(trust) => builder.with_client_cert_verifier(trust.verifier()),
        };
        // The session cache of the configuration is new, so no session of an earlier configuration
        // can be resumed.
        let config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::KeyMismatch,
            error @ rustls::Error::General(_) => TlsError::KeyKind(error),
            other => TlsError::Rustls(other),
        })?;
        Ok(Self { config: Arc::new(config), trust, not_after, warnings })
    }
}

fn parse_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    pem_sections(pem).map_err(|error| match error {
        PemError::NoSection if has_section(pem, "PRIVATE KEY") => TlsError::ChainIsKey,
        error => TlsError::Chain(error),
    })
}

fn parse_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    pem_section(pem).map_err(|error| match error {
        _ if is_encrypted(pem) => TlsError::EncryptedKey,
        PemError::NoSection if has_section(pem, "CERTIFICATE") => TlsError::KeyIsCertificate,
        error => TlsError::Key(error),
    })
}

fn parse_trust(
    authorities: &[u8],
    pem: &TlsPem,
    provider: &Arc<CryptoProvider>,
    warnings: &mut Vec<TlsWarning>,
) -> Result<ClientTrust, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in pem_sections(authorities).map_err(TlsError::AuthorityPem)? {
        roots.add(certificate).map_err(TlsError::Authority)?;
    }
    let roots = Arc::new(roots);
    let builder = |lists: Vec<CertificateRevocationListDer<'static>>| {
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider))
                .with_crls(lists);
        match pem.policy {
            RevocationPolicy::IfListed => builder.allow_unknown_revocation_status(),
            RevocationPolicy::Required => builder.enforce_revocation_expiration(),
        }
        .build()
    };
    let mut lists = Vec::new();
    for (file, pem) in pem.revocation_lists.iter().enumerate() {
        let found = pem_sections::<CertificateRevocationListDer<'static>>(pem)
            .map_err(|error| TlsError::RevocationListPem { file, error })?;
        // Parsed once more below, to report which file is invalid.
        builder(found.clone()).map_err(|error| TlsError::RevocationList { file, error })?;
        if !found.iter().all(|list| ClientTrust::is_signed(&roots, list)) {
            return Err(TlsError::RevocationListSignature { file });
        }
        lists.extend(found);
        if ClientTrust::has_two_lists_of_one_issuer(&lists) {
            return Err(TlsError::RevocationListTwice { file });
        }
    }
    warnings.extend(lists.iter().filter_map(|list| {
        let expired = next_update(list).filter(|time| *time < system_now())?;
        Some(TlsWarning::RevocationListExpired(expired))
    }));
    let verifier = builder(lists.clone())?;
    let trust = ClientTrust::new(verifier, roots, lists, pem.policy)
        .map_err(VerifierBuilderError::InvalidCrl)?;
    match trust.unlisted_authorities() {
        0 => {}
        count => warnings.push(TlsWarning::NoRevocationList(count)),
    }
    Ok(trust)
}

/// Returns the time at which a revocation list should be replaced.
fn next_update(list: &[u8]) -> Option<SystemTime> {
    let list: CertificateList = CertificateList::from_der(list).ok()?;
    Some(UNIX_EPOCH + list.tbs_cert_list.next_update?.to_unix_duration())
}

fn certificate_warnings(own: &Certificate) -> Vec<TlsWarning> {
    let certificate = own.tbs_certificate();
    let constraints = certificate.get_extension::<BasicConstraints>();
    let is_authority = matches!(constraints, Ok(Some((_, constraints))) if constraints.ca);
    let names = certificate.get_extension::<SubjectAltName>();
    [
        (is_authority, TlsWarning::CaAsServerCertificate),
        (matches!(names, Ok(None)), TlsWarning::NoHostName),
    ]
    .into_iter()
    .filter_map(|(applies, warning)| applies.then_some(warning))
    .collect()
}

/// Rejects a certificate that clients would reject because of its dates.
fn check_dates(chain: &[CertificateDer<'_>], provider: &CryptoProvider) -> Result<(), TlsError> {
    let Some(Ok(own)) = chain.first().map(ParsedCertificate::try_from) else { return Ok(()) };
    // Verification always fails, because no CA is trusted here; but it checks the dates first.
    let (no_roots, algorithms) =
        (RootCertStore::empty(), provider.signature_verification_algorithms);
    let now = UnixTime::now();
    let checked =
        verify_server_cert_signed_by_trust_anchor(&own, &no_roots, &[], now, algorithms.all);
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
        // rustls reports this error without a time if the end precedes the beginning.
        Err(rustls::Error::InvalidCertificate(CertificateError::Expired)) => {
            Err(TlsError::InvalidValidityPeriod)
        }
        _ => Ok(()),
    }
}

/// Returns whether a PEM file has a section whose label ends with this text.
fn has_section(pem: &[u8], label: &str) -> bool {
    let end = format!("{label}-----");
    let mut lines = pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.any(|line| line.starts_with(b"-----BEGIN ") && line.ends_with(end.as_bytes()))
}

/// Returns whether a PEM file contains an encrypted key: PKCS #8, or the traditional format.
fn is_encrypted(key: &[u8]) -> bool {
    let contains = |word: &[u8]| key.windows(word.len()).any(|window| window == word);
    contains(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(b"Proc-Type: 4,ENCRYPTED")
}
