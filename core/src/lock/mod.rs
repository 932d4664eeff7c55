//! Locks and leader election as a state machine, on top of a client's requests and events.
//!
//! A [`Lock`] acquires, renews, waits for and releases one key of the store. It owns no client:
//! [`poll_action`](Lock::poll_action) returns the requests to submit and the key to watch, and the
//! driver passes the results to [`handle_outcome`](Lock::handle_outcome),
//! [`handle_watch`](Lock::handle_watch) and [`handle_incarnation`](Lock::handle_incarnation). The
//! driver, a plain loop or an async handle, decides nothing. [`LockDriver`] is such a driver for
//! programs that have lock and client in one place.
//!
//! The recipe: `SET key holder NEX PX lease` acquires and renews, and `VDEL key holder` releases.
//! The version that the SET received is the [fencing token](crate::hlc::FencingToken) of the
//! writes that the lock protects.
//!
//! ```
//! use core::time::Duration;
//! use statestore_proto::client::{Client, ClientConfig, Request};
//! # use statestore_proto::machine::{Input, Machine as _};
//! use statestore_proto::lock::{LockDriver, Lock, LockConfig, LockEvent};
//! # use statestore_proto::client::Event;
//! # use statestore_proto::message::Refusal;
//! # use statestore_proto::transport::{ReasonCode, Transmit};
//! # use statestore_proto::store::{Store, StoreConfig};
//! use statestore_proto::time::{Instant, Now, UnixTime};
//!
//! let mut client = Client::new(ClientConfig::new("thermostat-7", *b"8 random"))?;
//! # let mut store = Store::new(StoreConfig::new(0));
//! # client.handle(Now::default(), Input::Connected { session_present: false });
//! # let mut network = |client: &mut Client, now| {
//! #     while let Some(transmit) = client.poll_transmit() {
//! #         match transmit {
//! #             Transmit::Subscribe { token, .. } => {
//! #                 client.handle(now, Input::Subscribed(token, ReasonCode::GRANTED_QOS_1))
//! #             }
//! #             Transmit::Publish(request) => {
//! #                 request.with_incoming(|incoming| {
//! #                     store.handle_publish(now, incoming);
//! #                 });
//! #                 while let Some(transmit) = store.poll_transmit() {
//! #                     let Transmit::Publish(reply) = transmit else { continue };
//! #                     reply.with_incoming(|incoming| client.handle(now, Input::Message(incoming)));
//! #                 }
//! #             }
//! #             _ => {}
//! #         }
//! #     }
//! # };
//! let lease = Duration::from_secs(10);
//! let config = LockConfig::new("locks/boiler", "thermostat-7", *b"another8", lease);
//! let mut driver = LockDriver::new(Lock::new(config)?);
//! let now = Now::new(Instant::from_millis(5_000), UnixTime::from_millis(1_696_374_425_000));
//! driver.lock_mut().acquire(now.instant, None)?;
//!
//! // The loop of a driver.
//! driver.drive(now, &mut client);
//! network(&mut client, now); // packets go out, packets come in
//! while let Some(event) = client.poll_event() {
//!     if let Some(event) = driver.handle_event(now, event) {
//!         // the application's
//! #       let _ = event;
//!     }
//! }
//! driver.drive(now, &mut client);
//! assert!(matches!(driver.lock_mut().poll_event(), Some(LockEvent::Acquired { .. })));
//! // Ten seconds from sending, minus a tenth.
//! assert_eq!(driver.lock().held_until(), Some(Instant::from_millis(14_000)));
//!
//! // Update under the lock: read, change, write with the token, release.
//! let token = driver.lock().token(now.instant).ok_or("the lock is lost")?.clone();
//! client.submit(now, Request::set("boiler", "21").fencing_token(token.clone()))?;
//! # network(&mut client, now);
//! # let mut outcomes = std::iter::from_fn(|| client.poll_event());
//! # let outcome = outcomes.find_map(|event| match event {
//! #     Event::Completed { outcome, .. } => Some(outcome),
//! #     _ => None,
//! # });
//! # let outcome = outcome.ok_or("no outcome")?;
//! // ... and with its outcome:
//! match outcome.into_version() {
//!     Err(error) if error.refusal() == Some(Refusal::FencingTokenLower) => {
//!         driver.lock_mut().handle_fenced_out(now.instant, &token);
//!     }
//!     result => assert!(result?.is_some()),
//! }
//! driver.lock_mut().release(now.instant);
//! assert!(!driver.lock().is_held(now.instant));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # How long a lock is held
//!
//! The store counts a lease from the moment when it applies the SET. The lock counts from the call
//! of `poll_action` that returned the SET, which is earlier. So the lock considers its lease over
//! before the store does, if both clocks run at the same rate; wall clocks do not matter, except
//! that the store refuses each SET of a client whose wall clock is more than a minute ahead. The
//! [margin](LockConfig::margin) covers rates that differ: with a lease of 10 s and clocks that
//! differ by 500 ppm it must be at least 5 ms. [`is_held`](Lock::is_held) is never true after that
//! time, however late a reply arrives and however seldom the lock is driven, if the caller passes
//! the current time.
//!
//! # Guarantees and limits of a lease
//!
//! * *Fenced writes are safe.* A key that was written with a fencing token refuses writes with an
//!   older one, so a holder that was suspended cannot overwrite a value of its successor. This
//!   depends on no clock. [`fence`](Lock::fence) adds the newest token to a write. An older token
//!   of the same holding stays valid for a key until a newer one is used on it, so send the fenced
//!   writes of one key one after the other. Report a refused token to
//!   [`handle_fenced_out`](Lock::handle_fenced_out). A key loses its fence when it is deleted or
//!   expires.
//! * *While `is_held` is true, no other lock holds the key.* This requires equal clock rates or a
//!   sufficient margin, that no client deletes or overwrites the key in other ways, and that the
//!   store does not forget it, as a store in memory does when it restarts.
//! * *A holding belongs to one store.* If the store sends its
//!   [incarnation](crate::message::Incarnation), a random id of one run of a store, a lock whose
//!   store was replaced is lost as soon as the client notices
//!   ([`handle_incarnation`](Lock::handle_incarnation)), at the latest with the reply to its next
//!   renewal. Until then another lock may hold the key at the new store, and no fence keeps the
//!   two apart: a store in memory loses its fences, and the tokens of two stores do not compare.
//!   A store that sends no incarnation, such as the deployed ones, renews the lock although
//!   another lock may have held the key in between. There only a store whose keys survive a
//!   restart is safe.
//! * *Side effects elsewhere are not protected.* Between a call of `is_held` and the switching of
//!   a boiler, the process may be suspended for longer than the lease. Only a device that checks
//!   fencing tokens can refuse then.
//!
//! # Waiting
//!
//! A lock whose SET finds another holder watches the key. It tries again when the watch reports
//! that the key is gone, or when it has received no notification for the
//! [longest lease](LockConfig::max_lease): the holder's lease must have run out by then. So a lost
//! notification only costs time. A SET whose reply is lost may have acquired the lock; the next
//! SET has the same value and renews it.
//!
//! # Holding
//!
//! A lock that has been held for a second watches its key until it is released or lost. It is lost
//! as soon as the watch reports that the key was deleted or that another holder has it. Without a
//! watch, a renewal notices only another holder: it sets a deleted key again.
//!
//! # Giving up
//!
//! A lock that is lost, given up or released may have left its value in the store. It removes the
//! value with VDEL, until the store replies or the lease is over. It never uses an abandoned value
//! again, so a late VDEL removes nothing that was acquired later. If the network delivers a SET
//! after all this, that SET holds the lock for at most one lease.
//!
//! # Leader election
//!
//! An election is the same machine. Candidates contend for one key: [`acquire`](Lock::acquire)
//! campaigns and [`release`](Lock::release) resigns. The holder's [name](Holder::name) identifies
//! the leader, and its version is the term. With [`watch_holder`](LockConfig::watch_holder) a lock
//! reports every change, campaigning or not.

