//! Locks and leader election as a state machine, on top of a client's requests and events.
//!
//! A [`Lock`] takes, renews, waits for and gives back one key of the store. It owns no client: it says what to submit and
//! what to watch ([`poll_action`](Lock::poll_action)), and is told what became of it
//! ([`handle_outcome`](Lock::handle_outcome), [`handle_watch`](Lock::handle_watch),
//! [`handle_incarnation`](Lock::handle_incarnation)). Whoever drives it, a plain loop or
//! an async handle, passes on and nothing else; [`BoundLock`] does so for those who have lock and client in one place.
//!
//! The recipe: `SET key holder NEX PX lease` takes and renews, `VDEL key holder` gives back, and the version that the
//! SET got is the [fencing token](crate::hlc::FencingToken) of guarded writes.
//!
//! ```
//! use core::time::Duration;
//! use statestore_proto::client::{Client, ClientConfig, Request};
//! use statestore_proto::lock::{BoundLock, Lock, LockConfig, LockEvent};
//! # use statestore_proto::mqtt::{Incoming, ReasonCode, Transmit};
//! # use statestore_proto::store::{Principal, Store, StoreConfig};
//! use statestore_proto::time::{Instant, Now, UnixTime};
//!
//! let mut client = Client::new(ClientConfig::new("thermostat-7", *b"8 random")?);
//! # let mut store = Store::new(StoreConfig::new(0));
//! # client.handle_connected(Now::default(), false);
//! # let mut network = |client: &mut Client, now| while let Some(transmit) = client.poll_transmit() {
//! #     match transmit {
//! #         Transmit::Subscribe { token, .. } => client.handle_subscribed(now, token, ReasonCode::GRANTED_QOS_1),
//! #         Transmit::Publish(request) => {
//! #             let mut incoming = Incoming::new(&request.topic, &request.payload);
//! #             incoming.response_topic = request.response_topic.as_deref();
//! #             incoming.correlation_data = request.correlation_data.as_ref().map(|data| data.as_bytes());
//! #             let texts: Vec<_> = request.user_properties().map(|(name, value)| (name, value.to_string())).collect();
//! #             texts.iter().for_each(|(name, value)| incoming.user_property(name, value));
//! #             store.handle_publish(now, Principal::verified("thermostat-7"), &incoming);
//! #             while let Some(transmit) = store.poll_transmit() {
//! #                 let Transmit::Publish(reply) = transmit else { continue };
//! #                 let mut incoming = Incoming::new(&reply.topic, &reply.payload);
//! #                 incoming.correlation_data = reply.correlation_data.as_ref().map(|data| data.as_bytes());
//! #                 let texts: Vec<_> = reply.user_properties().map(|(name, value)| (name, value.to_string())).collect();
//! #                 texts.iter().for_each(|(name, value)| incoming.user_property(name, value));
//! #                 client.handle_publish(now, &incoming);
//! #             }
//! #         }
//! #         _ => {}
//! #     }
//! # };
//! let config = LockConfig::new("locks/boiler", "thermostat-7", *b"another8", Duration::from_secs(10));
//! let mut bound = BoundLock::new(Lock::new(config));
//! let now = Now::new(Instant::from_millis(5_000), UnixTime::from_millis(1_696_374_425_000));
//! bound.lock_mut().acquire(now.instant, None)?;
//!
//! // The loop of a driver.
//! bound.drive(now, &mut client);
//! network(&mut client, now); // packets go out, packets come in
//! while let Some(event) = client.poll_event() {
//!     if let Some(event) = bound.handle_event(now, event) {
//!         // the application's
//! #       let _ = event;
//!     }
//! }
//! bound.drive(now, &mut client);
//! assert!(matches!(bound.lock_mut().poll_event(), Some(LockEvent::Acquired { .. })));
//! assert_eq!(bound.lock().held_until(), Some(Instant::from_millis(14_000))); // ten seconds from sending, a tenth less
//!
//! // Update under the lock: read, change, write with the token, release.
//! let write = Request::set("boiler", "21");
//! client.submit(now, bound.lock().guard(now.instant, write).ok_or("lost meanwhile")?)?;
//! bound.lock_mut().release(now.instant);
//! assert!(!bound.lock().is_held(now.instant));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # How long a lock is held
//!
//! The store counts a lease from the moment when it applies the SET. That is after the SET was sent, and it cannot have
//! been sent before `poll_action` gave it out. So counted from there, lease for lease, the holder's lease is over before
//! the store's is, provided that both clocks run at the same rate; wall clocks do not matter. The
//! [margin](LockConfig::margin) pays for rates that differ: with a lease of 10 s and clocks that differ by 500 ppm it must
//! be 5 ms at least. [`is_held`](Lock::is_held) is never true later than that, however late an answer comes and however
//! seldom the lock is driven, as long as it is asked with the present time.
//!
//! # What a lease promises, and what not
//!
//! * *Guarded writes are safe.* A key that was written with a token refuses writes with an older one, so a holder that
//!   was asleep cannot overwrite what its successor has written. That depends on no clock. Writes go through
//!   [`guard`](Lock::guard), which takes the newest token; older tokens of the same holding stay good for a key until a
//!   newer one was used on it, so send guarded writes of one key one after the other. A guarded write that is refused for
//!   its token is reported to [`handle_fenced_out`](Lock::handle_fenced_out). The token of a key goes when the key is
//!   deleted or expires.
//! * *Nobody else holds the lock while `is_held` is true*, under equal clock rates and the margin, and as long as nobody
//!   deletes or overwrites its key by other means and the store does not forget it, as one in memory does that starts
//!   again.
//! * *A holding belongs to one store.* Where the store says its [incarnation](crate::message::Incarnation), a lock whose
//!   store was replaced is lost as soon as the client hears of it ([`handle_incarnation`](Lock::handle_incarnation)), and
//!   by the answer to its next renewal at the latest. Until then another may hold it at the new store, and no fence
//!   keeps the two apart: those of a store in memory are gone with it, and the tokens of two stores do not compare. A
//!   store that does not say which one it is, as the deployed ones, renews the lock without a word though another may
//!   have held it in between; there only a store that keeps its locks over a restart is safe.
//! * *Side effects elsewhere are not protected.* Between asking `is_held` and switching the boiler on, the process may
//!   sleep for longer than the lease. Only something that checks tokens can refuse then.
//!
//! # Waiting
//!
//! A lock that meets another holder watches the key, and tries again when it is told that the key is gone, and in any
//! case when it has heard nothing for the [longest lease](LockConfig::longest_lease): the holder's must have run out by
//! then. A lost notification costs time and nothing else. A try whose answer is lost may have taken the lock; the next
//! try has the same value and renews it.
//!
//! # Giving up
//!
//! What may have been taken by a lock that is lost, given up or released is removed with VDEL, tried until the store
//! answers or the lease is over. A value that was given up is never used again, so that a VDEL that arrives late removes
//! nothing that was acquired later. A SET that the network delivers after all this holds the lock for one lease at most.
//!
//! # Leader election
//!
//! An election is this machine: candidates contend for one key, [`acquire`](Lock::acquire) campaigns,
//! [`release`](Lock::release) resigns, the holder's [name](Holder::name) says who leads, and its version is the term. With
//! [`watch_holder`](LockConfig::watch_holder) a lock tells of every change, campaigning or not.

