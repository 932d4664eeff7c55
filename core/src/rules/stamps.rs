//! Step 3: the timestamps of a request become typed values or a refusal.

use crate::hlc::{FencingToken, FencingTokenRef, HlcRef, Timestamp, TimestampRef};
use crate::limits::CLOCK_DRIFT_MAX;
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
    /// Checks `__ts` and `__ft` of a request of this kind against the store's wall clock.
    ///
    /// `__ts` is read on SET only and `__ft` on writes only; elsewhere they are ignored, malformed or not. Being behind
    /// is no error; being ahead by [`CLOCK_DRIFT_MAX`] is not yet one.
    ///
    /// # Errors
    /// [`Refusal::MissingTimestamp`], [`Refusal::MalformedTimestamp`], [`Refusal::TimestampSkew`] for `__ts`, then
    /// [`Refusal::MalformedTimestamp`], [`Refusal::FencingTokenSkew`] for `__ft`.
    ///
    /// ```
    /// use statestore_proto::message::{CommandKind, Refusal};
    /// use statestore_proto::rules::Stamps;
    /// use statestore_proto::time::UnixTime;
    ///
    /// let now = UnixTime::from_millis(1_000_000);
    /// assert!(Stamps::verify(CommandKind::Set, Some("1060000:0:c"), None, now).is_ok());
    /// let late = Stamps::verify(CommandKind::Set, Some("1060001:0:c"), None, now);
    /// assert_eq!(late, Err(Refusal::TimestampSkew));
    /// assert!(Stamps::verify(CommandKind::Get, Some("nonsense"), None, now).is_ok());
    /// ```
    pub fn verify(
        kind: CommandKind,
        timestamp: Option<&'a str>,
        fencing_token: Option<&'a str>,
        now: UnixTime,
    ) -> Result<Self, Refusal> {
        let limit = now + CLOCK_DRIFT_MAX;
        let mut stamps = Self::default();
        if kind == CommandKind::Set {
            let text = timestamp.ok_or(Refusal::MissingTimestamp)?;
            stamps.timestamp = Some(Timestamp::new(parse(text, limit, Refusal::TimestampSkew)?));
        }
        if let Some(text) = fencing_token.filter(|_| kind.is_write()) {
            stamps.fencing_token =
                Some(FencingToken::new(parse(text, limit, Refusal::FencingTokenSkew)?));
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

fn parse(text: &str, limit: UnixTime, skew: Refusal) -> Result<HlcRef<'_>, Refusal> {
    let hlc = HlcRef::parse(text).map_err(|_| Refusal::MalformedTimestamp)?;
    if hlc.wall() > limit { Err(skew) } else { Ok(hlc) }
}
