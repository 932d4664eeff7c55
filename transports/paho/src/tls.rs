//! TLS with OpenSSL.

use paho_mqtt::{Error, SslOptions, SslOptionsBuilder, SslVersion};
use statestore_tokio::Tls;

/// Converts TLS settings for Paho. OpenSSL reads the certificates and keys for each connection, and
/// reports an invalid file then. The password of the key is read here.
///
/// # Errors
/// If a path is not UTF-8 or contains a NUL character, or if the password file cannot be read.
pub fn tls_config(tls: &Tls) -> Result<SslOptions, Error> {
    let mut builder = SslOptionsBuilder::new();
    builder.enable_server_cert_auth(true).verify(true).ssl_version(SslVersion::Default);
    if let Some(file) = &tls.ca_file {
        builder.trust_store(file)?.disable_default_trust_store(true);
    }
    if let Some((chain, key)) = &tls.identity {
        builder.key_store(chain)?.private_key(key)?;
        if let Some(password) = tls.read_key_password()? {
            builder.private_key_password(password);
        }
    }
    Ok(builder.finalize())
}
