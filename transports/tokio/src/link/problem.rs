//! Problems of TLS: what is wrong with a certificate, and whether the port speaks TLS.

use std::error::Error;
use std::fmt;
use std::io;
#[cfg(feature = "tls")]
use std::time::{Duration, UNIX_EPOCH};

#[cfg(feature = "tls")]
use rustls::{AlertDescription as Alert, CertificateError, OtherError, pki_types::UnixTime};
use statestore_mqtt::Malformed;

use super::error::{LinkError, LinkErrorKind as Kind};
use crate::diagnostics::SUPPORTED_KEYS;

/// First byte of a TLS alert, with which a TLS port responds to a CONNECT.
const ALERT: u8 = 0x15;

/// Problem of a connection that remains until the operator acts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsProblem {
    /// The broker speaks MQTT without TLS on this port.
    PlainPort,
    /// The broker speaks TLS on this port.
    TlsPort,
    /// The broker closed the connection during the TLS handshake: probably it speaks MQTT without
    /// TLS on this port.
    HandshakeClosed,
    /// This client does not trust the issuer of the broker's certificate.
    UnknownCa,
    /// The broker presents the certificate of a CA as its own.
    CaAsServer,
    /// The broker's certificate is of X.509 version 1.
    X509Version1,
    /// The broker's certificate is for other names than the host.
    NameMismatch(String),
    /// The broker's certificate has expired, or is not valid yet; with dates.
    OutsideValidity(String),
    /// The broker's certificate is invalid for another reason.
    InvalidCertificate(String),
    /// The broker requires a client certificate, and this client does not have one.
    ClientCertificateRequired,
    /// The broker rejected the certificate of this client; with the reason.
    ClientCertificateRejected(String),
    /// The broker and this client do not share a TLS version or cipher.
    Incompatible(String),
}

impl TlsProblem {
    /// Finds an error of TLS, or of a port for TLS, among all sources of an error.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            #[cfg(feature = "tls")]
            if let Some(problem) = error.downcast_ref().and_then(of_rustls) {
                return Some(problem);
            }
            if error.downcast_ref() == Some(&Malformed::First(ALERT)) {
                return Some(Self::TlsPort);
            }
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            // The error inside an I/O error is not its source.
            next = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
        }
        None
    }

    /// Remedy for the operator, with the names of the settings.
    #[must_use]
    pub fn remedy(&self, names: &SettingNames) -> String {
        let SettingNames { broker, tls_ca, tls_cert, tls_key } = names;
        match self {
            Self::PlainPort => format!("set {broker} to mqtt://HOST:PORT, or to the port for TLS"),
            Self::TlsPort => format!("set {broker} to mqtts://HOST:PORT"),
            Self::HandshakeClosed => {
                format!("if this port is for MQTT without TLS, set {broker} to mqtt://HOST:PORT")
            }
            Self::UnknownCa => format!(
                "set {tls_ca} to the certificate of that CA, or to the certificate itself if it is \
                 self-signed"
            ),
            Self::CaAsServer => {
                "give the broker a certificate with basicConstraints=CA:FALSE, for \
                 example one of `statestore certificates DIR`"
                    .to_owned()
            }
            Self::X509Version1 => {
                "create the broker's certificate with extensions, with openssl by \
                 `openssl x509 -req -extfile FILE`"
                    .to_owned()
            }
            Self::NameMismatch(_) => format!(
                "set {broker} to a name in the certificate, or issue a certificate for this name"
            ),
            Self::OutsideValidity(_) => {
                "renew the broker's certificate, unless the clock of this machine is wrong"
                    .to_owned()
            }
            Self::ClientCertificateRequired => format!("set {tls_cert} and {tls_key}"),
            Self::ClientCertificateRejected(_) => format!(
                "set {tls_cert} and {tls_key} to a certificate from a CA that the broker trusts; \
                 the log of the broker may have the reason"
            ),
            Self::InvalidCertificate(_) | Self::Incompatible(_) => {
                format!("check {broker}, {tls_ca}, {tls_cert} and {tls_key}")
            }
        }
    }
}

/// Names of the settings of a connection, in advice.
///
/// ```
/// use statestore_tokio::{SettingNames, TlsProblem};
///
/// let names = SettingNames::default();
/// assert_eq!(
///     TlsProblem::TlsPort.remedy(&names),
///     "set the URL of the broker to mqtts://HOST:PORT"
/// );
/// ```
#[derive(Clone, Debug)]
pub struct SettingNames {
    /// URL of the broker.
    pub broker: String,
    /// Trusted CA certificates.
    pub tls_ca: String,
    /// Certificate chain of the client.
    pub tls_cert: String,
    /// Private key of the client.
    pub tls_key: String,
}

