//! What a world of locks is made of.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Outcome, WatchEvent};
use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{Lock, LockConfig, Ticket};
use statestore_proto::message::Command;

/// The key of the lock.
pub(super) const LOCK: &[u8] = b"lock";

/// What a right wall clock shows when the story begins.
pub(super) const EPOCH: u64 = 1_000_000;

/// The lease of every contender.
pub(super) const LEASE: u64 = 100;

/// How long an answer may take.
pub(super) const TIMEOUT: u64 = 30;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Guarded writes go without their token.
    NoToken,
    /// A holder considers its lease over later than it knows it to be, by as much as an answer may take.
    NegativeMargin,
    /// There is no margin for clocks that run at different rates.
    NoMargin,
    /// A waiter listens, and looks at no clock.
    NoTimer,
    /// What is given up is not removed, but the lock is told that it was.
    NoVdel,
    /// Both contenders have the same name and nonce, as one would that kept its nonce over a restart.
    SameSession,
    /// Nobody looks at which store answers.
    IgnoresStore,
}

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Contenders, three at most.
    pub contenders: usize,
    /// Tries of each.
    pub tries: u8,
    /// Releases of each.
    pub releases: u8,
    /// Guarded writes of each.
    pub writes: u8,
    /// Messages lost.
    pub losses: u8,
    /// Times that somebody falls asleep.
    pub sleeps: u8,
    /// Times that time passes.
    pub ticks: u8,
    /// Times that the store is started anew, empty.
    pub restarts: u8,
    /// Whether tries give up after half a lease.
    pub deadlines: bool,
    /// Whether the first holds the lock already.
    pub held: bool,
}

/// What a contender has sent.
#[derive(Clone, Debug)]
pub(super) enum Up {
    Lock(Ticket, Command<Bytes>),
    Watch,
    /// A write to the protected key, the token that it was guarded with, and the one that it carries.
    Write(FencingToken, Option<FencingToken>),
}

/// What comes back.
#[derive(Clone, Debug)]
pub(super) enum Down {
    /// An outcome and the number of the store that it comes from.
    Outcome(Ticket, Outcome, u64),
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
    /// The request outstanding, and when it times out.
    pub(super) outstanding: Option<(Ticket, u64)>,
    pub(super) watching: bool,
    /// The store that its client heard of last.
    pub(super) met: u64,
    /// The store that its lock was told of, beside outcomes.
    pub(super) news: u64,
    /// The store that its lock was acquired at.
    pub(super) acquired_at: u64,
    /// Whether something of it was lost or late, so that it cannot know what the store has.
    pub(super) unlucky: bool,
}

/// Milliseconds that a contender's wall clock is ahead of the store's, plus as many as the world's monotonic origin.
pub(super) const WALL: [u64; 3] = [EPOCH + 30_000, EPOCH - 30_000, EPOCH];

/// Where each monotonic clock begins.
pub(super) const ORIGIN: [u64; 3] = [0, 7_000, 900];

/// How many milliseconds each monotonic clock counts in a thousand: the first is slow.
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
            .longest_lease(millis(LEASE + 10))
            .retry(millis(10), millis(10));
        Self {
            lock: Lock::new(config),
            tries: budget.tries,
            releases: budget.releases,
            writes: budget.writes,
            asleep: false,
            up: VecDeque::new(),
            down: VecDeque::new(),
            outstanding: None,
            watching: false,
            met: 0,
            news: 0,
            acquired_at: 0,
            unlucky: false,
        }
    }
}
