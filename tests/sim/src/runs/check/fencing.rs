//! Proves that the tokens of applied writes never decrease during the life of a key, and that a
//! fenced key accepts no write without a token.
//!
//! Uses the order in which the store applied changes and the tokens that applications submitted,
//! not what was delivered.

use std::collections::BTreeMap;

use bytes::Bytes;
use statestore_proto::hlc::FencingToken;

use crate::runs::{Change, Effect, History, RequestName, Truth};

/// Checks a history against the order of its changes.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, truth: &Truth) -> Result<(), String> {
    let tokens =
        history.ops.iter().map(|op| (op.name, op.token.as_ref())).collect::<BTreeMap<_, _>>();
    check_changes(truth.log(), |name| tokens.get(&name).copied().flatten())
}

fn check_changes<'a>(
    log: &[Change],
    token_of: impl Fn(RequestName) -> Option<&'a FencingToken>,
) -> Result<(), String> {
    let mut fences: BTreeMap<&Bytes, &FencingToken> = BTreeMap::new();
    for change in log {
        let fence = fences.get(&change.key).copied();
        let token = change.by.and_then(&token_of);
        let admitted = change.by.is_none() || fence.is_none() || token >= fence;
        if !admitted {
            return Err(format!("the fence was {fence:?}, and {token:?} passed it: {change:?}"));
        }
        match (&change.effect, token) {
            (Effect::Set(_), Some(token)) => {
                fences.insert(&change.key, token);
            }
            (Effect::Set(_), None) => {}
            (Effect::Deleted | Effect::Expired | Effect::Lost, _) => {
                fences.remove(&change.key);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use statestore_proto::hlc::{FencingToken, Hlc};

    use super::check_changes;
    use crate::runs::{Change, Effect, RequestName};

    /// Requests are numbered by their token; zero means none.
    fn verdict(changes: &[(Effect, Option<u64>)]) -> bool {
        let hlc = |wall: u64| format!("{wall}:0:c").parse::<Hlc>().unwrap();
        let tokens: Vec<FencingToken> = (0..10).map(|wall| FencingToken::new(hlc(wall))).collect();
        let change = |(effect, number): &(Effect, Option<u64>)| Change {
            at: 0,
            key: Bytes::from_static(b"k"),
            effect: effect.clone(),
            version: hlc(1),
            by: number.map(|number| RequestName { client: 0, number }),
        };
        let log: Vec<Change> = changes.iter().map(change).collect();
        let token_of = |name: RequestName| {
            tokens.get(usize::try_from(name.number).unwrap()).filter(|_| name.number > 0)
        };
        check_changes(&log, token_of).is_ok()
    }

    #[test]
    fn stale_and_missing_tokens_are_detected() {
        let set = || Effect::Set(Vec::new());
        assert!(verdict(&[(set(), Some(0)), (set(), Some(5)), (set(), Some(5)), (set(), Some(7))]));
        assert!(!verdict(&[(set(), Some(5)), (set(), Some(4))]));
        assert!(!verdict(&[(set(), Some(5)), (set(), Some(0))]));
        assert!(!verdict(&[(set(), Some(5)), (Effect::Deleted, Some(4))]));
        assert!(verdict(&[(set(), Some(5)), (Effect::Deleted, Some(6)), (set(), Some(0))]));
        assert!(verdict(&[(set(), Some(5)), (Effect::Expired, None), (set(), Some(1))]));
    }
}
