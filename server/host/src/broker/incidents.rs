//! Log events for incidents in the broker.

use std::net::SocketAddr;

use statestore_broker::{Incident, IncidentKind};
use tracing::{field, info, warn};

/// Maximum length of a name in a log event, in bytes.
const NAME_MAX: usize = 128;

/// Logs an incident. Each kind has its own callsite, because a log that limits repeated events
/// counts them per callsite. One kind must not suppress the others.
pub(crate) fn log(incident: &Incident, peer: Option<SocketAddr>) {
    use IncidentKind as Kind;
    let Incident { client_id, topic, response_topic, count, .. } = incident;
    let (client_id, topic) = (client_id.as_deref(), topic.as_deref());
    let response_topic = response_topic.as_deref();
    let more = (*count > 1).then(|| count - 1);
    // With the port, while the connection exists.
    let peer = peer.map(|peer| peer.to_string());
    let peer = peer.or_else(|| incident.peer.map(|peer| peer.to_string())).map(field::display);
    macro_rules! line {
        ($level:ident) => {
            $level!(peer, client_id, topic, response_topic, more, "{incident}")
        };
    }
    match incident.kind {
        Kind::Connect => line!(warn),
        Kind::Connections => line!(warn),
        Kind::Displaced => line!(warn),
        Kind::Address => line!(warn),
        Kind::Pending => line!(warn),
        Kind::OtherUser => line!(warn),
        Kind::Will => line!(warn),
        Kind::Sessions => line!(warn),
        Kind::NoConnect => line!(warn),
        Kind::ConnectTimeout => line!(warn),
        Kind::LoginTimeout => line!(warn),
        Kind::ProtocolViolation => line!(warn),
        Kind::KeepAlive => line!(warn),
        Kind::Expired => line!(warn),
        // The client lost its connection and reconnected before the broker noticed.
        Kind::TakenOver if !incident.is_repeated && *count == 1 => line!(info),
        Kind::TakenOver => line!(warn),
        Kind::Share => line!(warn),
        Kind::Memory => line!(warn),
        Kind::SessionEvicted => line!(warn),
        Kind::TooLarge => line!(warn),
        Kind::Publish => line!(warn),
        Kind::Rate => line!(warn),
        Kind::Retained => line!(warn),
        Kind::RetainedEvicted => line!(warn),
        Kind::Dropped => line!(warn),
        Kind::Subscribe => line!(warn),
        Kind::Subscriptions => line!(warn),
        _ => line!(warn),
    }
}

/// Truncates a name to 128 bytes, like those in [`Incident`].
pub(crate) fn truncated(name: &str) -> &str {
    let end = (0..=name.len().min(NAME_MAX)).rev().find(|end| name.is_char_boundary(*end));
    end.and_then(|end| name.get(..end)).unwrap_or_default()
}
