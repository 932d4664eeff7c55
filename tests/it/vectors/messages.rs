//! Valid payloads: their meaning, their end and their canonical form.

use statestore_proto::message::{
    Command, Condition, Dialect, Expiry, Notification, Operand, PeerErrorKind, Refusal, Reply,
    RequestKind, ServiceError, WordCase,
};
use statestore_proto::resp::decode_array;
use statestore_testkit::vectors::Case;

use super::{kinds, vectors, verb_of};
use crate::support::{Writers, check_edges, open_error, same};

#[test]
fn requests_are_decoded_and_encoded_as_in_the_file() {
    vectors("requests.txt").run(65, |case| {
        let (payload, form) = (case.bytes("payload")?, case.text("form")?);
        let expected = command(case)?;
        let found = Command::decode(&payload).map(|found| found.map(<[u8]>::to_vec));
        same("decode", &found, &Ok(expected.clone()))?;

        let upper = Command::decode_with(&payload, WordCase::Upper);
        match form {
            "any-case" => same("upper case only", &upper.is_err(), &true)?,
            _ => same("upper case only", &upper, &Ok(expected.borrowed()))?,
        }
        check_edges(&payload, |edge| Command::decode(edge).is_ok(), |_| false)?;
        check_edges(&payload, |edge| decode_array::<7>(edge).is_ok(), |_| false)?;

        let encode = expected.encode();
        let known = ["canonical", "tolerated", "any-case"].contains(&form);
        same("canonical", &(encode == payload, known), &(form == "canonical", true))?;
        same("decode again", &Command::decode(&encode), &Ok(expected.borrowed()))?;
        let encode_into = |out: &mut [u8]| expected.encode_into(out);
        let len = expected.encoded_len();
        Writers { encoded_len: len, encode: encode.clone(), encode_into }.check(&encode)
    });
}

/// The command in the fields of a line.
fn command(case: &Case) -> Result<Command<Vec<u8>>, String> {
    let key = case.bytes("key")?;
    let value = case.optional_bytes("value")?;
    let command = match (case.text("verb")?, value) {
        ("GET", None) => Command::Get { key },
        ("DEL", None) => Command::Del { key },
        ("KEYNOTIFY", None) => Command::Watch { key },
        ("KEYNOTIFY STOP", None) => Command::Unwatch { key },
        ("VDEL", Some(value)) => Command::VDel { key, value },
        ("SET", Some(value)) => {
            Command::Set { key, value, condition: condition(case)?, expiry: expiry(case)? }
        }
        (verb, _) => return Err(format!("{verb} with or without a value")),
    };
    Ok(command)
}

fn condition(case: &Case) -> Result<Condition<Vec<u8>>, String> {
    match (case.text("condition")?, case.optional_bytes("operand")?) {
        ("always", None) => Ok(Condition::Always),
        ("absent", None) => Ok(Condition::IfAbsent),
        ("equal", None) => Ok(Condition::IfAbsentOrEqual),
        ("equal-to", Some(operand)) => {
            let operand = Operand::new(operand).ok_or("the operand is an option word")?;
            Ok(Condition::IfAbsentOrEqualTo(operand))
        }
        (condition, _) => Err(format!("condition {condition} with or without an operand")),
    }
}

fn expiry(case: &Case) -> Result<Option<Expiry>, String> {
    if case.optional("px")?.is_none() {
        return Ok(None);
    }
    Expiry::from_millis(case.value("px")?).map(Some).ok_or_else(|| "px is zero".into())
}

#[test]
fn replies_are_decoded_and_encoded_as_in_the_file() {
    let file = vectors("replies.txt");
    file.run(35, |case| {
        let payload = case.bytes("payload")?;
        let expected = reply(case)?;
        let answered = kinds(case.text("commands")?)?;
        let mut elsewhere = Vec::new();
        for twin in file.cases().iter().filter(|twin| twin.place() != case.place()) {
            if twin.bytes("payload")? == payload {
                elsewhere.extend(kinds(twin.text("commands")?)?);
            }
        }
        for kind in RequestKind::ALL.iter().copied() {
            let found = Reply::decode(&payload, kind).map(|found| found.map(<[u8]>::to_vec));
            if elsewhere.contains(&kind) {
                continue;
            }
            if !answered.contains(&kind) {
                let refused = found.map_err(|error| (error.kind, error.at));
                same(verb_of(kind), &refused, &Err((PeerErrorKind::UnexpectedReply, 0)))?;
                continue;
            }
            same(verb_of(kind), &found, &Ok(expected.clone()))?;
            check_edges(&payload, |edge| Reply::decode(edge, kind).is_ok(), open_error)?;
        }
        for dialect in [Dialect::Deployed, Dialect::Spec] {
            let encode = expected.encode(dialect);
            same("written", &(encode == payload), &writes(case, dialect)?)?;
            let encode_into = |out: &mut [u8]| expected.encode_into(dialect, out);
            let encoded_len = expected.encoded_len(dialect);
            Writers { encoded_len, encode: encode.clone(), encode_into }.check(&encode)?;
        }
        Ok(())
    });
}

