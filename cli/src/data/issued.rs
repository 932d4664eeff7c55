//! What was issued, so that no store that goes on from it, under whatever node id, takes a value for one of its future.

use statestore_proto::hlc::{Hlc, Version};
use statestore_proto::store::Record;
use statestore_proto::time::UnixTime;

/// The greatest versions in records.
#[derive(Default)]
pub(super) struct Issued {
    of_keys: Option<Version>,
    said: Option<Version>,
}

impl Issued {
    /// Takes the next record.
    pub(super) fn see(&mut self, record: &Record) {
        let (greatest, version) = match record {
            Record::Put { version, .. } | Record::Removed { version, .. } => {
                (&mut self.of_keys, version)
            }
            Record::Issued { version } => (&mut self.said, version),
            _ => return,
        };
        if greatest.as_ref().is_none_or(|greatest| greatest.hlc() < version.hlc()) {
            *greatest = Some(version.clone());
        }
    }

    /// The record that is missing, when none says of a version past those of all keys. A snapshot has the values up to what
    /// its store has issued, and of two versions with one time and counter the node id decides: without that record it
    /// could leave out the last value of a store with another one.
    pub(super) fn missing(&self) -> Option<Record> {
        let last = self.of_keys.as_ref()?;
        let position = |version: &Version| (version.hlc().wall(), version.hlc().counter());
        if self.said.as_ref().is_some_and(|said| position(said) > position(last)) {
            return None;
        }
        let (wall, counter) = position(last);
        let (wall, counter) = match counter.checked_add(1) {
            Some(next) => (wall, next),
            None => (UnixTime::from_millis(wall.as_millis().saturating_add(1)), 0),
        };
        let version = Version::new(Hlc::new(wall, counter, last.hlc().node().clone()));
        Some(Record::Issued { version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::new(text.parse().expect("a version"))
    }

    #[test]
    fn a_version_past_all_keys_is_said_once() {
        for (of_keys, said, missing) in [
            (&["5:1:z", "4:9:z"][..], None, Some("5:2:z")),
            (&["5:1:z"], Some("5:1:z"), Some("5:2:z")),
            (&["5:1:z"], Some("5:2:a"), None),
            (&["5:18446744073709551615:z"], None, Some("6:0:z")),
            (&[], Some("5:1:z"), None),
            (&[], None, None),
        ] {
            let mut issued = Issued::default();
            for text in of_keys {
                issued.see(&Record::Removed { key: Box::from(*b"k"), version: version(text) });
            }
            if let Some(said) = said {
                issued.see(&Record::Issued { version: version(said) });
            }
            let missing = missing.map(|text| Record::Issued { version: version(text) });
            assert_eq!(issued.missing(), missing, "{of_keys:?} {said:?}");
        }
    }
}
