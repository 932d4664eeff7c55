//! Outcomes of packets that a library returns as futures.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::backpressure::Backpressure;
use super::connector::Ticket;

/// First interval of [`Completions::schedule_check`].
const CHECK_MIN: Duration = Duration::from_millis(1);
/// Last interval.
const CHECK_MAX: Duration = Duration::from_secs(1);

/// Packets that a library has taken and whose outcomes it returns as futures.
///
/// Bounded: [`try_admit`](Self::try_admit) returns false while the futures of as many packets as
/// the capacity are pending. A waker of a future only locks a mutex of its own, so a library may
/// call it under its locks.
///
/// The owner is woken for the outcome of a SUBSCRIBE, and checks for those of publishes at
/// intervals: most PUBACKs arrive just before the response, which wakes the owner anyway.
pub struct Completions<F> {
    backpressure: Backpressure,
    pending: BTreeMap<u64, (Ticket, F)>,
    last: u64,
    /// Number of pending outcomes that matter.
    mattering: usize,
    check_interval: Duration,
    /// Time of the next check, once it was asked for.
    check_at: Option<Instant>,
    shared: Arc<Shared>,
}

/// Numbers of the futures whose wakers were called.
struct Shared {
    state: Mutex<State>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    woken: Vec<u64>,
    /// How many futures must be woken before the owner is, unless an outcome is urgent.
    wakes_at: Option<usize>,
}

/// Waker of one future.
struct Waking {
    shared: Arc<Shared>,
    number: u64,
    /// Set if the owner is woken at once.
    is_urgent: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        let mut state = self.shared.state();
        state.woken.push(self.number);
        let wakes =
            self.is_urgent || state.wakes_at.is_some_and(|count| state.woken.len() >= count);
        drop(state);
        if wakes {
            (self.shared.wake)();
        }
    }
}

impl<F: Future + Unpin> Completions<F> {
    /// At most `capacity` futures are pending. `wake` is called when [`take`](Self::take) has the
    /// outcome of a SUBSCRIBE or UNSUBSCRIBE, or [`take_drained`](Self::take_drained) can report.
    pub fn new(capacity: usize, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Box::new(wake) });
        Self {
            backpressure: Backpressure::new(capacity),
            pending: BTreeMap::new(),
            last: 0,
            mattering: 0,
            check_interval: CHECK_MIN,
            check_at: None,
            shared,
        }
    }

    /// Returns whether another packet may be sent. If not, its sender waits until
    /// [`take_drained`](Self::take_drained) reports that there is capacity again.
    pub fn try_admit(&mut self) -> bool {
        let is_admitted = self.backpressure.try_admit(self.pending.len());
        if !is_admitted {
            self.wake_when_drained();
        }
        is_admitted
    }

    /// Adds the future of a sent packet. Returns its outcome if it is ready.
    pub fn push(&mut self, ticket: Ticket, future: F) -> Option<(Ticket, F::Output)> {
        self.last += 1;
        self.restart_checks();
        self.poll(self.last, ticket, future)
    }

    /// Returns the outcomes that are ready, in order of arrival.
    pub fn take(&mut self) -> Vec<(Ticket, F::Output)> {
        let woken = mem::take(&mut self.shared.state().woken);
        let mut ready = Vec::with_capacity(woken.len());
        for number in woken {
            let Some((ticket, mut future)) = self.pending.remove(&number) else { continue };
            self.mattering -= usize::from(ticket.matters());
            self.restart_checks();
            match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => ready.push((ticket, outcome)),
                Poll::Pending => ready.extend(self.poll(number, ticket, future)),
            }
        }
        ready
    }

    /// Returns whether a refused sender may offer its packet again; returned once. Half of the
    /// capacity is free then, so that the sender is woken once for many packets.
    pub fn take_drained(&mut self) -> bool {
        if self.backpressure.is_starved() {
            self.wake_when_drained();
        }
        self.backpressure.take_drained(self.pending.len())
    }

    /// Requests a wake-up for the next outcome, whatever it is. Returns false if none is pending.
    pub fn wake_at_next(&mut self) -> bool {
        let mut state = self.shared.state();
        state.wakes_at = Some(1);
        let is_due = !state.woken.is_empty();
        drop(state);
        if is_due {
            (self.shared.wake)();
        }
        !self.pending.is_empty()
    }

    /// Schedules the next check, unless one is scheduled. Returns how long the owner may sleep
    /// before it calls [`take`](Self::take) again, or `None` if no outcome that matters is pending.
    /// The interval doubles from a millisecond to a second while nothing is sent or settled, so an
    /// outcome is late by at most the time since then, and by at most a second.
    pub fn schedule_check(&mut self) -> Option<Duration> {
        if self.mattering == 0 {
            return None;
        }
        let now = Instant::now();
        match self.check_at {
            Some(at) if at > now => return Some(at - now),
            Some(_) => self.check_interval = (self.check_interval * 2).min(CHECK_MAX),
            None => {}
        }
        self.check_at = Some(now + self.check_interval);
        Some(self.check_interval)
    }

    fn restart_checks(&mut self) {
        (self.check_interval, self.check_at) = (CHECK_MIN, None);
    }

    /// Removes and returns the pending futures.
    pub fn take_pending(&mut self) -> impl Iterator<Item = F> + use<F> {
        self.mattering = 0;
        mem::take(&mut self.pending).into_values().map(|(_, future)| future)
    }

    fn poll(&mut self, number: u64, ticket: Ticket, mut future: F) -> Option<(Ticket, F::Output)> {
        let shared = Arc::clone(&self.shared);
        let is_urgent = ticket.matters() && !matches!(ticket, Ticket::Publish(_));
        let waker = Arc::new(Waking { shared, number, is_urgent }).into();
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some((ticket, outcome)),
            Poll::Pending => {
                self.mattering += usize::from(ticket.matters());
                self.pending.insert(number, (ticket, future));
                None
            }
        }
    }

    /// Requests a wake-up for the time when half of the capacity is free.
    fn wake_when_drained(&self) {
        let excess = self.backpressure.excess(self.pending.len());
        let mut state = self.shared.state();
        state.wakes_at = Some(excess).filter(|excess| *excess > 0);
        let is_due = excess > 0 && state.woken.len() >= excess;
        drop(state);
        if is_due {
            (self.shared.wake)();
        }
    }
}

