use std::collections::BTreeSet;

use statestore_proto::hlc::Hlc;

use super::{
    Broken, Tokens, Words, answers_instead, asked, differs, fails, is, now, property, set_property,
    stamped, wall,
};

const REQUIRED: &str = "-ERR a fencing token is required for this request\r\n";

fn key(words: &Words) -> Vec<u8> {
    words.get(1).cloned().unwrap_or_default()
}

pub(super) fn orders() -> Vec<Broken> {
    vec![
        differs(
            "timestamps come first",
            "order/grammar-timestamp",
            answers_instead(|request, words| {
                (property(request, "__ts").is_none() && is(words, "SET"))
                    .then_some("-ERR missing timestamp\r\n")
            }),
        ),
        differs(
            "fences come first",
            "order/timestamp-fence",
            answers_instead(|request, words| {
                (property(request, "__ts").is_none() && is(words, "SET")).then_some(REQUIRED)
            }),
        ),
        differs(
            "tokens are read where there is a fence",
            "order/token-fence",
            stamped("__ft", |_, text| wall(text).map(|_| text.to_owned())),
        ),
        differs(
            "conditions come first",
            "order/fence-condition",
            answers_instead(|request, words| {
                (property(request, "__ft").is_none() && words.len() > 3).then_some(":-1\r\n")
            }),
        ),
    ]
}

pub(super) fn tokens() -> Vec<Broken> {
    vec![
        fails(
            "conditional values have no token",
            "fence/required",
            asked(|request, words| {
                if words.len() > 3 {
                    set_property(request, "__ft", None);
                }
            }),
        ),
        fails("a key without a token never has one", "fence/required", {
            let mut known = BTreeSet::new();
            asked(move |request, words| {
                if is(&words, "SET") && property(request, "__ft").is_none() {
                    known.insert(key(&words));
                } else if known.contains(&key(&words)) {
                    set_property(request, "__ft", None);
                }
            })
        }),
        fails("tokens do not matter", "fence/lower", stamped("__ft", |_, _| None)),
        fails(
            "a token is not needed",
            "fence/required",
            asked(|request, _| {
                if property(request, "__ft").is_none() {
                    set_property(request, "__ft", Some(format!("{}:0:verify", now() + 50_000)));
                }
            }),
        ),
        fails(
            "a token is always needed",
            "fence/unfenced",
            answers_instead(|request, words| {
                (property(request, "__ft").is_none() && is(words, "DEL")).then_some(REQUIRED)
            }),
        ),
        fails("lower tokens are as good", "fence/lower", {
            let mut greatest = Tokens::new();
            stamped("__ft", move |words, text| {
                let token = greatest.entry(key(words)).or_insert_with(|| text.to_owned());
                if Hlc::parse(text).ok() > Hlc::parse(token).ok() {
                    *token = text.to_owned();
                }
                Some(token.clone())
            })
        }),
        fails("a token is good once", "fence/equal", {
            let mut seen = BTreeSet::new();
            stamped("__ft", move |words, text| {
                let is_new = seen.insert((key(words), text.to_owned()));
                Some(if is_new { text.to_owned() } else { "0:0:a".into() })
            })
        }),
        fails("the first token is kept", "fence/higher", {
            let mut first = Tokens::new();
            stamped("__ft", move |words, text| {
                Some(first.entry(key(words)).or_insert_with(|| text.to_owned()).clone())
            })
        }),
        fails("tokens are text", "fence/numbers", {
            let mut greatest = Tokens::new();
            stamped("__ft", move |words, text| {
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
            "tokens have no padding",
            "fence/versions",
            stamped("__ft", |_, text| {
                Some(if text.starts_with('0') { "x".into() } else { text.to_owned() })
            }),
        ),
        fails("tokens outlive their keys", "fence/gone-with-key", {
            let mut fenced = BTreeSet::new();
            answers_instead(move |request, words| {
                let has_token = property(request, "__ft").is_some();
                if has_token && (is(words, "DEL") || is(words, "VDEL")) {
                    fenced.insert(key(words));
                }
                (!has_token && is(words, "SET") && fenced.contains(&key(words))).then_some(REQUIRED)
            })
        }),
        fails("tokens outlive an expiry", "fence/gone-with-expiry", {
            let mut fenced = BTreeSet::new();
            answers_instead(move |request, words| {
                let has_token = property(request, "__ft").is_some();
                if has_token && is(words, "SET") {
                    fenced.insert(key(words));
                }
                (!has_token && is(words, "SET") && fenced.contains(&key(words))).then_some(REQUIRED)
            })
        }),
        differs("what is not applied stores its token", "fence/not-stored", {
            let mut fenced = BTreeSet::new();
            answers_instead(move |request, words| {
                let has_token = property(request, "__ft").is_some();
                if has_token {
                    fenced.insert(key(words));
                }
                (!has_token && is(words, "SET") && fenced.contains(&key(words))).then_some(REQUIRED)
            })
        }),
        fails(
            "tokens may be ahead",
            "fence/ahead",
            stamped("__ft", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall > now() + 60_000) {
                    format!("{}:0:a", now())
                } else {
                    text.to_owned()
                })
            }),
        ),
        fails(
            "a bad token is none",
            "fence/malformed",
            stamped("__ft", |_, text| wall(text).map(|_| text.to_owned())),
        ),
        differs(
            "every token is read",
            "fence/of-writes-alone",
            answers_instead(|request, words| {
                let is_bad = property(request, "__ft").is_some_and(|text| wall(&text).is_none());
                (is_bad && is(words, "GET")).then_some("-ERR malformed timestamp\r\n")
            }),
        ),
    ]
}