impl Default for SettingNames {
    fn default() -> Self {
        Self {
            broker: "the URL of the broker".to_owned(),
            tls_ca: "the CA file".to_owned(),
            tls_cert: "the certificate of this client".to_owned(),
            tls_key: "its key".to_owned(),
        }
    }
}

impl LinkError {
    /// The problem of TLS behind this error, if it is known.
    #[must_use]
    pub fn tls_problem(&self) -> Option<TlsProblem> {
        let cause = self.get_ref()?;
        let is_closed = || {
            let kind = cause.downcast_ref().map(io::Error::kind);
            self.kind() == Kind::Tls
                && matches!(
                    kind,
                    Some(
                        io::ErrorKind::UnexpectedEof
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::ConnectionAborted
                            | io::ErrorKind::BrokenPipe
                    )
                )
        };
        TlsProblem::of(cause).or_else(|| is_closed().then_some(TlsProblem::HandshakeClosed))
    }

    /// Replaces the text of an attempt to connect that failed because of TLS by one with a remedy.
    #[must_use]
    pub fn explained(self) -> Self {
        match self.tls_problem() {
            Some(problem) => {
                let advice = problem.remedy(&SettingNames::default());
                self.with_diagnosis(Kind::Tls, problem).with_advice(advice)
            }
            None => self,
        }
    }
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PlainPort => f.write_str("the broker speaks MQTT without TLS on this port"),
            Self::TlsPort => f.write_str("the broker speaks TLS on this port"),
            Self::HandshakeClosed => {
                f.write_str("the broker closed the connection during the TLS handshake")
            }
            Self::UnknownCa => {
                f.write_str("the broker's certificate is from a CA that this client does not trust")
            }
            Self::CaAsServer => f.write_str(
                "the broker presents the certificate of a CA (CA:TRUE) as its own, as \
                 `openssl req -x509` creates it",
            ),
            Self::X509Version1 => f.write_str("the broker's certificate is of X.509 version 1"),
            Self::NameMismatch(text) | Self::OutsideValidity(text) => {
                write!(f, "the broker's certificate {text}")
            }
            Self::InvalidCertificate(why) => {
                write!(f, "the broker's certificate is invalid: {why}")
            }
            Self::ClientCertificateRequired => {
                f.write_str("the broker requires a client certificate")
            }
            Self::ClientCertificateRejected(why) => {
                write!(f, "the broker rejected the certificate of this client: {why}")
            }
            Self::Incompatible(why) => {
                write!(
                    f,
                    "the broker and this client do not share a TLS version, a cipher or a kind of \
                     certificate: {why}; for certificates, {SUPPORTED_KEYS}"
                )
            }
        }
    }
}

#[cfg(feature = "tls")]
fn of_rustls(error: &rustls::Error) -> Option<TlsProblem> {
    use rustls::Error as Tls;
    Some(match error {
        Tls::InvalidCertificate(error) => of_certificate(error),
        Tls::AlertReceived(Alert::CertificateRequired) => TlsProblem::ClientCertificateRequired,
        Tls::AlertReceived(Alert::CertificateExpired) => {
            TlsProblem::ClientCertificateRejected("it has expired or is not valid yet".to_owned())
        }
        Tls::AlertReceived(Alert::UnknownCA) => TlsProblem::ClientCertificateRejected(
            "it is from a CA that the broker does not trust".to_owned(),
        ),
        Tls::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::AccessDenied
            | Alert::DecryptError),
        ) => TlsProblem::ClientCertificateRejected(format!("{alert:?}")),
        Tls::AlertReceived(
            alert
            @ (Alert::ProtocolVersion | Alert::InsufficientSecurity | Alert::HandshakeFailure),
        ) => TlsProblem::Incompatible(format!("{alert:?}")),
        Tls::PeerIncompatible(why) => TlsProblem::Incompatible(format!("{why:?}")),
        _ => return None,
    })
}

