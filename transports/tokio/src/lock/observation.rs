//! Who holds a lock, as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use statestore_proto::client::WatchEvent;
use statestore_proto::lock::{Holder, Observed};

use crate::observation::Observation;

/// A stream of who holds a lock or leads an election, without the renewals. It begins with the holder of now, or that
/// there is none; at a gap of the [`Observation`] underneath, as after a lost connection, it says [`Observed::Unknown`]
/// until it is known again. It ends as that does.
pub struct LockObservation {
    observation: Observation,
    holder: Option<Holder>,
    live: bool,
    told: Option<Observed>,
}

impl LockObservation {
    pub(crate) const fn new(observation: Observation) -> Self {
        Self { observation, holder: None, live: false, told: None }
    }

    /// What is known next; `None` when it is over. Cancel safe.
    pub async fn next(&mut self) -> Option<Observed> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Observed>> {
        loop {
            let Some(event) = ready!(self.observation.poll(context)) else {
                return Poll::Ready(None);
            };
            match event {
                WatchEvent::Changed { value, version } => {
                    self.holder = value.map(|value| Holder::new(value, version));
                }
                WatchEvent::Live => self.live = true,
                WatchEvent::Gap | WatchEvent::Ended(_) => self.live = false,
            }
            let seen = match &self.holder {
                // It is not over before it has begun: the first holder is told when it is known to be current.
                _ if !self.live && self.told.is_none() => continue,
                _ if !self.live => Observed::Unknown,
                Some(holder) => Observed::Held(holder.clone()),
                None => Observed::Free,
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
fn is_same(told: &Observed, seen: &Observed) -> bool {
    match (told, seen) {
        (Observed::Held(told), Observed::Held(seen)) => told.value() == seen.value(),
        _ => told == seen,
    }
}

impl Stream for LockObservation {
    type Item = Observed;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Observed>> {
        self.get_mut().poll(context)
    }
}

impl fmt::Debug for LockObservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockObservation").field("told", &self.told).finish_non_exhaustive()
    }
}
