//! Transitions of one lock.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Outcome, WatchEvent};
use statestore_proto::hlc::{Hlc, Version};
use statestore_proto::lock::{Lock, LockAction, LockConfig, LockRequestId, LockState};
use statestore_proto::message::{Command, Incarnation, Refusal, Reply, Response};
use statestore_proto::time::Instant;

use super::super::SmallWorld;

const LEASE: u64 = 10_000;

const ACQUIRE: &str = "acquire";
const TRY: &str = "try_acquire";
const RELEASE: &str = "release";
const APPLIED: &str = "SET is applied";
const OLDER: &str = "SET is applied with an older version";
const TAKEN: &str = "another holder has it";
const TAKEN_ONCE: &str = "the only attempt finds another holder";
const REFUSED: &str = "the store refuses";
const REFUSED_NOW: &str = "the store refuses for now";
const LATE: &str = "no response in time";
const LATE_ONCE: &str = "the only attempt gets no response";
const OTHER: &str = "a different store responds";
const OTHER_TWICE: &str = "the only attempt gets responses from different stores";
const TIMER: &str = "the time of the next request";
const DEADLINE: &str = "the deadline";
const EXPIRED: &str = "the lease runs out";
const DELETED: &str = "its key is deleted";
const FENCED: &str = "a fenced write is refused for its token";
const REMOVED: &str = "VDEL gets a response";

/// A lock with its watch, and the simulated store.
#[derive(Clone, Debug)]
pub struct LockPhases {
    lock: Lock,
    now: u64,
    outstanding: Option<(LockRequestId, bool)>,
    /// The lock makes one request only; and how many stores have replied to it.
    once: bool,
    answered: u8,
    deadline: Option<u64>,
    version: u64,
    store: u64,
    /// The store that has applied a SET, of those that have replied.
    known: Option<u64>,
    left: u8,
}

impl LockPhases {
    /// A lock before its first request, and the number of events to explore.
    #[must_use]
    pub fn new(left: u8) -> Self {
        let lease = Duration::from_millis(LEASE);
        let config = LockConfig::new("lock", "me", *b"noncenon", lease).watch_holder(true);
        let lock = Lock::new(config).expect("a valid configuration");
        let (outstanding, once, answered) = (None, false, 0);
        let (deadline, known) = (None, None);
        let (now, version, store) = (1_000, 10, 1);
        Self { lock, now, outstanding, once, answered, deadline, version, store, known, left }
    }

    const fn now(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    fn outcome(&mut self, outcome: Outcome) {
        if let Some((ticket, _)) = self.outstanding.take() {
            self.lock.handle_outcome(self.now(), ticket, Ok(outcome));
        }
    }

    fn reply(&mut self, reply: Reply<Bytes>, version: u64) {
        let hlc: Hlc = format!("{version}:0:S").parse().expect("a clock value");
        let (version, incarnation) = (Some(Version::new(hlc)), Some(Incarnation::new(self.store)));
        self.outcome(Outcome::Responded { response: Response::Reply(reply), version, incarnation });
    }

    fn advance_to(&mut self, due: Option<Instant>) {
        self.now = due.map_or(self.now, Instant::as_millis).max(self.now);
        self.lock.handle_timeout(self.now());
    }

    fn drain(&mut self) {
        while let Some(action) = self.lock.poll_action(self.now()) {
            if let LockAction::Submit { ticket, request } = action {
                let takes = matches!(request.command(), Some(Command::Set { .. }));
                self.outstanding = Some((ticket, takes));
            }
        }
        while self.lock.poll_event().is_some() {}
    }
}

impl SmallWorld for LockPhases {
    fn choices(&self) -> Vec<&'static str> {
        if self.left == 0 {
            return Vec::new();
        }
        let state = self.lock.state();
        let (waiting, held) = (state == LockState::Waiting, state == LockState::Held);
        let taking = self.outstanding.is_some_and(|(_, takes)| takes);
        let active = waiting || held;
        let once = self.once && waiting;
        let other = if once && self.answered == 1 { OTHER_TWICE } else { OTHER };
        let due = self.lock.poll_timeout().map(Instant::as_millis);
        let deadline = self.deadline.filter(|_| waiting);
        let ends =
            deadline.or_else(|| self.lock.held_until().map(Instant::as_millis)).unwrap_or(u64::MAX);
        let options = [
            (!active, ACQUIRE),
            (!active, TRY),
            (active, RELEASE),
            (taking, APPLIED),
            (taking && self.known == Some(self.store), OLDER),
            (taking, if once { TAKEN_ONCE } else { TAKEN }),
            (taking, REFUSED),
            (taking && held, REFUSED_NOW),
            (taking, if once { LATE_ONCE } else { LATE }),
            (taking, other),
            (self.outstanding.is_none() && due.is_some_and(|due| due < ends), TIMER),
            (deadline.is_some(), DEADLINE),
            (held, EXPIRED),
            (held, DELETED),
            (held, FENCED),
            (self.outstanding.is_some() && !taking, REMOVED),
        ];
        options.into_iter().filter(|(can, _)| *can).map(|(_, name)| name).collect()
    }

    fn choose(&mut self, choice: &'static str) -> Result<(), String> {
        self.left -= 1;
        let now = self.now();
        match choice {
            ACQUIRE | TRY => {
                (self.once, self.answered) = (choice == TRY, 0);
                self.deadline = (choice == ACQUIRE).then_some(self.now + LEASE * 2);
                let begun = match self.deadline {
                    None => self.lock.try_acquire(now),
                    deadline => self.lock.acquire(now, deadline.map(Instant::from_millis)),
                };
                begun.map_err(|error| error.to_string())?;
            }
            RELEASE => _ = self.lock.release(now),
            APPLIED => {
                self.version += 1;
                self.reply(Reply::Done, self.version);
                if self.lock.state() == LockState::Held {
                    self.known = Some(self.store);
                }
            }
            OLDER => self.reply(Reply::Done, 1),
            TAKEN | TAKEN_ONCE => self.reply(Reply::NotApplied, self.version),
            REFUSED => self.reply(Reply::Error(Refusal::NotAuthorized.into()), self.version),
            REFUSED_NOW => self.reply(Reply::Error(Refusal::QuotaExceeded.into()), self.version),
            LATE | LATE_ONCE => self.outcome(Outcome::TimedOut { sent: true }),
            OTHER | OTHER_TWICE => {
                // The first store is known before it replies, so that the second one differs.
                self.lock.handle_incarnation(now, Some(Incarnation::new(self.store)));
                (self.store, self.answered) = (self.store + 1, self.answered + 1);
                self.version += 1;
                self.reply(Reply::Done, self.version);
            }
            TIMER => self.advance_to(self.lock.poll_timeout()),
            DEADLINE => self.advance_to(self.deadline.map(Instant::from_millis)),
            EXPIRED => self.advance_to(self.lock.held_until()),
            DELETED => {
                let token = self.lock.token(now).cloned();
                let version = token.map(|token| Version::new(token.hlc().clone()));
                let event = WatchEvent::Changed { value: None, version };
                self.lock.handle_watch(now, &event);
            }
            FENCED => {
                let token = self.lock.token(now).cloned().ok_or("held without a token")?;
                self.lock.handle_fenced_out(now, &token);
            }
            _ => self.reply(Reply::Removed, self.version),
        }
        self.drain();
        Ok(())
    }

    fn phase(&self) -> Option<String> {
        Some(format!("{:?}", self.lock.state()).to_lowercase())
    }

    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result {
        write!(out, "{self:?}")
    }
}
