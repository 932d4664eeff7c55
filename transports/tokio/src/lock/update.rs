//! Read, change, write, under a lock.

use bytes::Bytes;
use statestore_proto::client::{IntoBytes, Removal, VersionedValue};
use statestore_proto::hlc::Version;

use super::{LeasedLock, LockError, LockGuard};
use crate::error::Error;

/// What to make of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Update {
    /// It gets this value.
    Set(Bytes),
    /// It is removed, and its protection by tokens with it.
    Delete,
    /// It stays as it is.
    Keep,
}

impl std::fmt::Debug for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Set(value) => write!(f, "Set(<{} bytes>)", value.len()),
            Self::Delete => f.write_str("Delete"),
            Self::Keep => f.write_str("Keep"),
        }
    }
}

/// How often a key is read again because somebody changed it after it was read. Late writes of earlier holders are few;
/// only somebody who writes without the lock can go on for ever.
const ROUNDS_MAX: usize = 8;

/// How far one round of an edit came.
enum Round {
    /// It is done; the version of what was set, if anything was.
    Done(Option<Version>),
    /// The key is not as it was read.
    Changed,
}

impl LeasedLock {
    /// Takes the lock, reads a key, writes what `change` makes of it, and gives the lock back. The version of what was
    /// set, if anything was.
    ///
    /// Of all that change the key so under the same lock, each sees what the one before has made of it. That holds for a
    /// late write too, of a holder that lost the lock after sending it: one that arrives before this edit claims the key
    /// is seen, and `change` is asked again with what was read then; one that arrives later is refused. The claim is what
    /// makes the difference: a value is set once more as it was read, on the condition that it is still the same, which
    /// raises the token that protects the key. So an edit of a key that has a value costs a round trip and a notification
    /// more than a write; one that sets an absent key or deletes costs none, since there the write itself has the
    /// condition. An expiry of the key ends with the claim, as with any write that sets none.
    ///
    /// What remains: a deletion takes the protection of the key with it, so a late write is not refused after one, and a
    /// late deletion that arrives between the read and the claim is overwritten unseen.
    ///
    /// ```
    /// # use statestore_loopback::Hub;
    /// # use statestore_tokio::{StateStore, StoreService};
    /// use statestore_tokio::Update;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let broker = Hub::new();
    /// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
    /// # service.connected().await?;
    /// # let store = StateStore::builder().spawn(broker.link("thermostat-7"))?;
    /// store.lock("locks/log").edit("log", |found| {
    ///     let mut log = found.map(|found| found.value.to_vec()).unwrap_or_default();
    ///     log.extend(b"boiler on\n");
    ///     Update::Set(log.into())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError`]. With [`Error::LockLost`] in it the lock was lost in between, and the value is as it was; so it is
    /// with [`LockError::Contested`], when others kept changing the key without the lock.
    pub async fn edit(
        &self,
        key: impl IntoBytes,
        mut change: impl FnMut(Option<VersionedValue>) -> Update,
    ) -> Result<Option<Version>, LockError> {
        let key = key.into_bytes();
        let guard = self.acquire().await?;
        let mut edited = Err(LockError::Contested);
        for _ in 0..ROUNDS_MAX {
            let found = self.store.get(key.clone()).await?;
            let before = found.as_ref().map(|found| found.value.clone());
            if let Round::Done(set) = write(&guard, &key, before, change(found)).await? {
                edited = Ok(set);
                break;
            }
        }
        // It is done; if the lock cannot be given back, its lease ends it.
        let _ = guard.release().await;
        edited
    }
}

/// Writes if the key is still as it was read.
async fn write(
    guard: &LockGuard,
    key: &Bytes,
    before: Option<Bytes>,
    edit: Update,
) -> Result<Round, Error> {
    let key = key.clone();
    Ok(match (before, edit) {
        (_, Update::Keep) | (None, Update::Delete) => Round::Done(None),
        (None, Update::Set(value)) => match guard.set(key, value).if_absent().await? {
            Some(version) => Round::Done(Some(version)),
            None => Round::Changed,
        },
        (Some(before), Update::Set(value)) => {
            match guard.set(key.clone(), before).if_absent_or_equal().await? {
                Some(_) => Round::Done(Some(guard.set(key, value).await?)),
                None => Round::Changed,
            }
        }
        (Some(before), Update::Delete) => match guard.vdel(key, before).await? {
            Removal::Removed | Removal::Absent => Round::Done(None),
            Removal::Different => Round::Changed,
        },
    })
}
