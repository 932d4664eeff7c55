//! Arrays, commands and notifications. Most runs start after a fixed prefix, since all strings of
//! the length of a meaningful array would be too many.

use std::collections::BTreeMap;

use statestore_proto::message::{Command, Expiry, Notification};
use statestore_proto::resp::decode_array;

use super::{compare, strings};

/// Every blob string of up to `max` bytes over the alphabet, after `prefix`, and its content.
fn blobs(prefix: &[u8], letters: &[u8], max: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let digits: Vec<u8> = letters.iter().copied().filter(u8::is_ascii_digit).collect();
    let mut blobs = BTreeMap::new();
    for len in strings(&digits, max - 5).into_iter().filter(|len| !len.is_empty()) {
        let count: usize = String::from_utf8(len.clone()).unwrap().parse().unwrap();
        let room = max - 5 - len.len();
        for blob in strings(letters, room).into_iter().filter(|blob| blob.len() == count) {
            blobs.insert([prefix, b"$", &len, b"\r\n", &blob, b"\r\n"].concat(), blob);
        }
    }
    blobs
}

fn elements(payload: &[u8]) -> Option<Vec<Vec<u8>>> {
    let blobs = decode_array::<4>(payload).ok()?;
    assert_eq!(blobs.total(), blobs.as_slice().len());
    Some(blobs.as_slice().iter().map(|blob| blob.to_vec()).collect())
}

const LETTERS: &[u8] = b"*$01\r\nk-";

/// Strings of up to seven of these letters.
const STRINGS: usize = 2_396_745;

/// Blob strings of up to seven of these letters: `$0`, `$00`, and `$1` with each letter.
const BLOBS: usize = 10;

#[test]
fn of_all_short_arrays_exactly_the_valid_are_accepted() {
    let zeros = (1..=4).map(|zeros| (format!("*{}\r\n", "0".repeat(zeros)).into_bytes(), vec![]));
    let tried = compare(b"", (LETTERS, 7), &zeros.collect(), elements);
    let more = (1..=6).map(|zeros| (format!("*{}\r\n", "0".repeat(zeros)).into_bytes(), vec![]));
    let mut more: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = more.collect();
    more.insert(b"*1\r\n$0\r\n\r\n".to_vec(), vec![vec![]]);
    let more = more.into_iter().filter(|(payload, _)| payload.starts_with(b"*1"));
    let behind = compare(b"*1", (LETTERS, 8), &more.collect(), elements);
    assert_eq!((tried, behind), (STRINGS, 19_173_961));
}

#[test]
fn of_all_short_array_tails_exactly_the_valid_are_accepted() {
    let mut accepted = 0;
    for (prefix, before) in [
        (&b"*1\r\n"[..], vec![]),
        (b"*0001\r\n", vec![]),
        (b"*2\r\n$1\r\nk\r\n", vec![b"k".to_vec()]),
        (b"*2\r\n$0\r\n\r\n", vec![vec![]]),
        (b"*2\r\n$6\r\n$0\r\n\r\n\r\n", vec![b"$0\r\n\r\n".to_vec()]),
    ] {
        let whole = |(payload, blob)| (payload, [before.clone(), vec![blob]].concat());
        let valid: BTreeMap<_, _> = blobs(prefix, LETTERS, 7).into_iter().map(whole).collect();
        accepted += valid.len();
        assert_eq!(compare(prefix, (LETTERS, 7), &valid, elements), STRINGS);
    }
    assert_eq!(accepted, 5 * BLOBS);

    // After a length of one, only one byte and a line end can follow; after a full array, nothing.
    let one = LETTERS.iter().map(|byte| ([b"*1\r\n$1\r\n", &[*byte][..], b"\r\n"].concat(), *byte));
    let one = one.map(|(payload, byte)| (payload, vec![vec![byte]]));
    assert_eq!(compare(b"*1\r\n$1\r\n", (LETTERS, 7), &one.collect(), elements), STRINGS);
    let full = b"*1\r\n$1\r\nk\r\n";
    let only = BTreeMap::from([(full.to_vec(), vec![b"k".to_vec()])]);
    assert_eq!(compare(full, (LETTERS, 7), &only, elements), STRINGS);
}

