//! State and errors of a server.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use statestore_sqlite::OpenError;
use statestore_tokio::StoreClosed;

use crate::broker::BindError;
use crate::config::ConfigError;
use crate::files::LoadError;
use crate::http::ExportError;

/// State of the task that runs the store.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Starting,
    Ready,
    Ended(Option<Arc<ServerError>>),
}

/// Error of a [`Server`](crate::Server).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file of the configuration is invalid.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The broker cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Metrics cannot be served.
    #[error("metrics-listen: {0}")]
    Http(#[from] ExportError),
    /// The file of the capture cannot be created.
    #[error("{}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The data directory cannot be opened.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// The durable keys cannot be loaded.
    #[error("{0}")]
    Load(StoreClosed),
    /// A write could not be made durable. Responses that were sent are durable.
    #[error("{0}")]
    NotDurable(StoreClosed),
    /// The connection to the external broker has ended for good. The flag is set if the store had
    /// been connected before.
    #[error("{0}")]
    Disconnected(StoreClosed, bool),
    /// This store can be neither leader nor standby.
    #[error("{0}")]
    Cluster(String),
}

impl ServerError {
    /// Returns whether an address is in use, or not available or resolved yet. Another start may
    /// succeed without a change of the configuration.
    #[must_use]
    pub fn is_address_unavailable(&self) -> bool {
        let is_unavailable = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
        };
        match self {
            Self::Bind(BindError::InUse(_) | BindError::Resolve { .. }) => true,
            Self::Bind(BindError::Address { source, .. }) => is_unavailable(source),
            Self::Http(error) => is_unavailable(error.cause()) || is_unresolved(error.cause()),
            _ => false,
        }
    }
}

/// Returns whether the lookup of a name failed. An address without a host or a port is invalid, and
/// all other errors have a code of the operating system.
fn is_unresolved(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::InvalidInput && error.raw_os_error().is_none()
}
