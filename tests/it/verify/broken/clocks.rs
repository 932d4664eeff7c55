use super::{
    Broken, answered, answers_instead, asked, differs, fails, is, now, property, set_property,
    stamped, wall,
};

pub(super) fn versions() -> Vec<Broken> {
    vec![
        fails(
            "a SET has no version",
            "version/of-set",
            answered(|reply| {
                if reply.payload == "+OK\r\n" {
                    set_property(reply, "__ts", None);
                }
            }),
        ),
        fails(
            "versions in two parts",
            "version/of-set",
            answered(|reply| {
                let cut = property(reply, "__ts")
                    .map(|version| version.trim_end_matches(":StateStore").to_owned());
                set_property(reply, "__ts", cut);
            }),
        ),
        fails(
            "counters of 64 bits",
            "version/of-set",
            answered(|reply| {
                if property(reply, "__ts").is_some() {
                    set_property(reply, "__ts", Some(format!("{}:4294967296:StateStore", now())));
                }
            }),
        ),
        differs(
            "versions are padded",
            "version/form",
            answered(|reply| {
                let padded = property(reply, "__ts").map(|version| format!("00{version}"));
                set_property(reply, "__ts", padded);
            }),
        ),
        fails(
            "each version is the same",
            "version/grows",
            answered(|reply| {
                if property(reply, "__ts").is_some() {
                    set_property(reply, "__ts", Some("1696374425000:0:StateStore".into()));
                }
            }),
        ),
        fails(
            "the request's clock does not matter",
            "version/past-request",
            stamped("__ts", |_, _| Some("1:0:verify".into())),
        ),
        fails(
            "the token's clock does not matter",
            "version/past-token",
            stamped("__ft", |_, _| Some("1:0:verify".into())),
        ),
        fails(
            "GET has no version",
            "version/of-replies",
            answered(|reply| {
                if reply.payload.starts_with(b"$") {
                    set_property(reply, "__ts", None);
                }
            }),
        ),
        fails(
            "DEL has a version of its own",
            "version/of-replies",
            answered(|reply| {
                if reply.payload == ":1\r\n" {
                    set_property(reply, "__ts", Some(format!("{}:0:StateStore", now() + 1_000)));
                }
            }),
        ),
        differs(
            "VDEL has no version",
            "version/of-vdel",
            answered(|reply| {
                if reply.payload == ":-1\r\n" {
                    set_property(reply, "__ts", None);
                }
            }),
        ),
        differs(
            "everything has a version",
            "version/none",
            answered(|reply| {
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
            "no clock, no matter",
            "clock/missing",
            asked(|request, _| {
                if property(request, "__ts").is_none() {
                    set_property(request, "__ts", Some("1:0:verify".into()));
                }
            }),
        ),
        fails(
            "a bad clock is none",
            "clock/malformed",
            stamped("__ts", |_, text| {
                Some(if wall(text).is_some() { text.to_owned() } else { "1:0:verify".into() })
            }),
        ),
        fails(
            "no zeros before a clock",
            "clock/padded",
            stamped("__ts", |_, text| {
                Some(if text.starts_with('0') { "x".into() } else { text.to_owned() })
            }),
        ),
        fails(
            "clocks may be ahead",
            "clock/ahead",
            stamped("__ts", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall > now() + 60_000) {
                    "1:0:verify".into()
                } else {
                    text.to_owned()
                })
            }),
        ),
        fails(
            "clocks may be ahead by an hour",
            "clock/refused",
            stamped("__ts", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall > now() + 60_000) {
                    format!("{}:0:verify", now() + 59_000)
                } else {
                    text.to_owned()
                })
            }),
        ),
        fails(
            "clocks may be ahead by ten seconds",
            "clock/nearly-ahead",
            stamped("__ts", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall > now() + 10_000) {
                    format!("{}:0:verify", u64::MAX)
                } else {
                    text.to_owned()
                })
            }),
        ),
        fails(
            "clocks may be behind by an hour",
            "clock/behind",
            stamped("__ts", |_, text| {
                Some(if wall(text).is_some_and(|wall| wall + 3_600_000 < now()) {
                    "x".into()
                } else {
                    text.to_owned()
                })
            }),
        ),
        differs(
            "every clock is read",
            "clock/of-set-alone",
            answers_instead(|request, words| {
                let is_bad = property(request, "__ts").is_none_or(|text| wall(&text).is_none());
                (is_bad && !is(words, "SET")).then_some("-ERR malformed timestamp\r\n")
            }),
        ),
    ]
}