mod config;
mod driver;
mod event;
mod holder;
mod transitions;

use alloc::collections::VecDeque;

pub use config::{LockConfig, LockConfigError};
pub use driver::LockDriver;
pub use event::{
    AcquireError, LockAction, LockEvent, LockRequestId, LockState, LossReason, NotAcquired,
};
pub use holder::{Holder, HolderStatus, HolderTracker};

use crate::backoff::Backoff;
use crate::client::{Outcome, SubmitError, WatchEvent, WriteRequest};
use crate::debug;
use crate::hlc::{FencingToken, Version};
use crate::message::Incarnation;
use crate::time::Instant;

/// One contender for one lock. See the [module documentation](self).
#[derive(Clone)]
pub struct Lock {
    config: LockConfig,
    phase: Phase,
    own: OwnValue,
    /// The greatest version that a SET of this lock received. Later versions of the same store must
    /// be greater.
    greatest_version: Option<Version>,
    /// The incarnation of the last known store, if it sends one. While the lock is held, that of
    /// the store where it was acquired.
    store: Option<Option<Incarnation>>,
    pending: Option<Pending>,
    last_ticket: u64,
    next: NextRequest,
    backoff: Backoff,
    watch_state: WatchState,
    holder: HolderTracker,
    events: VecDeque<LockEvent>,
}

