//! `statestore serve`: its output and its end.

use statestore_testkit::wire::raw::{RawRequest, array};

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(
    serve_prints_one_line_with_its_trust_settings,
    serve_ends_cleanly_on_both_signals,
    serve_ends_cleanly_under_load,
    hangup_does_not_end_serve,
);

fn serve_prints_one_line_with_its_trust_settings(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    here.kill_store();
    let store = crate::process::Running::start(&mut here.serve());
    let line = store.line();
    assert!(line.starts_with(&format!("statestore: ready on {}", here.url())), "{line}");
    if mode.has_external_broker() {
        assert!(line.contains("as client statestore;"), "{line}");
        assert!(line.contains("client ids of requests are not verified"), "{line}");
        assert!(line.contains("access rules"), "{line}");
    }
    here.run(&["set", "k", "v"]).version();
    store.signal("-TERM");
    let ended = store.end();
    ended.is(0, "");
    assert_eq!(ended.err, "statestore: stopping\n", "and nothing to complain about");
}

fn serve_ends_cleanly_on_both_signals(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    for name in ["-INT", "-TERM"] {
        here.run(&["set", "k", "v"]).version();
        let store = here.take_store();
        store.signal(name);
        let ended = store.end();
        ended.is(0, "");
        assert_eq!(ended.err, "statestore: stopping\n");
        here.start_store();
    }
}

fn serve_ends_cleanly_under_load(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    for name in ["-TERM", "-INT"] {
        let mut raw = here.raw("raw");
        let store = here.take_store();
        for number in 0..2_000_u32 {
            let key = format!("key {number}");
            raw.send(&RawRequest::deployed(
                "raw",
                array(&[b"SET", key.as_bytes(), &[b'v'; 1_000]]),
            ));
            if number == 500 {
                store.signal(name);
            }
        }
        let ended = store.end();
        ended.is(0, "");
        assert_eq!(ended.err, "statestore: stopping\n", "{name}");
        drop(raw);
        here.start_store();
        here.run(&["set", "k", "v"]).version();
    }
}

fn hangup_does_not_end_serve(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "k", "v"]).version();
    here.store().signal("-HUP");
    assert!(here.store().complaint().contains("no file to reload"));
    here.run(&["get", "k"]).is(0, "v");
}
