//! Invalid payloads, with their error and its offset.

use statestore_proto::message::{
    Command, Notification, PeerErrorKind, Reply, RequestKind, WordCase,
};

use super::{problem, vectors, verb_of};
use crate::support::same;

#[test]
fn invalid_requests_have_the_error_and_offset_in_the_file() {
    vectors("requests-refused.txt").run(110, |case| {
        let (payload, text) = (case.bytes("payload")?, case.text("text")?);
        let at = case.value::<usize>("at")?;
        let strict_only = match case.text("case")? {
            "any" => false,
            "upper" => true,
            other => return Err(format!("unknown case {other}")),
        };
        for (word_case, applies) in [(WordCase::Any, !strict_only), (WordCase::Upper, true)] {
            let found = Command::decode_with(&payload, word_case);
            if !applies {
                same("in any case", &found.is_ok_and(|found| !found.key().is_empty()), &true)?;
                continue;
            }
            let found = found.map_err(|error| (error.kind.refusal().text(), error.at));
            same(&format!("{word_case:?}"), &found, &Err((text, at)))?;
        }
        Ok(())
    });
}

#[test]
fn invalid_replies_have_the_error_and_offset_in_the_file() {
    vectors("replies-refused.txt").run(70, |case| {
        let payload = case.bytes("payload")?;
        let expected = (case.text("problem")?, case.value::<usize>("at")?);
        for kind in RequestKind::ALL.iter().copied() {
            let found = Reply::decode(&payload, kind);
            let found = found.map_err(|error| (problem(error.kind), error.at));
            same(verb_of(kind), &found, &Err(expected))?;
        }
        Ok(())
    });
}

#[test]
fn invalid_notifications_have_the_error_and_offset_in_the_file() {
    vectors("notifications-refused.txt").run(20, |case| {
        let payload = case.bytes("payload")?;
        let expected = (case.text("problem")?, case.value::<usize>("at")?);
        let found = Notification::decode(&payload);
        same("decode", &found.map_err(|error| (problem(error.kind), error.at)), &Err(expected))
    });
}

#[test]
fn message_of_another_kind_is_rejected() {
    let requests = vectors("requests.txt");
    requests.run(65, |case| {
        let payload = case.bytes("payload")?;
        let notification = Notification::decode(&payload).map_err(|error| error.kind);
        same("notification", &notification, &Err(PeerErrorKind::UnexpectedNotification))?;
        let refused = |kind: &RequestKind| Reply::decode(&payload, *kind).is_err();
        same("reply refused", &RequestKind::ALL.iter().all(refused), &true)
    });
    vectors("notifications.txt").run(12, |case| {
        let payload = case.bytes("payload")?;
        let request = Command::decode(&payload).map_err(|error| error.kind);
        same("request", &request, &Err(PeerErrorKind::UnknownCommand))
    });
}

#[test]
fn scan_with_any_number_of_arguments_is_no_command() {
    let refused = |payload: &[u8]| Command::decode(payload).map_err(|error| error.kind).map(drop);
    let unknown = Err(PeerErrorKind::UnknownCommand);
    vectors("scans.txt").run(8, |case| same("scan", &refused(&case.bytes("payload")?), &unknown));
    for arguments in 0..=8 {
        let mut payload = format!("*{}\r\n$4\r\nscan\r\n", arguments + 1);
        payload.push_str(&"$1\r\na\r\n".repeat(arguments));
        assert_eq!(refused(payload.as_bytes()), unknown, "{arguments} arguments");
    }
}
