//! TLS out of PEM files.

use std::path::Path;

use paho_mqtt::{Error, SslOptions, SslOptionsBuilder, SslVersion};

/// A configuration that trusts the certificates in the file `authorities` and nobody else, with a certificate chain and
/// key of this client where the broker asks for one. All are PEM files, which OpenSSL reads when it connects; that they
/// cannot be used is known then.
///
/// # Errors
/// When a path is not UTF-8 or has a NUL.
pub fn tls_config(
    authorities: impl AsRef<Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<SslOptions, Error> {
    let mut builder = SslOptionsBuilder::new();
    builder
        .trust_store(authorities)?
        .disable_default_trust_store(true)
        .enable_server_cert_auth(true)
        .verify(true)
        .ssl_version(SslVersion::Default);
    if let Some((chain, key)) = identity {
        builder.key_store(chain)?.private_key(key)?;
    }
    Ok(builder.finalize())
}