mod backoff;
mod bound;
mod config;
mod event;
mod holder;
mod machine;
mod watching;

use alloc::collections::VecDeque;

use bytes::Bytes;

pub use bound::BoundLock;
pub use config::LockConfig;
pub use event::{AcquireError, Action, LockEvent, LockState, LossReason, NotAcquired, Ticket};
pub use holder::{Holder, HolderStatus};

use crate::client::{Outcome, Request, SubmitError, WatchEvent};
use crate::debug;
use crate::hlc::{FencingToken, Version};
use crate::message::Incarnation;
use crate::time::Instant;
use backoff::Backoff;
use watching::Watching;

/// One contender for one lock. See the [module documentation](self).
#[derive(Clone)]
pub struct Lock {
    config: LockConfig,
    phase: Phase,
    claim: Claim,
    /// The greatest version that a SET of this lock got: all others of the same store must be greater.
    floor: Option<Version>,
    /// The store heard of last, by its incarnation if it says so; while the lock is held, the one that it was acquired at.
    store: Option<Option<Incarnation>>,
    pending: Option<Pending>,
    last_ticket: u64,
    /// When to send the next request, while none is outstanding.
    next: Next,
    backoff: Backoff,
    watching: Watching,
    /// The last holder that the watch told of.
    holder: Option<Holder>,
    /// Whether that is current.
    live: bool,
    /// What the application knows of it.
    holder_told: HolderStatus,
    events: VecDeque<LockEvent>,
}

