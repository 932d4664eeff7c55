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
/// State that is not durable is lost then: registrations, and keys of a store in memory. Watches
/// and locks of the handle react to that automatically. Use this stream in an application that
/// must write its own keys again.
///
/// A store sends its [incarnation](Incarnation) with its responses and notifications. So only a
/// handle that sends requests or watches a key detects a replacement. A watch renews its
/// registration [every 30 seconds](statestore_proto::client::ClientConfig::renew_watches), so it
/// detects a replacement within that time. Deployed stores have no incarnation, so their
/// replacement is not detected.
#[derive(Clone, Debug)]
pub struct Replacements(watch::Receiver<Option<Incarnation>>);

impl Replacements {
    /// Waits for the next replacement; `None` at the end of the handle. If several replacements
    /// were not polled, returns only the last one. Cancel safe.
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
    ///     // Its renewals detect a replacement, even if nothing else is requested.
    ///     let _watch = store.watch("services/heating").await?;
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
