//! Stage 5: the timestamps of a request.

use core::time::Duration;

use crate::hlc::{
    FencingToken, FencingTokenRef, Hlc, HlcRef, Node, ParseHlcError, Timestamp, TimestampRef,
};
use crate::limits::{CLOCK_DRIFT_MAX, COUNTER_LEAD_MAX};
use crate::message::{Refusal, RequestKind, property};
use crate::time::{UnixTime, whole_millis};

/// The verified timestamps of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimestamps<'a> {
    /// `__ts` of a SET.
    pub timestamp: Option<TimestampRef<'a>>,
    /// `__ft` of a SET, DEL or VDEL that carries one.
    pub fencing_token: Option<FencingTokenRef<'a>>,
}

/// The timestamps of a request, parsed but not yet compared with any clock.
#[derive(Clone, Copy, Debug)]
pub struct ParsedTimestamps<'a> {
    needs_timestamp: bool,
    timestamp: Option<Result<HlcRef<'a>, ParseHlcError>>,
    fencing_token: Option<Result<HlcRef<'a>, ParseHlcError>>,
}

/// The user property that carries a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampProperty {
    /// `__ts`, the clock of the sender.
    Timestamp,
    /// `__ft`, the fencing token.
    FencingToken,
}

impl TimestampProperty {
    /// The name of the user property.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timestamp => property::TIMESTAMP,
            Self::FencingToken => property::FENCING_TOKEN,
        }
    }
}

/// The reason to refuse the timestamps of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimestampError {
    /// A SET without `__ts`.
    #[error("the request has no __ts")]
    Missing,
    /// The text is not a timestamp.
    #[error("{} is malformed: {error}", property.name())]
    Malformed {
        /// The property.
        property: TimestampProperty,
        /// The error in the text.
        error: ParseHlcError,
    },
    /// The timestamp is too far ahead of the store's wall clock.
    #[error(
        "{} is {} ms ahead of the store's clock (limit {} ms)",
        property.name(), whole_millis(*ahead), whole_millis(*max)
    )]
    TooFarAhead {
        /// The property.
        property: TimestampProperty,
        /// The lead of the timestamp.
        ahead: Duration,
        /// The greatest lead that is allowed.
        max: Duration,
    },
}

impl TimestampError {
    /// The error that the requester gets.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::Missing => Refusal::MissingTimestamp,
            Self::Malformed { .. } => Refusal::MalformedTimestamp,
            Self::TooFarAhead { property: TimestampProperty::Timestamp, .. } => {
                Refusal::TimestampSkew
            }
            Self::TooFarAhead { property: TimestampProperty::FencingToken, .. } => {
                Refusal::FencingTokenSkew
            }
        }
    }
}

impl<'a> RequestTimestamps<'a> {
    /// Parses `__ts` and `__ft` of a request of this kind and verifies them against the store's
    /// clocks: `now` is its wall clock, `issued` is the last version that it issued
    /// ([`HybridClock::last`](crate::hlc::HybridClock::last)).
    ///
    /// `__ts` is read on SET only and `__ft` on SET, DEL and VDEL only; elsewhere both are ignored.
    /// A timestamp may be any time behind the wall clock, and at most [`CLOCK_DRIFT_MAX`] ahead.
    ///
    /// # Errors
    /// [`TimestampError`], for `__ts` first and then for `__ft`.
    ///
    /// ```
    /// use statestore_proto::hlc::{HybridClock, NodeIdRef};
    /// use statestore_proto::message::{Refusal, RequestKind};
    /// use statestore_proto::rules::RequestTimestamps;
    /// use statestore_proto::time::UnixTime;
    ///
    /// let now = UnixTime::from_millis(1_000_000);
    /// let clock = HybridClock::new(NodeIdRef::STATE_STORE);
    /// let verify = |kind, ts| RequestTimestamps::verify(kind, Some(ts), None, now, clock.last());
    /// assert!(verify(RequestKind::Set, "1060000:0:c").is_ok());
    /// let error = verify(RequestKind::Set, "1060001:0:c").unwrap_err();
    /// assert_eq!(error.refusal(), Refusal::TimestampSkew);
    /// assert!(verify(RequestKind::Get, "nonsense").is_ok());
    /// ```
    pub fn verify(
        kind: RequestKind,
        timestamp: Option<&'a str>,
        fencing_token: Option<&'a str>,
        now: UnixTime,
        issued: &Hlc<impl Node>,
    ) -> Result<Self, TimestampError> {
        ParsedTimestamps::parse(kind, timestamp, fencing_token).verify(CLOCK_DRIFT_MAX, now, issued)
    }

