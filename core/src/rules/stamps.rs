//! Step 3: the timestamps of a request become typed values or a refusal.

use core::time::Duration;

use crate::hlc::{FencingToken, FencingTokenRef, HlcRef, Timestamp, TimestampRef};
use crate::limits::{CLOCK_DRIFT_MAX, STAMP_LEAD_MAX};
use crate::message::{CommandKind, Refusal};
use crate::time::UnixTime;

/// The timestamps of a request, checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps<'a> {
    /// `__ts` of a SET.
    pub timestamp: Option<TimestampRef<'a>>,
    /// `__ft` of a SET, DEL or VDEL that carries one.
    pub fencing_token: Option<FencingTokenRef<'a>>,
}

impl<'a> Stamps<'a> {
    /// Checks `__ts` and `__ft` of a request of this kind against the store's clocks: `now` is its wall clock, `issued`
    /// the last version it issued ([`HybridClock::last`](crate::hlc::HybridClock::last)).
    ///
    /// `__ts` is read on SET only and `__ft` on writes only; elsewhere they are ignored, malformed or not. Being behind
    /// is no error; being ahead of the wall clock by [`CLOCK_DRIFT_MAX`] is not yet one.
    ///
    /// A stamp further ahead is still accepted when it follows from what the store itself has issued: it is at most
    /// [`STAMP_LEAD_MAX`] counts past `issued` in the same millisecond. So a store whose own wall clock was set back
    /// does not refuse the tokens that it gave out, nor clients whose clocks have followed it (our choice; the protocol
    /// names the minute only). [`STAMP_LEAD_MAX`] says why nobody can carry the clock away with such stamps.
    ///
    /// # Errors
    /// [`Refusal::MissingTimestamp`], [`Refusal::MalformedTimestamp`], [`Refusal::TimestampSkew`] for `__ts`, then
    /// [`Refusal::MalformedTimestamp`], [`Refusal::FencingTokenSkew`] for `__ft`.
    ///
    /// ```
    /// use statestore_proto::hlc::{HybridClock, NodeIdRef};
    /// use statestore_proto::message::{CommandKind, Refusal};
    /// use statestore_proto::rules::Stamps;
    /// use statestore_proto::time::UnixTime;
    ///
    /// let (now, clock) = (UnixTime::from_millis(1_000_000), HybridClock::new(NodeIdRef::STATE_STORE));
    /// let verify = |kind, ts| Stamps::verify(kind, Some(ts), None, now, clock.last());
    /// assert!(verify(CommandKind::Set, "1060000:0:c").is_ok());
    /// assert_eq!(verify(CommandKind::Set, "1060001:0:c"), Err(Refusal::TimestampSkew));
    /// assert!(verify(CommandKind::Get, "nonsense").is_ok());
    /// ```
    pub fn verify(
        kind: CommandKind,
        timestamp: Option<&'a str>,
        fencing_token: Option<&'a str>,
        now: UnixTime,
        issued: HlcRef<'_>,
    ) -> Result<Self, Refusal> {
        Self::verify_within(CLOCK_DRIFT_MAX, kind, timestamp, fencing_token, now, issued)
    }

    /// The same for a store that lets stamps be no more than `drift_max` ahead of its wall clock.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_within(
        drift_max: Duration,
        kind: CommandKind,
        timestamp: Option<&'a str>,
        fencing_token: Option<&'a str>,
        now: UnixTime,
        issued: HlcRef<'_>,
    ) -> Result<Self, Refusal> {
        let parse = |text, skew| parse(text, now + drift_max, issued, skew);
        let mut stamps = Self::default();
        if kind == CommandKind::Set {
            let text = timestamp.ok_or(Refusal::MissingTimestamp)?;
            stamps.timestamp = Some(Timestamp::new(parse(text, Refusal::TimestampSkew)?));
        }
        if let Some(text) = fencing_token.filter(|_| kind.is_write()) {
            stamps.fencing_token = Some(FencingToken::new(parse(text, Refusal::FencingTokenSkew)?));
        }
        Ok(stamps)
    }

    /// What the store's clock must receive before it issues the version of this write: the greater of both stamps.
    ///
    /// The version is then greater than the request's timestamp and than its token.
    #[must_use]
    pub fn latest(&self) -> Option<HlcRef<'a>> {
        let timestamp = self.timestamp.map(|timestamp| *timestamp.hlc());
        timestamp.max(self.fencing_token.map(|token| *token.hlc()))
    }
}

fn parse<'a>(
    text: &'a str,
    latest: UnixTime,
    issued: HlcRef<'_>,
    skew: Refusal,
) -> Result<HlcRef<'a>, Refusal> {
    let hlc = HlcRef::parse(text).map_err(|_| Refusal::MalformedTimestamp)?;
    let follows = || {
        let lead = (issued.wall(), issued.counter().saturating_add(STAMP_LEAD_MAX));
        (hlc.wall(), hlc.counter()) <= lead
    };
    if hlc.wall() <= latest || follows() { Ok(hlc) } else { Err(skew) }
}
