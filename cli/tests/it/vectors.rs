//! Sends the golden vectors to a running store.

use std::collections::BTreeMap;

use statestore_testkit::vectors::{Case, Vectors};
use statestore_testkit::wire::raw::{Raw, RawRequest, array, blob, property, unix_ms};

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(
    requests_have_the_effect_of_their_line,
    refused_requests_get_the_text_of_their_line,
    timestamps_and_tokens_are_parsed_as_in_their_lines,
);

fn vectors(file: &str) -> Vectors {
    Vectors::read(file).unwrap_or_else(|error| panic!("{error}"))
}

/// Values of a key before a request. `None` is an absent key.
const BEFORE: [Option<&[u8]>; 3] = [None, Some(b"before"), Some(b"")];

/// Sends the request of one line, for a key with this value. The line is the oracle.
fn replay(raw: &mut Raw, case: &Case, before: Option<&[u8]>) -> Result<(), String> {
    let ask = |raw: &mut Raw, elements: &[&[u8]]| {
        raw.answer(&RawRequest::minimal("raw", array(elements)))
    };
    let (payload, key) = (case.bytes("payload")?, case.bytes("key")?);
    let value = case.optional_bytes("value")?.unwrap_or_default();
    ask(raw, &[b"DEL", &key]);
    if let Some(before) = before {
        ask(raw, &[b"SET", &key, before]);
    }
    let operand = case.optional_bytes("operand")?;
    let applies = match case.text("condition")? {
        "absent" => before.is_none(),
        "equal" => before.is_none_or(|before| before == value),
        "equal-to" => before.is_none_or(|before| Some(before) == operand.as_deref()),
        _ => true,
    };
    let (mut after, mut expected) = (before.map(<[u8]>::to_vec), b"-1\r\n".to_vec());
    match case.text("verb")? {
        "SET" if applies => (after, expected) = (Some(value), b"+OK\r\n".to_vec()),
        "SET" => {}
        "GET" => expected = before.map_or_else(|| b"$-1\r\n".to_vec(), blob),
        "DEL" => (after, expected) = (None, format!(":{}\r\n", u8::from(before.is_some())).into()),
        "VDEL" if before == Some(&value) => (after, expected) = (None, b":1\r\n".to_vec()),
        "VDEL" if before.is_none() => expected = b":0\r\n".to_vec(),
        "VDEL" => {}
        "KEYNOTIFY" => expected = b"+OK\r\n".to_vec(),
        "KEYNOTIFY STOP" => expected = b":0\r\n".to_vec(),
        other => return Err(format!("verb {other}")),
    }
    let reply = raw.answer(&RawRequest::minimal("raw", payload));
    let found = ask(raw, &[b"GET", &key]);
    if case.text("verb")? == "KEYNOTIFY" {
        ask(raw, &[b"KEYNOTIFY", &key, b"STOP"]);
    }
    // A value with an expiry of a few milliseconds may have expired.
    let soon = case.optional("px")?.is_some_and(|px| px.len() < 4) && found == b"$-1\r\n";
    let after = after.map_or_else(|| b"$-1\r\n".to_vec(), |value| blob(&value));
    if reply != expected || (found != after && !soon) {
        let [reply, found] = [reply, found].map(|bytes| bytes.escape_ascii().to_string());
        return Err(format!("with {before:?} the reply is {reply} and the value then {found}"));
    }
    Ok(())
}

fn requests_have_the_effect_of_their_line(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let raw = std::cell::RefCell::new(here.raw("raw"));
    vectors("requests.txt").run(65, |case| {
        BEFORE.iter().try_for_each(|before| replay(&mut raw.borrow_mut(), case, *before))
    });
    assert!(raw.into_inner().receives_nothing_more());
}

fn refused_requests_get_the_text_of_their_line(mode: Mode) {
    for (option, strict) in [(&[][..], false), (&["--case-sensitive-verbs"], true)] {
        let Some(here) = mode.start(option) else { return };
        let raw = std::cell::RefCell::new(here.raw("raw"));
        vectors("requests-refused.txt").run(110, |case| {
            let payload = case.bytes("payload")?;
            if case.text("case")? == "upper" && !strict {
                return Ok(());
            }
            let expected = format!("-ERR {}\r\n", case.text("text")?).into_bytes();
            for ask in
                [RawRequest::minimal("raw", payload.clone()), RawRequest::deployed("raw", payload)]
            {
                let reply = raw.borrow_mut().ask(&ask);
                if reply.payload != expected || property(&reply, "__ts").is_some() {
                    return Err(format!("{reply:?}"));
                }
            }
            Ok(())
        });
    }
}

/// Returns whether a text can be a user property. Brokers disconnect clients that send control
/// characters.
fn is_sendable(text: &str) -> bool {
    !text.contains(char::is_control)
}

fn timestamps_and_tokens_are_parsed_as_in_their_lines(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut raw = here.raw("raw");
    let mut texts: BTreeMap<String, &str> = BTreeMap::new();
    let of_property = |name: &str| match name {
        "__ts" => {
            "-ERR the request timestamp is too far in the future; ensure that the client and \
             broker system clocks are synchronized\r\n"
        }
        _ => {
            "-ERR the request fencing token timestamp is too far in the future; ensure that the \
             client and broker system clocks are synchronized\r\n"
        }
    };
    for case in vectors("hlc-refused.txt").cases() {
        if let Some(text) = case.string("text").ok().filter(|text| is_sendable(text)) {
            texts.insert(text, "malformed");
        }
    }
    for case in vectors("hlc.txt").cases() {
        let wall: u64 = case.value("wall").expect("a number");
        if let Some(text) = case.string("text").ok().filter(|text| is_sendable(text)) {
            texts.insert(text, if wall > unix_ms() + 60_000 { "ahead" } else { "fine" });
        }
    }
    assert!(texts.len() >= 35, "{}", texts.len());
    for (number, (text, kind)) in texts.into_iter().enumerate() {
        for name in ["__ts", "__ft"] {
            let key = format!("{name} {number}").into_bytes();
            let ask = RawRequest::minimal("raw", array(&[b"SET", &key, b"v"]))
                .replacing(name, text.as_str());
            let reply = raw.answer(&ask);
            let expected = match kind {
                "fine" => "+OK\r\n",
                "ahead" => of_property(name),
                _ => "-ERR malformed timestamp\r\n",
            };
            assert_eq!(String::from_utf8_lossy(&reply), expected, "{name} {text}");
            // Other verbs ignore the property, and refused requests change nothing.
            let read =
                RawRequest::minimal("raw", array(&[b"GET", &key])).replacing(name, text.as_str());
            let found = if kind == "fine" { &b"$1\r\nv\r\n"[..] } else { b"$-1\r\n" };
            assert_eq!(raw.answer(&read), found, "{name} {text}");
        }
    }
}
