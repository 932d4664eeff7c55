//! Reply frames.

use std::collections::BTreeMap;

use statestore_proto::message::{Dialect, Reply, RequestKind};
use statestore_proto::resp::{Frame, decode_frame};

use super::{compare, strings};

const LETTERS: &[u8] = b"$:+-01\r\nEROK ";
const MAX: usize = 7;

/// Every frame of up to `MAX` bytes over the alphabet, and its value.
fn valid() -> BTreeMap<Vec<u8>, Frame<Vec<u8>>> {
    let plain: Vec<u8> =
        LETTERS.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let mut frames =
        vec![(b"$-1\r\n".to_vec(), Frame::Null), (b"-1\r\n".to_vec(), Frame::Integer(-1))];
    for text in strings(&plain, MAX - 3) {
        frames.push(([b"+", text.as_slice(), b"\r\n"].concat(), Frame::Simple(text)));
    }
    for (head, end) in [("-ERR", ""), ("-ERR:", ""), ("-ERR", "\r\n"), ("-ERR:", "\r\n")] {
        frames.push((format!("{head}{end}").into_bytes(), Frame::Error(Vec::new())));
        for text in strings(&plain, MAX - 5) {
            let line = [head.as_bytes(), b" ", &text, end.as_bytes()].concat();
            frames.push((line, Frame::Error(text)));
        }
    }
    for digits in strings(b"01", MAX - 3).into_iter().filter(|digits| !digits.is_empty()) {
        let digits = String::from_utf8(digits).unwrap();
        let number: i64 = digits.parse().unwrap();
        frames.push((format!(":{digits}\r\n").into_bytes(), Frame::Integer(number)));
        frames.push((format!(":-{digits}\r\n").into_bytes(), Frame::Integer(-number)));
        for blob in
            strings(LETTERS, 2).into_iter().filter(|blob| i64::try_from(blob.len()) == Ok(number))
        {
            let payload = [format!("${digits}\r\n").as_bytes(), &blob, b"\r\n"].concat();
            frames.push((payload, Frame::Blob(blob)));
        }
    }
    frames.into_iter().filter(|(payload, _)| payload.len() <= MAX).collect()
}

#[test]
fn of_all_short_frames_exactly_the_valid_are_accepted() {
    let valid = valid();
    let tried = compare(b"", (LETTERS, MAX), &valid, |text| {
        Some(decode_frame(text).ok()?.map(<[u8]>::to_vec))
    });
    assert_eq!((tried, valid.len()), (67_977_560, 16_316));

    for (payload, frame) in &valid {
        let mut canonical = vec![0; frame.encoded_len()];
        frame.encode_into(&mut canonical).unwrap();
        let again = decode_frame(&canonical).map(|frame| frame.map(<[u8]>::to_vec));
        assert_eq!(again.as_ref(), Ok(frame), "{}", payload.escape_ascii());
    }
}

#[test]
fn of_all_short_errors_exactly_the_valid_are_accepted() {
    let letters = b": \r\nER0-$";
    let mut valid = BTreeMap::new();
    for head in ["", ":"] {
        for end in ["", "\r\n"] {
            valid.insert(format!("-ERR{head}{end}").into_bytes(), Frame::Error(Vec::new()));
            for text in strings(b": ER0-$", 6 - head.len() - end.len()) {
                let line = [b"-ERR", head.as_bytes(), b" ", &text, end.as_bytes()].concat();
                valid.insert(line, Frame::Error(text));
            }
        }
    }
    let tried = compare(b"-ERR", (letters, 7), &valid, |text| {
        Some(decode_frame(text).ok()?.map(<[u8]>::to_vec))
    });
    assert_eq!((tried, valid.len()), (5_380_840, 160_070));
}

#[test]
fn of_all_short_replies_exactly_the_valid_are_accepted() {
    let mut answers = 0;
    for payload in valid().keys() {
        for kind in RequestKind::ALL.iter().copied() {
            let Ok(reply) = Reply::decode(payload, kind) else { continue };
            answers += 1;
            for dialect in [Dialect::Deployed, Dialect::Spec] {
                let canonical = reply.encode(dialect);
                assert_eq!(
                    Reply::decode(&canonical, kind),
                    Ok(reply),
                    "{}",
                    payload.escape_ascii()
                );
            }
        }
    }
    assert_eq!(answers, 1_106);
}
