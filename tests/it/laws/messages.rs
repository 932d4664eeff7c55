//! Every encoding of a message decodes to that message, and no shorter or longer payload does.

use proptest::prelude::*;
use statestore_models::generators::{bytes, command, dialect, notification, padded_hlc, reply};
use statestore_proto::hlc::{Hlc, HlcRef};
use statestore_proto::message::{
    Command, Notification, PageEncoder, Reply, RequestKind, Response, ServiceError, WordCase,
};

use crate::support::{Writers, check_edges, open_error};

/// Maximum length of a payload whose prefixes are all checked, since the cost is quadratic.
const EDGES_MAX: usize = 400;

fn law(outcome: Result<(), String>) -> Result<(), TestCaseError> {
    outcome.map_err(TestCaseError::fail)
}

proptest! {
    #[test]
    fn commands_round_trip(command in command()) {
        let payload = command.encode();
        for case in [WordCase::Any, WordCase::Upper] {
            prop_assert_eq!(Command::decode_with(&payload, case), Ok(command.borrowed()));
        }
        let encode_into = |out: &mut [u8]| command.encode_into(out);
        let encoded_len = command.encoded_len();
        law(Writers { encoded_len, encode: payload.clone(), encode_into }.check(&payload))?;
        if payload.len() <= EDGES_MAX {
            law(check_edges(&payload, |edge| Command::decode(edge).is_ok(), |_| false))?;
        }
        prop_assert_eq!(command.clone().map(|bytes| bytes), command);
    }

    #[test]
    fn replies_round_trip((kind, reply) in reply(), dialect in dialect()) {
        let payload = reply.encode(dialect);
        let found = Reply::decode(&payload, kind).map(|found| found.map(<[u8]>::to_vec));
        prop_assert_eq!(found, Ok(reply.clone()));
        let encode_into = |out: &mut [u8]| reply.encode_into(dialect, out);
        let encoded_len = reply.encoded_len(dialect);
        law(Writers { encoded_len, encode: payload.clone(), encode_into }.check(&payload))?;
        if payload.len() <= EDGES_MAX {
            law(check_edges(&payload, |edge| Reply::decode(edge, kind).is_ok(), open_error))?;
        }
        let response = Response::from(reply);
        let encode_into = |out: &mut [u8]| response.encode_into(dialect, out);
        let (encoded_len, encode) = (response.encoded_len(dialect), response.encode(dialect));
        law(Writers { encoded_len, encode, encode_into }.check(&payload))?;
    }

    #[test]
    fn pages_round_trip(
        keys in proptest::collection::vec(bytes(), 0..4),
        token in proptest::option::of(bytes()),
        dialect in dialect(),
    ) {
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let payload = PageEncoder { keys: &keys, token: token.as_deref() }.encode();
        let response = Response::decode(&payload, RequestKind::Scan).expect("a page");
        let Response::Page(page) = response else { panic!("{response:?}") };
        prop_assert!(page.keys().eq(keys));
        prop_assert_eq!(page.token(), token.as_deref());
        let encode_into = |out: &mut [u8]| response.encode_into(dialect, out);
        let (encoded_len, encode) = (response.encoded_len(dialect), response.encode(dialect));
        law(Writers { encoded_len, encode, encode_into }.check(&payload))?;
    }

    #[test]
    fn notifications_round_trip(notification in notification(), dialect in dialect()) {
        let payload = notification.encode(dialect);
        let found = Notification::decode(&payload).map(|found| found.map(<[u8]>::to_vec));
        prop_assert_eq!(found, Ok(notification.clone()));
        let encode_into = |out: &mut [u8]| notification.encode_into(dialect, out);
        let encoded_len = notification.encoded_len(dialect);
        law(Writers { encoded_len, encode: payload.clone(), encode_into }.check(&payload))?;
        if payload.len() <= EDGES_MAX {
            law(check_edges(&payload, |edge| Notification::decode(edge).is_ok(), |_| false))?;
        }
    }

    #[test]
    fn clock_values_round_trip((hlc, padded) in padded_hlc()) {
        let bare = hlc.encode();
        prop_assert_eq!(&bare, &hlc.to_string());
        for text in [&bare, &padded] {
            let borrowed = HlcRef::parse(text).unwrap();
            prop_assert_eq!(&borrowed, &hlc);
            prop_assert_eq!(borrowed.encode(), bare.clone());
            let owned: Hlc = text.parse().unwrap();
            prop_assert_eq!((owned.node(), &owned), (hlc.node(), &hlc));
        }
        let encode_into = |out: &mut [u8]| hlc.encode_into(out);
        let writers =
            Writers {
                encoded_len: hlc.encoded_len(),
                encode: bare.clone().into_bytes(),
                encode_into,
            };
        law(writers.check(bare.as_bytes()))?;
    }

    #[test]
    fn error_text_of_one_line_is_preserved(text in bytes()) {
        let error = ServiceError::from_text(text.as_slice());
        let one_line = !text.contains(&b'\r') && !text.contains(&b'\n');
        prop_assert_eq!(error.is_some(), one_line);
        if let Some(error) = error {
            prop_assert_eq!((error.text(), error.known()), (text.as_slice(), None));
            let (shown, is_cut) = (error.to_string(), text.len() > 256);
            let end = if is_cut { "..." } else { "" };
            let expected = format!("{}{end}", String::from_utf8_lossy(&text[..text.len().min(256)]));
            prop_assert_eq!(shown.chars().count(), expected.chars().count());
            for (shown, expected) in shown.chars().zip(expected.chars()) {
                let is_replaced = shown == char::REPLACEMENT_CHARACTER;
                let may_be_replaced = expected.is_control() || !expected.is_ascii();
                prop_assert!(!shown.is_control());
                prop_assert!(shown == expected || (is_replaced && may_be_replaced));
            }
            let owned = error.map(<[u8]>::to_vec);
            prop_assert_eq!(owned.text(), text.as_slice());
        }
    }

    #[test]
    fn debug_output_never_shows_a_value(command in command()) {
        const SECRET: &[u8] = b"hunter2-hunter2";
        let hidden = match command {
            Command::Set { condition, expiry, .. } => {
                Command::Set { key: b"k".to_vec(), value: SECRET.to_vec(), condition, expiry }
            }
            _ => Command::VDel { key: b"k".to_vec(), value: SECRET.to_vec() },
        };
        let shown = [
            format!("{hidden:?}"),
            format!("{:?}", Notification::Set(SECRET)),
            format!("{:?}", Reply::Value(SECRET)),
        ];
        for text in shown {
            prop_assert!(!text.contains("hunter2") && text.contains("<15 bytes>"), "{}", text);
        }
    }
}

#[test]
fn error_text_of_two_lines_is_rejected() {
    for text in ["\r", "\n", "\r\n", "a\rb", "a\nb", "syntax error\r\n", "\nsyntax error"] {
        assert_eq!(ServiceError::from_text(text), None, "{text:?}");
    }
}

#[test]
fn debug_output_truncates_long_keys() {
    let shown = |key: &[u8]| format!("{:?}", Command::Get { key });
    assert_eq!(shown(b"a\r\n\xff"), r#"Get { key: "a\r\n\xff" }"#);
    assert_eq!(shown(&[b'k'; 32]), format!("Get {{ key: \"{}\" }}", "k".repeat(32)));
    let cut = format!("Get {{ key: \"{}\"... (40000 bytes) }}", "k".repeat(32));
    assert_eq!(shown(&[b'k'; 40_000]), cut);
}
