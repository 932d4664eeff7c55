//! Changes of one key, as a stream.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures_core::Stream;
use statestore_proto::client::{IntoBytes, WatchEvent};
use statestore_proto::hlc::Version;
use tokio::sync::oneshot;

use crate::client::error::Error;
use crate::client::handle::StateStore;
use crate::client::task::Command;
use crate::client::watchers::WatchReceiver;

impl StateStore {
    /// Watches a key: its current value, and every later change. A key may be watched more than
    /// once.
    ///
    /// The registration at the store follows in the background, and is repeated until it succeeds.
    /// So the watch is silent without a store; [`status`](Self::status) shows whether there
    /// is a connection, and a request whether there is a store. Changes before the first event are
    /// not reported one by one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key cannot be watched; [`Error::Closed`] if the handle has ended.
    pub async fn watch(&self, key: impl IntoBytes) -> Result<Watch, Error> {
        self.watch_since(key, None).await
    }

    /// Watches a key from the change that the application has processed last. Use it if the
    /// application must process the present state of the key at least once, even if it crashes.
    ///
    /// `processed` is the [version](WatchEvent::Changed) of that change if it has set a value. It
    /// is `None` after a deletion, and at the first start. The application stores it after it has
    /// processed the change, and passes it when it starts again:
    ///
    /// * If the key still has this version, no change is reported before
    ///   [`Live`](WatchEvent::Live).
    /// * If it has another version, its value is reported.
    /// * If the key is absent, and `processed` is a version, a change without a value is reported.
    ///
    /// Of several changes since then, only the last is reported. A version is unique in one store.
    /// The exception is a store in memory that restarts after its clock was set back: it may issue
    /// a version again.
    ///
    /// ```
    /// use statestore_tokio::{Error, StateStore, Version, WatchEvent};
    ///
    /// # fn load() -> Option<Version> { None }
    /// # fn process(_: Option<&[u8]>) {}
    /// # fn save(_: Option<&Version>) {}
    /// async fn follow(store: &StateStore) -> Result<(), Error> {
    ///     let mut changes = store.watch_since("setpoint", load()).await?;
    ///     while let Some(event) = changes.next().await {
    ///         if let WatchEvent::Changed { value, version } = event {
    ///             process(value.as_deref());
    ///             // After a crash before this line, the value is reported again.
    ///             save(version.as_ref().filter(|_| value.is_some()));
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub async fn watch_since(
        &self,
        key: impl IntoBytes,
        processed: Option<Version>,
    ) -> Result<Watch, Error> {
        let (answer, started) = oneshot::channel();
        let (key, since) = (key.into_bytes(), processed);
        self.send_command(Command::Watch { key, since, answer }).await?;
        let receiver = started.await.map_err(|_| self.closed())?.map_err(Error::Invalid)?;
        Ok(Watch::new(receiver, self.clone()))
    }
}

/// A stream of the events of one key.
///
/// It begins with the value of the key, if it has one, and [`WatchEvent::Live`]. A stream of
/// [`StateStore::watch_since`] omits a value that the application has processed. From then on it
/// reports every change. A [`WatchEvent::Gap`] reports that changes may be missed from now on.
/// Possible reasons are a lost connection, a replaced store, or that this stream was not polled for
/// too long. After a gap, the stream reports the value if it has changed, and `Live` ends the gap.
///
/// A store without an incarnation, such as the deployed one, may be replaced unnoticed. With such a
/// store, a watch of an absent key reports a gap at each renewal, by default every 30 seconds; see
/// [`renew_watches`](statestore_proto::client::ClientConfig::renew_watches). The stream ends after
/// [`WatchEvent::Ended`], or when the handle is shut down. Dropping the stream ends the watch.
///
/// One handle may watch a key more than once. All such watches share one registration with the
/// store, which ends with the last of them. Each watch has its own queue, so a watch that is not
/// polled does not delay the others. A watch that joins while the connection is lost begins with
/// the last known value, and a gap.
pub struct Watch {
    receiver: WatchReceiver,
    store: StateStore,
}

impl Watch {
    pub(crate) const fn new(receiver: WatchReceiver, store: StateStore) -> Self {
        Self { receiver, store }
    }

    /// Returns the next event; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Returns whether no event follows.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.receiver.updates.is_closed() && self.receiver.updates.is_empty()
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let polled = self.receiver.updates.poll_recv(context);
        if polled.is_pending() && self.receiver.lagged.load(Ordering::SeqCst) {
            // All events that were not lost have been returned. If the command queue is full, the
            // queued commands wake the drive loop, which then does the same.
            let _ = self.store.shared.commands.try_send(Command::CatchUp);
        }
        polled
    }
}

impl Stream for Watch {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.get_mut().poll(context)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // If the command queue is full, the next change ends the watch.
        let _ = self.store.shared.commands.try_send(Command::Unwatch { id: self.receiver.id });
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("id", &self.receiver.id).finish_non_exhaustive()
    }
}
