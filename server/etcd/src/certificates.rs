//! Reads certificates and keys from files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use etcd_client::{Certificate, Identity, TlsOptions};

use crate::error::OptionsError;
use crate::options::Tls;

/// Largest file, in bytes. The CA certificates of an operating system have a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

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
    read_limited(path).map_err(|error| OptionsError::Tls {
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}

fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let len = File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match u64::try_from(len) {
        Ok(len) if len <= FILE_BYTES_MAX => Ok(bytes),
        _ => {
            let error = format!("the file has more than {FILE_BYTES_MAX} bytes");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_file_is_an_error_that_names_it() {
        let error = file(Path::new("/dev/zero")).expect_err("a file without an end").to_string();
        assert!(error.contains("/dev/zero"), "{error}");
        assert!(error.contains("more than 1048576 bytes"), "{error}");
    }
}
