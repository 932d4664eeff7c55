//! Which client certificates are trusted, and the certificates of connected clients.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{CertRevocationListError, RootCertStore};
use webpki::{
    CertRevocationList, EndEntityCert, Error, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode as _;
use x509_cert::der::oid::AssociatedOid as _;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::CrlNumber;

use super::pem::RevocationPolicy;
use super::server_tls::ServerTls;

/// Minimum number of registered certificates for a sweep.
const SWEEP_MIN: usize = 1_024;

/// The extension of RFC 5280, section 5.2.5.
const ISSUING_DISTRIBUTION_POINT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.28");

/// Version of a revocation list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListVersion {
    /// The CRL number, as a length and an integer of this many bytes. `None` without a number.
    number: Option<(usize, Vec<u8>)>,
    /// Time of issue, since 1970.
    this_update: Duration,
    /// The issuing distribution point: a CA can split its list into several with their own.
    point: Option<Vec<u8>>,
}

impl ListVersion {
    fn new(list: &CertificateRevocationListDer<'_>) -> Option<Self> {
        let list: CertificateList = CertificateList::from_der(list).ok()?;
        let list = list.tbs_cert_list;
        let extensions = list.crl_extensions.iter().flatten();
        let value = |oid| {
            let mut found = extensions.clone().filter(|extension| extension.extn_id == oid);
            found.next().map(|extension| extension.extn_value.as_bytes())
        };
        let number = value(CrlNumber::OID).and_then(|number| {
            let CrlNumber(number) = CrlNumber::from_der(number).ok()?;
            Some((number.as_bytes().len(), number.as_bytes().to_vec()))
        });
        let point = value(ISSUING_DISTRIBUTION_POINT).map(<[u8]>::to_vec);
        Some(Self { number, this_update: list.this_update.to_unix_duration(), point })
    }
}

/// The client CAs and revocation lists of one TLS configuration.
pub(crate) struct ClientTrust {
    verifier: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// The same lists, parsed, so that a login needs no scan of a list.
    parsed_lists: Vec<CertRevocationList<'static>>,
    /// Their versions; `None` if one is unknown.
    versions: Vec<Option<ListVersion>>,
    policy: RevocationPolicy,
}

impl ClientTrust {
    pub(super) fn new(
        verifier: Arc<dyn ClientCertVerifier>,
        roots: Arc<RootCertStore>,
        lists: Vec<CertificateRevocationListDer<'static>>,
        policy: RevocationPolicy,
    ) -> Result<Self, CertRevocationListError> {
        // The verifier has parsed the lists, but a list must never be left out.
        let parse = |list: &CertificateRevocationListDer<'_>| {
            let list = OwnedCertRevocationList::from_der(list);
            list.map(Into::into).map_err(|_| CertRevocationListError::ParseError)
        };
        let parsed_lists = lists.iter().map(parse).collect::<Result<_, _>>()?;
        let versions = lists.iter().map(ListVersion::new).collect();
        Ok(Self { verifier, roots, lists, parsed_lists, versions, policy })
    }

    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier)
    }

    /// Returns whether both accept the same certificates.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.roots.roots == other.roots.roots
            && self.lists == other.lists
            && self.policy == other.policy
    }

    /// Returns whether the lists of `next` could accept certificates that these lists revoke: a list
    /// is missing or older, unless its issuer was a client CA and is none in `next`.
    pub(super) fn loses_revocations(&self, next: &Self) -> bool {
        let has_root = |trust: &Self, subject: &[u8]| {
            trust.roots.roots.iter().any(|root| *root.subject == *subject)
        };
        let point = |version: &Option<ListVersion>| version.as_ref()?.point.clone();
        !self.listed().all(|(list, version)| {
            let issuer = list.issuer();
            let replaces = |(other, new): (&CertRevocationList<'_>, &Option<ListVersion>)| {
                other.issuer() == issuer && point(new) == point(version) && new >= version
            };
            (has_root(self, issuer) && !has_root(next, issuer)) || next.listed().any(replaces)
        })
    }

    fn listed(&self) -> impl Iterator<Item = (&CertRevocationList<'static>, &Option<ListVersion>)> {
        self.parsed_lists.iter().zip(&self.versions)
    }

    /// Returns the number of client CAs without a revocation list; zero without any list.
    pub(super) fn unlisted_authorities(&self) -> usize {
        if self.lists.is_empty() {
            return 0;
        }
        let is_listed =
            |subject: &[u8]| self.parsed_lists.iter().any(|list| list.issuer() == subject);
        self.roots.roots.iter().filter(|root| !is_listed(&root.subject)).count()
    }

    /// Returns whether the TLS handshake would accept a chain.
    fn accepts(&self, chain: &[CertificateDer<'_>]) -> bool {
        chain.split_first().is_some_and(|(own, others)| {
            self.verifier.verify_client_cert(own, others, UnixTime::now()).is_ok()
        })
    }

    /// Verifies a certificate with the other certificates of its chain, and calls `inspect` with
    /// the path from the certificate to the CA.
    pub(crate) fn with_path<T>(
        &self,
        own: &EndEntityCert<'_>,
        others: &[CertificateDer<'_>],
        inspect: impl FnOnce(&VerifiedPath<'_>) -> T,
    ) -> Result<T, Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let (usage, now) = (KeyUsage::client_auth(), UnixTime::now());
        let (unknown, expired) = match self.policy {
            RevocationPolicy::IfListed => (UnknownStatusPolicy::Allow, ExpirationPolicy::Ignore),
            RevocationPolicy::Required => (UnknownStatusPolicy::Deny, ExpirationPolicy::Enforce),
        };
        let lists: Vec<&CertRevocationList<'_>> = self.parsed_lists.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
            builder.with_status_policy(unknown).with_expiration_policy(expired).build()
        });
        let roots = &self.roots.roots;
        let path =
            own.verify_for_usage(algorithms.all, roots, others, now, usage, revocation, None)?;
        Ok(inspect(&path))
    }
}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTrust").field("lists", &self.lists.len()).finish_non_exhaustive()
    }
}

