//! The state of one watch and its transitions. The effects are in `active_watch`.
//!
//! After each (re-)registration the key is read. Notifications that arrive before the reply are
//! held back and settled against the value read, so a stale value is never reported as the current
//! one.

use core::time::Duration;

use bytes::Bytes;

use super::event::WatchEnd;
use super::{Outcome, WatchPhase};
use crate::debug::Hidden;
use crate::hlc::Version;
use crate::message::{Reply, RequestKind, Response};
use crate::time::Instant;

/// A watch of one key. [`WatchPhase`] lists the transitions between its phases.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) key: Bytes,
    pub(super) phase: Phase,
    /// The newest known state; states that do not follow it are ignored.
    known: State,
    /// The state reported last; `None` if the application lost it.
    reported: Option<State>,
    /// The newest notification since registration, not reported yet.
    held_back: Option<(State, Option<Hidden>)>,
    /// True if a notification arrived after the read was sent.
    notified_since_read: bool,
    /// True if a gap was reported and not closed. A watch begins with one that is not reported.
    pub(super) gap: bool,
    /// True if an event did not fit into the queue.
    pub(super) lagging: bool,
    pub(super) request: Option<Outstanding>,
    /// When to register again: after a failure, or to renew.
    pub(super) register_at: Option<Instant>,
}

/// The request that a watch has outstanding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub(super) id: u64,
    pub(super) kind: RequestKind,
}

/// The phase of a watch, with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Registering,
    Reading,
    Live,
    Stopping,
    /// Over; the end may not be reported yet.
    Ended(WatchEnd),
}

/// The state of a key. The version of a deletion is that of the deleted value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Present(Version),
    Absent(Option<Version>),
}

impl State {
    const fn version(&self) -> Option<&Version> {
        match self {
            Self::Present(version) => Some(version),
            Self::Absent(version) => version.as_ref(),
        }
    }

    /// Returns whether `self`, received later, is newer than `other`.
    fn follows(&self, other: &Self) -> bool {
        match (self, other) {
            // The deletion of a version comes after that version.
            (Self::Absent(Some(deleted)), Self::Present(present)) => deleted >= present,
            _ => self.version() > other.version(),
        }
    }

    /// Returns whether an application sees no difference.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present(own), Self::Present(other)) => own == other,
            (Self::Absent(_), Self::Absent(_)) => true,
            _ => false,
        }
    }
}

/// A change to report: the value, if there is one, and its version.
pub(super) type Change = (Option<Bytes>, Option<Version>);

/// The effect of an outcome on a watch.
pub(super) enum Step {
    /// Enter the phase and send its request.
    Enter(Phase),
    /// Wait, then register.
    RetryAfter(Pause),
    /// Report the change, if any, and that the watch is live.
    GoLive(Option<Change>),
    /// Stay live and read the key, to compare it with the known state.
    Compare,
    /// Stay live until the next renewal.
    StayLive,
    /// Stay live and renew again after this pause.
    RenewAfter(Pause),
    /// Report a gap and read the key again.
    Resync,
    End(WatchEnd),
}

/// A pause after a failure.
#[derive(Clone, Copy)]
pub(super) enum Pause {
    /// No store is subscribed: it may be about to start.
    Short,
    /// The reply makes no sense, or none came.
    Long,
}

impl Pause {
    pub(super) fn duration(self, timeout: Duration) -> Duration {
        match self {
            Self::Short => timeout / 10,
            Self::Long => timeout,
        }
    }
}

/// The effect of a notification on a watch.
pub(super) enum Notified {
    /// Report the change.
    Report(Change),
    /// Wait for the reply to the read.
    HeldBack,
    /// As `HeldBack`, after a gap: notifications may be missing before this one.
    HeldBackAfterGap,
}

/// The notification is not newer than the known state, or the watch does not expect one.
#[derive(Debug)]
pub(super) struct OutOfDate;

impl Watch {
    pub(super) const fn new(key: Bytes) -> Self {
        Self {
            key,
            phase: Phase::Waiting,
            known: State::Absent(None),
            reported: Some(State::Absent(None)),
            held_back: None,
            notified_since_read: false,
            gap: true,
            lagging: false,
            request: None,
            register_at: None,
        }
    }

    /// The phase as applications see it; `None` after the end.
    pub(super) const fn public_phase(&self) -> Option<WatchPhase> {
        Some(match self.phase {
            Phase::Waiting => WatchPhase::Waiting,
            Phase::Registering => WatchPhase::Registering,
            Phase::Reading => WatchPhase::Reading,
            Phase::Live => WatchPhase::Live,
            Phase::Stopping => WatchPhase::Stopping,
            Phase::Ended(_) => return None,
        })
    }