#[cfg(feature = "tls")]
fn of_certificate(error: &CertificateError) -> TlsProblem {
    match error {
        // A CA that was created again has the same name and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsProblem::UnknownCa,
        CertificateError::Other(OtherError(error))
            if error.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity) =>
        {
            TlsProblem::CaAsServer
        }
        CertificateError::Other(OtherError(error))
            if error.downcast_ref() == Some(&webpki::Error::UnsupportedCertVersion) =>
        {
            TlsProblem::X509Version1
        }
        CertificateError::Expired => TlsProblem::OutsideValidity("has expired".to_owned()),
        CertificateError::NotValidYet => TlsProblem::OutsideValidity("is not valid yet".to_owned()),
        CertificateError::ExpiredContext { time, not_after } => TlsProblem::OutsideValidity(
            format!("expired on {} (the clock of this machine: {})", date(*not_after), date(*time)),
        ),
        CertificateError::NotValidYetContext { time, not_before } => {
            TlsProblem::OutsideValidity(format!(
                "is not valid before {} (the clock of this machine: {})",
                date(*not_before),
                date(*time)
            ))
        }
        CertificateError::NotValidForNameContext { expected, presented }
            if presented.is_empty() =>
        {
            let expected = expected.to_str();
            TlsProblem::NameMismatch(format!(
                "contains no host names: it needs the subject alternative name {expected}"
            ))
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            // As in DnsName("localhost").
            let name = |text: &String| text.split('"').nth(1).unwrap_or(text).to_owned();
            let presented = presented.iter().map(name).collect::<Vec<_>>().join(", ");
            TlsProblem::NameMismatch(format!("is for {presented}, not for {}", expected.to_str()))
        }
        CertificateError::NotValidForName => {
            TlsProblem::NameMismatch("is for other names than the host".to_owned())
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            TlsProblem::InvalidCertificate(format!(
                "it or its CA has a key that is not supported; {SUPPORTED_KEYS}"
            ))
        }
        other => TlsProblem::InvalidCertificate(other.to_string()),
    }
}

#[cfg(feature = "tls")]
fn date(time: UnixTime) -> String {
    let since = Duration::from_secs(time.as_secs());
    UNIX_EPOCH.checked_add(since).map_or_else(
        || "a time out of range".to_owned(),
        |time| humantime::format_rfc3339_seconds(time).to_string(),
    )
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn expiry_is_shown_with_dates() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let problem = of_certificate(&CertificateError::ExpiredContext {
            time: at(1_800_000_000),
            not_after: at(1_600_000_000),
        });
        let text = problem.to_string();
        assert!(text.contains("expired on 2020-09-13T12:26:40Z"), "{text}");
        assert!(text.contains("this machine: 2027-01-15T08:00:00Z"), "{text}");
        let problem = of_certificate(&CertificateError::NotValidYetContext {
            time: at(1_600_000_000),
            not_before: at(1_800_000_000),
        });
        assert!(problem.to_string().contains("not valid before 2027-01-15T08:00:00Z"), "{problem}");
    }

    #[test]
    fn names_of_a_certificate_for_another_host_are_shown() {
        let text = |presented: &[&str]| {
            let expected = ServerName::try_from("localhost").expect("a name");
            let presented = presented.iter().map(|name| format!("DnsName(\"{name}\")")).collect();
            of_certificate(&CertificateError::NotValidForNameContext { expected, presented })
                .to_string()
        };
        assert!(text(&["a", "b"]).ends_with(" is for a, b, not for localhost"));
        assert!(
            text(&[]).ends_with(
                " contains no host names: it needs the subject alternative name localhost"
            )
        );
    }

    #[test]
    fn certificate_of_another_ca_with_the_same_name_is_from_an_unknown_ca() {
        assert_eq!(of_certificate(&CertificateError::BadSignature), TlsProblem::UnknownCa);
    }

    #[test]
    fn ca_certificate_of_a_server_is_recognised() {
        let error = OtherError(Arc::new(webpki::Error::CaUsedAsEndEntity));
        assert_eq!(of_certificate(&CertificateError::Other(error)), TlsProblem::CaAsServer);
        let error = OtherError(Arc::new(webpki::Error::BadDer));
        let other = of_certificate(&CertificateError::Other(error));
        assert!(matches!(other, TlsProblem::InvalidCertificate(_)), "{other}");
    }

    #[test]
    fn failed_handshake_and_tls_port_are_explained() {
        let io = |kind, cause: io::Error| LinkError::io(kind, cause);
        let alert = rustls::Error::AlertReceived(Alert::CertificateRequired);
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let malformed = statestore_mqtt::session::Error::Malformed(Malformed::First(ALERT));
        for (error, problem) in [
            (io(Kind::Lost, io::Error::other(alert)), Some(TlsProblem::ClientCertificateRequired)),
            (io(Kind::Tls, io::Error::other(unknown)), Some(TlsProblem::UnknownCa)),
            (io(Kind::Tls, io::ErrorKind::UnexpectedEof.into()), Some(TlsProblem::HandshakeClosed)),
            (LinkError::from_source(Kind::Protocol, malformed), Some(TlsProblem::TlsPort)),
            (io(Kind::Lost, io::ErrorKind::UnexpectedEof.into()), None),
            (LinkError::transient("no").with_source(io::Error::other("else")), None),
        ] {
            assert_eq!(error.tls_problem(), problem);
            let Some(problem) = problem else { continue };
            let text = format!("{problem}; {}", problem.remedy(&SettingNames::default()));
            let explained = error.explained();
            assert_eq!((explained.kind(), explained.is_transient()), (Kind::Tls, true));
            assert_eq!(explained.to_string(), text);
        }
    }
}
