//! TLS of listeners: certificates from memory or from files, replaced while the broker runs.

mod client_trust;
mod error;
mod handshake;
mod pem;
mod server_tls;

pub(crate) use client_trust::ClientTrust;
pub use client_trust::RevocationPolicy;
pub use error::{TlsError, TlsWarning};
pub(crate) use handshake::remedy;
pub use pem::TlsPem;
pub(crate) use server_tls::{ClientCertificate, TlsState};

pub use server_tls::{ServerTls, TlsFiles};
