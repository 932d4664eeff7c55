use std::collections::BTreeMap;

use super::{Broken, Words, answered, fails, is, now, payload, reworded, set_property, without};

pub(super) fn conditions() -> Vec<Broken> {
    vec![
        fails("NEX compares the first byte", "condition/nex", {
            let mut first: Words = Vec::new();
            reworded(move |words| {
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
        fails("NX does not matter", "condition/nx", reworded(|words| without(words, b"NX"))),
        fails("NEX does not matter", "condition/nex", reworded(|words| without(words, b"NEX"))),
        fails(
            "NEX is NX",
            "condition/nex",
            reworded(|words| {
                if words.get(3).is_some_and(|option| option == b"NEX") {
                    words[3] = b"NX".to_vec();
                }
            }),
        ),
        fails(
            "what is not applied is an error",
            "condition/nx",
            answered(|reply| payload(reply, ":-1\r\n", "-ERR not applied\r\n")),
        ),
        fails("what is refused renews", "condition/refused", {
            // A GET tells a version that is newer than that of the SET.
            answered(|reply| {
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
            "every value is the same",
            "value/set-get",
            answered(|reply| payload(reply, "$5\r\nvalue\r\n", "$5\r\nVALUE\r\n")),
        ),
        fails(
            "the first value stays",
            "value/replaced",
            answered(|reply| {
                if reply.payload.starts_with(b"$") && reply.payload.ends_with(b"another one\r\n") {
                    reply.payload = "$5\r\nfirst\r\n".into();
                }
            }),
        ),
        fails(
            "an empty value is none",
            "value/empty",
            answered(|reply| payload(reply, "$0\r\n\r\n", "$-1\r\n")),
        ),
        fails(
            "absent is empty",
            "value/absent",
            answered(|reply| payload(reply, "$-1\r\n", "$0\r\n\r\n")),
        ),
        fails(
            "values end with their line",
            "value/binary",
            reworded(|words| {
                if is(words, "SET") {
                    let line =
                        words[2].split(|byte| *byte == b'\r').next().unwrap_or_default().to_vec();
                    words[2] = line;
                }
            }),
        ),
        fails(
            "values of 32 KiB",
            "value/large",
            reworded(|words| {
                if is(words, "SET") {
                    words[2].truncate(32_768);
                }
            }),
        ),
        fails(
            "keys in lower case",
            "value/keys-differ",
            reworded(|words| {
                if let Some(key) = words.get_mut(1) {
                    key.make_ascii_lowercase();
                }
            }),
        ),
        fails(
            "nothing is counted",
            "value/del",
            answered(|reply| payload(reply, ":1\r\n", ":0\r\n")),
        ),
        fails(
            "VDEL is DEL",
            "value/vdel",
            reworded(|words| {
                if is(words, "VDEL") {
                    *words = vec![b"DEL".to_vec(), words[1].clone()];
                }
            }),
        ),
        fails("VDEL compares the first byte", "value/vdel", {
            let mut values: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            reworded(move |words| {
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
