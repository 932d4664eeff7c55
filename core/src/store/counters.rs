//! What became of each request, and what a store counts.

use core::fmt;
use core::time::Duration;

use crate::message::{CommandKind, Refusal, Reply};
use crate::statistics::{self, Statistic};
use crate::time::UnixTime;

/// What became of a message that was handed to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handled {
    /// What was asked, as far as that could be read.
    pub verb: Option<CommandKind>,
    /// What came of it.
    pub verdict: Verdict,
    /// How far it has set the versions of the store ahead of the clock, if by more than [`AHEAD_NOTED`](crate::limits::AHEAD_NOTED) and further than
    /// they were: whose clock is wrong, or who means harm.
    pub ahead: Option<Ahead>,
}

/// A write with a stamp that was ahead of the store's clock, and that the store has followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// How far the version of this write is ahead, and those of all that follow until the clock has caught up.
    pub by: Duration,
    /// Whether its fencing token is as far ahead, which keeps out who has an earlier one.
    pub is_fence: bool,
}

impl Handled {
    pub(super) const fn of(verb: Option<CommandKind>, verdict: Verdict) -> Self {
        Self { verb, verdict, ahead: None }
    }

    pub(super) const fn dropped(reason: DropReason) -> Self {
        Self::of(None, Verdict::Dropped(reason))
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Done: a value read, written or removed, a registration made or ended.
    Applied,
    /// The condition of the write did not hold.
    NotApplied,
    /// There is no such key, or no such registration to end.
    Absent,
    /// Answered with an error; nothing has changed.
    Refused(Refusal),
    /// Answered again from the cache.
    Repeated,
    /// Not answered.
    Dropped(DropReason),
}

/// Why a message was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// It is no request, or a retained one.
    NotARequest,
    /// It has no response topic.
    Unanswerable,
    /// Its response topic is forbidden.
    Forbidden,
    /// It had waited past its message expiry.
    Expired,
    /// The store was not ready; it was not acknowledged either.
    Overloaded,
}

impl DropReason {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::NotARequest, Self::Unanswerable, Self::Forbidden, Self::Expired, Self::Overloaded];

    /// Its name in lower case, as a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotARequest => "not_a_request",
            Self::Unanswerable => "unanswerable",
            Self::Forbidden => "forbidden",
            Self::Expired => "expired",
            Self::Overloaded => "overloaded",
        }
    }
}

/// How often each verdict was passed on requests with one verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdicts {
    /// Done.
    pub applied: u64,
    /// The condition did not hold.
    pub not_applied: u64,
    /// No such key or registration.
    pub absent: u64,
    /// Answered again from the cache.
    pub repeated: u64,
    /// Refused, by [`Refusal`] in its order.
    refused: [u64; Refusal::ALL.len()],
}

impl Verdicts {
    /// Requests executed, whatever came of them.
    #[must_use]
    pub const fn executed(&self) -> u64 {
        self.applied + self.not_applied + self.absent
    }

    fn iter(&self, verb: Option<CommandKind>) -> impl Iterator<Item = Statistic> {
        let refused = Refusal::ALL.iter().zip(self.refused).map(move |(reason, value)| Statistic {
            reason: Some(*reason),
            ..Statistic::of(verb, "refused", value)
        });
        [
            ("applied", self.applied),
            ("not_applied", self.not_applied),
            ("absent", self.absent),
            ("repeated", self.repeated),
        ]
        .into_iter()
        .map(move |(name, value)| Statistic::of(verb, name, value))
        .chain(refused)
    }

    /// Requests refused for this reason.
    #[must_use]
    pub fn refused_for(&self, reason: Refusal) -> u64 {
        self.refused.get(reason as usize).copied().unwrap_or_default()
    }
}

/// What a store has seen and done since it was made. Plain numbers; a copy is a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Requests answered, by [`CommandKind`] in its order.
    by_verb: [Verdicts; CommandKind::ALL.len()],
    /// Requests answered whose verb could not be read, so all of them refused.
    unreadable: Verdicts,
    /// Requests without response topic, which cannot be answered.
    pub unanswerable: u64,
    /// Requests with a forbidden response topic.
    pub forbidden: u64,
    /// Requests that had waited past their message expiry.
    pub expired_requests: u64,
    /// Requests handed over although the store was not ready; neither answered nor acknowledged.
    pub overloaded: u64,
    /// Messages that are no requests, or retained ones.
    pub not_requests: u64,
    /// Notifications caused.
    pub notifications: u64,
    /// Registrations ended because their client was gone, or taken for it where there was no room for another's.
    pub watches_lost: u64,
    /// Values that expired.
    pub expired_values: u64,
    /// Writes that set the versions [ahead](Handled::ahead) of the clock by more than [`AHEAD_NOTED`](crate::limits::AHEAD_NOTED).
    pub set_ahead: u64,
    /// Those of them whose fencing token was as far ahead.
    pub fenced_ahead: u64,
    /// The furthest, in milliseconds, that a `__ts` or `__ft` which was looked at was ahead of the wall clock here,
    /// refused or not. Any client can send any timestamp.
    pub ahead_max_ms: u64,
    /// The furthest, in milliseconds, that the `__ts` of a SET was behind it. Tokens are not counted: they may be as old
    /// as their lock.
    pub behind_max_ms: u64,
}

