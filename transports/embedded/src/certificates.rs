//! Who a client is by its certificate.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use statestore_policy::{CertificateAttributes, Subject};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::{DB, rfc3280::EMAIL_ADDRESS, rfc4519::CN};
use x509_cert::der::{Decode, Reader as _, SliceReader, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::RelativeDistinguishedName;

use crate::tls::{self, TlsError};
use crate::users::is_name;

/// Bytes of a name. Client ids begin with it, and it is kept for each connection.
const NAME_MAX: usize = 256;

/// Bytes of all subjects of a chain, which are kept for each connection.
const SUBJECTS_MAX: usize = 4 << 10;

/// Which name in a certificate is the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateName {
    /// The common name of the subject.
    CommonName,
    /// The DNS name among the subject's alternative names.
    Dns,
    /// The e-mail address among the subject's alternative names.
    Email,
}

/// Takes names in certificates for users, and says which attributes these have. Clones are the same.
///
/// A certificate that is not from one of the authorities, has no such name or several, or one that is no user name, is
/// nobody's. A user name has 256 bytes at most, begins and ends without blanks, and has no control characters and none of
/// `: / + #` in it; so URIs are none.
///
/// ```
/// use statestore_embedded::{CertificateName, CertificateUsers, Options, tls_config};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # fn read(_: &str) -> Result<Vec<u8>, std::io::Error> { Err(std::io::ErrorKind::NotFound.into()) }
/// # let run = || -> Result<(), Box<dyn std::error::Error>> {
/// let authorities = read("clients-ca.pem")?;
/// let config = tls_config(&read("broker.pem")?, &read("broker.key")?, Some(&authorities))?;
/// let users = CertificateUsers::new(&authorities, CertificateName::CommonName)?;
/// let options = Options::default().tls(config).certificate_users(users);
/// # Ok(()) }; assert!(run().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CertificateUsers(Arc<Inner>);

struct Inner {
    roots: Vec<TrustAnchor<'static>>,
    name: CertificateName,
    attributes: RwLock<Arc<CertificateAttributes>>,
}

/// Whose a chain is.
#[derive(Debug)]
pub(crate) struct Certified {
    pub(crate) user: String,
    pub(crate) expires: UnixTime,
    /// From its own subject to that of the authority.
    pub(crate) subjects: Vec<Subject>,
}

/// Why a certificate is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoUser {
    #[error("there is none")]
    None,
    #[error("no authority here vouches for it")]
    Unproved,
    #[error("it cannot be read")]
    Unreadable,
    #[error("the name to be the user's is not there, or there are several")]
    NotOne,
    #[error(
        "its name is no user name: one line of {NAME_MAX} bytes at most, without any of : / + #"
    )]
    Name,
    #[error("the subjects of its chain have more than {SUBJECTS_MAX} bytes")]
    Long,
}

impl CertificateUsers {
    /// Users by their certificates from these authorities, a PEM file: the one that [`tls_config`](crate::tls_config) has.
    ///
    /// # Errors
    /// [`TlsError`] when there are no usable certificates in it.
    pub fn new(authorities: &[u8], name: CertificateName) -> Result<Self, TlsError> {
        let RootCertStore { roots } = tls::roots(authorities)?;
        Ok(Self(Arc::new(Inner { roots, name, attributes: RwLock::default() })))
    }

    /// From now on certificates have these attributes; without, they have none.
    /// [`Broker::recheck`](crate::Broker::recheck) sees to those who are connected.
    pub fn replace_attributes(&self, attributes: CertificateAttributes) {
        *self.0.attributes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(attributes);
    }

