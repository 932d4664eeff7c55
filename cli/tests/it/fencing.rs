//! Fencing tokens, by the command.

use crate::place::{Form, everywhere};

everywhere!(a_lock_protects_a_key);

fn a_lock_protects_a_key(form: Form) {
    let Some(here) = form.start(&[]) else { return };
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
    // The token went with the key.
    here.run(&["set", "valve", "shut"]).version();
    here.run(&["del", "valve"]).is(0, "");
}
