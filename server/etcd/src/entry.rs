//! Decoding of entries in etcd. Values that a store did not write are errors.

use etcd_client::KeyValue;
use statestore_proto::store::{
    RECORDS_FORMAT, Record, RecordedResponse, RecordsError, decode_records,
};

use crate::error::Failure;
use crate::head::Head;
use crate::keys::{Keys, Name};
use crate::presence::{self, StandbyStatus};
use crate::role::{Leader, decode_leader};

/// Version of the layout of all keys and values.
pub(crate) const FORMAT: &str = "statestore 1";

/// Common beginning of all layout versions.
const FORMAT_OF_ALL: &str = "statestore ";

/// A decoded key and value.
#[derive(Debug, PartialEq)]
pub(crate) enum Entry {
    /// The layout has the supported version.
    Format,
    Head(Head),
    /// Decoded by [`decode_leader_key`], which needs the lease too.
    Leader,
    /// A key that no store writes. It is ignored.
    Unknown,
    /// Record of an entry or a registration.
    Record(Record),
    /// Responses of one transaction, in order.
    Responses {
        number: u64,
        responses: Vec<RecordedResponse>,
    },
    Standby(StandbyStatus),
}

/// Decodes a key and its value.
///
/// # Errors
/// [`Failure`] if a store does not write such a value, or if a later version wrote it.
pub(crate) fn decode(keys: &Keys, key: &[u8], value: &[u8]) -> Result<Entry, Failure> {
    let damaged = || Failure::damaged(key);
    let Some(name) = keys.parse(key) else { return Ok(Entry::Unknown) };
    Ok(match name {
        Name::Format => {
            check_format(keys, value)?;
            Entry::Format
        }
        Name::Head => Entry::Head(Head::decode(value).ok_or_else(damaged)?),
        Name::Leader => Entry::Leader,
        Name::Standby { name } => {
            presence::decode(name, value).map_or(Entry::Unknown, Entry::Standby)
        }
        Name::Responses { number } => {
            let response = |record| match record {
                Record::Response(response) => Ok(response),
                _ => Err(damaged()),
            };
            let responses = records(keys, key, value)?.into_iter().map(response);
            Entry::Responses { number, responses: responses.collect::<Result<_, _>>()? }
        }
        Name::Value { .. } | Name::Watch { .. } => {
            let mut records = records(keys, key, value)?.into_iter();
            let (Some(record), None) = (records.next(), records.next()) else {
                return Err(damaged());
            };
            let place = match &record {
                Record::Put { key, .. } => Some(keys.value(key)),
                Record::Registered { key, client_id, .. } => keys.watch(key, client_id),
                _ => None,
            };
            if place.as_deref() != Some(key) {
                return Err(damaged());
            }
            Entry::Record(record)
        }
    })
}

/// State of the leader key.
#[derive(Debug, PartialEq)]
pub(crate) enum LeaderKey {
    /// This store leads.
    Store(Leader),
    /// The key has no lease, so no store has written it. The next leader replaces it.
    Unleased,
    /// Another program has written the key. No store can lead before this lease ends.
    Foreign(i64),
}

/// Decodes the leader key.
pub(crate) fn decode_leader_key(kv: &KeyValue) -> LeaderKey {
    match (kv.lease(), decode_leader(kv.value())) {
        (0, _) => LeaderKey::Unleased,
        (_, Some(leader)) => LeaderKey::Store(leader),
        (lease, None) => LeaderKey::Foreign(lease),
    }
}

fn records(keys: &Keys, key: &[u8], value: &[u8]) -> Result<Vec<Record>, Failure> {
    decode_records(value).map_err(|error| match error {
        RecordsError::Later(found) => Failure::Later {
            prefix: keys.prefix(),
            found: format!("records {found}"),
            known: format!("records {RECORDS_FORMAT}"),
        },
        _ => Failure::damaged(key),
    })
}

/// Checks the version of the layout.
///
/// # Errors
/// [`Failure::Later`] for a later version, and [`Failure::Foreign`] for any other text.
pub(crate) fn check_format(keys: &Keys, value: &[u8]) -> Result<(), Failure> {
    match core::str::from_utf8(value) {
        Ok(FORMAT) => Ok(()),
        Ok(found) if found.starts_with(FORMAT_OF_ALL) && found.len() < 64 => {
            let (found, known) = (found.to_owned(), FORMAT.to_owned());
            Err(Failure::Later { prefix: keys.prefix(), found, known })
        }
        _ => Err(Failure::Foreign(keys.prefix())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statestore_proto::store::encode_records;

    use super::*;

    fn keys() -> Keys {
        Keys::new("/ss/shop/")
    }

    fn unwatched() -> Vec<u8> {
        encode_records([&Record::Unregistered { client_id: "lamp".into(), key: Box::from(*b"on") }])
    }

    #[test]
    fn unknown_layouts_are_refused() {
        assert_eq!(check_format(&keys(), b"statestore 1"), Ok(()));
        let later = check_format(&keys(), b"statestore 2").unwrap_err();
        assert!(later.to_string().contains("\"statestore 2\""), "{later}");
        for other in [&b""[..], b"1", b"\xff", b"statestore"] {
            let foreign = Err(Failure::Foreign("/ss/shop/".to_owned()));
            assert_eq!(check_format(&keys(), other), foreign);
        }
    }

    #[test]
    fn record_at_the_wrong_key_is_damage() {
        let place = keys().value(b"on");
        let other = encode_records([&put(b"off")]);
        assert_eq!(decode(&keys(), &place, &other), Err(Failure::damaged(&place)));
        let right = encode_records([&put(b"on")]);
        assert_eq!(decode(&keys(), &place, &right), Ok(Entry::Record(put(b"on"))));
        let twice = encode_records([&put(b"on"), &put(b"on")]);
        assert_eq!(decode(&keys(), &place, &twice), Err(Failure::damaged(&place)));
        for place in [place, keys().responses(7), keys().watch(b"on", "lamp").unwrap()] {
            assert_eq!(decode(&keys(), &place, &unwatched()), Err(Failure::damaged(&place)));
        }
    }

    fn put(key: &[u8]) -> Record {
        use statestore_proto::hlc::{Hlc, NodeId, Version};
        use statestore_proto::time::UnixTime;
        let node = NodeId::new("node").unwrap();
        Record::Put {
            key: key.into(),
            value: Box::default(),
            version: Version::new(Hlc::new(UnixTime::from_millis(1), 0, node)),
            fencing_token: None,
            expires: None,
            persist: true,
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(inside: Vec<u8>, place in 0..7_usize, value: Vec<u8>, is_records: bool) {
            let places = [&b""[..], b"fmt", b"head", b"leader", b"k/", b"w/", b"a/00000000000000"];
            let key = [b"/ss/shop/", places[place], &inside].concat();
            // Valid records first, so that the bytes after their checksum are decoded too.
            let value = if is_records { [&unwatched()[..], &value].concat() } else { value };
            let _ = decode(&keys(), &key, &value);
            let _ = decode(&keys(), &inside, &value);
        }

        #[test]
        fn changed_byte_is_an_error(at in 0..60_usize, change in 1..=255_u8) {
            let place = keys().value(b"on");
            let mut bytes = encode_records([&put(b"on")]);
            let at = at % bytes.len();
            bytes[at] ^= change;
            prop_assert!(decode(&keys(), &place, &bytes).is_err());
        }
    }
}
