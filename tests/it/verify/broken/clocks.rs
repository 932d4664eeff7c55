use super::{
    Broken, differs, fails, is, now, on_clock_value, on_reply, on_request, property, replace_reply,
    set_property, wall,
};

pub(super) fn versions() -> Vec<Broken> {
    vec![
        fails(
            "a SET lacks a version",
            "version/of-set",
            on_reply(|reply| {
                if reply.payload == "+OK\r\n" {
                    set_property(reply, "__ts", None);
                }
            }),
        ),
        fails(
            "versions in two parts",
            "version/of-set",
            on_reply(|reply| {
                let cut = property(reply, "__ts")
                    .map(|version| version.trim_end_matches(":StateStore").to_owned());
                set_property(reply, "__ts", cut);
            }),
        ),
        fails(
            "counters of 64 bits",
            "version/of-set",
            on_reply(|reply| {
                if property(reply, "__ts").is_some() {
                    set_property(reply, "__ts", Some(format!("{}:4294967296:StateStore", now())));
                }
            }),
        ),
        differs(
            "versions are padded",
            "version/form",
            on_reply(|reply| {
                let padded = property(reply, "__ts").map(|version| format!("00{version}"));
                set_property(reply, "__ts", padded);
            }),
        ),
        fails(
            "all versions are equal",
            "version/grows",
            on_reply(|reply| {
                if property(reply, "__ts").is_some() {
                    set_property(reply, "__ts", Some("1696374425000:0:StateStore".into()));
                }
            }),
        ),
        fails(
            "__ts is ignored",
            "version/past-request",
            on_clock_value("__ts", |_, _| Some("1:0:verify".into())),
        ),
        fails(
            "__ft is ignored",
            "version/past-token",
            on_clock_value("__ft", |_, _| Some("1:0:verify".into())),
        ),
        fails(
            "GET lacks a version",
            "version/of-replies",
            on_reply(|reply| {
                if reply.payload.starts_with(b"$") {
                    set_property(reply, "__ts", None);
                }
            }),
        ),
        fails(
            "DEL returns a new version",
            "version/of-replies",
            on_reply(|reply| {
                if reply.payload == ":1\r\n" {
                    set_property(reply, "__ts", Some(format!("{}:0:StateStore", now() + 1_000)));
                }
            }),
        ),
        differs(
            "VDEL lacks a version",
            "version/of-vdel",
            on_reply(|reply| {
                if reply.payload == ":-1\r\n" {
                    set_property(reply, "__ts", None);
                }
            }),
        ),
        differs(
            "everything has a version",
            "version/none",
            on_reply(|reply| {
                if property(reply, "__ts").is_none() {
                    set_property(reply, "__ts", Some("1:0:StateStore".into()));
                }
            }),
        ),
    ]
}

pub(super) fn clocks() -> Vec<Broken> {
    vec![
        fails(
            "a missing __ts is accepted",
            "clock/missing",
            on_request(|request, _| {
                if property(request, "__ts").is_none() {
                    set_property(request, "__ts", Some("1:0:verify".into()));
                }
            }),
        ),
        fails(
            "a malformed __ts is accepted",
            "clock/malformed",
            on_clock_value("__ts", |_, text| {
                Some(if wall(text).is_some() { text.to_owned() } else { "1:0:verify".into() })
            }),
        ),
        fails(
            "a padded __ts is refused",
            "clock/padded",
            on_clock_value("__ts", |_, text| {
                Some(if text.starts_with('0') { "x".into() } else { text.to_owned() })
            }),
        ),
        fails(
            "any clock ahead is accepted",
            "clock/ahead",
            on_clock_value("__ts", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall > now() + 60_000) {
                    "1:0:verify".into()
                } else {
                    text.to_owned()
                })
            }),
        ),
        fails(
            "a clock far ahead is accepted",
            "clock/refused",
            on_clock_value("__ts", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall > now() + 60_000) {
                    format!("{}:0:verify", now() + 59_000)
                } else {
                    text.to_owned()
                })
            }),
        ),
        fails(
            "a clock ahead by ten seconds is refused",
            "clock/nearly-ahead",
            on_clock_value("__ts", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall > now() + 10_000) {
                    format!("{}:0:verify", u64::MAX)
                } else {
                    text.to_owned()
                })
            }),
        ),
        fails(
            "a clock behind by an hour is refused",
            "clock/behind",
            on_clock_value("__ts", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall + 3_600_000 < now()) {
                    "x".into()
                } else {
                    text.to_owned()
                })
            }),
        ),
        differs(
            "__ts of every verb is checked",
            "clock/set-only",
            replace_reply(|request, words| {
                let is_bad = property(request, "__ts").is_none_or(|text| wall(&text).is_none());
                (is_bad && !is(words, "SET")).then_some("-ERR malformed timestamp\r\n")
            }),
        ),
    ]
}
