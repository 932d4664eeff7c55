//! Parts of a world of locks.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Outcome, WatchEvent};
use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{Lock, LockConfig, LockRequestId};
use statestore_proto::message::Command;

/// The key of the lock.
pub(super) const LOCK: &[u8] = b"lock";

/// Wall time of a correct clock at the start.
pub(super) const EPOCH: u64 = 1_000_000;

/// The lease of every contender.
pub(super) const LEASE: u64 = 100;

/// Time-out of a request.
pub(super) const TIMEOUT: u64 = 30;

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Guarded writes do not carry their token.
    NoToken,
    /// A holder considers its lease longer than it is, by the time-out of a request.
    NegativeMargin,
    /// No margin for clocks that run at different rates.
    NoMargin,
    /// A waiter relies on notifications alone, without a timer.
    NoTimer,
    /// An abandoned lock is not removed, but its machine receives a successful reply.
    NoVdel,
    /// Both contenders have the same name and nonce, as after a restart with a persisted nonce.
    SameSession,
    /// The incarnation of the store is ignored.
    IgnoresStore,
}

/// Limits on the number of events.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Contenders, three at most.
    pub contenders: usize,
    /// Attempts per contender.
    pub tries: u8,
    /// Releases per contender.
    pub releases: u8,
    /// Guarded writes per contender.
    pub writes: u8,
    /// Messages lost.
    pub losses: u8,
    /// Pauses of contenders.
    pub sleeps: u8,
    /// Advances of time.
    pub ticks: u8,
    /// Restarts with an empty store.
    pub restarts: u8,
    /// Attempts are abandoned after half a lease.
    pub deadlines: bool,
    /// The first contender holds the lock at the start.
    pub held: bool,
}

/// A message sent by a contender.
#[derive(Clone, Debug)]
pub(super) enum Up {
    Lock(LockRequestId, Command<Bytes>),
    Watch,
    /// A write to the protected key, the token that it was guarded with, and the token that it
    /// carries.
    Write(FencingToken, Option<FencingToken>),
}

/// A message to a contender.
#[derive(Clone, Debug)]
pub(super) enum Down {
    /// An outcome and the number of the store that it comes from.
    Outcome(LockRequestId, Outcome, u64),
    Watch(WatchEvent),
}

#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) lock: Lock,
    pub(super) tries: u8,
    pub(super) releases: u8,
    pub(super) writes: u8,
    pub(super) asleep: bool,
    pub(super) up: VecDeque<Up>,
    pub(super) down: VecDeque<Down>,
    /// The outstanding request and its time-out.
    pub(super) outstanding: Option<(LockRequestId, u64)>,
    pub(super) watching: bool,
    /// The store that last replied to its client.
    pub(super) contacted: u64,
    /// The store announced to its lock, apart from outcomes.
    pub(super) news: u64,
    /// The store at which its lock was acquired.
    pub(super) acquired_at: u64,
    /// A message was lost or late, so the contender cannot know the state of the store.
    pub(super) unlucky: bool,
}

/// Offset of a contender's wall clock from the store's, plus the world's monotonic origin.
pub(super) const WALL: [u64; 3] = [EPOCH + 30_000, EPOCH - 30_000, EPOCH];

/// Origin of each monotonic clock.
pub(super) const ORIGIN: [u64; 3] = [0, 7_000, 900];

/// Rate of each monotonic clock, per thousand: the first is slow.
pub(super) const RATE: [u64; 3] = [950, 1_000, 1_000];

impl Contender {
    pub(super) fn new(fault: Fault, budget: &Budget, who: usize) -> Self {
        let nonce = if fault == Fault::SameSession { 0 } else { who as u64 };
        let margin = if fault == Fault::NoMargin { 0 } else { 10 };
        let millis = Duration::from_millis;
        let config = LockConfig::new(LOCK, "contender", nonce.to_be_bytes(), millis(LEASE))
            .margin(millis(margin))
            .renew_after(millis(45))
            .timeout(millis(TIMEOUT))
            .max_lease(millis(LEASE + 10))
            .retry(millis(10), millis(10));
        Self {
            lock: Lock::new(config).expect("a valid configuration"),
            tries: budget.tries,
            releases: budget.releases,
            writes: budget.writes,
            asleep: false,
            up: VecDeque::new(),
            down: VecDeque::new(),
            outstanding: None,
            watching: false,
            contacted: 0,
            news: 0,
            acquired_at: 0,
            unlucky: false,
        }
    }
}