/// Where a lock stands, with what belongs to that; [`LockState`] has the table. Whatever leaves waiting or held may leave a
/// [`Claim`] behind, which is removed meanwhile.
#[derive(Clone, Debug)]
enum Phase {
    Free,
    Waiting(Try),
    Held { until: Instant, token: FencingToken },
    Lost,
    Released,
}

/// A try to acquire the lock, of one request or many.
#[derive(Clone, Debug)]
struct Try {
    /// When to give up.
    deadline: Option<Instant>,
    /// Whether only one request was asked for.
    once: bool,
    /// Whether another holder was met, so that waiting is for it.
    contended: bool,
    /// Whether the key was heard to be free since the last request was sent.
    nudged: bool,
    /// Whether a request was answered by another store than the one heard of before.
    doubted: bool,
}

/// What the store may have of this lock.
#[derive(Clone)]
struct Claim {
    /// Numbers the values.
    number: u64,
    value: Bytes,
    /// Until when the value may be stored; `None` when it is not.
    until: Option<Instant>,
    /// Whether the value was given up: it may be removed, and never set again.
    spent: bool,
    /// Whether a `Released` is to be told when it is removed.
    release_owed: bool,
}

/// The request outstanding.
#[derive(Clone, Copy, Debug)]
struct Pending {
    ticket: Ticket,
    kind: Kind,
    sent: Instant,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// SET: takes or renews.
    Take,
    /// VDEL: removes a value that was given up.
    Free,
}

/// When something is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Never,
    At(Instant),
    Now,
}

impl Lock {
    /// A lock that is neither held nor wanted.
    #[must_use]
    pub fn new(config: LockConfig) -> Self {
        let claim = Claim {
            number: 1,
            value: config.value(1),
            until: None,
            spent: false,
            release_owed: false,
        };
        Self {
            phase: Phase::Free,
            claim,
            floor: None,
            store: None,
            pending: None,
            last_ticket: 0,
            next: Next::Never,
            backoff: Backoff::new(config.retry_min, config.retry_max, config.seed),
            watching: Watching::Off,
            holder: None,
            live: false,
            holder_told: HolderStatus::Unknown,
            events: VecDeque::new(),
            config,
        }
    }

    /// Tries once to take the lock. Ends in [`LockEvent::Acquired`] or [`LockEvent::GaveUp`].
    ///
    /// # Errors
    /// [`AcquireError`]; then nothing has changed.
    pub fn try_acquire(&mut self, now: Instant) -> Result<(), AcquireError> {
        self.begin(now, None, true)
    }

    /// Takes the lock as soon as it is free, or gives up at the deadline. Ends in [`LockEvent::Acquired`] or
    /// [`LockEvent::GaveUp`]. A store that refuses ends it at once.
    ///
    /// # Errors
    /// [`AcquireError`]; then nothing has changed.
    pub fn acquire(&mut self, now: Instant, deadline: Option<Instant>) -> Result<(), AcquireError> {
        self.begin(now, deadline, false)
    }

    /// Gives back what is held, or gives up waiting; `false` when there is neither. From here on the lock is not held.
    /// What was held ends in [`LockEvent::Released`], after one lease at the latest; until then drive the lock on.
    pub fn release(&mut self, now: Instant) -> bool {
        self.advance(now);
        match self.phase {
            Phase::Held { .. } => {
                self.claim.release_owed = true;
                self.abandon(Phase::Released);
            }
            Phase::Waiting(_) => self.give_up(NotAcquired::Cancelled),
            Phase::Free | Phase::Lost | Phase::Released => return false,
        }
        true
    }

    /// The next thing to be done, in order. A lease counts from `now`: read the clock before this call, and submit after.
    #[must_use]
    pub fn poll_action(&mut self, now: Instant) -> Option<Action> {
        self.advance(now);
        if let Some(action) = self.watch_action() {
            return Some(action);
        }
        if self.next != Next::Now || self.pending.is_some() {
            return None;
        }
        self.next = Next::Never;
        let until = self.claim.until.filter(|_| self.claim.spent);
        let (kind, request) = match until {
            Some(until) => (Kind::Free, self.free_request(now, until)),
            None if self.is_active() => (Kind::Take, self.take_request(now)),
            None => return None,
        };
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.pending = Some(Pending { ticket, kind, sent: now });
        Some(Action::Submit { ticket, request })
    }

    /// Handles the outcome of a submitted request, or why it was not accepted. A ticket that is not outstanding is ignored.
    pub fn handle_outcome(
        &mut self,
        now: Instant,
        ticket: Ticket,
        outcome: Result<Outcome, SubmitError>,
    ) {
        self.advance(now);
        let Some(pending) = self.pending.filter(|pending| pending.ticket == ticket) else { return };
        self.pending = None;
        match pending.kind {
            Kind::Take => self.took(now, pending.sent, outcome),
            Kind::Free => self.freed(now, &outcome),
        }
    }

