//! The timestamps of a request.

use statestore_proto::message::{Refusal, RequestKind};

use super::clock::{self, DRIFT_MAX, LEAD_MAX, Stamp};

/// Verifies `__ts` of a SET and `__ft` of any write; other commands ignore both. `unix` is the wall
/// clock of the store, `issued` wall and counter of its last version.
///
/// # Errors
/// The refusal of the first one that is missing, malformed or too far ahead.
pub fn verify(
    kind: RequestKind,
    (timestamp, token): (Option<&str>, Option<&str>),
    unix: u64,
    issued: (u64, u64),
) -> Result<(Option<Stamp>, Option<Stamp>), Refusal> {
    let mut found = (None, None);
    if kind == RequestKind::Set {
        let text = timestamp.ok_or(Refusal::MissingTimestamp)?;
        found.0 = Some(read(text, unix, issued, Refusal::TimestampSkew)?);
    }
    let is_write = matches!(kind, RequestKind::Set | RequestKind::Del | RequestKind::VDel);
    if let (true, Some(text)) = (is_write, token) {
        found.1 = Some(read(text, unix, issued, Refusal::FencingTokenSkew)?);
    }
    Ok(found)
}

/// Parses a value at most a minute ahead of the wall clock, or at most 65,536 counts past the last
/// version.
fn read(text: &str, unix: u64, issued: (u64, u64), skew: Refusal) -> Result<Stamp, Refusal> {
    let stamp = clock::parse(text).ok_or(Refusal::MalformedTimestamp)?;
    let past_wall_clock = u128::from(stamp.0) > u128::from(unix) + u128::from(DRIFT_MAX);
    let past_issued = stamp.0 > issued.0
        || stamp.0 == issued.0 && u128::from(stamp.1) > u128::from(issued.1) + LEAD_MAX;
    if past_wall_clock && past_issued { Err(skew) } else { Ok(stamp) }
}