/// The certificate chain of a client, as long as its connection or its session exists.
pub(crate) struct ClientCertificate {
    tls: ServerTls,
    chain: Vec<CertificateDer<'static>>,
    /// Twice the number of the trust generation that was checked last, plus one if the chain was
    /// accepted.
    verdict: AtomicU64,
}

impl ClientCertificate {
    /// Maximum length of a chain in bytes. Usual chains have one to four kilobytes.
    pub(crate) const CHAIN_MAX: usize = 16 << 10;

    /// Copies a chain that was accepted by the handshake, with the client CAs of this generation.
    /// Returns `None` if it exceeds [`CHAIN_MAX`](Self::CHAIN_MAX).
    pub(super) fn new(
        tls: &ServerTls,
        generation: u64,
        chain: &[CertificateDer<'_>],
    ) -> Option<Self> {
        let length: usize = chain.iter().map(|certificate| certificate.len()).sum();
        let copy = || chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        (length <= Self::CHAIN_MAX).then(|| Self {
            tls: tls.clone(),
            chain: copy(),
            verdict: AtomicU64::new(encode(generation, true)),
        })
    }

    /// Returns whether a handshake would accept the certificate now. Verifies signatures only
    /// after the client CAs or the revocation lists have changed, and then usually in the reload.
    pub(crate) fn is_trusted(&self) -> bool {
        let state = self.tls.state();
        let verdict = self.verdict.load(Ordering::Acquire);
        if verdict >> 1 == state.trust_generation {
            return verdict & 1 == 1;
        }
        let accepted = state.trust.as_ref().is_some_and(|trust| trust.accepts(&self.chain));
        self.verdict.store(encode(state.trust_generation, accepted), Ordering::Release);
        accepted
    }
}

const fn encode(generation: u64, accepted: bool) -> u64 {
    (generation << 1) | accepted as u64
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("certificates", &self.chain.len()).finish()
    }
}

/// The certificates of all clients of one [`ServerTls`], so that a reload can verify them again.
#[derive(Default)]
pub(super) struct ClientRegistry(Mutex<Vec<Weak<ClientCertificate>>>);

impl ClientRegistry {
    pub(super) fn add(&self, certificate: &Arc<ClientCertificate>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The vector grows by doubling, so sweeping it when it is full costs little.
        if all.len() >= SWEEP_MIN && all.len() == all.capacity() {
            all.retain(|other| other.strong_count() > 0);
        }
        all.push(Arc::downgrade(certificate));
    }

    /// Verifies all certificates again. Takes about 0.1 ms for each, so call it off the event loop.
    pub(super) fn verify_all(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for certificate in all.iter().filter_map(Weak::upgrade) {
            certificate.is_trusted();
        }
    }
}
