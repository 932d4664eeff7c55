//! Reads certificates and keys from files.

use std::path::Path;

use etcd_client::{Certificate, Identity, TlsOptions};

use crate::error::OptionsError;
use crate::options::Tls;

pub(crate) fn read(tls: &Tls) -> Result<TlsOptions, OptionsError> {
    let mut options =
        TlsOptions::new().ca_certificate(Certificate::from_pem(file(&tls.authorities)?));
    if let Some((certificate, key)) = &tls.identity {
        options = options.identity(Identity::from_pem(file(certificate)?, file(key)?));
    }
    if let Some(name) = &tls.server_name {
        options = options.domain_name(name);
    }
    Ok(options)
}

fn file(path: &Path) -> Result<Vec<u8>, OptionsError> {
    std::fs::read(path).map_err(|error| OptionsError::Tls {
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}
