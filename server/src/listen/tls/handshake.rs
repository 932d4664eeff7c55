//! Remedies for failed TLS handshakes.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

/// Returns the remedy if the cause of a failed handshake is a usual one.
pub(crate) fn remedy(error: &io::Error) -> Option<&'static str> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::NoCertificatesPresented => "give the client a certificate of a client CA",
        Error::InvalidCertificate(error) => of_certificate(error)?,
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the client does not speak TLS: let it connect with TLS, or to a listener without TLS"
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown,
        ) => "let the client trust the CA of the server certificate",
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "renew the server certificate, unless the clock of the client is wrong"
        }
        Error::PeerIncompatible(_) => "let the client use TLS 1.2 or 1.3",
        _ => return None,
    })
}

fn of_certificate(error: &CertificateError) -> Option<&'static str> {
    use CertificateError as Certificate;
    Some(match error {
        Certificate::UnknownIssuer => {
            "add the CA of the client certificate to the client CAs, or give the client another \
             certificate"
        }
        Certificate::Expired | Certificate::ExpiredContext { .. } => {
            "renew the client certificate, unless the clock of this machine is wrong"
        }
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "the client certificate is not valid yet: check the clock of this machine"
        }
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
