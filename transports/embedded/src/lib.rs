//! x
mod access;
mod broker;
mod convert;
mod inlet;
mod link;
mod options;
mod outgoing;
mod session;
mod tls;
mod users;

use statestore_tokio::StoreService;

pub use broker::{BindError, Broker};
pub use convert::Message;
pub use link::EmbeddedLink;
pub use options::Options;
pub use tls::{TlsError, tls_config};
pub use users::{Users, UsersError};

/// A broker with a store in it, with default limits. Both run on this runtime.
///
/// # Errors
/// [`BindError`] when it cannot listen.
pub async fn serve(options: Options) -> Result<(Broker, StoreService), BindError> {
    let broker = Broker::bind(options).await?;
    let service = StoreService::builder().spawn(broker.store_link());
    Ok((broker, service))
}
