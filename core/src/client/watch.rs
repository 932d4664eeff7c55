//! The state of one watch and its transitions. `watches` executes the effects.
//!
//! After each (re-)registration the key is read. Notifications that arrive before the reply are
//! held back and settled against the value read, so a stale value is never reported as the current
//! one.

use bytes::Bytes;

use super::event::WatchEnd;
use super::{Outcome, WatchEvent, WatchPhase};
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
    /// True while a gap is open. A new watch starts with an open gap, which is not reported.
    gap: bool,
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

/// An input of a watch.
pub(super) enum Input {
    /// A connection to register on.
    Connected { session_present: bool },
    /// The registration is lost with the connection.
    Disconnected,
    /// The store has replaced another one; `recently` is whether that one had just done so too.
    StoreReplaced { recently: bool },
    /// The outcome of the watch's own request.
    Outcome(RequestKind, Outcome),
    /// A notification of the state, with the value.
    Notification(State, Option<Bytes>),
    /// The time to register.
    RegisterDue,
    /// The application ends the watch. `may_be_registered` is whether KEYNOTIFY can have been sent
    /// on this connection; otherwise the store has already forgotten this client.
    Stop { may_be_registered: bool },
    /// The application has lost what was reported.
    Refresh,
    /// Events did not fit into the queue, which has space again.
    CatchUp,
}

/// The effects of an input. The end of a watch, which its phase contains, is reported last.
pub(super) struct Effects {
    /// Report a gap.
    pub(super) gap: bool,
    /// Report this change.
    pub(super) change: Option<Change>,
    /// Report that the watch is live.
    pub(super) live: bool,
    pub(super) next: Next,
}

impl Effects {
    const fn new(next: Next) -> Self {
        Self { gap: false, change: None, live: false, next }
    }
}

/// What a watch waits for from now on.
#[derive(Clone, Copy)]
pub(super) enum Next {
    /// For the same as before.
    Same,
    /// For no reply and no time.
    Nothing,
    /// For the reply to this request about its key.
    Reply(RequestKind),
    /// For the time to register.
    Time(Pause),
}

