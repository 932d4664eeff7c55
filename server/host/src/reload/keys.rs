//! The file with the keys of the token issuer.

use std::path::PathBuf;

use super::Reload;
use super::report::{FileKind, Summary};
use crate::files::LoadError;
use crate::files::ReloadFile;
use crate::login::service_accounts::{ServiceAccountKeys, ServiceAccounts};

/// Maximum length of a key set in bytes.
const KEYS_FILE_MAX: u64 = 1 << 20;

/// A file with the keys that verify tokens of service accounts, as a JSON Web Key Set.
#[derive(Debug)]
pub struct ServiceAccountKeysFile {
    file: ReloadFile,
    accounts: ServiceAccounts,
}

impl ServiceAccountKeysFile {
    /// Reads a key set of at most 1 MiB, for tokens of this issuer and these audiences; see
    /// [`ServiceAccounts::new`]. Blocks.
    ///
    /// # Errors
    /// [`LoadError`] if the file cannot be read or is invalid.
    pub fn load<A: Into<String>>(
        path: impl Into<PathBuf>,
        issuer: &str,
        audiences: impl IntoIterator<Item = A>,
    ) -> Result<Self, LoadError> {
        let file = ReloadFile::new(path, KEYS_FILE_MAX);
        let accounts = ServiceAccounts::new(parse(&file)?, issuer, audiences);
        Ok(Self { file, accounts })
    }

    /// Returns the accounts, for [`Options::service_accounts`](crate::Options::service_accounts).
    #[must_use]
    pub const fn accounts(&self) -> &ServiceAccounts {
        &self.accounts
    }
}

fn parse(file: &ReloadFile) -> Result<ServiceAccountKeys, LoadError> {
    let text = file.read_text().map_err(|error| LoadError::new(file, error))?;
    ServiceAccountKeys::parse(&text).map_err(|error| LoadError::new(file, error))
}

impl Reload for ServiceAccountKeysFile {
    fn kind(&self) -> FileKind {
        FileKind::ServiceAccountKeys
    }

    fn files(&self) -> Vec<&ReloadFile> {
        vec![&self.file]
    }

    fn reload(&self) -> Result<Summary, LoadError> {
        let keys = parse(&self.file)?;
        let summary = Summary::ServiceAccountKeys { keys: keys.len() };
        self.accounts.replace_keys(keys);
        Ok(summary)
    }
}
