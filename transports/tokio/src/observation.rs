//! Changes of one key, as a stream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use statestore_proto::client::{WatchEvent, WatchId};
use tokio::sync::mpsc;

use crate::application::Ask;
use crate::handle::StateStore;

/// A stream of what happens to one key.
///
/// It begins with the value of the key, if it has one, and [`WatchEvent::Live`]; from then on it gives every change. A
/// [`WatchEvent::Gap`] says that changes may be missed from here on, after a lost connection or because this was not
/// polled for too long; the value follows if it moved, and `Live` closes the gap. The stream ends after
/// [`WatchEvent::Ended`], or when the handle is shut down. Dropping it ends the watch.
pub struct Observation {
    id: WatchId,
    updates: mpsc::Receiver<WatchEvent>,
    lagged: Arc<AtomicBool>,
    store: StateStore,
}

impl Observation {
    pub(crate) const fn new(
        id: WatchId,
        updates: mpsc::Receiver<WatchEvent>,
        lagged: Arc<AtomicBool>,
        store: StateStore,
    ) -> Self {
        Self { id, updates, lagged, store }
    }

    /// What happens next; `None` when it is over. Cancel safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let polled = self.updates.poll_recv(context);
        if polled.is_pending() && self.lagged.load(Ordering::Acquire) {
            // All that was not lost has been taken: now there is room for the rest of the story.
            let asked = self.store.shared.commands.try_send(Ask::Refresh { id: self.id });
            match asked {
                Ok(()) => self.lagged.store(false, Ordering::Release),
                Err(_) => context.waker().wake_by_ref(),
            }
        }
        polled
    }
}

impl Stream for Observation {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.get_mut().poll(context)
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        // When there is no room the next change finds nobody and ends the watch.
        let _ = self.store.shared.commands.try_send(Ask::Unobserve { id: self.id });
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").field("id", &self.id).finish_non_exhaustive()
    }
}
