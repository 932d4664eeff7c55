//! Errors of a [`World`](crate::World).

use statestore_proto::client::ConfigError;

/// The reason why a client cannot be added to a world.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration of the client is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another client or the store has this client id.
    #[error("the client id is taken")]
    Taken,
}
