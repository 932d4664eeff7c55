//! What etcd has, read: each key with its value, as it was written here or not at all.

use etcd_client::KeyValue;
use statestore_proto::store::{Record, RecordedResponse, RecordsError, decode_records};

use crate::error::Failure;
use crate::head::Head;
use crate::keys::{Keys, Name};
use crate::presence::{self, StandbyStatus};
use crate::role::{Leader, decode_leader};

/// The layout of all keys and values.
pub(crate) const FORMAT: &str = "statestore 1";

/// What layouts of later versions begin with too.
const FORMAT_OF_ALL: &str = "statestore ";

/// A key and its value.
#[derive(Debug, PartialEq)]
pub(crate) enum Entry {
    /// The layout is the one that is known here.
    Format,
    Head(Head),
    /// Read by [`leader`], which looks at its lease too.
    Leader,
    /// What no store has made. It is of no use and does no harm.
    Stray,
    /// Of a value or a registration.
    Record(Record),
    /// Of one transaction, in order.
    Answers {
        number: u64,
        answers: Vec<RecordedResponse>,
    },
    Standby(StandbyStatus),
}

/// Reads what is at a key.
///
/// # Errors
/// [`Failure`] when a store has not written it so.
pub(crate) fn read(keys: &Keys, key: &[u8], value: &[u8]) -> Result<Entry, Failure> {
    let damaged = || Failure::damaged(key);
    let Some(name) = keys.parse(key) else { return Ok(Entry::Stray) };
    Ok(match name {
        Name::Format => {
            check_format(keys, value)?;
            Entry::Format
        }
        Name::Head => Entry::Head(Head::decode(value).ok_or_else(damaged)?),
        Name::Leader => Entry::Leader,
        Name::Standby { name } => {
            presence::decode(name, value).map_or(Entry::Stray, Entry::Standby)
        }
        Name::Answers { number } => {
            let answer = |record| match record {
                Record::Response(answered) => Ok(answered),
                _ => Err(damaged()),
            };
            let answers = records(keys, key, value)?.into_iter().map(answer);
            Entry::Answers { number, answers: answers.collect::<Result<_, _>>()? }
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

/// What the key of the leader says.
#[derive(Debug, PartialEq)]
pub(crate) enum LeaderKey {
    /// This one leads.
    Of(Leader),
    /// Nobody leads: it is under no lease, so no store has put it there, and the next leader replaces it.
    Unleased,
    /// Somebody else's: nobody can lead before this lease ends.
    Foreign(i64),
}

/// Reads the key of the leader.
pub(crate) fn leader(kv: &KeyValue) -> LeaderKey {
    match (kv.lease(), decode_leader(kv.value())) {
        (0, _) => LeaderKey::Unleased,
        (_, Some(leader)) => LeaderKey::Of(leader),
        (lease, None) => LeaderKey::Foreign(lease),
    }
}

fn records(keys: &Keys, key: &[u8], value: &[u8]) -> Result<Vec<Record>, Failure> {
    decode_records(value).map_err(|error| match error {
        RecordsError::Later(found) => Failure::Later {
            prefix: keys.prefix(),
            found: format!("records {found}"),
            known: "records 1".to_owned(),
        },
        _ => Failure::damaged(key),
    })
}

/// # Errors
/// [`Failure::Later`] for the layout of a later version, and [`Failure::Foreign`] for what is none.
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
    fn only_the_known_layout_is_read() {
        assert_eq!(check_format(&keys(), b"statestore 1"), Ok(()));
        let later = check_format(&keys(), b"statestore 2").unwrap_err();
        assert!(later.to_string().contains("\"statestore 2\""), "{later}");
        for other in [&b""[..], b"1", b"\xff", b"statestore"] {
            let foreign = Err(Failure::Foreign("/ss/shop/".to_owned()));
            assert_eq!(check_format(&keys(), other), foreign);
        }
    }

    #[test]
    fn a_record_in_the_wrong_place_is_damage() {
        let place = keys().value(b"on");
        let other = encode_records([&put(b"off")]);
        assert_eq!(read(&keys(), &place, &other), Err(Failure::damaged(&place)));
        let right = encode_records([&put(b"on")]);
        assert_eq!(read(&keys(), &place, &right), Ok(Entry::Record(put(b"on"))));
        let twice = encode_records([&put(b"on"), &put(b"on")]);
        assert_eq!(read(&keys(), &place, &twice), Err(Failure::damaged(&place)));
        for place in [place, keys().answers(7), keys().watch(b"on", "lamp").unwrap()] {
            assert_eq!(read(&keys(), &place, &unwatched()), Err(Failure::damaged(&place)));
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
            let place: &[u8] = [&b""[..], b"fmt", b"head", b"leader", b"k/", b"w/", b"a/00000000000000"][place];
            let key = [b"/ss/shop/", place, &inside].concat();
            // A right checksum, so that what is behind it is read too.
            let value = if is_records { [&unwatched()[..], &value].concat() } else { value };
            let _ = read(&keys(), &key, &value);
            let _ = read(&keys(), &inside, &value);
        }

        #[test]
        fn a_changed_byte_is_no_other_entry(at in 0..60_usize, change in 1..=255_u8) {
            let place = keys().value(b"on");
            let mut bytes = encode_records([&put(b"on")]);
            let at = at % bytes.len();
            bytes[at] ^= change;
            prop_assert!(read(&keys(), &place, &bytes).is_err());
        }
    }
}
