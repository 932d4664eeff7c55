//! Expiry of values.

use crate::deployment::{Mode, in_each_mode};
use crate::process::{run, statestore};

in_each_mode!(expiry_frees_a_lock_and_its_capacity, default_and_longest_expiry_apply_by_pattern,);

fn expiry_frees_a_lock_and_its_capacity(mode: Mode) {
    let Some(here) = mode.start(&["--max-keys", "1"]) else { return };
    here.run(&["set", "lock", "me", "--nex", "--px", "1h"]).version();
    let watch = here.spawn(&["watch", "lock", "--output", "json", "--count", "3"]);
    assert_eq!(watch.json()["value"], "me");
    here.run(&["set", "lock", "you", "--nex"]).is(1, "");
    let token = here.run(&["set", "lock", "me", "--nex", "--px", "300ms"]).version();
    let mut renewed = watch.json();
    while renewed["result"] == "live" {
        renewed = watch.json();
    }
    assert_eq!((&renewed["value"], &renewed["version"]), (&"me".into(), &token.as_str().into()));
    let last = watch.json();
    assert_eq!(last["result"], "deleted");
    assert_eq!(last["version"], token.as_str());
    assert_eq!(watch.end().code, Some(0));
    here.run(&["get", "lock"]).is(1, "");
    here.run(&["set", "another", "v", "--nx"]).version();
    here.run(&["set", "lock", "you", "--nex"]).fails(2, &["quota"]);
}

fn default_and_longest_expiry_apply_by_pattern(mode: Mode) {
    let options = ["--default-expiry", "sensors/*=300ms", "--max-expiry", "capped/*=300ms"];
    let Some(here) = mode.start(&options) else { return };
    here.run(&["set", "other", "v"]).version();
    here.run(&["set", "sensors/kept", "v", "--px", "1h"]).version();
    here.run(&["set", "capped/lock", "me", "--nex", "--px", "1h"]).version();
    for key in ["sensors/1", "capped/1"] {
        here.run(&["set", key, "v"]).version();
    }
    here.run(&["set", "capped/2", "v", "--px", "1h"]).version();
    for key in ["sensors/1", "capped/1", "capped/2"] {
        here.wait_for_value(key, 1, "");
    }
    for (key, value) in [("other", "v"), ("sensors/kept", "v"), ("capped/lock", "me")] {
        here.run(&["get", key]).is(0, value);
    }
}

#[test]
fn invalid_rule_about_expiries_names_the_form() {
    for (option, text, reason) in [
        ("--default-expiry", "sensors/*", "the equals sign is missing"),
        ("--max-expiry", "[=5s", "[=5s: "),
        ("--max-expiry", "a=5", "a=5: "),
    ] {
        let ended = run(statestore().args(["serve", option, text]));
        ended.fails(2, &[option, reason, "sensors/*=10m"]);
    }
}
