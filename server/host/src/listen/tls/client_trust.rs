//! Which client certificates are trusted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime,
};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{CertRevocationListError, RootCertStore};
use webpki::{
    BorrowedCertRevocationList, CertRevocationList, EndEntityCert, Error, ExpirationPolicy,
    KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};
use x509_cert::crl::CertificateList;
use x509_cert::der::asn1::{AnyRef, BitStringRef};
use x509_cert::der::oid::{AssociatedOid as _, ObjectIdentifier};
use x509_cert::der::{self, Decode as _, Reader as _, SliceReader};
use x509_cert::ext::pkix::CrlNumber;

/// The extension of RFC 5280, section 5.2.5.
const ISSUING_DISTRIBUTION_POINT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.28");

/// Meaning of a missing or expired revocation list for a client certificate and its intermediate
/// CAs. A certificate on a list of its issuer is always rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevocationPolicy {
    /// A certificate without a list of its issuer is accepted, and an expired list still
    /// applies. Both cause a [`TlsWarning`](super::TlsWarning). So clients stay connected when a list is late, which
    /// is what devices need whose network is often down.
    #[default]
    IfListed,
    /// A certificate is rejected without a list of its issuer, and if the list has expired.
    /// This applies to every certificate of the chain below the trusted CA, as with `ssl_crl` of
    /// nginx. `crlfile` of mosquitto applies it to the client certificate alone.
    Required,
}

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

    /// Returns whether the client CA that the list names as its issuer has signed it, or another of
    /// this name. The signature of a list of an intermediate CA is verified at each login only.
    pub(super) fn is_signed(
        roots: &RootCertStore,
        list: &CertificateRevocationListDer<'_>,
    ) -> bool {
        let Ok(parsed) = BorrowedCertRevocationList::from_der(list) else { return false };
        let issuer = CertRevocationList::from(parsed);
        let mut named = roots.roots.iter().filter(|root| *root.subject == *issuer.issuer());
        named.clone().next().is_none()
            || named.any(|root| is_signed_by(list, root).unwrap_or(false))
    }

    /// Returns whether two lists have the same issuer. A certificate would be looked up in the first
    /// of them only.
    pub(super) fn has_two_lists_of_one_issuer(lists: &[CertificateRevocationListDer<'_>]) -> bool {
        let parsed =
            lists.iter().filter_map(|list| BorrowedCertRevocationList::from_der(list).ok());
        let parsed: Vec<CertRevocationList<'_>> = parsed.map(Into::into).collect();
        let mut issuers: Vec<&[u8]> = parsed.iter().map(CertRevocationList::issuer).collect();
        issuers.sort_unstable();
        issuers.windows(2).any(|pair| pair[0] == pair[1])
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
    pub(super) fn accepts(&self, chain: &[CertificateDer<'_>]) -> bool {
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

fn is_signed_by(list: &[u8], authority: &TrustAnchor<'_>) -> der::Result<bool> {
    let (signed, algorithm, signature) = SliceReader::new(list)?.sequence(|list| {
        let signed = list.tlv_bytes()?;
        der::Result::Ok((signed, AnyRef::decode(list)?, BitStringRef::decode(list)?))
    })?;
    let mut key = SliceReader::new(&authority.subject_public_key_info)?;
    let (key_algorithm, key) = (AnyRef::decode(&mut key)?, BitStringRef::decode(&mut key)?);
    let all = ring::default_provider().signature_verification_algorithms.all;
    Ok(all.iter().any(|verifier| {
        *verifier.public_key_alg_id() == *key_algorithm.value()
            && *verifier.signature_alg_id() == *algorithm.value()
            && verifier.verify_signature(key.raw_bytes(), signed, signature.raw_bytes()).is_ok()
    }))
}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTrust").field("lists", &self.lists.len()).finish_non_exhaustive()
    }
}
