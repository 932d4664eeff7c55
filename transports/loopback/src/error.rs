//! Why a call failed.

use statestore_proto::client::{ConfigError, RequestError, SubmitError};

/// Why a call to a [`Session`](crate::Session) or [`World`](crate::World) failed. The session is usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client id cannot be one.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The client id is another's.
    #[error("the client id is taken")]
    Taken,
    /// The request was not accepted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The store refused the request, or did not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A condition did not hold; nothing has changed.
    #[error("not applied")]
    NotApplied,
    /// There is no such client or watch.
    #[error("no such client or watch")]
    Unknown,
}
