//! Files that are read again while the broker runs: users, certificates, keys, attributes and the
//! policy.

#[cfg(feature = "tls")]
mod attributes;
#[cfg(feature = "service-accounts")]
mod keys;
mod policy;
mod reloader;
mod report;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "passwords")]
mod users;
mod watch;

#[cfg(feature = "tls")]
pub use attributes::CertificateAttributesFile;
#[cfg(feature = "service-accounts")]
pub use keys::ServiceAccountKeysFile;
pub use policy::{PolicyFile, Principals};
pub use reloader::{LastReload, Reloader};
pub use report::{FileKind, PolicyWarning, Reloaded, Report, Summary};
#[cfg(feature = "passwords")]
pub use users::UsersFile;

use crate::files::{LoadError, ReloadFile};

/// A setting that comes from one or several files, and that can be replaced while the broker runs.
pub trait Reload: Send + Sync {
    /// Returns the kind of the setting.
    fn kind(&self) -> FileKind;

    /// Returns all files of the setting.
    fn files(&self) -> Vec<&ReloadFile>;

    /// Reads all files again and checks them, and replaces the setting. Blocks, so the
    /// [`Reloader`] calls it in a separate thread.
    ///
    /// # Errors
    /// [`LoadError`] for the first invalid file. Then nothing has changed.
    fn reload(&self) -> Result<Summary, LoadError>;
}