/// State of a lock with its data; [`LockState`] lists the transitions. A transition out of waiting
/// or held may leave an [`OwnValue`] in the store, which is then removed.
#[derive(Clone, Debug)]
enum Phase {
    Free,
    Waiting(Attempt),
    Held { since: Instant, until: Instant, token: FencingToken },
    Lost,
    Released,
}

/// An attempt to acquire the lock, with one request or many.
#[derive(Clone, Debug)]
struct Attempt {
    /// The time to give up.
    deadline: Option<Instant>,
    /// Only one request is allowed.
    once: bool,
    /// Another holder was found, and the lock waits for it.
    contended: bool,
    /// A request was answered by another store than the last known one.
    store_changed: bool,
}

/// The value of this lock that the store may contain.
#[derive(Clone, Debug)]
struct OwnValue {
    /// Makes each value unique.
    number: u64,
    /// The time until which the value may be stored; `None` when it is not.
    until: Option<Instant>,
    /// The value was abandoned: it may be removed, but never set again.
    abandoned: bool,
    /// Its removal must be reported as `Released`.
    release_owed: bool,
}

/// The outstanding request.
#[derive(Clone, Copy, Debug)]
struct Pending {
    ticket: LockRequestId,
    kind: Kind,
    sent: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// SET: acquires or renews.
    Set,
    /// VDEL: removes an abandoned value.
    VDel,
}

/// Time of the next request. While a request is outstanding, its outcome sets the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextRequest {
    Never,
    At(Instant),
    /// At once, or after a SET that finds another holder.
    Due,
}

/// State of the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    Off,
    On,
    /// The store refused the watch: the lock relies on time alone.
    Refused,
}

impl Lock {
    /// Creates a lock that is neither held nor wanted.
    ///
    /// # Errors
    /// [`LockConfigError`] if a value of the configuration is invalid.
    pub fn new(config: LockConfig) -> Result<Self, LockConfigError> {
        config.check()?;
        Ok(Self {
            phase: Phase::Free,
            own: OwnValue { number: 1, until: None, abandoned: false, release_owed: false },
            greatest_version: None,
            store: None,
            pending: None,
            last_ticket: 0,
            next: NextRequest::Never,
            backoff: Backoff::new(config.retry_min, config.retry_max, config.seed),
            watch_state: WatchState::Off,
            holder: HolderTracker::new(),
            events: VecDeque::new(),
            config,
        })
    }