    /// The greater of both timestamps. The store's clock must receive it before it issues the
    /// version of the write, which is then greater than both.
    #[must_use]
    pub fn latest(&self) -> Option<HlcRef<'a>> {
        let timestamp = self.timestamp.map(|timestamp| *timestamp.hlc());
        timestamp.max(self.fencing_token.map(|token| *token.hlc()))
    }
}

impl<'a> ParsedTimestamps<'a> {
    /// Parses the properties that matter for a request of this kind.
    #[must_use]
    pub fn parse(
        kind: RequestKind,
        timestamp: Option<&'a str>,
        fencing_token: Option<&'a str>,
    ) -> Self {
        let needs_timestamp = kind == RequestKind::Set;
        Self {
            needs_timestamp,
            timestamp: timestamp.filter(|_| needs_timestamp).map(HlcRef::parse),
            fencing_token: fencing_token.filter(|_| kind.is_write()).map(HlcRef::parse),
        }
    }

    /// `__ts`, unless it is absent, malformed, or ignored for this kind of request.
    #[must_use]
    pub fn timestamp(&self) -> Option<HlcRef<'a>> {
        self.timestamp.and_then(Result::ok)
    }

    /// `__ft`, unless it is absent, malformed, or ignored for this kind of request.
    #[must_use]
    pub fn fencing_token(&self) -> Option<HlcRef<'a>> {
        self.fencing_token.and_then(Result::ok)
    }

    /// Verifies that no timestamp is more than `drift_max` ahead of the wall clock `now`.
    ///
    /// One exception (our choice; the protocol names the minute only): a timestamp is accepted
    /// however far ahead it is if it follows from what the store issued, that is if it is at most
    /// [`COUNTER_LEAD_MAX`] counts past `issued` in the same millisecond. A store whose wall clock
    /// was set back therefore accepts the tokens that it issued before, and clients whose clocks
    /// follow its versions. [`COUNTER_LEAD_MAX`] says why such timestamps cannot carry the clock
    /// away.
    ///
    /// # Errors
    /// [`TimestampError`], for `__ts` first and then for `__ft`.
    pub fn verify(
        &self,
        drift_max: Duration,
        now: UnixTime,
        issued: &Hlc<impl Node>,
    ) -> Result<RequestTimestamps<'a>, TimestampError> {
        let verify = |property, parsed: Result<HlcRef<'a>, ParseHlcError>| {
            let hlc = parsed.map_err(|error| TimestampError::Malformed { property, error })?;
            if hlc.wall() <= now + drift_max || follows(hlc, issued) {
                return Ok(hlc);
            }
            let ahead = hlc.wall().as_millis().saturating_sub(now.as_millis());
            let ahead = Duration::from_millis(ahead);
            Err(TimestampError::TooFarAhead { property, ahead, max: drift_max })
        };
        let mut verified = RequestTimestamps::default();
        match self.timestamp {
            Some(parsed) => {
                let hlc = verify(TimestampProperty::Timestamp, parsed)?;
                verified.timestamp = Some(Timestamp::new(hlc));
            }
            None if self.needs_timestamp => return Err(TimestampError::Missing),
            None => {}
        }
        if let Some(parsed) = self.fencing_token {
            let hlc = verify(TimestampProperty::FencingToken, parsed)?;
            verified.fencing_token = Some(FencingToken::new(hlc));
        }
        Ok(verified)
    }
}

/// Returns whether a timestamp is at most [`COUNTER_LEAD_MAX`] counts past an issued version.
fn follows(hlc: HlcRef<'_>, issued: &Hlc<impl Node>) -> bool {
    let lead = issued.counter().saturating_add(COUNTER_LEAD_MAX);
    (hlc.wall(), hlc.counter()) <= (issued.wall(), lead)
}
