//! The holder of a lock, as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_proto::lock::{HolderStatus, HolderTracker};

use crate::client::watch::Watch;

/// A stream of the holders of a lock or the leaders of an election, without the renewals.
///
/// It begins with the current holder, or with the report that the lock is free. At a gap of the
/// underlying [`Watch`], for example after a lost connection, it yields [`HolderStatus::Unknown`]
/// until the holder is known again. It ends when the watch ends.
pub struct HolderWatch {
    watch: Watch,
    tracker: HolderTracker,
    reported: HolderStatus,
    end: Option<WatchEnd>,
}

impl HolderWatch {
    pub(crate) const fn new(watch: Watch) -> Self {
        Self { watch, tracker: HolderTracker::new(), reported: HolderStatus::Unknown, end: None }
    }

    /// Returns the next status; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<HolderStatus> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// The reason for the end, for example that the store refused the registration; `None` before
    /// the end, and if the handle has ended.
    #[must_use]
    pub const fn end(&self) -> Option<&WatchEnd> {
        self.end.as_ref()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<HolderStatus>> {
        loop {
            let Some(event) = ready!(self.watch.poll(context)) else {
                return Poll::Ready(None);
            };
            if let WatchEvent::Ended(end) = &event {
                self.end = Some(end.clone());
            }
            let Some(status) = self.tracker.handle_event(&event) else { continue };
            if !status.is_same_holding(&self.reported) {
                self.reported = status.clone();
                return Poll::Ready(Some(status.clone()));
            }
        }
    }
}

impl Stream for HolderWatch {
    type Item = HolderStatus;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<HolderStatus>> {
        self.get_mut().poll(context)
    }
}

impl fmt::Debug for HolderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderWatch").field("reported", &self.reported).finish_non_exhaustive()
    }
}
