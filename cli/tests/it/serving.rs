//! `statestore serve`: what it says, and how it ends.

use statestore_testkit::wire::raw::{Ask, array};

use crate::place::{Form, everywhere};

everywhere!(
    it_says_one_line_and_whom_it_trusts,
    it_ends_cleanly_on_both_signals,
    it_ends_cleanly_under_load,
    a_hangup_ends_nothing,
);

fn it_says_one_line_and_whom_it_trusts(form: Form) {
    let Some(mut here) = form.start(&[]) else { return };
    here.kill_store();
    let store = crate::process::Running::start(&mut here.serve());
    let line = store.line();
    assert!(line.starts_with(&format!("statestore: ready on {}", here.url())), "{line}");
    if form.has_broker_apart() {
        assert!(line.contains("as client statestore;"), "{line}");
        assert!(line.contains("client ids of requests are not verified"), "{line}");
        assert!(line.contains("access rules"), "{line}");
    }
    here.run(&["set", "k", "v"]).version();
    store.signal("-TERM");
    let ended = store.end();
    ended.is(0, "");
    assert_eq!(ended.err, "", "and nothing to complain about");
}

fn it_ends_cleanly_on_both_signals(form: Form) {
    let Some(mut here) = form.start(&[]) else { return };
    for name in ["-INT", "-TERM"] {
        here.run(&["set", "k", "v"]).version();
        let store = here.take_store();
        store.signal(name);
        let ended = store.end();
        ended.is(0, "");
        assert_eq!(ended.err, "");
        here.start_store();
    }
}

fn it_ends_cleanly_under_load(form: Form) {
    let Some(mut here) = form.start(&[]) else { return };
    for name in ["-TERM", "-INT"] {
        let mut raw = here.raw("raw");
        let store = here.take_store();
        for number in 0..2_000_u32 {
            let key = format!("key {number}");
            raw.send(&Ask::deployed("raw", array(&[b"SET", key.as_bytes(), &[b'v'; 1_000]])));
            if number == 500 {
                store.signal(name);
            }
        }
        let ended = store.end();
        ended.is(0, "");
        assert_eq!(ended.err, "", "{name}");
        drop(raw);
        here.start_store();
        here.run(&["set", "k", "v"]).version();
    }
}

fn a_hangup_ends_nothing(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    here.run(&["set", "k", "v"]).version();
    here.store().signal("-HUP");
    assert!(here.store().complaint().contains("there is no file to reload"));
    here.run(&["get", "k"]).is(0, "v");
}
