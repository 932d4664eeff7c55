//! What the machine tells whoever runs the broker, as lines of a log.

use std::net::SocketAddr;

use statestore_mqtt::broker::{Incident, IncidentKind};
use tracing::{field, info, warn};

/// Bytes of a name in a line.
const NAME_MAX: usize = 128;

/// Says it, each kind at a place of its own: a log that counts what is said over and over does so by the place, and many of one
/// kind are not to hide the others.
pub(crate) fn say(incident: &Incident, peer: Option<SocketAddr>) {
    use IncidentKind as Kind;
    let Incident { client_id, topic, response_topic, times, .. } = incident;
    let (client_id, topic) = (client_id.as_deref(), topic.as_deref());
    let response_topic = response_topic.as_deref();
    let more = (*times > 1).then(|| times - 1);
    let is_known = peer.is_some();
    // With the port as long as the connection is there.
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
        Kind::Address => line!(warn),
        Kind::Will => line!(warn),
        Kind::Sessions => line!(warn),
        Kind::NoConnect => line!(warn),
        // Its handshake says that itself.
        Kind::Silent if !is_known && !incident.again => {}
        Kind::Silent => line!(warn),
        Kind::Unanswered => line!(warn),
        Kind::Offence => line!(warn),
        Kind::KeepAlive => line!(warn),
        Kind::Expired => line!(warn),
        // It has lost its connection, and was back before that was known here.
        Kind::TakenOver if !incident.again && *times == 1 => line!(info),
        Kind::TakenOver => line!(warn),
        Kind::Share => line!(warn),
        Kind::Memory => line!(warn),
        Kind::GaveWay => line!(warn),
        Kind::Missed => line!(warn),
        Kind::Publish => line!(warn),
        Kind::Rate => line!(warn),
        Kind::Retained => line!(warn),
        Kind::Dropped => line!(warn),
        Kind::Subscribe => line!(warn),
        Kind::Subscriptions => line!(warn),
        _ => line!(warn),
    }
}

/// The first 128 bytes of a name, as [`Incident`] has them.
pub(crate) fn shortened(name: &str) -> &str {
    let end = (0..=name.len().min(NAME_MAX)).rev().find(|end| name.is_char_boundary(*end));
    end.and_then(|end| name.get(..end)).unwrap_or_default()
}
