//! Identifies clients by their certificates.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use statestore_policy::{CertificateAttributes, Subject};
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::{DB, rfc3280::EMAIL_ADDRESS, rfc4519::CN};
use x509_cert::der::{Decode, Reader as _, SliceReader, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::RelativeDistinguishedName;

use crate::listen::tls::ClientTrust;
use crate::login::client_ids::is_name;

/// Maximum length of a name in bytes. Client ids begin with the name, and each connection stores
/// it.
const NAME_MAX: usize = 256;

/// Maximum total length of the subjects of a chain in bytes. Each connection stores them.
const SUBJECTS_MAX: usize = 4 << 10;

/// The field of a certificate that contains the user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateName {
    /// The common name of the subject.
    CommonName,
    /// The DNS name in the subject alternative names.
    Dns,
    /// The e-mail address in the subject alternative names.
    Email,
}

/// Maps client certificates to users and their attributes. Clones share the same mapping.
///
/// A certificate identifies a user only if one of the client CAs of its
/// [listener](crate::ServerTls) has issued it, and if it contains the configured name exactly once.
/// The name must be a valid user name: at most 256 bytes, no leading or trailing blanks, no control
/// characters, and none of `: / + #`. So a URI is not a valid name.
///
/// ```
/// use statestore_server::{CertificateName, CertificateUsers, Listener, Options, ServerTls};
/// use statestore_server::TlsFiles;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let run = || -> Result<(), Box<dyn std::error::Error>> {
/// let files = TlsFiles::new("broker.pem", "broker.key").client_ca("clients-ca.pem");
/// let listener = Listener::new(([0, 0, 0, 0], 8883)).tls(ServerTls::load(files)?);
/// let users = CertificateUsers::new(CertificateName::CommonName);
/// let options = Options::new(listener).certificate_users(users);
/// # Ok(()) }; assert!(run().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CertificateUsers(Arc<Inner>);

struct Inner {
    name: CertificateName,
    attributes: RwLock<Arc<CertificateAttributes>>,
}

/// The user that a certificate chain identifies.
#[derive(Debug)]
pub(crate) struct CertifiedUser {
    pub(crate) user: String,
    /// Expiry of the certificate, since the Unix epoch.
    pub(crate) expires: Duration,
    /// Subjects from the client certificate to the CA.
    pub(crate) subjects: Vec<Subject>,
}

/// Reason why a certificate identifies no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateRejection {
    #[error("the client sent no certificate")]
    None,
    #[error("it was not issued by a configured CA, or is not valid now")]
    Unproved,
    #[error("it cannot be parsed")]
    Unreadable,
    #[error("it contains the user name not exactly once")]
    NotOne,
    #[error(
        "its name is not a valid user name: it must be one line of at most {NAME_MAX} bytes \
         without any of : / + #"
    )]
    Name,
    #[error("the subjects of its chain have more than {SUBJECTS_MAX} bytes")]
    Long,
}

impl CertificateUsers {
    /// Creates a mapping by this name, without attributes.
    #[must_use]
    pub fn new(name: CertificateName) -> Self {
        Self(Arc::new(Inner { name, attributes: RwLock::default() }))
    }

    /// Replaces the attributes of certificates. By default the attributes are empty.
    /// [`Broker::recheck`](crate::Broker::recheck) applies the change to existing sessions.
    pub fn replace_attributes(&self, attributes: CertificateAttributes) {
        *self.0.attributes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(attributes);
    }

    pub(crate) fn attributes(&self) -> Arc<CertificateAttributes> {
        Arc::clone(&self.0.attributes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Identifies the user of a certificate chain. The TLS handshake has proved that the client has
    /// the private key.
    pub(crate) fn identify(
        &self,
        trust: &ClientTrust,
        chain: &[CertificateDer<'_>],
    ) -> Result<CertifiedUser, CertificateRejection> {
        let (own, others) = chain.split_first().ok_or(CertificateRejection::None)?;
        let read = Certificate::from_der(own).map_err(|_| CertificateRejection::Unreadable)?;
        let subjects = subjects(trust, own, others)?;
        if subjects.iter().map(Subject::bytes).sum::<usize>() > SUBJECTS_MAX {
            return Err(CertificateRejection::Long);
        }
        let mut names = self.names(&read)?.into_iter();
        let (Some(name), None) = (names.next(), names.next()) else {
            return Err(CertificateRejection::NotOne);
        };
        if name.len() > NAME_MAX || !is_name(&name) {
            return Err(CertificateRejection::Name);
        }
        let expires = read.tbs_certificate().validity().not_after.to_unix_duration();
        Ok(CertifiedUser { user: name, expires, subjects })
    }

    fn names(&self, certificate: &Certificate) -> Result<Vec<String>, CertificateRejection> {
        let certificate = certificate.tbs_certificate();
        if self.0.name == CertificateName::CommonName {
            let names = certificate.subject().iter().filter(|pair| pair.oid == CN);
            let names = names.map(|pair| text(pair.value.tag(), pair.value.value()));
            return names.collect::<Option<_>>().ok_or(CertificateRejection::Name);
        }
        let found = certificate.get_extension::<SubjectAltName>();
        let Some((_, SubjectAltName(names))) =
            found.map_err(|_| CertificateRejection::Unreadable)?
        else {
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

/// Returns the subjects of the path that verifies the certificate, from the client certificate to
/// the CA. The client may have sent other certificates too.
fn subjects(
    trust: &ClientTrust,
    own: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
) -> Result<Vec<Subject>, CertificateRejection> {
    let own = EndEntityCert::try_from(own).map_err(|_| CertificateRejection::Unreadable)?;
    let subjects = trust.with_path(&own, others, |path| {
        let between = path.intermediate_certificates().map(|certificate| certificate.subject());
        let all = std::iter::once(own.subject()).chain(between);
        let all = all.chain([path.anchor().subject.as_ref()]);
        all.map(|der| subject(der).ok_or(CertificateRejection::Unreadable)).collect()
    });
    subjects.map_err(|_| CertificateRejection::Unproved)?
}

/// Parses the contents of the SEQUENCE of a subject. A value that is not text becomes the empty
/// text, so that no table entry matches it.
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

/// Returns the short name of an attribute type, as OpenSSL prints it.
fn type_name(oid: &ObjectIdentifier) -> String {
    if *oid == EMAIL_ADDRESS {
        return "emailAddress".into();
    }
    let names = DB.find_names_for_oid(*oid).min_by_key(|name| name.len());
    names.map_or_else(|| oid.to_string(), Into::into)
}

/// Returns the text of a value in one of the encodings that current certificates use.
fn text(tag: Tag, value: &[u8]) -> Option<String> {
    let is_text = matches!(tag, Tag::Utf8String | Tag::PrintableString | Tag::Ia5String);
    if is_text { String::from_utf8(value.into()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_types_have_openssl_short_names() {
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
            // Attribute types are compared without case.
            assert!(found.eq_ignore_ascii_case(name), "{oid}: {found}");
        }
    }

    #[test]
    fn subject_parser_never_panics() {
        for len in 0..4_usize {
            for number in 0..(1_u32 << (8 * len.min(2))) {
                let bytes: Vec<u8> = number.to_be_bytes().iter().rev().take(len).copied().collect();
                let _ = subject(&bytes);
            }
        }
    }
}
