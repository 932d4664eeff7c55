//! Proves that each accepted request completes exactly once and has at most one effect, however
//! often it is delivered.
//!
//! Checks completions and the replies on the wire: a request executed twice has two replies, and
//! the second reply to an effective write cannot equal the first.

use statestore_proto::message::RequestKind;

use crate::runs::{History, Wire};

/// Checks a history and its deliveries.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, wire: &Wire) -> Result<(), String> {
    if history.strays > 0 {
        return Err(format!("{} events belong to nothing that was asked", history.strays));
    }
    if let Some(op) = history.ops.iter().find(|op| op.completions != 1) {
        return Err(format!("{} completions of {op:?}", op.completions));
    }
    for (name, exchange) in &wire.exchanges {
        // Neither has an effect that repeats; a duplicate may find another value, or free capacity.
        if matches!(exchange.kind, RequestKind::Get | RequestKind::Watch) {
            continue;
        }
        if let Some((first, rest)) = exchange.replies.split_first()
            && let Some(other) = rest.iter().find(|other| *other != first)
        {
            return Err(format!(
                "{name:?} ({:?}) took effect twice: answered {first:?} and then {other:?}",
                exchange.kind
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use statestore_proto::message::{Command, RequestKind};

    use super::check;
    use crate::runs::{Answer, Exchange, History, Moment, Op, RequestName, Wire};

    fn answered(kind: RequestKind, payloads: [&'static [u8]; 2]) -> Wire {
        let replies = payloads
            .map(|payload| Answer { payload: Bytes::from_static(payload), version: None })
            .to_vec();
        let exchange = Exchange {
            first: 1,
            deliveries: 2,
            kind,
            timestamp: None,
            expected: Vec::new(),
            replies,
        };
        let mut wire = Wire::default();
        wire.exchanges.insert(RequestName::default(), exchange);
        wire
    }

    #[test]
    fn two_different_replies_to_one_write_are_found() {
        let history = History::default();
        assert!(check(&history, &answered(RequestKind::Del, [b":1\r\n", b":0\r\n"])).is_err());
        assert_eq!(check(&history, &answered(RequestKind::Del, [b":1\r\n", b":1\r\n"])), Ok(()));
        assert_eq!(
            check(&history, &answered(RequestKind::Get, [b"$-1\r\n", b"$0\r\n\r\n"])),
            Ok(())
        );
    }

    #[test]
    fn a_request_without_exactly_one_completion_is_found() {
        for completions in [0, 1, 2] {
            let op = Op {
                name: RequestName::default(),
                command: Command::Get { key: Bytes::from_static(b"k") },
                token: None,
                invoked: Moment::default(),
                completed: None,
                completions,
            };
            let history = History { ops: vec![op], ..History::default() };
            assert_eq!(check(&history, &Wire::default()).is_ok(), completions == 1);
        }
        let history = History { strays: 1, ..History::default() };
        assert!(check(&history, &Wire::default()).is_err());
    }
}
