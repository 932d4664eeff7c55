//! `statestore watch`: its output and its end.

use statestore_testkit::wire::raw::{
    Hello, Raw, RawRequest, array, notification_topic, response_topic,
};

use crate::deployment::{Mode, in_each_mode};
use crate::process::run;

in_each_mode!(
    watch_prints_each_change,
    watch_of_a_pattern_prints_each_key,
    watch_ends_at_its_count_or_a_signal,
    presence_ends_registrations_of_disconnected_clients
);

fn watch_prints_each_change(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let first = here.run(&["set", "k", "one"]).version();
    let json = here.spawn(&["watch", "k", "--output", "json", "--count", "4"]);
    let raw = here.spawn(&["watch", "k"]);
    let set = |value: &str, version: &str| {
        let fields = [("key", "k"), ("result", "set"), ("value", value), ("version", version)];
        serde_json::json!(std::collections::BTreeMap::from(fields))
    };
    assert_eq!(json.json(), set("one", &first));
    assert_eq!(json.json(), serde_json::json!({"key": "k", "result": "live"}));
    assert_eq!(raw.line(), "one");
    assert!(raw.complaint().starts_with("live"));
    let second = here.run(&["set", "k", "two\nlines", "--px", "50ms"]).version();
    assert_eq!(json.json(), set("two\nlines", &second));
    let gone = serde_json::json!({"key": "k", "result": "deleted", "version": second});
    assert_eq!(json.json(), gone, "it expires");
    assert_eq!(raw.line(), "two\\nlines");
    assert_eq!(raw.complaint(), "deleted");
    let bytes = here.run_with_input(&["set", "k", "--file", "-"], &[0xff]).version();
    let event = json.json();
    assert_eq!(
        (&event["value_base64"], &event["version"]),
        (&"/w==".into(), &bytes.as_str().into())
    );
    json.end().is(0, "");
    assert_eq!(raw.line(), "\\xff");
    raw.signal("-INT");
    raw.end().is(0, "");
}

fn watch_of_a_pattern_prints_each_key(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    for key in ["rooms/1", "rooms/2", "other"] {
        here.run(&["set", key, "on"]).version();
    }
    let watch = here.spawn(&["watch", "--pattern", "rooms/*"]);
    let json = here.spawn(&["watch", "--pattern", "rooms/*", "--output", "json"]);
    let mut first = [watch.line(), watch.line()];
    first.sort();
    assert_eq!(first, ["rooms/1\ton", "rooms/2\ton"]);
    assert!(watch.complaint().starts_with("live"));
    assert_eq!((&json.json()["result"], &json.json()["value"]), (&"set".into(), &"on".into()));
    assert_eq!(json.json(), serde_json::json!({"pattern": "rooms/*", "result": "live"}));
    here.run(&["set", "rooms/2", "off"]).version();
    assert_eq!(watch.line(), "rooms/2\toff");
    here.run(&["del", "rooms/1"]).is(0, "");
    assert_eq!(watch.complaint(), "deleted: rooms/1");
    watch.signal("-INT");
    watch.end().is(0, "");
}

fn watch_ends_at_its_count_or_a_signal(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["watch", "k", "--count", "0"]).is(0, "");
    for signal in ["-INT", "-TERM"] {
        let watch = here.spawn(&["watch", "k"]);
        assert_eq!(watch.complaint(), "absent");
        assert!(watch.complaint().starts_with("live"));
        watch.signal(signal);
        watch.end().is(0, "");
    }
    let mut count = here.command(&["watch", "k", "--count", "1"]);
    here.run(&["set", "k", "v"]).version();
    run(&mut count).is(0, "v\n");
}

/// Returns whether a client with a persistent session is notified of changes after it has
/// disconnected and reconnected.
fn is_notified_after_reconnecting(mode: Mode, options: &[&str]) -> Option<bool> {
    let here = mode.start_with(options, "log_dest topic\nlog_type notice\nlog_type error")?;
    let kept = Hello { session: Some(60), ..Hello::default() };
    let mut raw = Raw::open(here.port(), "goes", kept);
    assert!(!raw.welcome.session_present);
    raw.subscribe(&response_topic("goes"));
    raw.subscribe(&notification_topic("goes", None));
    assert_eq!(raw.answer(&RawRequest::minimal("goes", array(&[b"KEYNOTIFY", b"k"]))), b"+OK\r\n");
    raw.disconnect();
    here.run(&["set", "k", "v"]).version();
    let mut raw = Raw::open(here.port(), "goes", kept);
    assert!(raw.welcome.session_present, "the broker has kept its subscriptions");
    Some(!raw.receives_nothing_more())
}

fn presence_ends_registrations_of_disconnected_clients(mode: Mode) {
    if !mode.has_external_broker() {
        return mode.skip("an embedded store detects disconnected clients without an option");
    }
    let Some(is_notified) = is_notified_after_reconnecting(mode, &[]) else { return };
    assert!(
        is_notified,
        "without presence, an external store does not detect disconnected clients"
    );
    assert_eq!(
        is_notified_after_reconnecting(mode, &["--presence-from-mosquitto-log"]),
        Some(false)
    );
}