impl<F> fmt::Debug for Completions<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.pending.len();
        f.debug_struct("Completions").field("pending", &pending).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use statestore_proto::transport::PublishToken;
    use tokio::sync::oneshot::{self, Receiver, Sender};

    use super::*;

    const REPLY: Ticket = Ticket::Publish(None);
    const PUBLISH: Ticket = Ticket::Publish(Some(PublishToken::from_raw(1)));

    struct Sent {
        completions: Completions<Receiver<u8>>,
        wakes: Arc<AtomicUsize>,
    }

    impl Sent {
        fn new(capacity: usize) -> Self {
            let wakes = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&wakes);
            let wake = move || _ = count.fetch_add(1, Ordering::Relaxed);
            Self { completions: Completions::new(capacity, wake), wakes }
        }

        fn push(&mut self, ticket: Ticket) -> Sender<u8> {
            let (sender, receiver) = oneshot::channel();
            assert!(self.completions.push(ticket, receiver).is_none());
            sender
        }

        fn wakes(&self) -> usize {
            self.wakes.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn outcomes_are_returned_in_order_of_arrival_with_their_tickets() {
        let mut sent = Sent::new(4);
        let senders = [REPLY, PUBLISH, Ticket::Subscribe(None)].map(|ticket| sent.push(ticket));
        for (sender, outcome) in senders.into_iter().zip(0..3).rev() {
            sender.send(outcome).expect("the future is pending");
        }
        let taken = sent.completions.take();
        let expected = [(Ticket::Subscribe(None), Ok(2)), (PUBLISH, Ok(1)), (REPLY, Ok(0))];
        assert_eq!(taken, expected);
        assert_eq!(sent.completions.take(), []);
    }

    #[test]
    fn ready_outcome_is_returned_at_once() {
        let (sender, receiver) = oneshot::channel();
        sender.send(7).expect("the receiver exists");
        let mut sent = Sent::new(1);
        assert_eq!(sent.completions.push(REPLY, receiver), Some((REPLY, Ok(7))));
        assert!(sent.completions.try_admit());
    }

    #[test]
    fn owner_is_woken_at_once_for_a_suback_only() {
        let mut sent = Sent::new(8);
        let publish = sent.push(PUBLISH);
        publish.send(0).expect("the future is pending");
        let reply = sent.push(REPLY);
        let subscribe = sent.push(Ticket::Subscribe(None));
        reply.send(0).expect("the future is pending");
        assert_eq!(sent.wakes(), 0);
        subscribe.send(0).expect("the future is pending");
        assert_eq!(sent.wakes(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn interval_of_checks_doubles_until_a_packet_is_sent_or_settled() {
        let mut sent = Sent::new(8);
        let reply = sent.push(REPLY);
        assert_eq!(sent.completions.schedule_check(), None);
        let first = sent.push(PUBLISH);
        let second = sent.push(PUBLISH);
        for millis in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000] {
            let interval = Duration::from_millis(millis);
            // Asking again does not change the time of the check.
            assert_eq!([(); 2].map(|()| sent.completions.schedule_check()), [Some(interval); 2]);
            tokio::time::advance(interval).await;
        }
        for sender in [reply, first] {
            sender.send(0).expect("the future is pending");
            assert_eq!(sent.completions.take().len(), 1);
            assert_eq!(sent.completions.schedule_check(), Some(CHECK_MIN));
        }
        second.send(0).expect("the future is pending");
        assert_eq!(sent.completions.take().len(), 1);
        assert_eq!(sent.completions.schedule_check(), None);
    }

    #[test]
    fn full_capacity_reports_once_when_half_of_it_is_free() {
        let mut sent = Sent::new(4);
        let mut senders: Vec<_> = (0..4).map(|_| sent.push(REPLY)).collect();
        assert!(!sent.completions.try_admit());
        let mut drained = Vec::new();
        for sender in senders.drain(..) {
            sender.send(0).expect("the future is pending");
            let wakes = sent.wakes();
            if wakes > 0 {
                sent.completions.take();
            }
            drained.push((wakes, sent.completions.take_drained()));
        }
        assert_eq!(drained, [(0, false), (1, true), (0, false), (0, false)]);
        assert!(sent.completions.try_admit());
    }

    #[test]
    fn pending_futures_are_returned() {
        let mut sent = Sent::new(4);
        let sender = sent.push(REPLY);
        let mut pending = sent.completions.take_pending().collect::<Vec<_>>();
        sender.send(3).expect("the future is returned");
        assert_eq!(pending[0].try_recv(), Ok(3));
        assert_eq!(sent.completions.take(), []);
    }
}
