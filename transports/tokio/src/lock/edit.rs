//! Read, change, write, under a lock.

use bytes::Bytes;
use statestore_proto::hlc::Version;

use super::{LeasedLock, LockError};
use crate::call::Found;

/// What to make of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Edit {
    /// It gets this value.
    Set(Bytes),
    /// It is removed, and its protection by tokens with it.
    Delete,
    /// It stays as it is.
    Keep,
}

impl std::fmt::Debug for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Set(value) => write!(f, "Set(<{} bytes>)", value.len()),
            Self::Delete => f.write_str("Delete"),
            Self::Keep => f.write_str("Keep"),
        }
    }
}

impl LeasedLock {
    /// Takes the lock, reads a key, writes what `change` makes of it, and gives the lock back. The version of what was
    /// set, if anything was.
    ///
    /// Of all that change the key so under the same lock, each sees what the one before has made of it. The exception is a
    /// write of a holder that lost the lock after sending it: one that arrives between the read and the write here is
    /// overwritten unseen.
    ///
    /// ```
    /// # use statestore_loopback::Hub;
    /// # use statestore_tokio::{StateStore, StoreService};
    /// use statestore_tokio::Edit;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let broker = Hub::new();
    /// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
    /// # service.connected().await?;
    /// # let store = StateStore::builder("thermostat-7").spawn(broker.link("thermostat-7"))?;
    /// store.lock("locks/log").edit("log", |found| {
    ///     let mut log = found.map(|found| found.value.to_vec()).unwrap_or_default();
    ///     log.extend(b"boiler on\n");
    ///     Edit::Set(log.into())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError`]. With [`Error::LockLost`](crate::Error::LockLost) in it the lock was lost in between, and nothing was
    /// written.
    pub async fn edit(
        &self,
        key: impl Into<Bytes>,
        change: impl FnOnce(Option<Found>) -> Edit,
    ) -> Result<Option<Version>, LockError> {
        let key = key.into();
        let guard = self.acquire().await?;
        let found = self.store.get(key.clone()).await?;
        let set = match change(found) {
            Edit::Set(value) => Some(guard.set(key, value).await?),
            Edit::Delete => {
                guard.del(key).await?;
                None
            }
            Edit::Keep => None,
        };
        // It is done; if the lock cannot be given back, its lease ends it.
        let _ = guard.release().await;
        Ok(set)
    }
}
