use super::{
    Broken, answered, answers_instead, asked, differs, fails, is, payload, reworded, without,
};

pub(super) fn options() -> Vec<Broken> {
    vec![
        differs(
            "NEX takes no argument",
            "grammar/nex-argument",
            reworded(|words| {
                if words.len() > 4 && words[3] == b"NEX" && words[4] != b"PX" {
                    words[3] = b"XX".to_vec();
                }
            }),
        ),
        fails(
            "unknown options do not matter",
            "grammar/options",
            reworded(|words| {
                ["XX", "EX", ""].iter().for_each(|option| without(words, option.as_bytes()));
            }),
        ),
        fails(
            "NX twice is NX",
            "grammar/options",
            reworded(|words| {
                if words.iter().skip(3).filter(|word| *word == b"NX").count() > 1 {
                    without(words, b"NX");
                }
            }),
        ),
        differs(
            "no expiry is as good as a bad one",
            "grammar/expiry-numbers",
            reworded(|words| {
                if words.get(4).is_some_and(|px| px.first() == Some(&b'0') || px.contains(&b'.')) {
                    words.truncate(3);
                }
            }),
        ),
        fails(
            "more elements do not matter",
            "grammar/arity",
            reworded(|words| {
                if is(words, "GET") {
                    words.truncate(2);
                }
            }),
        ),
        differs(
            "the key is checked first",
            "grammar/order",
            answers_instead(|_, words| {
                let is_empty = words.get(1).is_some_and(Vec::is_empty);
                is_empty.then_some("-ERR the key length is zero\r\n")
            }),
        ),
    ]
}

pub(super) fn grammar() -> Vec<Broken> {
    vec![
        fails(
            "errors of its own",
            "grammar/resp3",
            answered(|reply| payload(reply, "-ERR syntax error\r\n", "-ERR bad syntax\r\n")),
        ),
        fails(
            "options in lower case alone",
            "grammar/requests",
            reworded(|words| {
                if words.len() > 3 && words[3] == b"NEX" {
                    words[3] = b"XX".to_vec();
                }
            }),
        ),
        differs(
            "no verbs in lower case",
            "grammar/any-case",
            reworded(|words| {
                if words.first().is_some_and(|verb| verb.iter().any(u8::is_ascii_lowercase)) {
                    words[0] = b"NO SUCH VERB".to_vec();
                }
            }),
        ),
        differs(
            "no zeros before a number",
            "grammar/tolerated",
            asked(|request, _| {
                if request.payload.starts_with(b"*0")
                    || request.payload.windows(2).any(|two| two == b"$0")
                {
                    request.payload = "x".into();
                }
            }),
        ),
        fails(
            "what follows is cut off",
            "grammar/cut",
            asked(|request, words| {
                let shorter = request.payload.slice(..request.payload.len().saturating_sub(1));
                if words.is_empty() && super::words(&shorter).is_some() {
                    request.payload = shorter;
                }
            }),
        ),
        fails(
            "the last line end is made up",
            "grammar/cut",
            asked(|request, words| {
                let longer = [&request.payload[..], b"\n"].concat();
                if words.is_empty() && super::words(&longer).is_some() {
                    request.payload = longer.into();
                }
            }),
        ),
        fails(
            "any verb will do",
            "grammar/verbs",
            answered(|reply| payload(reply, "-ERR unknown command\r\n", "+OK\r\n")),
        ),
        fails(
            "an empty key is a key",
            "grammar/empty-key",
            reworded(|words| {
                if let Some(key) = words.get_mut(1).filter(|key| key.is_empty()) {
                    *key = b"verify/empty".to_vec();
                }
            }),
        ),
    ]
}
