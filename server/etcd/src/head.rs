//! Head of the chain. Every transaction compares it with that of the previous transaction, and
//! raises it.

use statestore_proto::hlc::Version;
use statestore_proto::time::UnixTime;

/// Position and state of the chain after a transaction. Encoded as text: the fields in this order,
/// separated by spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Increases with each new leader, which fences former leaders.
    pub(crate) epoch: u64,
    /// Increases with each transaction.
    pub(crate) sequence: u64,
    /// Wall clock of the writer.
    pub(crate) written: UnixTime,
    /// Lease of the writer. It is unique, so two writers never write the same head.
    pub(crate) writer: i64,
    /// Greatest version that was issued.
    pub(crate) clock: Option<Version>,
}

/// Text for a clock without versions.
const NO_CLOCK: &str = "-";

impl Head {
    /// Head of a store that has never had a leader.
    pub(crate) const fn first(written: UnixTime) -> Self {
        Self { epoch: 0, sequence: 0, written, writer: 0, clock: None }
    }

    /// Returns the position in the chain, which increases with each transaction and each leader.
    pub(crate) const fn position(&self) -> (u64, u64) {
        (self.epoch, self.sequence)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { epoch, sequence, written, writer, clock } = self;
        let clock = match clock {
            Some(clock) => clock.hlc().encode(),
            None => NO_CLOCK.to_owned(),
        };
        format!("{epoch} {sequence} {} {writer} {clock}", written.as_millis()).into_bytes()
    }

    /// Decodes exactly the form of [`encode`](Self::encode); `None` for other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = core::str::from_utf8(bytes).ok()?.splitn(5, ' ');
        let head = Self {
            epoch: fields.next()?.parse().ok()?,
            sequence: fields.next()?.parse().ok()?,
            written: UnixTime::from_millis(fields.next()?.parse().ok()?),
            writer: fields.next()?.parse().ok()?,
            clock: match fields.next()? {
                NO_CLOCK => None,
                clock => Some(clock.parse().ok()?),
            },
        };
        (head.encode() == bytes).then_some(head)
    }
}

/// Returns the greater of two versions.
pub(crate) fn later(one: Option<Version>, other: Option<Version>) -> Option<Version> {
    match (one, other) {
        (Some(one), Some(other)) if one.hlc() < other.hlc() => Some(other),
        (Some(one), _) => Some(one),
        (None, other) => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statestore_proto::hlc::{Hlc, NodeId};

    use super::*;

    fn version(wall: u64, counter: u64, node: &str) -> Version {
        Version::new(Hlc::new(UnixTime::from_millis(wall), counter, NodeId::new(node).unwrap()))
    }

    #[test]
    fn head_is_encoded_as_one_readable_line() {
        let clock = Some(version(1_700_000_000_000, 5, "a store"));
        let written = UnixTime::from_millis(1_700_000_000_123);
        let head = Head { epoch: 3, sequence: 77, written, writer: -9, clock };
        let line = b"3 77 1700000000123 -9 1700000000000:5:a store";
        assert_eq!(Head::decode(&head.encode()), Some(head.clone()));
        let shown = String::from_utf8(head.encode()).unwrap();
        assert!(shown.starts_with("3 77 1700000000123 -9 "), "{shown}");
        assert!(Head::decode(line).is_none_or(|read| read == head));
        assert_eq!(Head::first(written).encode(), b"0 0 1700000000123 0 -");
    }

    #[test]
    fn later_returns_the_greater_version() {
        let (one, two) = (Some(version(1, 9, "z")), Some(version(2, 0, "a")));
        assert_eq!(later(one.clone(), two.clone()), two);
        assert_eq!(later(two.clone(), one.clone()), two);
        assert_eq!(later(None, one.clone()), one);
        assert_eq!(later(one.clone(), None), one);
    }

    proptest! {
        #[test]
        fn decoding_returns_the_encoded_head(
            epoch: u64,
            sequence: u64,
            written: u64,
            writer: i64,
            wall in 0..1_u64 << 45,
            counter in 0..1_000_u64,
            has_clock: bool,
        ) {
            let written = UnixTime::from_millis(written);
            let clock = has_clock.then(|| version(wall, counter, "node"));
            let head = Head { epoch, sequence, written, writer, clock };
            prop_assert_eq!(Head::decode(&head.encode()), Some(head));
        }

        #[test]
        fn decoded_text_encodes_to_itself(text in "[0-9 +-]{0,24}( -| [0-9:]{0,9}:[a-z ]{0,3})?") {
            if let Some(head) = Head::decode(text.as_bytes()) {
                prop_assert_eq!(head.encode(), text.as_bytes());
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Head::decode(&bytes);
        }
    }
}
