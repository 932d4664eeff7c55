//! What records say all together.

use std::collections::{BTreeMap, BTreeSet};

use statestore_proto::hlc::Version;
use statestore_proto::store::Record;

use super::format::Stored;

/// Everything that the records of a directory say. It takes as much memory as the store would.
#[derive(Default)]
pub(super) struct Contents {
    /// In the order of keys, so that two dumps can be compared.
    pub(super) keys: BTreeMap<Box<[u8]>, Stored>,
    pub(super) answers: BTreeSet<u64>,
    pub(super) registrations: BTreeSet<(Box<str>, Box<[u8]>)>,
    /// The greatest version.
    pub(super) issued: Option<Version>,
}

impl Contents {
    /// Takes the next record.
    pub(super) fn add(&mut self, record: Record) {
        match record {
            Record::Put { key, value, version, fencing_token, expires, persist } => {
                self.advance(&version);
                let version = Some(version);
                let stored = Stored { value, version, fencing_token, expires, persist };
                self.keys.insert(key, stored);
            }
            Record::Removed { key, version } => {
                self.advance(&version);
                self.keys.remove(&key);
            }
            Record::Response(answered) => _ = self.answers.insert(answered.order),
            Record::Registered { client_id, key, .. } => {
                self.registrations.insert((client_id, key));
            }
            Record::Unregistered { client_id, key } => {
                self.registrations.remove(&(client_id, key));
            }
            Record::Issued { version } => self.advance(&version),
            // Whoever reads records knows all that there are.
            _ => {}
        }
    }

    /// Bytes of keys and values.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.keys.iter().map(|(key, stored)| key.len() + stored.value.len());
        bytes.fold(0, |sum, bytes| sum.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX)))
    }

    fn advance(&mut self, version: &Version) {
        if self.issued.as_ref().is_none_or(|issued| issued.hlc() < version.hlc()) {
            self.issued = Some(version.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::hlc::{Hlc, NodeId};
    use statestore_proto::time::UnixTime;

    use super::*;

    fn version(wall: u64) -> Version {
        let node = NodeId::new("n").expect("a node id");
        Version::new(Hlc::new(UnixTime::from_millis(wall), 0, node))
    }

    fn put(key: &[u8], value: &[u8], wall: u64) -> Record {
        Record::Put {
            key: key.into(),
            value: value.into(),
            version: version(wall),
            fencing_token: None,
            expires: None,
            persist: false,
        }
    }

    #[test]
    fn what_comes_later_counts_but_no_version_is_forgotten() {
        let mut contents = Contents::default();
        for record in [
            put(b"a", b"old", 1),
            put(b"b", b"gone", 9),
            put(b"a", b"new", 2),
            Record::Removed { key: Box::from(*b"b"), version: version(9) },
            Record::Issued { version: version(5) },
        ] {
            contents.add(record);
        }
        assert_eq!(contents.keys.len(), 1);
        assert_eq!(&*contents.keys[&b"a"[..]].value, b"new");
        assert_eq!(contents.issued, Some(version(9)));
        assert_eq!(contents.bytes(), 4);
    }

    #[test]
    fn registrations_end() {
        let mut contents = Contents::default();
        let key: Box<[u8]> = Box::from(*b"k");
        contents.registrations.insert(("c".into(), key.clone()));
        contents.registrations.insert(("d".into(), key.clone()));
        contents.add(Record::Unregistered { client_id: "c".into(), key });
        assert_eq!(contents.registrations.len(), 1);
    }
}
