//! TLS with OpenSSL.

use paho_mqtt::{Error, SslOptions, SslOptionsBuilder, SslVersion};
use statestore_tokio::Tls;

/// What Paho needs for a connection that is encrypted like this. OpenSSL reads the files when it connects; that they
/// cannot be used is known then.
///
/// # Errors
/// When a path is not UTF-8 or has a NUL.
pub fn tls_config(tls: &Tls) -> Result<SslOptions, Error> {
    let mut builder = SslOptionsBuilder::new();
    builder.enable_server_cert_auth(true).verify(true).ssl_version(SslVersion::Default);
    if let Some(file) = &tls.ca_file {
        builder.trust_store(file)?.disable_default_trust_store(true);
    }
    if let Some((chain, key)) = &tls.identity {
        builder.key_store(chain)?.private_key(key)?;
    }
    Ok(builder.finalize())
}
