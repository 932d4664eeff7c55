//! The file with the attributes of client certificates.

use std::path::PathBuf;

use statestore_policy::CertificateAttributes;

use super::Reload;
use super::report::{FileKind, Summary};
use crate::files::LoadError;
use crate::files::ReloadFile;
use crate::login::certificates::CertificateUsers;

/// Maximum length of a table of attributes in bytes.
const ATTRIBUTES_FILE_MAX: u64 = 2 << 20;

/// A file with the attributes of client certificates.
#[derive(Debug)]
pub struct CertificateAttributesFile {
    file: ReloadFile,
    users: CertificateUsers,
}

impl CertificateAttributesFile {
    /// Reads a table of at most 2 MiB and gives it to `users`. Blocks.
    ///
    /// # Errors
    /// [`LoadError`] if the file cannot be read or is invalid. The attributes stay unchanged.
    pub fn load(path: impl Into<PathBuf>, users: &CertificateUsers) -> Result<Self, LoadError> {
        let file = ReloadFile::new(path, ATTRIBUTES_FILE_MAX);
        let loaded = Self { file, users: users.clone() };
        loaded.reload()?;
        Ok(loaded)
    }
}

impl Reload for CertificateAttributesFile {
    fn kind(&self) -> FileKind {
        FileKind::CertificateAttributes
    }

    fn files(&self) -> Vec<&ReloadFile> {
        vec![&self.file]
    }

    fn reload(&self) -> Result<Summary, LoadError> {
        let text = self.file.read_text().map_err(|error| LoadError::new(&self.file, error))?;
        let attributes = CertificateAttributes::parse(&text)
            .map_err(|error| LoadError::new(&self.file, error))?;
        let summary = Summary::CertificateAttributes { subjects: attributes.len() };
        self.users.replace_attributes(attributes);
        Ok(summary)
    }
}