impl Counters {
    /// Requests with this verb.
    #[must_use]
    pub fn of(&self, verb: CommandKind) -> &Verdicts {
        self.by_verb.get(verb as usize).unwrap_or(&self.unreadable)
    }

    /// Requests answered whose verb could not be read, so all of them refused.
    #[must_use]
    pub const fn unreadable(&self) -> &Verdicts {
        &self.unreadable
    }

    /// All of them, in a fixed order, zeroes included.
    pub fn iter(&self) -> impl Iterator<Item = Statistic> {
        let verbs = CommandKind::ALL.iter().map(|verb| (Some(*verb), self.of(*verb)));
        let rows = verbs.chain([(None, &self.unreadable)]);
        let plain = [
            ("unanswerable", self.unanswerable),
            ("forbidden", self.forbidden),
            ("expired_requests", self.expired_requests),
            ("overloaded", self.overloaded),
            ("not_requests", self.not_requests),
            ("notifications", self.notifications),
            ("watches_lost", self.watches_lost),
            ("expired_values", self.expired_values),
            ("set_ahead", self.set_ahead),
            ("fenced_ahead", self.fenced_ahead),
            ("ahead_max_ms", self.ahead_max_ms),
            ("behind_max_ms", self.behind_max_ms),
        ];
        let plain = plain.map(|(name, value)| Statistic::plain(name, value));
        rows.flat_map(|(verb, verdicts)| verdicts.iter(verb)).chain(plain)
    }

    /// Messages that were not answered for this reason.
    #[must_use]
    pub const fn dropped_for(&self, reason: DropReason) -> u64 {
        match reason {
            DropReason::NotARequest => self.not_requests,
            DropReason::Unanswerable => self.unanswerable,
            DropReason::Forbidden => self.forbidden,
            DropReason::Expired => self.expired_requests,
            DropReason::Overloaded => self.overloaded,
        }
    }

    /// Requests executed, whatever came of them.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.by_verb.iter().map(Verdicts::executed).sum()
    }

    /// Requests refused, for whatever reason.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.all().flat_map(|verdicts| verdicts.refused).sum()
    }

    /// Requests refused for this reason.
    #[must_use]
    pub fn refused_for(&self, reason: Refusal) -> u64 {
        self.all().map(|verdicts| verdicts.refused_for(reason)).sum()
    }

    /// Requests answered again from the cache.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.by_verb.iter().map(|verdicts| verdicts.repeated).sum()
    }

    /// Messages not answered, for whatever reason.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.unanswerable
            + self.forbidden
            + self.expired_requests
            + self.overloaded
            + self.not_requests
    }

    fn all(&self) -> impl Iterator<Item = &Verdicts> {
        self.by_verb.iter().chain([&self.unreadable])
    }

    #[inline]
    pub(super) fn count(&mut self, handled: Handled) {
        if let Some(ahead) = handled.ahead {
            self.set_ahead += 1;
            self.fenced_ahead += u64::from(ahead.is_fence);
        }
        let row = handled.verb.and_then(|verb| self.by_verb.get_mut(verb as usize));
        let row = row.unwrap_or(&mut self.unreadable);
        let counter = match handled.verdict {
            Verdict::Applied => &mut row.applied,
            Verdict::NotApplied => &mut row.not_applied,
            Verdict::Absent => &mut row.absent,
            Verdict::Repeated => &mut row.repeated,
            Verdict::Refused(reason) => match row.refused.get_mut(reason as usize) {
                Some(counter) => counter,
                None => return,
            },
            Verdict::Dropped(DropReason::NotARequest) => &mut self.not_requests,
            Verdict::Dropped(DropReason::Unanswerable) => &mut self.unanswerable,
            Verdict::Dropped(DropReason::Forbidden) => &mut self.forbidden,
            Verdict::Dropped(DropReason::Expired) => &mut self.expired_requests,
            Verdict::Dropped(DropReason::Overloaded) => &mut self.overloaded,
        };
        *counter += 1;
    }

    /// Records how far a timestamp was from the wall clock.
    #[inline]
    pub(super) fn clock_seen(&mut self, now: UnixTime, wall: UnixTime, is_token: bool) {
        let (now, wall) = (now.as_millis(), wall.as_millis());
        self.ahead_max_ms = self.ahead_max_ms.max(wall.saturating_sub(now));
        if !is_token {
            self.behind_max_ms = self.behind_max_ms.max(now.saturating_sub(wall));
        }
    }
}

/// Those that are not zero.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        statistics::print(f, self.iter())
    }
}

impl Verdict {
    /// What a reply says of its request.
    pub(super) fn of_reply<B>(reply: &Reply<B>) -> Self {
        match reply {
            Reply::Done | Reply::Value(_) | Reply::Removed => Self::Applied,
            Reply::NotApplied => Self::NotApplied,
            Reply::Absent | Reply::NothingRemoved | Reply::NotWatched => Self::Absent,
            Reply::Error(error) => Self::Refused(error.known().unwrap_or(Refusal::Syntax)),
        }
    }
}
