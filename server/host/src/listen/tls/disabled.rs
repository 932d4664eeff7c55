//! Stand-ins for the types of TLS without the feature `tls`. Their values cannot exist.

/// TLS of a listener.
#[derive(Clone, Debug)]
pub(crate) enum ServerTls {}

/// The certificate of a client.
#[derive(Debug)]
pub(crate) enum ClientCertificate {}

impl ClientCertificate {
    pub(crate) const fn is_trusted(&self) -> bool {
        match *self {}
    }
}