    /// Tries once to acquire the lock. Ends in [`LockEvent::Acquired`] or
    /// [`LockEvent::AcquireFailed`].
    ///
    /// # Errors
    /// [`AcquireError`]; the lock is unchanged.
    pub fn try_acquire(&mut self, now: Instant) -> Result<(), AcquireError> {
        self.begin(now, None, true)
    }

    /// Acquires the lock as soon as it is free, or gives up at the deadline. Ends in
    /// [`LockEvent::Acquired`] or [`LockEvent::AcquireFailed`]. A refusal by the store ends it at
    /// once.
    ///
    /// # Errors
    /// [`AcquireError`]; the lock is unchanged.
    pub fn acquire(&mut self, now: Instant, deadline: Option<Instant>) -> Result<(), AcquireError> {
        self.begin(now, deadline, false)
    }

    /// Releases a held lock or stops waiting; `false` if the lock is neither held nor waiting.
    /// Afterwards the lock is not held. A held lock ends in [`LockEvent::Released`], at the latest
    /// after one lease; drive the lock until then.
    pub fn release(&mut self, now: Instant) -> bool {
        self.advance(now);
        match self.phase {
            Phase::Held { .. } => {
                self.own.release_owed = true;
                self.abandon(Phase::Released);
            }
            Phase::Waiting(_) => self.give_up(NotAcquired::Cancelled),
            Phase::Free | Phase::Lost | Phase::Released => return false,
        }
        true
    }

    /// Returns the next action, in order. A lease counts from `now`: read the clock before this
    /// call, and submit the request after it.
    #[must_use]
    pub fn poll_action(&mut self, now: Instant) -> Option<LockAction> {
        self.advance(now);
        if let Some(action) = self.watch_action(now) {
            return Some(action);
        }
        if self.next != NextRequest::Due || self.pending.is_some() {
            return None;
        }
        self.next = NextRequest::Never;
        let until = self.own.until.filter(|_| self.own.abandoned);
        let (kind, request) = match until {
            Some(until) => (Kind::VDel, self.vdel_request(now, until)),
            None if self.is_active() => (Kind::Set, self.set_request(now)),
            None => return None,
        };
        self.last_ticket += 1;
        let ticket = LockRequestId(self.last_ticket);
        self.pending = Some(Pending { ticket, kind, sent: now });
        Some(LockAction::Submit { ticket, request })
    }

    /// Handles the outcome of a submitted request, or the error with which the client rejected it.
    /// A ticket that is not outstanding is ignored.
    pub fn handle_outcome(
        &mut self,
        now: Instant,
        ticket: LockRequestId,
        outcome: Result<Outcome, SubmitError>,
    ) {
        self.advance(now);
        let Some(pending) = self.pending.filter(|pending| pending.ticket == ticket) else { return };
        self.pending = None;
        match pending.kind {
            Kind::Set => self.on_set_reply(now, pending.sent, outcome),
            Kind::VDel => self.on_vdel_reply(now, outcome),
        }
    }

    /// Handles an event of the last requested watch. Without such events, as from a driver that
    /// cannot watch, the lock relies on time alone.
    pub fn handle_watch(&mut self, now: Instant, event: &WatchEvent) {
        self.advance(now);
        if self.watch_state == WatchState::On {
            self.on_watch_event(now, event);
        }
    }

    /// Handles a replaced store, as reported by
    /// [`Event::StoreReplaced`](crate::client::Event::StoreReplaced). A lock that was acquired at
    /// another incarnation is lost. A waiting lock that receives a reply from a different store
    /// than the last known one tries again, since the reply may be from a store that is gone.
    ///
    /// An outcome contains the incarnation too, so a driver may omit this call; the lock then
    /// notices with the reply to its next renewal. The call may come before or after the related
    /// outcomes.
    pub fn handle_incarnation(&mut self, now: Instant, incarnation: Option<Incarnation>) {
        self.advance(now);
        self.observe_incarnation(incarnation);
    }

