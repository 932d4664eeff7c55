//! Why there is no connection, where somebody has to act: what a certificate lacks, and who speaks TLS where.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use rumqttc::v5::{ConnectionError, StateError};
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription as Alert, CertificateError};
use statestore_tokio::Address;

use crate::probe;

/// Why there is no connection, where another try is in vain until somebody acts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// The broker speaks MQTT without TLS on this port.
    IsPlain,
    /// The broker speaks TLS on this port.
    IsTls,
    /// The broker's certificate is from an authority that is not trusted here.
    UnknownAuthority,
    /// The broker's certificate is for other names than the host.
    OtherName(String),
    /// The broker's certificate has expired, or is not valid yet; says since or from when.
    NotValidNow(String),
    /// The broker's certificate cannot be used for another reason.
    Certificate(String),
    /// The broker wants a certificate of this client, and got none.
    CertificateWanted,
    /// The broker does not take the certificate of this client; says why.
    CertificateRefused(String),
    /// The broker has no version or cipher of TLS that this client has.
    NothingInCommon(String),
}

impl Trouble {
    /// What the error of a connection with TLS comes from, where that is sure; also of a connection of one's own, which
    /// was made with [`tls_config`](crate::tls_config). It is found however deep below the error it is.
    ///
    /// ```
    /// use std::io;
    /// use statestore_rumqttc::Trouble;
    ///
    /// assert_eq!(Trouble::of(&io::Error::other("the cable")), None);
    /// ```
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        rustls_error(error).and_then(of_rustls)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IsPlain => f.write_str("the broker speaks without TLS on this port"),
            Self::IsTls => f.write_str("the broker speaks TLS on this port"),
            Self::UnknownAuthority => f.write_str(
                "the broker's certificate is from an authority that is not trusted here",
            ),
            Self::OtherName(told) | Self::NotValidNow(told) => {
                write!(f, "the broker's certificate {told}")
            }
            Self::Certificate(why) => write!(f, "the broker's certificate cannot be used: {why}"),
            Self::CertificateWanted => f.write_str("the broker wants a certificate of this client"),
            Self::CertificateRefused(why) => {
                write!(f, "the broker does not take this client's certificate: {why}")
            }
            Self::NothingInCommon(why) => {
                write!(
                    f,
                    "the broker has no version or cipher of TLS in common with this client: {why}"
                )
            }
        }
    }
}

/// What the error of a first try comes from, where that is sure. Where it may be that one side speaks TLS and the other
/// does not, the port is asked.
pub(crate) async fn find(
    error: &ConnectionError,
    at: &Address,
    is_encrypted: bool,
) -> Option<Trouble> {
    let innermost: &(dyn Error + 'static) = match error {
        // This one does not say what its source is.
        ConnectionError::MqttState(StateError::Deserialization(inner)) => inner,
        other => other,
    };
    if let Some(trouble) = Trouble::of(innermost) {
        return Some(trouble);
    }
    match error {
        ConnectionError::Tls(_) | ConnectionError::Io(_) if is_encrypted => {
            probe::speaks_mqtt(at).await.then_some(Trouble::IsPlain)
        }
        ConnectionError::MqttState(_) | ConnectionError::NotConnAck(_) if !is_encrypted => {
            probe::speaks_tls(at).await.then_some(Trouble::IsTls)
        }
        _ => None,
    }
}

/// What TLS itself has to say, however deep below an error.
fn rustls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        // What an I/O error wraps is not its source.
        next = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}

fn of_rustls(error: &rustls::Error) -> Option<Trouble> {
    use rustls::Error as Tls;
    Some(match error {
        Tls::InvalidCertificate(error) => of_certificate(error),
        Tls::AlertReceived(Alert::CertificateRequired) => Trouble::CertificateWanted,
        Tls::AlertReceived(Alert::CertificateExpired) => {
            Trouble::CertificateRefused("it has expired, or is not valid yet".to_owned())
        }
        Tls::AlertReceived(Alert::UnknownCA) => Trouble::CertificateRefused(
            "it is from an authority that the broker does not trust".to_owned(),
        ),
        Tls::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::AccessDenied
            | Alert::DecryptError),
        ) => Trouble::CertificateRefused(format!("{alert:?}")),
        Tls::AlertReceived(alert @ (Alert::ProtocolVersion | Alert::InsufficientSecurity)) => {
            Trouble::NothingInCommon(format!("{alert:?}"))
        }
        Tls::PeerIncompatible(why) => Trouble::NothingInCommon(format!("{why:?}")),
        _ => return None,
    })
}

fn of_certificate(error: &CertificateError) -> Trouble {
    match error {
        CertificateError::UnknownIssuer => Trouble::UnknownAuthority,
        CertificateError::ExpiredContext { time, not_after } => Trouble::NotValidNow(format!(
            "expired on {}, and it is {} here",
            date(*not_after),
            date(*time)
        )),
        CertificateError::NotValidYetContext { time, not_before } => Trouble::NotValidNow(format!(
            "is valid from {} on, and it is {} here",
            date(*not_before),
            date(*time)
        )),
        CertificateError::NotValidForNameContext { expected, presented } => {
            // As in DnsName("localhost").
            let name = |told: &String| told.split('"').nth(1).unwrap_or(told).to_owned();
            let presented = presented.iter().map(name).collect::<Vec<_>>().join(", ");
            Trouble::OtherName(format!("is for {presented}, and not for {}", expected.to_str()))
        }
        CertificateError::NotValidForName => {
            Trouble::OtherName("is for another name than that of the host".to_owned())
        }
        other => Trouble::Certificate(other.to_string()),
    }
}

fn date(time: UnixTime) -> String {
    let since = Duration::from_secs(time.as_secs());
    UNIX_EPOCH.checked_add(since).map_or_else(
        || "a time beyond counting".to_owned(),
        |time| humantime::format_rfc3339_seconds(time).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_for_people() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let trouble = of_certificate(&CertificateError::ExpiredContext {
            time: at(1_800_000_000),
            not_after: at(1_600_000_000),
        });
        let text = trouble.to_string();
        assert!(text.contains("expired on 2020-09-13T12:26:40Z"), "{text}");
        assert!(text.contains("it is 2027-01-15T08:00:00Z here"), "{text}");
        let trouble = of_certificate(&CertificateError::NotValidYetContext {
            time: at(1_600_000_000),
            not_before: at(1_800_000_000),
        });
        assert!(trouble.to_string().contains("valid from 2027-01-15T08:00:00Z on"), "{trouble}");
    }

    #[test]
    fn what_an_io_error_wraps_is_found() {
        let alert = rustls::Error::AlertReceived(Alert::CertificateRequired);
        let error = ConnectionError::Io(io::Error::other(alert));
        let found = rustls_error(&error).and_then(of_rustls);
        assert_eq!(found, Some(Trouble::CertificateWanted));
        let none = ConnectionError::Io(io::Error::other("else"));
        assert_eq!(rustls_error(&none), None);
    }
}
