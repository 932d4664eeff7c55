//! Errors of files that are loaded and reloaded.

use std::path::{Path, PathBuf};

use statestore_policy::PolicyError;

use super::file::{ReadError, ReloadFile};

/// A file that could not be loaded. After a failed reload, the previous version stays in force.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct LoadError {
    path: PathBuf,
    #[source]
    kind: LoadErrorKind,
}

/// Reason why a file could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The password file contains no user. It is more likely half written than meant.
    #[cfg(feature = "passwords")]
    #[error("the file contains no user")]
    NoUsers,
    /// The password file is invalid.
    #[cfg(feature = "passwords")]
    #[error(transparent)]
    Users(#[from] crate::UsersError),
    /// The certificates or the key are invalid.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Tls(#[from] crate::TlsError),
    /// The keys of the token issuer are invalid.
    #[cfg(feature = "service-accounts")]
    #[error(transparent)]
    Keys(#[from] crate::KeysError),
    /// The policy or the table of certificate attributes is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The task that reads the file failed.
    #[error("the task that reads it failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl LoadError {
    pub(crate) fn new(file: &ReloadFile, kind: impl Into<LoadErrorKind>) -> Self {
        Self { path: file.path().to_owned(), kind: kind.into() }
    }

    /// The task that reads the files of a setting has failed.
    pub(crate) fn failed(paths: Vec<PathBuf>, error: tokio::task::JoinError) -> Self {
        Self { path: paths.into_iter().next().unwrap_or_default(), kind: error.into() }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the reason.
    #[must_use]
    pub const fn kind(&self) -> &LoadErrorKind {
        &self.kind
    }
}
