//! The files of a TLS configuration.

use super::Reload;
use super::report::{FileKind, Summary};
use crate::files::LoadError;
use crate::files::ReloadFile;
use crate::listen::tls::ServerTls;

impl Reload for ServerTls {
    fn kind(&self) -> FileKind {
        FileKind::Tls
    }

    fn files(&self) -> Vec<&ReloadFile> {
        Self::files(self)
    }

    fn reload(&self) -> Result<Summary, LoadError> {
        Self::reload(self)?;
        Ok(Summary::Tls { not_after: self.not_after(), warnings: self.warnings() })
    }
}
