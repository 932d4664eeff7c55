//! Expiry of values.

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(expiry_frees_a_lock_and_its_capacity);

fn expiry_frees_a_lock_and_its_capacity(mode: Mode) {
    let Some(here) = mode.start(&["--max-keys", "1"]) else { return };
    let token = here.run(&["set", "lock", "me", "--nex", "--px", "300ms"]).version();
    let watch = here.spawn(&["watch", "lock", "--output", "json", "--count", "2"]);
    assert_eq!(watch.json()["value"], "me");
    here.run(&["set", "lock", "you", "--nex"]).is(1, "");
    let mut last = watch.json();
    while last["result"] == "live" {
        last = watch.json();
    }
    assert_eq!(last["result"], "deleted");
    assert_eq!(last["version"], token.as_str());
    assert_eq!(watch.end().code, Some(0));
    here.run(&["get", "lock"]).is(1, "");
    here.run(&["set", "another", "v", "--nx"]).version();
    here.run(&["set", "lock", "you", "--nex"]).fails(2, &["quota"]);
}
