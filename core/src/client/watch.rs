//! One watch: when it registers, when it reads, and what it makes of what it hears.
//!
//! After each (re-)registration the key is read. What is heard until the read is answered is held back and settled
//! against it, so an application never takes a stale value for the current one.

use bytes::Bytes;

use super::event::WatchEnd;
use crate::debug::Hidden;
use crate::hlc::Version;
use crate::time::Instant;

/// A watch of one key. [`WatchPhase`](super::WatchPhase) has the table of its phases.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) key: Bytes,
    pub(super) phase: Phase,
    /// The newest state known: what is not newer is no news.
    known: State,
    /// What the application was told last; `None` when that is lost.
    told: Option<State>,
    /// The newest state heard of since registering, not told yet.
    heard: Option<(State, Option<Hidden>)>,
    /// Whether something was heard after the read was sent.
    heard_since_read: bool,
    /// Whether an unclosed gap was told; a watch begins with one that needs no telling.
    pub(super) gap: bool,
    /// Whether an event found no room.
    pub(super) lagging: bool,
    /// The request outstanding.
    pub(super) request: Option<u64>,
    /// When to register again: after a refusal that may pass, or to renew.
    pub(super) register_at: Option<Instant>,
}

/// Where a watch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Registering,
    Reading,
    Live,
    Stopping,
    /// Over; the end waits to be told.
    Ended(WatchEnd),
}

/// What is known of a key. The version of a deletion is that of the value deleted.
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

    /// Whether `self`, heard later, says something that `other` does not say yet.
    fn follows(&self, other: &Self) -> bool {
        match (self, other) {
            // The deletion of a version comes after that version.
            (Self::Absent(Some(deleted)), Self::Present(present)) => deleted >= present,
            _ => self.version() > other.version(),
        }
    }

    /// Whether the application would see no difference.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present(own), Self::Present(other)) => own == other,
            (Self::Absent(_), Self::Absent(_)) => true,
            _ => false,
        }
    }
}

/// A change to be told: the value, or none, and its version.
pub(super) type Change = (Option<Bytes>, Option<Version>);

/// What an answered read settles.
pub(super) enum Settled {
    /// The state is known; a change if it is another than the application was told.
    Live(Option<Change>),
    /// What was heard contradicts what was read: read again.
    ReadAgain,
}

impl Watch {
    pub(super) const fn new(key: Bytes) -> Self {
        Self {
            key,
            phase: Phase::Waiting,
            known: State::Absent(None),
            told: Some(State::Absent(None)),
            heard: None,
            heard_since_read: false,
            gap: true,
            lagging: false,
            request: None,
            register_at: None,
        }
    }

    /// Records that a read is sent while changes go on being reported.
    pub(super) const fn compare(&mut self) {
        self.heard_since_read = false;
    }

    /// Whether changes are reported, and this is one.
    pub(super) fn is_news(&self, state: &State) -> bool {
        self.phase == Phase::Live && state.follows(&self.known)
    }

    /// Whether a read that was sent while changes were reported shows that some were not. The registration is known to
    /// have held: this is for a store that was told in error that this client is gone.
    pub(super) fn missed(&self, read: &State) -> bool {
        // What was heard meanwhile may be newer than the read.
        !self.heard_since_read && !read.is_same(&self.known)
    }

    /// The same when nothing tells whether the registration held: whether changes may be missing.
    pub(super) fn may_have_missed(&self, read: &State) -> bool {
        // A version is issued once, so the same one says that nothing came in between. An absent key may have been set and
        // deleted.
        !(matches!(read, State::Present(_)) && read.is_same(&self.known))
    }

    /// Enters a phase that has a request.
    pub(super) fn enter(&mut self, phase: Phase) {
        match phase {
            Phase::Registering => self.heard = None,
            _ => self.heard_since_read = false,
        }
        self.phase = phase;
    }

    /// Handles a notification; returns the change to report at once, if any, or an error when it is out of date.
    pub(super) fn hear(
        &mut self,
        state: State,
        value: Option<Bytes>,
    ) -> Result<Option<Change>, OutOfDate> {
        match self.phase {
            Phase::Live if self.is_news(&state) => {
                let version = state.version().cloned();
                self.known = state;
                self.heard_since_read = true;
                Ok(Some((value, version)))
            }
            Phase::Registering | Phase::Reading
                if self.heard.as_ref().is_none_or(|(heard, _)| state.follows(heard)) =>
            {
                self.heard = Some((state, value.map(Hidden)));
                self.heard_since_read = true;
                Ok(None)
            }
            _ => Err(OutOfDate),
        }
    }

    /// Settles the answer to the read against the notifications received meanwhile:
    ///
    /// | read | nothing heard | value heard before the read was sent | value heard since | deletion heard |
    /// |---|---|---|---|---|
    /// | a value | what was read | the newer of the two | the newer of the two | the later of the two |
    /// | no value | absent | absent | read again | that deletion |
    pub(super) fn settle(&mut self, read: State, value: Option<Bytes>) -> Settled {
        // What is not newer than this is no news, whatever the read says.
        let mut floor = self.known.version().cloned();
        let (state, value) = match (read, self.heard.take()) {
            (read, None) => (read, value),
            (read @ State::Present(_), Some((heard, heard_value))) => {
                if heard.follows(&read) {
                    (heard, heard_value.map(|value| value.0))
                } else {
                    (read, value)
                }
            }
            // The value may have been set after the read, or be a late duplicate of one deleted since.
            (State::Absent(_), heard @ Some((State::Present(_), _))) if self.heard_since_read => {
                self.heard = heard;
                return Settled::ReadAgain;
            }
            // A value that is gone may have been overwritten first: only a deletion says which one went.
            (read @ State::Absent(_), Some((heard, _))) => {
                floor = floor.max(heard.version().cloned());
                (if matches!(heard, State::Absent(_)) { heard } else { read }, None)
            }
        };
        self.phase = Phase::Live;
        let is_news = !self.told.as_ref().is_some_and(|told| state.is_same(told));
        let version = state.version().cloned();
        self.known = match state {
            State::Absent(deleted) => State::Absent(deleted.max(floor)),
            present @ State::Present(_) => present,
        };
        Settled::Live(is_news.then_some((value, version)))
    }

    /// Accepts any version from here on: notifications now come from a new registration, perhaps with a store
    /// whose clock is behind that of the one before.
    pub(super) fn forget_known(&mut self) {
        self.known = State::Absent(None);
    }

    /// Records that the application was told what is known.
    pub(super) fn told(&mut self) {
        self.told = Some(self.known.clone());
    }

    /// Has a value told again whatever its version: another store may have given that to another value.
    pub(super) fn forget_told_version(&mut self) {
        self.told = self.told.take().filter(|told| matches!(told, State::Absent(_)));
    }

    /// Records that it is unknown what the application was told.
    pub(super) fn forget_told(&mut self) {
        self.told = None;
    }
}

/// The notification says nothing that is not known, or nothing that is asked.
#[derive(Debug)]
pub(super) struct OutOfDate;
