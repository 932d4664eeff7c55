//! Remedies for failed TLS handshakes.

use std::io;

use statestore_tokio::diagnostics::SUPPORTED_KEYS;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible,
};

/// Returns the remedy if the cause of a failed handshake is a usual one.
pub(crate) fn remedy(error: &io::Error) -> Option<&'static str> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::NoCertificatesPresented => "give the client a certificate of a client CA",
        Error::InvalidCertificate(error) => of_certificate(error)?,
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the client does not speak TLS: let it connect with TLS, or to a listener without TLS"
        }
        // A CA that was created again has the same name and another key. Then rustls sends
        // `DecryptError`.
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "let the client trust the CA of the server certificate"
        }
        // Some clients send these for an unknown CA, and others for a wrong host name.
        Error::AlertReceived(
            AlertDescription::BadCertificate | AlertDescription::CertificateUnknown,
        ) => {
            "check that the host name is in the server certificate, and that the client trusts its \
             CA"
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "renew the server certificate, unless the clock of the client is wrong"
        }
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => "let the client use TLS 1.2 or 1.3",
        Error::PeerIncompatible(_) => {
            "the client and this server have no cipher suite or key exchange in common: update the \
             TLS library of the client"
        }
        _ => return None,
    })
}

fn of_certificate(error: &CertificateError) -> Option<&'static str> {
    use CertificateError as Certificate;
    Some(match error {
        Certificate::UnknownIssuer | Certificate::BadSignature => {
            "add the CA of the client certificate to the client CAs, or give the client another \
             certificate"
        }
        Certificate::Expired | Certificate::ExpiredContext { .. } => {
            "renew the client certificate, unless the clock of this machine is wrong"
        }
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "the client certificate is not valid yet: check the clock of this machine"
        }
        Certificate::UnsupportedSignatureAlgorithmContext { .. }
        | Certificate::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => SUPPORTED_KEYS,
        Certificate::Revoked => "the client certificate was revoked: give the client another one",
        Certificate::Other(OtherError(error))
            if error.downcast_ref() == Some(&webpki::Error::UnsupportedCertVersion) =>
        {
            "the client certificate is of X.509 version 1: create it with extensions, with openssl \
             by `openssl x509 -req -extfile FILE`"
        }
        Certificate::Other(OtherError(error))
            if error.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity) =>
        {
            "the client certificate is a CA certificate: create one with basicConstraints=CA:FALSE"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_matches_the_cause() {
        for (error, part) in [
            (Error::AlertReceived(AlertDescription::UnknownCA), "trust the CA"),
            (Error::AlertReceived(AlertDescription::DecryptError), "trust the CA"),
            (Error::InvalidCertificate(CertificateError::BadSignature), "client CAs"),
            (Error::AlertReceived(AlertDescription::BadCertificate), "host name"),
            (Error::AlertReceived(AlertDescription::CertificateUnknown), "host name"),
            (Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled), "TLS 1.2 or 1.3"),
            (Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon), "cipher suite"),
            (Error::PeerIncompatible(PeerIncompatible::NoKxGroupsInCommon), "key exchange"),
        ] {
            let text = error.to_string();
            let found = remedy(&io::Error::new(io::ErrorKind::InvalidData, error));
            assert!(found.is_some_and(|found| found.contains(part)), "{text}: {found:?}");
        }
        let unknown = Error::AlertReceived(AlertDescription::AccessDenied);
        assert_eq!(remedy(&io::Error::new(io::ErrorKind::InvalidData, unknown)), None);
        assert_eq!(remedy(&io::ErrorKind::UnexpectedEof.into()), None);
    }
}