    /// Returns whether the watch is over, or about to be.
    pub(super) const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Ended(_))
    }

    /// Enters a phase that has a request.
    pub(super) fn enter(&mut self, phase: Phase) {
        match phase {
            Phase::Registering => self.held_back = None,
            _ => self.notified_since_read = false,
        }
        self.phase = phase;
    }

    /// Handles the outcome of the watch's own request. `is_registered` is whether the registration
    /// of a live watch is known to have held.
    pub(super) fn handle_outcome(
        &mut self,
        kind: RequestKind,
        outcome: Outcome,
        is_registered: bool,
    ) -> Step {
        self.request = None;
        if kind == RequestKind::Unwatch {
            // The watch is over whatever the outcome.
            return Step::End(WatchEnd::Stopped);
        }
        let is_live = self.phase == Phase::Live;
        match outcome {
            Outcome::Responded { response: Response::Reply(reply), version, .. } => {
                match (reply, version) {
                    (Reply::Error(error), _) => Step::End(WatchEnd::Refused(error)),
                    (Reply::Done, _) if is_live => {
                        self.notified_since_read = false;
                        Step::Compare
                    }
                    (Reply::Done, _) => Step::Enter(Phase::Reading),
                    (Reply::Value(value), Some(version)) => {
                        self.handle_read(State::Present(version), Some(value), is_registered)
                    }
                    (Reply::Absent, _) => {
                        self.handle_read(State::Absent(None), None, is_registered)
                    }
                    _ => self.retry(Pause::Long),
                }
            }
            // The request has already waited for its time limit.
            Outcome::TimedOut { .. } if !is_live => Step::Enter(Phase::Registering),
            Outcome::Undelivered(_) => self.retry(Pause::Short),
            _ => self.retry(Pause::Long),
        }
    }

    /// A live watch stays live while a renewal fails.
    fn retry(&self, pause: Pause) -> Step {
        match self.phase {
            Phase::Live => Step::RenewAfter(pause),
            _ => Step::RetryAfter(pause),
        }
    }

    fn handle_read(&mut self, read: State, value: Option<Bytes>, is_registered: bool) -> Step {
        if self.phase != Phase::Live {
            return self.settle(read, value);
        }
        let resync =
            if is_registered { self.has_missed(&read) } else { self.can_have_missed(&read) };
        if resync { Step::Resync } else { Step::StayLive }
    }

    /// Returns whether the read of a renewal shows that a change was not reported, although the
    /// registration is known to have held: the broker may have reported this client gone by
    /// mistake.
    fn has_missed(&self, read: &State) -> bool {
        // A notification that arrived during the read may be newer than its reply.
        !self.notified_since_read && !read.is_same(&self.known)
    }

    /// Returns whether changes may be missing after the read of a renewal, if it is unknown whether
    /// the registration held.
    fn can_have_missed(&self, read: &State) -> bool {
        // A store issues a version once, so an equal version means that nothing changed. An
        // absent key may have been set and deleted.
        !(matches!(read, State::Present(_)) && read.is_same(&self.known))
    }

    /// Returns whether the watch is live and the state is newer than the one reported.
    fn is_newer(&self, state: &State) -> bool {
        self.phase == Phase::Live && state.follows(&self.known)
    }

    /// Handles a notification. `is_registered` is as for [`handle_outcome`](Self::handle_outcome).
    pub(super) fn handle_notification(
        &mut self,
        state: State,
        value: Option<Bytes>,
        is_registered: bool,
    ) -> Result<Notified, OutOfDate> {
        let mut held_back = Notified::HeldBack;
        if let Some(request) = self.request.filter(|_| !is_registered && self.is_newer(&state)) {
            // The store may have lost the registration and some notifications before this renewal.
            let reads = request.kind == RequestKind::Get;
            self.enter(if reads { Phase::Reading } else { Phase::Registering });
            held_back = Notified::HeldBackAfterGap;
        }
        match self.phase {
            Phase::Live if self.is_newer(&state) => {
                let version = state.version().cloned();
                self.known = state;
                self.notified_since_read = true;
                Ok(Notified::Report((value, version)))
            }
            Phase::Registering | Phase::Reading
                if self.held_back.as_ref().is_none_or(|(held, _)| state.follows(held)) =>
            {
                self.held_back = Some((state, value.map(Hidden)));
                self.notified_since_read = true;
                Ok(held_back)
            }
            _ => Err(OutOfDate),
        }
    }

    /// Settles the reply to the read against the notification held back.
    ///
    /// If the key has a value, the newer of the two is current. If it has none:
    ///
    /// * no notification: absent;
    /// * a value, notified before the read was sent: absent;
    /// * a value, notified since: read again;
    /// * a deletion: that deletion.
    fn settle(&mut self, read: State, value: Option<Bytes>) -> Step {
        // Later states must be newer than this, whatever the read returned.
        let mut floor = self.known.version().cloned();
        let (state, value) = match (read, self.held_back.take()) {
            (read, None) => (read, value),
            (read @ State::Present(_), Some((held, held_value))) => {
                if held.follows(&read) {
                    (held, held_value.map(|value| value.0))
                } else {
                    (read, value)
                }
            }
            // The value was set after the read, or the notification is a late duplicate.
            (State::Absent(_), held @ Some((State::Present(_), _))) if self.notified_since_read => {
                self.held_back = held;
                return Step::Enter(Phase::Reading);
            }
            // The value may have been overwritten before it was deleted: only a deletion names the
            // deleted version.
            (read @ State::Absent(_), Some((held, _))) => {
                floor = floor.max(held.version().cloned());
                (if matches!(held, State::Absent(_)) { held } else { read }, None)
            }
        };
        self.phase = Phase::Live;
        let has_changed = !self.reported.as_ref().is_some_and(|reported| state.is_same(reported));
        let version = state.version().cloned();
        self.known = match state {
            State::Absent(deleted) => State::Absent(deleted.max(floor)),
            present @ State::Present(_) => present,
        };
        Step::GoLive(has_changed.then_some((value, version)))
    }

    /// Accepts any version from here on: notifications now belong to a new registration, perhaps
    /// with a store whose clock is behind that of its predecessor.
    pub(super) fn forget_known(&mut self) {
        self.known = State::Absent(None);
    }

    /// Records that the known state was reported.
    pub(super) fn record_reported(&mut self) {
        self.reported = Some(self.known.clone());
    }

    /// Makes the next value be reported whatever its version: another store may have given that
    /// version to another value.
    pub(super) fn forget_reported_version(&mut self) {
        self.reported = self.reported.take().filter(|state| matches!(state, State::Absent(_)));
    }

    /// Records that the application lost what was reported.
    pub(super) fn forget_reported(&mut self) {
        self.reported = None;
    }
}
