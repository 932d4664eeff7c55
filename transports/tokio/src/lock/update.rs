//! Read, change and write a key under a lock.

use bytes::Bytes;
use statestore_proto::client::{IntoBytes, Removal, VersionedValue};
use statestore_proto::hlc::Version;

use super::{LeasedLock, LockError, LockGuard};
use crate::client::error::Error;

/// The change of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Update {
    /// Sets this value.
    Set(Bytes),
    /// Removes the key and its fence.
    Delete,
    /// Leaves the key unchanged.
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

/// Maximum number of rounds, each of which reads the key again because it was changed after the
/// previous read. Late writes of previous holders are few. Only a client that writes without the
/// lock can exceed the limit.
const ROUNDS_MAX: usize = 8;

/// Outcome of one round of an edit.
enum Round {
    /// The edit is complete; contains the version of the new value, if any.
    Done(Option<Version>),
    /// The key was changed after it was read.
    Changed,
}

impl LeasedLock {
    /// Acquires the lock, reads a key, writes the change that `change` returns, and releases the
    /// lock. Returns the version of the new value, if any.
    ///
    /// Edits of a key under the same lock are serialized: each sees the result of the previous one.
    /// This includes late writes, which a holder sent before it lost the lock:
    ///
    /// * A late write that arrives before this edit claims the key is detected. The edit reads the
    ///   key again, and calls `change` with the new value.
    /// * A late write that arrives after the claim is refused.
    ///
    /// A claim sets the value that was read once more, on the condition that it is unchanged, with
    /// the token of this lock. This raises the fence of the key. So an edit of a key with a value
    /// costs one more round trip and one more notification than a write. An edit that sets an
    /// absent key, or deletes a key, needs no claim, since the write itself is conditional. The
    /// claim removes an expiry of the key, as any write without an expiry does.
    ///
    /// Two cases are not protected. A deletion removes the fence of the key, so a late write is not
    /// refused afterwards. And a late deletion that arrives between the read and the claim is
    /// overwritten unnoticed.
    ///
    /// ```
    /// # use statestore_loopback::Hub;
    /// # use statestore_tokio::{StateStore, StoreService};
    /// use statestore_tokio::Update;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let broker = Hub::new();
    /// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
    /// # service.wait_connected().await?;
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
    /// To compare the version and set the value, keep the key unless it has the version that was
    /// read before:
    ///
    /// ```
    /// # use statestore_loopback::Hub;
    /// # use statestore_tokio::{StateStore, StoreService};
    /// use statestore_tokio::Update;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let broker = Hub::new();
    /// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
    /// # service.wait_connected().await?;
    /// # let store = StateStore::builder().spawn(broker.link("thermostat-7"))?;
    /// let read = store.set("setpoint", "21").await?;
    /// let set_if_unchanged = async |value: &'static str| {
    ///     let lock = store.lock("locks/setpoint");
    ///     lock.edit("setpoint", |found| match found {
    ///         Some(found) if found.version.as_ref() == Some(&read) => Update::Set(value.into()),
    ///         _ => Update::Keep,
    ///     }).await
    /// };
    /// assert!(set_if_unchanged("22").await?.is_some());
    /// assert!(set_if_unchanged("23").await?.is_none(), "the key has another version");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError`]. After [`LockError::Lost`] and [`LockError::EditContested`], the value is
    /// unchanged by this edit.
    pub async fn edit(
        &self,
        key: impl IntoBytes,
        mut change: impl FnMut(Option<VersionedValue>) -> Update,
    ) -> Result<Option<Version>, LockError> {
        let key = key.into_bytes();
        let guard = self.acquire().await?;
        let mut edited = Err(LockError::EditContested);
        for _ in 0..ROUNDS_MAX {
            let found = self.store.get(key.clone()).await?;
            let before = found.as_ref().map(|found| found.value.clone());
            if let Round::Done(set) = write(&guard, &key, before, change(found)).await? {
                edited = Ok(set);
                break;
            }
        }
        // If the lock cannot be released, its lease runs out.
        let _ = guard.release().await;
        edited
    }
}

/// Writes the change if the key is unchanged since it was read.
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
            Removal::Removed | Removal::NothingRemoved => Round::Done(None),
            Removal::NotApplied => Round::Changed,
        },
    })
}
