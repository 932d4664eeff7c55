use super::{
    Broken, differs, fails, is, on_reply, on_request, on_words, payload, replace_reply, without,
};

pub(super) fn options() -> Vec<Broken> {
    vec![
        differs(
            "NEX takes no argument",
            "grammar/nex-argument",
            on_words(|words| {
                if words.len() > 4 && words[3] == b"NEX" && words[4] != b"PX" {
                    words[3] = b"XX".to_vec();
                }
            }),
        ),
        fails(
            "unknown options are ignored",
            "grammar/options",
            on_words(|words| {
                ["XX", "EX", ""].iter().for_each(|option| without(words, option.as_bytes()));
            }),
        ),
        fails(
            "NX twice is NX",
            "grammar/options",
            on_words(|words| {
                if words.iter().skip(3).filter(|word| *word == b"NX").count() > 1 {
                    without(words, b"NX");
                }
            }),
        ),
        differs(
            "an invalid expiry is ignored",
            "grammar/expiry-numbers",
            on_words(|words| {
                if words.get(4).is_some_and(|px| px.first() == Some(&b'0') || px.contains(&b'.')) {
                    words.truncate(3);
                }
            }),
        ),
        fails(
            "extra elements are ignored",
            "grammar/arity",
            on_words(|words| {
                if is(words, "GET") {
                    words.truncate(2);
                }
            }),
        ),
        differs(
            "the key is checked first",
            "grammar/order",
            replace_reply(|_, words| {
                let is_empty = words.get(1).is_some_and(Vec::is_empty);
                is_empty.then_some("-ERR the key length is zero\r\n")
            }),
        ),
    ]
}

pub(super) fn grammar() -> Vec<Broken> {
    vec![
        fails(
            "error texts differ",
            "grammar/resp3",
            on_reply(|reply| payload(reply, "-ERR syntax error\r\n", "-ERR bad syntax\r\n")),
        ),
        fails(
            "options are accepted in lower case only",
            "grammar/requests",
            on_words(|words| {
                if words.len() > 3 && words[3] == b"NEX" {
                    words[3] = b"XX".to_vec();
                }
            }),
        ),
        differs(
            "verbs in lower case are refused",
            "grammar/any-case",
            on_words(|words| {
                if words.first().is_some_and(|verb| verb.iter().any(u8::is_ascii_lowercase)) {
                    words[0] = b"NO SUCH VERB".to_vec();
                }
            }),
        ),
        differs(
            "leading zeros are refused",
            "grammar/tolerated",
            on_request(|request, _| {
                if request.payload.starts_with(b"*0")
                    || request.payload.windows(2).any(|two| two == b"$0")
                {
                    request.payload = "x".into();
                }
            }),
        ),
        fails(
            "trailing bytes are ignored",
            "grammar/cut",
            on_request(|request, words| {
                let shorter = request.payload.slice(..request.payload.len().saturating_sub(1));
                if words.is_empty() && super::words(&shorter).is_some() {
                    request.payload = shorter;
                }
            }),
        ),
        fails(
            "a missing final line end is accepted",
            "grammar/cut",
            on_request(|request, words| {
                let longer = [&request.payload[..], b"\n"].concat();
                if words.is_empty() && super::words(&longer).is_some() {
                    request.payload = longer.into();
                }
            }),
        ),
        fails(
            "any verb is accepted",
            "grammar/verbs",
            on_reply(|reply| payload(reply, "-ERR unknown command\r\n", "+OK\r\n")),
        ),
        fails(
            "an empty key is accepted",
            "grammar/empty-key",
            on_words(|words| {
                if let Some(key) = words.get_mut(1).filter(|key| key.is_empty()) {
                    *key = b"verify/empty".to_vec();
                }
            }),
        ),
    ]
}
