use std::collections::BTreeSet;

use statestore_proto::hlc::Hlc;

use super::{
    Broken, Tokens, Words, differs, fails, is, now, on_clock_value, on_request, property,
    replace_reply, set_property, wall,
};

const REQUIRED: &str = "-ERR a fencing token is required for this request\r\n";

fn key(words: &Words) -> Vec<u8> {
    words.get(1).cloned().unwrap_or_default()
}

pub(super) fn orders() -> Vec<Broken> {
    vec![
        differs(
            "timestamps are checked first",
            "order/grammar-timestamp",
            replace_reply(|request, words| {
                (property(request, "__ts").is_none() && is(words, "SET"))
                    .then_some("-ERR missing timestamp\r\n")
            }),
        ),
        differs(
            "fences are checked first",
            "order/timestamp-fence",
            replace_reply(|request, words| {
                (property(request, "__ts").is_none() && is(words, "SET")).then_some(REQUIRED)
            }),
        ),
        differs(
            "tokens are parsed only for fenced keys",
            "order/token-fence",
            on_clock_value("__ft", |_, text| wall(text).map(|_| text.to_owned())),
        ),
        differs(
            "conditions are checked first",
            "order/fence-condition",
            replace_reply(|request, words| {
                (property(request, "__ft").is_none() && words.len() > 3).then_some(":-1\r\n")
            }),
        ),
    ]
}

pub(super) fn tokens() -> Vec<Broken> {
    vec![
        fails(
            "a conditional SET ignores the token",
            "fence/required",
            on_request(|request, words| {
                if words.len() > 3 {
                    set_property(request, "__ft", None);
                }
            }),
        ),
        fails("a key written without a token is never fenced", "fence/required", {
            let mut known = BTreeSet::new();
            on_request(move |request, words| {
                if is(&words, "SET") && property(request, "__ft").is_none() {
                    known.insert(key(&words));
                } else if known.contains(&key(&words)) {
                    set_property(request, "__ft", None);
                }
            })
        }),
        fails("tokens are ignored", "fence/lower", on_clock_value("__ft", |_, _| None)),
        fails(
            "a missing token is accepted",
            "fence/required",
            on_request(|request, _| {
                if property(request, "__ft").is_none() {
                    set_property(request, "__ft", Some(format!("{}:0:verify", now() + 50_000)));
                }
            }),
        ),
        fails(
            "a token is always required",
            "fence/unfenced",
            replace_reply(|request, words| {
                (property(request, "__ft").is_none() && is(words, "DEL")).then_some(REQUIRED)
            }),
        ),
        fails("lower tokens are accepted", "fence/lower", {
            let mut greatest = Tokens::new();
            on_clock_value("__ft", move |words, text| {
                let token = greatest.entry(key(words)).or_insert_with(|| text.to_owned());
                if Hlc::parse(text).ok() > Hlc::parse(token).ok() {
                    *token = text.to_owned();
                }
                Some(token.clone())
            })
        }),
        fails("a token is valid once", "fence/equal", {
            let mut seen = BTreeSet::new();
            on_clock_value("__ft", move |words, text| {
                let is_new = seen.insert((key(words), text.to_owned()));
                Some(if is_new { text.to_owned() } else { "0:0:a".into() })
            })
        }),
        fails("the fence stays at the first token", "fence/higher", {
            let mut first = Tokens::new();
            on_clock_value("__ft", move |words, text| {
                Some(first.entry(key(words)).or_insert_with(|| text.to_owned()).clone())
            })
        }),
        fails("tokens are compared as text", "fence/numbers", {
            let mut greatest = Tokens::new();
            on_clock_value("__ft", move |words, text| {
                let token = greatest.entry(key(words)).or_insert_with(|| text.to_owned());
                if text < token.as_str() {
                    return Some("0:0:a".into());
                }
                *token = text.to_owned();
                Some(token.clone())
            })
        }),
    ]
}

pub(super) fn fences() -> Vec<Broken> {
    vec![
        fails(
            "padded tokens are refused",
            "fence/versions",
            on_clock_value("__ft", |_, text| {
                Some(if text.starts_with('0') { "x".into() } else { text.to_owned() })
            }),
        ),
        fails("a fence outlives its key", "fence/gone-with-key", {
            let mut fenced = BTreeSet::new();
            replace_reply(move |request, words| {
                let has_token = property(request, "__ft").is_some();
                if has_token && (is(words, "DEL") || is(words, "VDEL")) {
                    fenced.insert(key(words));
                }
                (!has_token && is(words, "SET") && fenced.contains(&key(words))).then_some(REQUIRED)
            })
        }),
        fails("a fence outlives an expiry", "fence/gone-with-expiry", {
            let mut fenced = BTreeSet::new();
            replace_reply(move |request, words| {
                let has_token = property(request, "__ft").is_some();
                if has_token && is(words, "SET") {
                    fenced.insert(key(words));
                }
                (!has_token && is(words, "SET") && fenced.contains(&key(words))).then_some(REQUIRED)
            })
        }),
        differs("a SET that is not applied stores its token", "fence/not-stored", {
            let mut fenced = BTreeSet::new();
            replace_reply(move |request, words| {
                let has_token = property(request, "__ft").is_some();
                if has_token {
                    fenced.insert(key(words));
                }
                (!has_token && is(words, "SET") && fenced.contains(&key(words))).then_some(REQUIRED)
            })
        }),
        fails(
            "tokens ahead are accepted",
            "fence/ahead",
            on_clock_value("__ft", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall > now() + 60_000) {
                    format!("{}:0:a", now())
                } else {
                    text.to_owned()
                })
            }),
        ),
        fails(
            "a malformed token is ignored",
            "fence/malformed",
            on_clock_value("__ft", |_, text| wall(text).map(|_| text.to_owned())),
        ),
        differs(
            "__ft of every verb is checked",
            "fence/writes-only",
            replace_reply(|request, words| {
                let is_bad = property(request, "__ft").is_some_and(|text| wall(&text).is_none());
                (is_bad && is(words, "GET")).then_some("-ERR malformed timestamp\r\n")
            }),
        ),
    ]
}
