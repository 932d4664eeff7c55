//! The state that the records of a data directory describe.

use std::collections::{BTreeMap, BTreeSet};

use statestore_proto::hlc::Version;
use statestore_proto::store::Record;

use super::line::{Entry, StoredValue};

/// The state that the records of a data directory describe. It takes as much memory as the store.
#[derive(Default)]
#[non_exhaustive]
pub struct Contents {
    /// The keys, sorted, so that two dumps can be compared.
    pub entries: BTreeMap<Box<[u8]>, StoredValue>,
    /// Order numbers of recorded responses.
    pub responses: BTreeSet<u64>,
    /// Client id and key of each registration for notifications.
    pub registrations: BTreeSet<(Box<str>, Box<[u8]>)>,
    /// The greatest version.
    pub issued: Option<Version>,
}

impl Contents {
    /// Applies the next record.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Put { key, value, version, fencing_token, expires, persist } => {
                self.advance(&version);
                let version = Some(version);
                let stored = StoredValue { value, version, fencing_token, expires, persist };
                self.entries.insert(key, stored);
            }
            Record::Removed { key, version } => {
                self.advance(&version);
                self.entries.remove(&key);
            }
            Record::Response(response) => _ = self.responses.insert(response.order),
            Record::Registered { client_id, key, .. } => {
                self.registrations.insert((client_id, key));
            }
            Record::Unregistered { client_id, key } => {
                self.registrations.remove(&(client_id, key));
            }
            Record::Issued { version } => self.advance(&version),
            // A reader returns no other records.
            _ => {}
        }
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = self.entries.iter().map(|(key, stored)| key.len() + stored.value.len());
        bytes.fold(0, |sum, bytes| sum.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX)))
    }

    /// The keys as entries of a dump.
    #[must_use]
    pub fn into_entries(self) -> impl ExactSizeIterator<Item = Entry> {
        self.entries.into_iter().map(|(key, stored)| Entry { key, stored })
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
    fn later_record_wins_and_the_greatest_version_is_kept() {
        let mut contents = Contents::default();
        for record in [
            put(b"a", b"old", 1),
            put(b"b", b"gone", 9),
            put(b"a", b"new", 2),
            Record::Removed { key: Box::from(*b"b"), version: version(9) },
            Record::Issued { version: version(5) },
        ] {
            contents.apply(record);
        }
        assert_eq!(contents.entries.len(), 1);
        assert_eq!(&*contents.entries[&b"a"[..]].value, b"new");
        assert_eq!(contents.issued, Some(version(9)));
        assert_eq!(contents.bytes(), 4);
    }

    #[test]
    fn ended_registration_is_removed() {
        let mut contents = Contents::default();
        let key: Box<[u8]> = Box::from(*b"k");
        contents.registrations.insert(("c".into(), key.clone()));
        contents.registrations.insert(("d".into(), key.clone()));
        contents.apply(Record::Unregistered { client_id: "c".into(), key });
        assert_eq!(contents.registrations.len(), 1);
    }
}