/// Decodes a command, and checks that its canonical form decodes to the same command.
fn command(payload: &[u8]) -> Option<Command<Vec<u8>>> {
    let command = Command::decode(payload).ok()?;
    assert_eq!(Command::decode(&command.encode()), Ok(command));
    Some(command.map(<[u8]>::to_vec))
}

#[test]
fn of_all_short_command_tails_exactly_the_valid_are_accepted() {
    let get = b"*2\r\n$3\r\nGET\r\n";
    let keys = blobs(get, LETTERS, 7).into_iter().filter(|(_, key)| !key.is_empty());
    let gets: BTreeMap<_, _> = keys.map(|(payload, key)| (payload, Command::Get { key })).collect();
    assert_eq!(gets.len(), LETTERS.len(), "keys of one byte");
    assert_eq!(compare(get, (LETTERS, 7), &gets, command), STRINGS);

    let vdel = b"*3\r\n$4\r\nVDEL\r\n$1\r\nk\r\n";
    let vdels: BTreeMap<_, _> = blobs(vdel, LETTERS, 7)
        .into_iter()
        .map(|(payload, value)| (payload, Command::VDel { key: b"k".to_vec(), value }))
        .collect();
    assert_eq!(vdels.len(), BLOBS);
    assert_eq!(compare(vdel, (LETTERS, 7), &vdels, command), STRINGS);
}

#[test]
fn of_all_short_verbs_and_options_exactly_the_valid_are_accepted() {
    let key = || b"k".to_vec();
    let get = b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n";
    let verbs: BTreeMap<_, _> = ["get", "geT", "gEt", "gET", "Get", "GeT", "GEt", "GET"]
        .into_iter()
        .map(|verb| {
            (format!("*2\r\n$3\r\n{verb}\r\n$1\r\nk\r\n").into_bytes(), Command::Get { key: key() })
        })
        .collect();
    let three = |text: &[u8]| command(&[b"*2\r\n$3\r\n", text, b"\r\n$1\r\nk\r\n"].concat());
    let mut accepted = BTreeMap::new();
    super::every_string(b"", b"GETgetSD\r\n$", 5, |text| {
        if let Some(command) = three(text) {
            let payload = [b"*2\r\n$3\r\n", text, b"\r\n$1\r\nk\r\n"].concat();
            accepted.insert(payload, command);
        }
    });
    assert!(accepted.contains_key(get.as_slice()));
    assert_eq!(accepted, verbs);

    let px = b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nPX\r\n";
    let expiries: BTreeMap<_, _> = blobs(px, b"$0129-+\r\n", 8)
        .into_iter()
        .filter_map(|(payload, digits)| {
            let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
            let expiry = Expiry::from_millis(String::from_utf8(digits).ok()?.parse().ok()?)?;
            let (key, value, condition) = (key(), b"v".to_vec(), Default::default());
            Some((payload, Command::Set { key, value, condition, expiry: Some(expiry) }))
        })
        .collect();
    assert_eq!(expiries.len(), 21);
    // The letters after the type byte, to reach two digits of expiry.
    let behind = [&px[..], b"$"].concat();
    assert_eq!(compare(&behind, (b"$0129-+\r\n", 7), &expiries, command), 5_380_840);
}

#[test]
fn of_all_short_notification_tails_exactly_the_valid_are_accepted() {
    let notification =
        |payload: &[u8]| Some(Notification::decode(payload).ok()?.map(<[u8]>::to_vec));
    let set = b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n";
    let sets = blobs(set, LETTERS, 7);
    let sets = sets.into_iter().map(|(payload, value)| (payload, Notification::Set(value)));
    assert_eq!(compare(set, (LETTERS, 7), &sets.collect(), notification), STRINGS);

    for (prefix, rest) in [
        (&b"*2\r\n$6\r\nNOTIFY\r\n$3\r\n"[..], &b"DEL\r\n"[..]),
        (b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDEL", b"ETE\r\n"),
    ] {
        let valid = BTreeMap::from([([prefix, rest].concat(), Notification::Deleted)]);
        compare(prefix, (b"DELTdelt\r\n$", 5), &valid, notification);
    }
}
