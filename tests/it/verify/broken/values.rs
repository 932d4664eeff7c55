use std::collections::BTreeMap;

use super::{Broken, Words, fails, is, now, on_reply, on_words, payload, set_property, without};

pub(super) fn conditions() -> Vec<Broken> {
    vec![
        fails("NEX compares the first byte", "condition/nex", {
            let mut first: Words = Vec::new();
            on_words(move |words| {
                if words.get(3).is_some_and(|option| option == b"NEX") {
                    if let Some(before) =
                        first.iter().find(|value| value.first() == words[2].first())
                    {
                        words[2].clone_from(before);
                    }
                    first.push(words[2].clone());
                }
            })
        }),
        fails("NX does not matter", "condition/nx", on_words(|words| without(words, b"NX"))),
        fails("NEX does not matter", "condition/nex", on_words(|words| without(words, b"NEX"))),
        fails(
            "NEX is NX",
            "condition/nex",
            on_words(|words| {
                if words.get(3).is_some_and(|option| option == b"NEX") {
                    words[3] = b"NX".to_vec();
                }
            }),
        ),
        fails(
            "not applied is an error",
            "condition/nx",
            on_reply(|reply| payload(reply, ":-1\r\n", "-ERR not applied\r\n")),
        ),
        fails("a refused SET issues a version", "condition/refused", {
            // GET returns a version that is newer than that of the SET.
            on_reply(|reply| {
                if reply.payload.starts_with(b"$1") {
                    set_property(reply, "__ts", Some(format!("{}:0:StateStore", now() + 1_000)));
                }
            })
        }),
    ]
}

pub(super) fn values() -> Vec<Broken> {
    vec![
        fails(
            "another value is returned",
            "value/set-get",
            on_reply(|reply| payload(reply, "$5\r\nvalue\r\n", "$5\r\nVALUE\r\n")),
        ),
        fails(
            "the first value stays",
            "value/replaced",
            on_reply(|reply| {
                if reply.payload.starts_with(b"$") && reply.payload.ends_with(b"another one\r\n") {
                    reply.payload = "$5\r\nfirst\r\n".into();
                }
            }),
        ),
        fails(
            "an empty value is absent",
            "value/empty",
            on_reply(|reply| payload(reply, "$0\r\n\r\n", "$-1\r\n")),
        ),
        fails(
            "absent is empty",
            "value/absent",
            on_reply(|reply| payload(reply, "$-1\r\n", "$0\r\n\r\n")),
        ),
        fails(
            "values are truncated at CR",
            "value/binary",
            on_words(|words| {
                if is(words, "SET") {
                    let line =
                        words[2].split(|byte| *byte == b'\r').next().unwrap_or_default().to_vec();
                    words[2] = line;
                }
            }),
        ),
        fails(
            "values are truncated at 32 KiB",
            "value/large",
            on_words(|words| {
                if is(words, "SET") {
                    words[2].truncate(32_768);
                }
            }),
        ),
        fails(
            "keys are lowercased",
            "value/keys-differ",
            on_words(|words| {
                if let Some(key) = words.get_mut(1) {
                    key.make_ascii_lowercase();
                }
            }),
        ),
        fails(
            "DEL always returns 0",
            "value/del",
            on_reply(|reply| payload(reply, ":1\r\n", ":0\r\n")),
        ),
        fails(
            "VDEL is DEL",
            "value/vdel",
            on_words(|words| {
                if is(words, "VDEL") {
                    *words = vec![b"DEL".to_vec(), words[1].clone()];
                }
            }),
        ),
        fails("VDEL compares the first byte", "value/vdel", {
            let mut values: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            on_words(move |words| {
                if is(words, "SET") {
                    values.insert(words[1].clone(), words[2].clone());
                } else if is(words, "VDEL")
                    && let Some(value) = values.get(&words[1])
                    && value.first() == words[2].first()
                {
                    words[2].clone_from(value);
                }
            })
        }),
    ]
}