    /// Handles the refusal of a write that carried `token` as
    /// [`FencingTokenLower`](crate::message::Refusal::FencingTokenLower).
    ///
    /// With the newest token, a newer holder has written: the lock is lost. With an older token, a
    /// newer write of this holder may have arrived first; fence the write again.
    pub fn handle_fenced_out(&mut self, now: Instant, token: &FencingToken) {
        self.advance(now);
        if matches!(&self.phase, Phase::Held { token: newest, .. } if newest == token) {
            self.lose(LossReason::FencedOut);
        }
    }

    /// Runs all timers that are due. Early or repeated calls change nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The time to call [`handle_timeout`](Self::handle_timeout) and poll again; `None` if no timer
    /// is set.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let next = match self.next {
            NextRequest::At(at) => Some(at),
            NextRequest::Due | NextRequest::Never => None,
        };
        let due = [next, self.phase_ends(), self.removal_ends(), self.watch_starts_at()];
        // The last instant means never.
        due.into_iter().flatten().min().filter(|at| *at < Instant::from_millis(u64::MAX))
    }

    /// Returns the next event, in order.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<LockEvent> {
        self.events.pop_front()
    }

    /// Adds the newest fencing token to a write; `None` if the lock is not held.
    ///
    /// For a general [`Request`](crate::client::Request) use [`token`](Self::token) and
    /// [`with_fencing_token`](crate::client::Request::with_fencing_token).
    #[must_use]
    pub fn fence<W: WriteRequest>(&self, now: Instant, write: W) -> Option<W> {
        self.token(now).map(|token| write.with_fencing_token(token.clone()))
    }

    /// The newest fencing token, while the lock is held.
    #[must_use]
    pub fn token(&self, now: Instant) -> Option<&FencingToken> {
        match &self.phase {
            Phase::Held { until, token, .. } if now < *until => Some(token),
            _ => None,
        }
    }

    /// Returns whether the lock is held at `now`, even if the lock was not driven until `now`.
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        self.held_until().is_some_and(|until| now < until)
    }

    /// The time until which the lock is held unless it is renewed.
    #[must_use]
    pub const fn held_until(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Held { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// State of the lock as of the last `now` that was passed to it.
    #[must_use]
    pub const fn state(&self) -> LockState {
        match &self.phase {
            Phase::Free => LockState::Free,
            Phase::Waiting(_) => LockState::Waiting,
            Phase::Held { .. } => LockState::Held,
            Phase::Lost => LockState::Lost,
            Phase::Released => LockState::Released,
        }
    }

    /// The holder of the lock. It is known while the lock watches its key: while it waits for
    /// another holder, after it has been held for a second, and always with
    /// [`watch_holder`](LockConfig::watch_holder).
    #[must_use]
    pub const fn holder(&self) -> &HolderStatus {
        self.holder.status()
    }

    /// Returns whether no request is outstanding and no action is left: the lock can be dropped and
    /// leaves nothing in the store. The watch of [`watch_holder`](LockConfig::watch_holder) does
    /// not count, since it never ends.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let watches = self.watch_state == WatchState::On && !self.config.watch_holder;
        !self.is_active() && !watches && self.pending.is_none() && self.removal_ends().is_none()
    }
}

impl core::fmt::Debug for Lock {
    /// Shows all data that decides the next action, without the values.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lock")
            .field("key", &debug::Key(&self.config.key))
            .field("phase", &self.phase)
            .field("own", &self.own)
            .field("greatest_version", &self.greatest_version)
            .field("store", &self.store)
            .field("pending", &self.pending)
            .field("next", &self.next)
            .field("backoff", &self.backoff)
            .field("watch_state", &self.watch_state)
            .field("holder", &self.holder)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}