    pub(crate) fn attributes(&self) -> Arc<CertificateAttributes> {
        Arc::clone(&self.0.attributes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whose chain this is, which a client has proved to be its own.
    pub(crate) fn identify(&self, chain: &[CertificateDer<'_>]) -> Result<Certified, NoUser> {
        let (own, others) = chain.split_first().ok_or(NoUser::None)?;
        let read = Certificate::from_der(own).map_err(|_| NoUser::Unreadable)?;
        let subjects = self.subjects(own, others)?;
        if subjects.iter().map(Subject::bytes).sum::<usize>() > SUBJECTS_MAX {
            return Err(NoUser::Long);
        }
        let mut names = self.names(&read)?.into_iter();
        let (Some(name), None) = (names.next(), names.next()) else { return Err(NoUser::NotOne) };
        if name.len() > NAME_MAX || !is_name(&name) {
            return Err(NoUser::Name);
        }
        let expires = read.tbs_certificate().validity().not_after.to_unix_duration();
        let expires = UnixTime::since_unix_epoch(expires);
        Ok(Certified { user: name, expires, subjects })
    }

    /// The subjects of the chain that proves it, from its own to that of the authority. Whoever connects may have sent other
    /// certificates too.
    fn subjects(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<Vec<Subject>, NoUser> {
        let own = EndEntityCert::try_from(own).map_err(|_| NoUser::Unreadable)?;
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let (usage, now) = (KeyUsage::client_auth(), UnixTime::now());
        let path = own
            .verify_for_usage(algorithms.all, &self.0.roots, others, now, usage, None, None)
            .map_err(|_| NoUser::Unproved)?;
        let between = path.intermediate_certificates().map(|one| one.subject());
        let all = std::iter::once(own.subject()).chain(between);
        let all = all.chain([path.anchor().subject.as_ref()]);
        all.map(|der| subject(der).ok_or(NoUser::Unreadable)).collect()
    }

    fn names(&self, certificate: &Certificate) -> Result<Vec<String>, NoUser> {
        let certificate = certificate.tbs_certificate();
        if self.0.name == CertificateName::CommonName {
            let names = certificate.subject().iter().filter(|pair| pair.oid == CN);
            let names = names.map(|pair| text(pair.value.tag(), pair.value.value()));
            return names.collect::<Option<_>>().ok_or(NoUser::Name);
        }
        let found = certificate.get_extension::<SubjectAltName>();
        let Some((_, SubjectAltName(names))) = found.map_err(|_| NoUser::Unreadable)? else {
            return Ok(Vec::new());
        };
        let name = |name: GeneralName| match (name, self.0.name) {
            (GeneralName::DnsName(name), CertificateName::Dns)
            | (GeneralName::Rfc822Name(name), CertificateName::Email) => Some(name.to_string()),
            _ => None,
        };
        Ok(names.into_iter().filter_map(name).collect())
    }
}

impl fmt::Debug for CertificateUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateUsers").field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// A subject out of what is in the sequence that it is. A value that is no text is left out together with its type, so that
/// it is no table's.
fn subject(der: &[u8]) -> Option<Subject> {
    let mut reader = SliceReader::new(der).ok()?;
    let mut pairs: Vec<(String, String)> = Vec::new();
    while !reader.is_finished() {
        let level = RelativeDistinguishedName::decode(&mut reader).ok()?;
        for pair in level.iter() {
            let value = text(pair.value.tag(), pair.value.value());
            pairs.push((type_name(&pair.oid), value.unwrap_or_default()));
        }
    }
    Some(Subject::new(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))))
}

/// What tools print for a type.
fn type_name(oid: &ObjectIdentifier) -> String {
    if *oid == EMAIL_ADDRESS {
        return "emailAddress".into();
    }
    let names = DB.find_names_for_oid(*oid).min_by_key(|name| name.len());
    names.map_or_else(|| oid.to_string(), Into::into)
}

/// The text of a value, in one of the encodings that certificates have today.
fn text(tag: Tag, value: &[u8]) -> Option<String> {
    let is_text = matches!(tag, Tag::Utf8String | Tag::PrintableString | Tag::Ia5String);
    if is_text { String::from_utf8(value.into()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_names_that_tools_print() {
        for (oid, name) in [
            ("2.5.4.3", "CN"),
            ("2.5.4.11", "OU"),
            ("2.5.4.10", "O"),
            ("2.5.4.6", "C"),
            ("2.5.4.8", "ST"),
            ("2.5.4.7", "L"),
            ("0.9.2342.19200300.100.1.25", "DC"),
            ("0.9.2342.19200300.100.1.1", "UID"),
            ("1.2.840.113549.1.9.1", "emailAddress"),
            ("1.2.3.4", "1.2.3.4"),
        ] {
            let found = type_name(&ObjectIdentifier::new(oid).unwrap());
            // In any case: that is how they are compared.
            assert!(found.eq_ignore_ascii_case(name), "{oid}: {found}");
        }
    }

    #[test]
    fn no_bytes_make_a_subject_panic() {
        for len in 0..4_usize {
            for number in 0..(1_u32 << (8 * len.min(2))) {
                let bytes: Vec<u8> = number.to_be_bytes().iter().rev().take(len).copied().collect();
                let _ = subject(&bytes);
            }
        }
    }
}
