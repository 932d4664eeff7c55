//! Client ids, clock values and topics, as read and written by the oracle.

use statestore_proto::hlc::HlcRef;
use statestore_proto::message::Refusal;
use statestore_proto::topic::RESERVED;

use crate::machines::ask::Ask;

/// A clock value: order is wall, counter, node bytewise.
pub type Stamp = (u64, u64, String);

pub(super) fn identity(ask: &Ask) -> Option<String> {
    let from_topic = || {
        let tail = "/services/statestore/_any_/command/invoke/response";
        let id = ask.response_topic.as_ref()?.strip_prefix("clients/")?.strip_suffix(tail)?;
        (!id.is_empty() && !id.contains(['+', '#', '\0'])).then(|| id.to_owned())
    };
    let source = || ask.source.clone().filter(|id| !id.is_empty());
    ask.verified.clone().or_else(source).or_else(from_topic)
}

/// Parses a value at most a minute ahead of the wall clock, or at most 65,536 counts past the last
/// version.
pub(super) fn stamp(
    text: &str,
    unix: u64,
    issued: (u64, u64),
    ahead: Refusal,
) -> Result<Stamp, Refusal> {
    let hlc = HlcRef::parse(text).map_err(|_| Refusal::MalformedTimestamp)?;
    let stamp = (hlc.wall().as_millis(), hlc.counter(), hlc.node().as_str().to_owned());
    let follows = (stamp.0, stamp.1) <= (issued.0, issued.1 + 65_536);
    if stamp.0 > unix.saturating_add(60_000) && !follows { Err(ahead) } else { Ok(stamp) }
}

/// The wall part of a valid clock value.
pub(super) fn wall(text: &str) -> Option<u64> {
    HlcRef::parse(text).ok().map(|hlc| hlc.wall().as_millis())
}

/// The bare text of a clock value.
#[must_use]
pub fn text((wall, counter, node): Stamp) -> String {
    format!("{wall}:{counter}:{node}")
}

pub(super) fn notification_topic(client: &str, key: &[u8]) -> String {
    let (client, key) = (hex::encode_upper(client), hex::encode_upper(key));
    format!("{RESERVED}/{client}/command/notify/{key}")
}