/// The reply in the fields of a line.
fn reply(case: &Case) -> Result<Reply<Vec<u8>>, String> {
    let reply = match (case.text("meaning")?, case.optional_bytes("text")?) {
        ("done", None) => Reply::Done,
        ("not-applied", None) => Reply::NotApplied,
        ("absent", None) => Reply::Absent,
        ("removed", None) => Reply::Removed,
        ("nothing-removed", None) => Reply::NothingRemoved,
        ("not-watched", None) => Reply::NotWatched,
        ("value", Some(value)) => Reply::Value(value),
        ("error", Some(text)) => Reply::Error(ServiceError::from_text(text).ok_or("two lines")?),
        (meaning, _) => return Err(format!("{meaning} with or without text")),
    };
    Ok(reply)
}

#[test]
fn notifications_are_decoded_and_encoded_as_in_the_file() {
    vectors("notifications.txt").run(12, |case| {
        let payload = case.bytes("payload")?;
        let expected = match (case.text("meaning")?, case.optional_bytes("value")?) {
            ("set", Some(value)) => Notification::Set(value),
            ("deleted", None) => Notification::Deleted,
            (meaning, _) => return Err(format!("{meaning} with or without a value")),
        };
        let found = Notification::decode(&payload).map(|found| found.map(<[u8]>::to_vec));
        same("decode", &found, &Ok(expected.clone()))?;
        check_edges(&payload, |edge| Notification::decode(edge).is_ok(), |_| false)?;
        for dialect in [Dialect::Deployed, Dialect::Spec] {
            let encode = expected.encode(dialect);
            same("written", &(encode == payload), &writes(case, dialect)?)?;
            let encode_into = |out: &mut [u8]| expected.encode_into(dialect, out);
            let encoded_len = expected.encoded_len(dialect);
            Writers { encoded_len, encode: encode.clone(), encode_into }.check(&encode)?;
        }
        Ok(())
    });
}

/// Returns whether an encoder of this dialect writes the payload of the line.
fn writes(case: &Case, dialect: Dialect) -> Result<bool, String> {
    match (case.text("written")?, dialect) {
        ("both", _) | ("deployed", Dialect::Deployed) | ("spec", Dialect::Spec) => Ok(true),
        ("neither" | "deployed" | "spec", _) => Ok(false),
        (written, _) => Err(format!("unknown word {written}")),
    }
}

#[test]
fn the_error_table_is_complete_and_exact() {
    let file = vectors("errors.txt");
    file.run(15, |case| {
        let (name, text) = (case.text("name")?, case.text("text")?);
        let found = Refusal::from_text(text.as_bytes()).ok_or("no refusal has this text")?;
        let written = case.text("written")? == "yes";
        same("name", &format!("{found:?}").as_str(), &name.trim_end_matches("-misprint"))?;
        same("written", &(found.text() == text), &written)?;
        for line in
            [format!("-ERR {text}\r\n"), format!("-ERR: {text}\r\n"), format!("-ERR {text}")]
        {
            for kind in RequestKind::ALL.iter().copied() {
                let reply = Reply::decode(line.as_bytes(), kind);
                same(&line, &reply, &Ok(Reply::Error(ServiceError::Known(found))))?;
            }
        }
        let longer = Refusal::from_text(format!("{text} ").as_bytes());
        same("one blank more", &longer, &None)
    });
    for refusal in Refusal::ALL {
        let lines = file.cases().iter().filter(|case| case.text("text") == Ok(refusal.text()));
        assert_eq!(lines.count(), 1, "{refusal:?} stands in errors.txt once");
    }
}