/// A pause before a registration.
#[derive(Clone, Copy)]
pub(super) enum Pause {
    /// No store is subscribed, as when it is about to start, or stores reply in turn.
    Short,
    /// The reply makes no sense, or none came.
    Long,
    /// The registration holds until it is renewed.
    Renewal,
}

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

    /// Handles an input; `None` if it does not concern the watch in its phase. `is_registered` is
    /// whether the registration of a live watch is known to have held: the store reports its
    /// incarnation, and another one would have ended the registration.
    pub(super) fn step(&mut self, input: Input, is_registered: bool) -> Option<Effects> {
        let is_live = self.phase == Phase::Live;
        let gap = !self.gap;
        Some(match input {
            Input::CatchUp if is_live => Effects { gap, ..self.request(Phase::Reading) },
            Input::CatchUp if self.is_over() => Effects::new(Next::Same),
            Input::CatchUp => Effects { gap, ..Effects::new(Next::Same) },
            _ if self.is_over() => return None,
            Input::Connected { session_present } => {
                // In a session that was kept, notifications that were received before may arrive
                // again.
                if !session_present {
                    self.forget_known();
                }
                self.request(Phase::Registering)
            }
            Input::Disconnected if self.phase == Phase::Stopping => self.end(WatchEnd::Stopped),
            Input::Disconnected => {
                self.phase = Phase::Waiting;
                Effects { gap, ..Effects::new(Next::Nothing) }
            }
            Input::StoreReplaced { recently } => {
                self.forget_known();
                // Another store may have given the reported version to another value.
                self.reported.take_if(|state| matches!(state, State::Present(_)));
                match self.phase {
                    Phase::Registering | Phase::Reading | Phase::Live if recently => {
                        self.phase = Phase::Waiting;
                        Effects { gap, ..Effects::new(Next::Time(Pause::Short)) }
                    }
                    Phase::Registering | Phase::Reading | Phase::Live => {
                        Effects { gap, ..self.request(Phase::Registering) }
                    }
                    _ => return None,
                }
            }
            Input::Outcome(kind, outcome) => self.on_outcome(kind, outcome, is_registered),
            Input::Notification(state, value) => {
                return self.on_notification(state, value, is_registered);
            }
            Input::RegisterDue if is_live => Effects::new(Next::Reply(RequestKind::Watch)),
            Input::RegisterDue => self.request(Phase::Registering),
            Input::Stop { .. } | Input::Refresh if self.is_ending() => return None,
            Input::Stop { may_be_registered: true } => self.request(Phase::Stopping),
            Input::Stop { may_be_registered: false } => self.end(WatchEnd::Stopped),
            Input::Refresh => {
                self.reported = None;
                let next = if is_live { self.request(Phase::Reading).next } else { Next::Same };
                Effects { gap, ..Effects::new(next) }
            }
        })
    }

    /// Records that an event was reported.
    pub(super) fn record_reported(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Changed { .. } => self.reported = Some(self.known.clone()),
            WatchEvent::Live => self.gap = false,
            WatchEvent::Gap => self.gap = true,
            WatchEvent::Ended(_) => {}
        }
    }

    const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Enters a phase that has a request.
    fn enter(&mut self, phase: Phase) {
        match phase {
            Phase::Registering => self.held_back = None,
            _ => self.notified_since_read = false,
        }
        self.phase = phase;
    }

    /// Enters a phase and sends its request.
    fn request(&mut self, phase: Phase) -> Effects {
        let kind = match phase {
            Phase::Registering => RequestKind::Watch,
            Phase::Stopping => RequestKind::Unwatch,
            _ => RequestKind::Get,
        };
        self.enter(phase);
        Effects::new(Next::Reply(kind))
    }

    fn end(&mut self, end: WatchEnd) -> Effects {
        self.phase = Phase::Ended(end);
        Effects::new(Next::Nothing)
    }

    /// Registers again after a pause. A live watch stays live while a renewal fails.
    fn retry(&mut self, pause: Pause) -> Effects {
        if self.phase != Phase::Live {
            self.phase = Phase::Waiting;
        }
        Effects::new(Next::Time(pause))
    }

    fn on_outcome(&mut self, kind: RequestKind, outcome: Outcome, is_registered: bool) -> Effects {
        if kind == RequestKind::Unwatch {
            // The watch is over whatever the outcome.
            return self.end(WatchEnd::Stopped);
        }
        let is_live = self.phase == Phase::Live;
        match outcome {
            Outcome::Responded { response: Response::Reply(reply), version, .. } => {
                match (reply, version) {
                    (Reply::Error(error), _) => self.end(WatchEnd::Refused(error)),
                    // A renewal reads the key, to compare it with the known state.
                    (Reply::Done, _) if is_live => {
                        self.notified_since_read = false;
                        Effects::new(Next::Reply(RequestKind::Get))
                    }
                    (Reply::Done, _) => self.request(Phase::Reading),
                    (Reply::Value(value), Some(version)) => {
                        self.on_read(State::Present(version), Some(value), is_registered)
                    }
                    (Reply::Absent, _) => self.on_read(State::Absent(None), None, is_registered),
                    _ => self.retry(Pause::Long),
                }
            }
            // The request has already waited for its time limit.
            Outcome::TimedOut { .. } if !is_live => self.request(Phase::Registering),
            Outcome::Undelivered(_) => self.retry(Pause::Short),
            _ => self.retry(Pause::Long),
        }
    }

    fn on_read(&mut self, read: State, value: Option<Bytes>, is_registered: bool) -> Effects {
        if self.phase != Phase::Live {
            return self.settle(read, value);
        }
        let must_read_again = if is_registered {
            self.missed_a_change(&read)
        } else {
            self.may_have_missed_a_change(&read)
        };
        if must_read_again {
            Effects { gap: !self.gap, ..self.request(Phase::Reading) }
        } else {
            Effects::new(Next::Time(Pause::Renewal))
        }
    }

    /// Returns whether the read of a renewal shows that a change was not reported, although the
    /// registration is known to have held: the broker may have reported this client gone by
    /// mistake.
    fn missed_a_change(&self, read: &State) -> bool {
        // A notification that arrived during the read may be newer than its reply.
        !self.notified_since_read && !read.is_same(&self.known)
    }

    /// Returns whether changes may be missing after the read of a renewal, if it is unknown whether
    /// the registration held.
    fn may_have_missed_a_change(&self, read: &State) -> bool {
        // A store issues a version once, so an equal version means that nothing changed. An
        // absent key may have been set and deleted.
        !(matches!(read, State::Present(_)) && read.is_same(&self.known))
    }

    /// Handles a notification; `None` if it is not newer than the known state, or if the watch does
    /// not expect one.
    fn on_notification(
        &mut self,
        state: State,
        value: Option<Bytes>,
        is_registered: bool,
    ) -> Option<Effects> {
        let is_newer = self.phase == Phase::Live && state.follows(&self.known);
        let mut effects = Effects::new(Next::Same);
        if let Some(request) = self.request.filter(|_| is_newer && !is_registered) {
            // The store may have lost the registration and some notifications before this renewal.
            let reads = request.kind == RequestKind::Get;
            self.enter(if reads { Phase::Reading } else { Phase::Registering });
            effects.gap = !self.gap;
        }
        match self.phase {
            Phase::Live if is_newer => {
                effects.change = Some((value, state.version().cloned()));
                self.known = state;
            }
            // Waits for the reply to the read.
            Phase::Registering | Phase::Reading
                if self.held_back.as_ref().is_none_or(|(held, _)| state.follows(held)) =>
            {
                self.held_back = Some((state, value.map(Hidden)));
            }
            _ => return None,
        }
        self.notified_since_read = true;
        Some(effects)
    }

    /// Settles the reply to the read against the notification held back.
    ///
    /// If the key has a value, the newer of the two is current. If it has none:
    ///
    /// * no notification: absent;
    /// * a value, notified before the read was sent: absent;
    /// * a value, notified since: read again;
    /// * a deletion: that deletion.
    fn settle(&mut self, read: State, value: Option<Bytes>) -> Effects {
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
                return self.request(Phase::Reading);
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
        let change = has_changed.then_some((value, version));
        Effects { gap: false, change, live: true, next: Next::Time(Pause::Renewal) }
    }

    /// Accepts any version from here on: notifications now belong to a new registration, perhaps
    /// with a store whose clock is behind that of its predecessor.
    fn forget_known(&mut self) {
        self.known = State::Absent(None);
    }
}
