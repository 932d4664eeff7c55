//! Payloads that are known to crash, hang or mislead RESP parsers, against every decoder.

use statestore_proto::message::{Command, Notification, Reply, RequestKind, WordCase};
use statestore_proto::resp::{Frame, decode_array, decode_frame};

/// Checks that every decoder rejects the payload.
fn rejected_by_all(name: &str, payload: &[u8]) {
    for case in [WordCase::Any, WordCase::Upper] {
        assert!(Command::decode_with(payload, case).is_err(), "{name}: a command");
    }
    for kind in RequestKind::ALL.iter().copied() {
        assert!(Reply::decode(payload, kind).is_err(), "{name}: a reply to {kind:?}");
    }
    assert!(Notification::decode(payload).is_err(), "{name}: a notification");
    assert!(decode_array::<7>(payload).is_err(), "{name}: an array");
    assert!(decode_frame(payload).is_err(), "{name}: a frame");
}

#[test]
fn impossible_counts_and_lengths_are_rejected() {
    let bodies: [&[u8]; 4] = [b"", b"k\r\n", b"$3\r\nGET\r\n$1\r\nk\r\n", &[b'k'; 10_000]];
    for number in [
        "4611686018427387904",
        "4294967295",
        "4294967296",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551614",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551618",
        "111111111111111111111",
        "99999999999999999999999999999999999999999",
        "-2",
        "+5",
        " 5",
        "5 ",
        "",
        "-",
        "0x5",
        "1e1",
        "1.0",
        "1_0",
        "\u{0665}",
        "?",
    ] {
        for body in bodies {
            for marker in ["*", "$", "*1\r\n$", "*2\r\n$3\r\nGET\r\n$"] {
                let payload = [format!("{marker}{number}\r\n").as_bytes(), body].concat();
                rejected_by_all(number, &payload);
            }
        }
    }
    rejected_by_all("null array", b"*-1\r\n");
    rejected_by_all("null element", b"*2\r\n$3\r\nGET\r\n$-1\r\n");
    rejected_by_all("integer of 21 digits", b":111111111111111111111\r\n");
    rejected_by_all("integer past 63 bits", b":9223372036854775808\r\n");
}

#[test]
fn incomplete_line_ends_are_rejected() {
    let pieces: [&[u8]; 7] = [b"\r", b"\n", b"\r\n", b"\n\r", b"\r\r\n", b"$\r\n", b"*\r\n"];
    for piece in pieces {
        rejected_by_all("alone", piece);
        rejected_by_all("ten thousand times", &piece.repeat(10_000));
    }
    for wrong in ["\r", "\n", "\r\r", "\n\r", "\r\r\n", "", " \r\n", "\0\r\n"] {
        for right in ["*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n"] {
            for (at, _) in right.match_indices("\r\n") {
                let payload = [&right[..at], wrong, &right[at + 2..]].concat();
                rejected_by_all(&format!("{wrong:?} at {at}"), payload.as_bytes());
            }
        }
    }
}

#[test]
fn deeply_nested_arrays_are_rejected() {
    rejected_by_all("arrays of one", &b"*1\r\n".repeat(10_000));
    rejected_by_all("arrays of two", &b"*2\r\n$1\r\nk\r\n".repeat(10_000));
    let innermost = [b"*1\r\n".repeat(10_000), b"$1\r\nk\r\n".to_vec()].concat();
    rejected_by_all("closed", &innermost);
}

#[test]
fn trailing_bytes_are_rejected() {
    let messages: [&[u8]; 5] = [
        b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n",
        b"+OK\r\n",
        b"$1\r\nv\r\n",
        b"-ERR syntax error\r\n",
    ];
    for message in messages {
        for byte in 0..=u8::MAX {
            rejected_by_all("one byte more", &[message, &[byte]].concat());
        }
        rejected_by_all("twice", &message.repeat(2));
        rejected_by_all("a thousand times", &message.repeat(1_000));
    }
}

#[test]
fn line_ends_and_frames_inside_keys_and_values_are_data() {
    for data in
        ["\r\n", "\r", "\n", "$-1\r\n", "*1\r\n$1\r\nk\r\n", "\r\n$1\r\nk\r\n", "-ERR x\r\n"]
    {
        let set = format!("*3\r\n$3\r\nSET\r\n${0}\r\n{data}\r\n${0}\r\n{data}\r\n", data.len());
        let Ok(Command::Set { key, value, .. }) = Command::decode(set.as_bytes()) else {
            panic!("{data:?} is a key and a value");
        };
        assert_eq!((key, value), (data.as_bytes(), data.as_bytes()));
        let blob = format!("${}\r\n{data}\r\n", data.len());
        assert_eq!(decode_frame(blob.as_bytes()), Ok(Frame::Blob(data.as_bytes())));
    }
}

#[test]
fn array_of_very_many_elements_takes_linear_time() {
    let count = 100_000;
    let payload = [format!("*{count}\r\n").into_bytes(), b"$0\r\n\r\n".repeat(count)].concat();
    let blobs = decode_array::<7>(&payload).unwrap();
    assert_eq!((blobs.total(), blobs.as_slice().len()), (count, 7));
    assert!(Command::decode(&payload).is_err());
    rejected_by_all("one element too few", &payload[..payload.len() - 6]);
}
