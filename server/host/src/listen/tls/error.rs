//! Errors and warnings about TLS files.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;
use statestore_tokio::PemError;
use statestore_tokio::diagnostics::SUPPORTED_KEYS;
use tokio_rustls::rustls;
use tokio_rustls::rustls::server::VerifierBuilderError;

/// Error in the certificates and keys of a TLS configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate chain is not PEM, or contains no certificate.
    #[error("no usable certificate chain: {0}")]
    Chain(#[source] PemError),
    /// The certificate file contains a private key and no certificate.
    #[error(
        "this is a private key, not a certificate; are the certificate file and the key file \
         swapped?"
    )]
    ChainIsKey,
    /// The key is not PEM, or contains no key.
    #[error("no usable key: {0}")]
    Key(#[source] PemError),
    /// The key file contains a certificate and no private key.
    #[error(
        "this is a certificate, not a private key; are the certificate file and the key file \
         swapped?"
    )]
    KeyIsCertificate,
    /// The key is encrypted. Decrypt it first, for example with `openssl pkey -in KEY -out NEW`.
    #[error(
        "the key is encrypted; decrypt it first, for example with `openssl pkey -in KEY -out NEW`"
    )]
    EncryptedKey,
    /// The key does not belong to the first certificate of the chain.
    #[error(
        "the key does not belong to the certificate; the certificate of this broker must be the \
         first in its file, and the key must be the one that it was requested with"
    )]
    KeyMismatch,
    /// The key is damaged, or of a kind that rustls with ring does not support, for example P-521.
    #[error("the key is damaged or of an unsupported kind: {0}; {SUPPORTED_KEYS}")]
    KeyKind(#[source] rustls::Error),
    /// The certificate of this broker has expired, so no client would accept it.
    #[error("the certificate expired on {}; get a new one", format_rfc3339_seconds(*.0))]
    Expired(SystemTime),
    /// The certificate of this broker is not valid yet, so no client would accept it.
    #[error(
        "the certificate is not valid before {}; is the clock of this machine right?",
        format_rfc3339_seconds(*.0)
    )]
    NotYetValid(SystemTime),
    /// The certificate of this broker ends before it begins, so no client would accept it.
    #[error("the certificate ends before it begins: get a new one")]
    InvalidValidityPeriod,
    /// The client CA file is not PEM, or contains no certificate.
    #[error("no usable client CA certificate: {0}")]
    AuthorityPem(#[source] PemError),
    /// A client CA certificate is unusable.
    #[error("unusable client CA certificate: {0}")]
    Authority(#[source] rustls::Error),
    /// A file of revocation lists is not PEM, or contains no list.
    #[error("no usable certificate revocation list (PEM, `X509 CRL`): {error}")]
    RevocationListPem {
        /// Position of the file, from zero.
        file: usize,
        /// Error of the PEM parser.
        error: PemError,
    },
    /// A revocation list is malformed, or is of an unsupported kind: a delta list or an indirect
    /// list.
    #[error("unusable certificate revocation list: {error}")]
    RevocationList {
        /// Position of the file, from zero.
        file: usize,
        /// Error of the parser.
        error: VerifierBuilderError,
    },
    /// A revocation list names a client CA as its issuer, but the key of this CA has not signed it.
    #[error(
        "a certificate revocation list is not signed by the client CA that it names as its issuer"
    )]
    RevocationListSignature {
        /// Position of the file, from zero.
        file: usize,
    },
    /// Two revocation lists have the same issuer, and only one of them would apply.
    #[error("two certificate revocation lists have the same issuer: leave only the newest")]
    RevocationListTwice {
        /// Position of the file with the second list, from zero.
        file: usize,
    },
    /// A reload would accept certificates that are revoked: the revocation list of a client CA is
    /// missing, or older than the list in force. A restart accepts it.
    #[error(
        "a certificate revocation list in force is missing or newer than this one, so revoked \
         certificates might be accepted; install the newest list of each CA (a restart accepts this \
         file, and then these certificates)"
    )]
    RevocationListWithdrawn,
    /// There are revocation lists, but no client CA whose certificates they could revoke.
    #[error("a certificate revocation list needs a client CA")]
    RevocationWithoutAuthority,
    /// A certificate or the key is unusable.
    #[error("no usable TLS configuration: {0}")]
    Rustls(#[from] rustls::Error),
    /// The client CAs cannot verify a client certificate.
    #[error("unusable client CAs: {0}")]
    Authorities(#[from] VerifierBuilderError),
}

/// The file that a [`TlsError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsPart {
    Chain,
    Key,
    ClientCa,
    RevocationList(usize),
}

impl TlsError {
    pub(super) const fn part(&self) -> TlsPart {
        match self {
            Self::Chain(_)
            | Self::ChainIsKey
            | Self::Expired(_)
            | Self::NotYetValid(_)
            | Self::InvalidValidityPeriod
            | Self::Rustls(_) => TlsPart::Chain,
            Self::Key(_)
            | Self::KeyIsCertificate
            | Self::EncryptedKey
            | Self::KeyKind(_)
            | Self::KeyMismatch => TlsPart::Key,
            Self::AuthorityPem(_) | Self::Authority(_) | Self::Authorities(_) => TlsPart::ClientCa,
            Self::RevocationWithoutAuthority | Self::RevocationListWithdrawn => {
                TlsPart::RevocationList(0)
            }
            Self::RevocationListPem { file, .. }
            | Self::RevocationList { file, .. }
            | Self::RevocationListSignature { file }
            | Self::RevocationListTwice { file } => TlsPart::RevocationList(*file),
        }
    }
}

/// A TLS configuration that is usable, but probably not as intended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsWarning {
    /// The certificate of this broker is a CA certificate, as `openssl req -x509` makes it. Many
    /// clients reject it, with rustls as `CaUsedAsEndEntity`.
    CaAsServerCertificate,
    /// The certificate of this broker lacks a subject alternative name, so clients cannot match it
    /// to the host name.
    NoHostName,
    /// Every user of this machine can read the private key.
    KeyReadableByAll(PathBuf),
    /// A revocation list should have been replaced by this time. It is still applied, unless the
    /// policy is [`RevocationPolicy::Required`](super::RevocationPolicy::Required).
    RevocationListExpired(SystemTime),
    /// There are revocation lists, but none of this many client CAs.
    NoRevocationList(usize),
}

impl fmt::Display for TlsWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CaAsServerCertificate => f.write_str(
                "the server certificate is a CA certificate, as `openssl req -x509` makes it; \
                 many clients reject it (CaUsedAsEndEntity): sign a server certificate with that \
                 CA, or add `-addext basicConstraints=critical,CA:FALSE`",
            ),
            Self::NoHostName => f.write_str(
                "the server certificate lacks a subject alternative name; clients reject it: add \
                 `subjectAltName=DNS:NAME` or `IP:ADDRESS`",
            ),
            Self::KeyReadableByAll(path) => {
                let path = path.display();
                write!(f, "every user of this machine can read the private key {path}; `chmod o-r`")
            }
            Self::RevocationListExpired(time) => {
                let time = format_rfc3339_seconds(*time);
                write!(f, "a certificate revocation list expired on {time}; get a new one")
            }
            Self::NoRevocationList(count) => write!(
                f,
                "{count} of the client CAs have no list in the files of revocation lists, so their \
                 certificates cannot be revoked"
            ),
        }
    }
}
