//! Changes of one key, as a stream.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures_core::Stream;
use statestore_proto::client::{IntoBytes, WatchEvent};
use tokio::sync::oneshot;

use crate::client_task::Op;
use crate::error::Error;
use crate::handle::StateStore;
use crate::watchers::Started;

impl StateStore {
    /// Watches a key: its value now, and every change from then on. A key may be watched more than once.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the key cannot be watched, [`Error::Closed`].
    pub async fn watch(&self, key: impl IntoBytes) -> Result<Watch, Error> {
        let (answer, started) = oneshot::channel();
        self.ask(Op::Watch { key: key.into_bytes(), answer }).await?;
        let started = started.await.map_err(|_| self.closed())?.map_err(Error::Invalid)?;
        Ok(Watch::new(started, self.clone()))
    }
}

/// A stream of what happens to one key.
///
/// It begins with the value of the key, if it has one, and [`WatchEvent::Live`]; from then on it gives every change. A
/// [`WatchEvent::Gap`] says that changes may be missed from here on, after a lost connection, because another store has
/// taken the place of the one before, or because this was not polled for too long; the value follows if it moved, and
/// `Live` closes the gap. A store that does not say which one it is, as the deployed ones, may have been replaced unnoticed:
/// there an absent key has such a gap every 30 seconds, by default; see
/// [`renew_watches`](statestore_proto::client::ClientConfig::renew_watches). The stream ends after
/// [`WatchEvent::Ended`], or when the handle is shut down. Dropping it ends it.
///
/// A key may be watched more than once by one handle. All such watches share one registration with the store, which
/// ends with the last of them; each has a queue of its own, so one that is not polled holds up none of the others. One
/// that joins while the connection is lost begins with the value known last, and a gap.
pub struct Watch {
    started: Started,
    store: StateStore,
}

impl Watch {
    pub(crate) const fn new(started: Started, store: StateStore) -> Self {
        Self { started, store }
    }

    /// What happens next; `None` when it is over. Cancel safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Whether nothing more will come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.started.updates.is_closed() && self.started.updates.is_empty()
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let polled = self.started.updates.poll_recv(context);
        if polled.is_pending() && self.started.lagged.load(Ordering::SeqCst) {
            // All that was not lost has been taken. Where there is no room for this, what takes the room wakes the
            // drive loop just as well.
            let _ = self.store.shared.commands.try_send(Op::CatchUp);
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
        // When there is no room the next change finds nobody and ends the watch.
        let _ = self.store.shared.commands.try_send(Op::Unwatch { id: self.started.id });
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("id", &self.started.id).finish_non_exhaustive()
    }
}
