//! Fencing tokens on the command line.

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(
    fenced_key_refuses_older_and_missing_tokens,
    store_with_explanations_names_the_refusing_rule
);

fn fenced_key_refuses_older_and_missing_tokens(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let first = here.run(&["set", "lock", "me", "--nex", "--px", "60s"]).version();
    here.run(&["vdel", "lock", "me"]).is(0, "");
    let second = here.run(&["set", "lock", "you", "--nex", "--px", "60s"]).version();
    here.run(&["set", "valve", "open", "--fencing-token", &second]).version();
    let stale = "lower version than the fencing token protecting the resource";
    here.run(&["set", "valve", "shut", "--fencing-token", &first]).fails(2, &[stale]);
    here.run(&["vdel", "valve", "open", "--fencing-token", &first]).fails(2, &[stale]);
    here.run(&["del", "valve", "--fencing-token", &first]).fails(2, &[stale]);
    let none = "a fencing token is required for this request";
    here.run(&["set", "valve", "shut"]).fails(2, &[none]);
    here.run(&["set", "valve", "shut", "--nx"]).fails(2, &[none]);
    here.run(&["vdel", "valve", "open"]).fails(2, &[none]);
    here.run(&["del", "valve"]).fails(2, &[none]);
    here.run(&["get", "valve"]).is(0, "open");
    here.run(&["vdel", "valve", "open", "--fencing-token", &second]).is(0, "");
    // The fence was deleted with the key.
    here.run(&["set", "valve", "shut"]).version();
    here.run(&["del", "valve"]).is(0, "");
}

fn store_with_explanations_names_the_refusing_rule(mode: Mode) {
    let Some(here) = mode.start(&["--explain-refusals", "--max-keys", "2"]) else { return };
    let first = here.run(&["set", "lock", "me"]).version();
    let second = here.run(&["set", "lock", "you"]).version();
    here.run(&["set", "valve", "secret", "--fencing-token", &second]).version();
    let fenced = format!("the key is fenced by {second} and __ft is {first}");
    let lower = "lower version than the fencing token protecting the resource";
    let stale = here.run(&["set", "valve", "shut", "--fencing-token", &first]);
    stale.fails(2, &[lower, &format!("({fenced})")]);
    let message = here.store().complaint();
    assert!(
        message.contains("write refused by the fence of its key") && message.contains(&fenced),
        "{message}"
    );
    assert!(
        message.contains("verb=Set") && message.contains("client=\"statestore-cli-"),
        "{message}"
    );
    here.run(&["set", "full", "x"])
        .fails(2, &["the quota", "(keys of all clients: 3 needed, 2 allowed)"]);
    assert!(!message.contains("secret"), "{message}");
}
