//! Proves that issued versions strictly increase in the order of their requests, that each is
//! greater than the timestamp of its request, and that every reply equals that of the naive store.

use bytes::Bytes;
use statestore_proto::message::{Refusal, Reply, RequestKind, ServiceError};

use crate::runs::{Answer, Exchange, Wire};

/// Checks the versions of all writes with a reply. A store that has lost everything starts over.
///
/// # Errors
/// The first violation.
pub fn check(wire: &Wire) -> Result<(), String> {
    let done = |exchange: &&Exchange| {
        exchange.kind == RequestKind::Set
            && exchange.replies.first().is_some_and(|reply| {
                Reply::decode(&reply.payload, RequestKind::Set) == Ok(Reply::Done)
            })
    };
    let mut sets: Vec<&Exchange> = wire.exchanges.values().filter(done).collect();
    sets.sort_by_key(|exchange| exchange.first);
    let mut last = None;
    let mut losses = wire.losses.iter().peekable();
    for exchange in sets {
        while losses.next_if(|before| **before < exchange.first).is_some() {
            last = None;
        }
        let version = exchange.replies.first().and_then(|reply| reply.version.as_ref());
        if version.is_none() {
            return Err(format!("a write was answered without a version: {exchange:?}"));
        }
        if version <= exchange.timestamp.as_ref() {
            return Err(format!("the version is not greater than the timestamp: {exchange:?}"));
        }
        if version <= last {
            return Err(format!("the version is not greater than {last:?}: {exchange:?}"));
        }
        last = version;
    }
    Ok(())
}

/// Checks every reply against the naive store. Registrations may exceed a quota only if the
/// scenario has one.
///
/// # Errors
/// The first violation.
pub fn conformance(wire: &Wire, quota: bool) -> Result<(), String> {
    for (name, exchange) in &wire.exchanges {
        // The naive store ignores registrations; the checker of watches covers them.
        if matches!(exchange.kind, RequestKind::Watch | RequestKind::Unwatch) {
            let is_full = |reply: &&Answer| {
                quota && exchange.kind == RequestKind::Watch && is_refused(&reply.payload)
            };
            let plain = |reply: &&Answer| is_plain(&reply.payload) || is_full(reply);
            if let Some(reply) = exchange.replies.iter().find(|reply| !plain(reply)) {
                return Err(format!("{name:?}: {reply:?} to a registration"));
            }
            continue;
        }
        let wrong = exchange.replies.iter().find(|reply| !exchange.expected.contains(reply));
        if let Some(reply) = wrong {
            return Err(format!("{name:?}: {reply:?} instead of {:?}", exchange.expected));
        }
    }
    Ok(())
}

fn is_plain(payload: &Bytes) -> bool {
    matches!(Reply::decode(payload, RequestKind::Unwatch), Ok(Reply::Done | Reply::NotWatched))
}

fn is_refused(payload: &Bytes) -> bool {
    let full = Reply::Error(ServiceError::Known(Refusal::QuotaExceeded));
    Reply::decode(payload, RequestKind::Watch) == Ok(full)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use statestore_proto::message::RequestKind;

    use super::{check, conformance};
    use crate::runs::{Answer, Exchange, RequestName, Wire};

    fn answer(version: Option<&str>) -> Answer {
        let version = version.map(|version| version.parse().unwrap());
        Answer { payload: Bytes::from_static(b"+OK\r\n"), version }
    }

    /// Writes in order of arrival: timestamp and version.
    fn wire(sets: &[(&str, Option<&str>)]) -> Wire {
        let mut wire = Wire::default();
        for (number, (timestamp, version)) in (1..).zip(sets) {
            let exchange = Exchange {
                first: number,
                deliveries: 1,
                kind: RequestKind::Set,
                timestamp: Some(timestamp.parse().unwrap()),
                expected: vec![answer(*version)],
                replies: vec![answer(*version)],
            };
            // The order of names is not the order of arrival.
            wire.exchanges.insert(RequestName { client: 0, number: 100 - number }, exchange);
        }
        wire
    }

    #[test]
    fn versions_that_do_not_increase_are_found() {
        let good = [("5:0:c", Some("5:1:s")), ("4:0:c", Some("5:2:s")), ("9:0:c", Some("9:1:s"))];
        assert_eq!(check(&wire(&good)), Ok(()));
        assert!(check(&wire(&[("5:0:c", Some("5:0:a"))])).is_err());
        assert!(check(&wire(&[("5:0:c", None)])).is_err());
        assert!(check(&wire(&[("5:0:c", Some("7:0:s")), ("5:0:c", Some("7:0:s"))])).is_err());
    }

    #[test]
    fn a_reply_that_differs_from_the_reference_is_found() {
        let mut wire = wire(&[("5:0:c", Some("5:1:s"))]);
        assert_eq!(conformance(&wire, false), Ok(()));
        wire.exchanges.values_mut().for_each(|exchange| exchange.expected = vec![answer(None)]);
        assert!(conformance(&wire, false).is_err());
    }
}
