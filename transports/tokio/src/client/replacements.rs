//! Reports that the store of a handle was replaced.

use statestore_proto::message::Incarnation;
use tokio::sync::watch;

use crate::client::handle::StateStore;

/// The store that has replaced another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReplaced {
    /// The incarnation of the store that responds now, if it has one.
    pub incarnation: Option<Incarnation>,
}

/// Reports each store that replaces the previous one: after a restart, or because another store
/// has taken over.
///
/// Registrations, and all state that is not durable, are lost then. Watches and locks of the handle
/// already react to that; this is for an application that must write its own keys again.
///
/// A store reports its [incarnation](Incarnation) in its responses and notifications, so a handle
/// that sends no request and watches no key notices nothing. Deployed stores have no incarnation:
/// they can be replaced unnoticed.
#[derive(Clone, Debug)]
pub struct Replacements(watch::Receiver<Option<Incarnation>>);

impl Replacements {
    /// Waits for the next replacement; `None` at the end of the handle. Of several replacements
    /// only the last is returned. Cancel safe.
    pub async fn next(&mut self) -> Option<StoreReplaced> {
        self.0.changed().await.ok()?;
        Some(StoreReplaced { incarnation: *self.0.borrow_and_update() })
    }
}

impl StateStore {
    /// Reports each store that replaces the previous one from now on.
    ///
    /// ```
    /// use statestore_tokio::{Error, StateStore};
    ///
    /// async fn announce(store: &StateStore) -> Result<(), Error> {
    ///     let mut replacements = store.replacements();
    ///     loop {
    ///         store.set("services/heating", "http://10.0.0.7").await?;
    ///         // A store in memory has lost the key.
    ///         if replacements.next().await.is_none() {
    ///             return Ok(());
    ///         }
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn replacements(&self) -> Replacements {
        Replacements(self.incarnations())
    }
}