    /// Handles an event of the watch that was last asked for. A driver that cannot watch passes none; the lock then
    /// relies on time alone.
    pub fn handle_watch(&mut self, now: Instant, event: &WatchEvent) {
        self.advance(now);
        if self.watching == Watching::On {
            self.take_watch_event(now, event);
        }
    }

    /// Handles a replaced store: another one answers than before, as
    /// [`Event::StoreReplaced`](crate::client::Event::StoreReplaced) brings it. A lock that was acquired at another
    /// incarnation is lost. A waiting lock that is answered by another store than it last heard of tries again, so that an
    /// answer of the store before is not taken for an acquisition at the new one.
    ///
    /// Outcomes say which store answered, so a driver that does not pass this on only makes the lock notice later: at its
    /// next renewal. It may come before or after the outcomes that it belongs to.
    pub fn handle_incarnation(&mut self, now: Instant, incarnation: Option<Incarnation>) {
        self.advance(now);
        self.meet(incarnation);
    }

    /// Handles the refusal of a write guarded with `token` as
    /// [`FencingTokenLower`](crate::message::Refusal::FencingTokenLower). With the newest token that means that a newer
    /// holder has written: the lock is lost. With an older one a newer write of this holder may have been first; guard the
    /// write again.
    pub fn handle_fenced_out(&mut self, now: Instant, token: &FencingToken) {
        self.advance(now);
        if matches!(&self.phase, Phase::Held { token: newest, .. } if newest == token) {
            self.lose(LossReason::FencedOut);
        }
    }

    /// Does what is due. Early or repeated calls change nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and poll again; `None` when nothing is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let next = match self.next {
            Next::At(at) => Some(at),
            Next::Now | Next::Never => None,
        };
        let ends = match &self.phase {
            Phase::Held { until, .. } => Some(*until),
            Phase::Waiting(attempt) => attempt.deadline,
            Phase::Free | Phase::Lost | Phase::Released => None,
        };
        let due = [next, ends, self.cleaning_ends()].into_iter().flatten().min();
        // The end of time never comes.
        due.filter(|at| *at < Instant::from_millis(u64::MAX))
    }

    /// The next event, in order.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<LockEvent> {
        self.events.pop_front()
    }

    /// Puts the newest token on a write; `None` when the lock is not held.
    #[must_use]
    pub fn guard(&self, now: Instant, request: Request) -> Option<Request> {
        self.token(now).map(|token| request.fencing_token(token.clone()))
    }

    /// The newest fencing token, while the lock is held.
    #[must_use]
    pub fn token(&self, now: Instant) -> Option<&FencingToken> {
        match &self.phase {
            Phase::Held { until, token } if now < *until => Some(token),
            _ => None,
        }
    }

    /// Whether the lock is held, whether or not it was told that time has passed.
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        self.held_until().is_some_and(|until| now < until)
    }

    /// The first moment at which the lock is no longer held unless it is renewed.
    #[must_use]
    pub const fn held_until(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Held { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Where the lock stands, as of the last call that told the time.
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

    /// Who holds the lock, as far as it is watched: while waiting for another holder, or always with
    /// [`watch_holder`](LockConfig::watch_holder).
    #[must_use]
    pub const fn holder(&self) -> &HolderStatus {
        &self.holder_told
    }

    /// Whether nothing is outstanding and nothing is left to be done: the lock can be dropped and leaves nothing behind,
    /// but the watch of [`watch_holder`](LockConfig::watch_holder), which has no end of its own.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let watches = self.watching == Watching::On && !self.config.watch_holder;
        !self.is_active() && !watches && self.pending.is_none() && self.cleaning_ends().is_none()
    }
}

impl core::fmt::Debug for Lock {
    /// All that decides what happens next, without the values.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lock")
            .field("key", &debug::Key(&self.config.key))
            .field("phase", &self.phase)
            .field("number", &self.claim.number)
            .field("claim_until", &self.claim.until)
            .field("spent", &self.claim.spent)
            .field("release_owed", &self.claim.release_owed)
            .field("floor", &self.floor)
            .field("store", &self.store)
            .field("pending", &self.pending)
            .field("next", &self.next)
            .field("backoff", &self.backoff)
            .field("watching", &self.watching)
            .field("holder", &self.holder)
            .field("live", &self.live)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}
