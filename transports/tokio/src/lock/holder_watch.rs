//! Who holds a lock, as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_proto::lock::{Holder, HolderStatus};

use crate::watch::Watch;

/// A stream of who holds a lock or leads an election, without the renewals. It begins with the holder of now, or that
/// there is none; at a gap of the [`Watch`] underneath, as after a lost connection, it says [`HolderStatus::Unknown`]
/// until it is known again. It ends as that does.
pub struct HolderWatch {
    watch: Watch,
    holder: Option<Holder>,
    live: bool,
    told: Option<HolderStatus>,
    end: Option<WatchEnd>,
}

impl HolderWatch {
    pub(crate) const fn new(watch: Watch) -> Self {
        Self { watch, holder: None, live: false, told: None, end: None }
    }

    /// What is known next; `None` when it is over. Cancel safe.
    pub async fn next(&mut self) -> Option<HolderStatus> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Why it is over, as when the store refused to have the key watched; `None` as long as it goes on, and when the
    /// handle has ended.
    #[must_use]
    pub const fn end(&self) -> Option<&WatchEnd> {
        self.end.as_ref()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<HolderStatus>> {
        loop {
            let Some(event) = ready!(self.watch.poll(context)) else {
                return Poll::Ready(None);
            };
            match event {
                WatchEvent::Changed { value, version } => {
                    self.holder = value.map(|value| Holder::new(value, version));
                }
                WatchEvent::Live => self.live = true,
                WatchEvent::Gap => self.live = false,
                WatchEvent::Ended(end) => {
                    self.live = false;
                    self.end = Some(end);
                }
            }
            let seen = match &self.holder {
                // It is not over before it has begun: the first holder is told when it is known to be current.
                _ if !self.live && self.told.is_none() => continue,
                _ if !self.live => HolderStatus::Unknown,
                Some(holder) => HolderStatus::Held(holder.clone()),
                None => HolderStatus::Free,
            };
            let is_news = !self.told.as_ref().is_some_and(|told| is_same(told, &seen));
            self.told = Some(seen.clone());
            if is_news {
                return Poll::Ready(Some(seen));
            }
        }
    }
}

/// A renewal has another version and is the same holding.
fn is_same(told: &HolderStatus, seen: &HolderStatus) -> bool {
    match (told, seen) {
        (HolderStatus::Held(told), HolderStatus::Held(seen)) => told.value() == seen.value(),
        _ => told == seen,
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
        f.debug_struct("HolderWatch").field("told", &self.told).finish_non_exhaustive()
    }
}
