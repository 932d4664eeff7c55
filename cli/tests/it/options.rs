//! Options of every command: environment variables, precedence and invalid values.

use statestore_testkit::wire::raw::{RawRequest, unix_ms, words};

use crate::deployment::{Mode, in_each_mode};
use crate::process::{run, statestore};

in_each_mode!(
    environment_variables_set_options,
    limits_and_strictness_of_the_store_apply,
    byte_limit_and_client_quota_apply,
    clock_limit_of_the_store_is_reported,
    expiry_can_have_any_length,
);

fn environment_variables_set_options(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "k", "v"]).version();
    let json = |command: &mut std::process::Command| run(command).text().starts_with('{');
    assert!(json(here.command(&["get", "k"]).env("STATESTORE_OUTPUT", "json")));
    assert!(!json(
        here.command(&["get", "k", "--output", "text"]).env("STATESTORE_OUTPUT", "json")
    ));
    // The option takes precedence over the variable at any position.
    let url = here.url();
    let nowhere = ("STATESTORE_BROKER", "mqtt://127.0.0.1:1");
    run(here.command(&["get", "--broker", &url, "k"]).env(nowhere.0, nowhere.1)).is(0, "v");
    let mut wrong = here.command(&["get", "k"]);
    run(wrong.env(nowhere.0, nowhere.1).env("STATESTORE_TIMEOUT", "200ms")).fails(3, &["--broker"]);
    for (name, value, hint) in [
        ("STATESTORE_TIMEOUT", "5", "5s"),
        ("STATESTORE_TIMEOUT", "0s", "1ms or more"),
        ("STATESTORE_OUTPUT", "xml", "json"),
        ("STATESTORE_BROKER", "tcp://x", "mqtt://HOST:PORT"),
        ("STATESTORE_PASSWORD", "p", "--user"),
        ("STATESTORE_TLS_CA", "/nowhere", "mqtts://"),
        ("STATESTORE_TLS_CERT", "/nowhere", "--tls-key"),
        ("STATESTORE_TLS_KEY", "/nowhere", "--tls-cert"),
        ("STATESTORE_CLIENT_ID", "", "--client-id"),
    ] {
        let ended = run(here.command(&["get", "k"]).env(name, value));
        assert!(ended.code == Some(2) && ended.out.is_empty(), "{name}={value}: {ended:?}");
        assert!(ended.err.contains(hint), "{name}={value}: {}", ended.err);
        let is_named = ended.err.contains(&format!("of the variable {name}"));
        let is_parsed = ["STATESTORE_TIMEOUT", "STATESTORE_OUTPUT"].contains(&name);
        assert_eq!(is_named, is_parsed, "{name}={value}: {}", ended.err);
    }
    let mut option = here.command(&["get", "k", "--timeout", "5"]);
    let ended = run(option.env("STATESTORE_TIMEOUT", "5s"));
    assert!(ended.code == Some(2) && !ended.err.contains("variable"), "{ended:?}");
    let mut log = here.command(&["get", "k"]);
    let ended = run(log.env("STATESTORE_LOG", "info"));
    assert!(ended.err.contains("connected"), "{ended:?}");
    assert_eq!(ended.text(), "v", "what is logged stays out of standard output");
}

fn limits_and_strictness_of_the_store_apply(mode: Mode) {
    let Some(here) = mode.start(&["--max-keys", "1", "--case-sensitive-verbs"]) else { return };
    here.run(&["set", "a", "v"]).version();
    here.run(&["set", "b", "v"]).fails(2, &["the quota has been exceeded", "--max-keys"]);
    here.run(&["set", "a", "w"]).version();
    here.run(&["del", "a"]).is(0, "");
    here.run(&["set", "b", "v"]).version();
    let mut raw = here.raw("raw");
    for (payload, reply) in [
        (&b"*2\r\n$3\r\nGET\r\n$1\r\nb\r\n"[..], &b"$1\r\nv\r\n"[..]),
        (b"*2\r\n$3\r\nget\r\n$1\r\nb\r\n", b"-ERR unknown command\r\n"),
        (b"*4\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\nw\r\n$2\r\nnx\r\n", b"-ERR syntax error\r\n"),
    ] {
        assert_eq!(raw.answer(&RawRequest::minimal("raw", payload)), reply);
    }
}

fn byte_limit_and_client_quota_apply(mode: Mode) {
    let Some(here) = mode.start(&["--max-bytes", "20", "--client-quota-percent", "60"]) else {
        return;
    };
    let set = |client: &str, key: &str, value: &str| {
        here.run(&["set", key, value, "--client-id", client])
    };
    set("one", "a", "12345678901").version();
    // The embedded broker verifies client ids. With an external broker, quotas do not apply.
    let mut left = 8;
    if !mode.has_external_broker() {
        set("one", "b", "").fails(2, &["the quota has been exceeded"]);
    } else {
        set("one", "b", "").version();
        left -= 1;
    }
    let value = "v".repeat(left);
    set("two", "c", &value).fails(2, &["the quota has been exceeded"]);
    set("two", "c", &value[1..]).version();
}

/// The tolerance allows for the transport time of a request.
fn clock_limit_of_the_store_is_reported(mode: Mode) {
    let Some(here) = mode.start(&["--max-clock-drift", "5s"]) else { return };
    let mut raw = here.raw("raw");
    let mut set = |name: &str, ahead_ms: u64| {
        let stamp = format!("{}:0:raw", unix_ms() + ahead_ms);
        let ask = RawRequest::deployed("raw", words(&["SET", "k", "v"]));
        let ask = if name == "__ts" { ask.replacing(name, stamp) } else { ask.with(name, stamp) };
        String::from_utf8(raw.answer(&ask)).expect("text")
    };
    for name in ["__ts", "__ft"] {
        let refused = set(name, 20_000);
        assert!(refused.contains("too far in the future"), "{refused}");
    }
    assert_eq!(set("__ts", 4_000), "+OK\r\n");
    assert_eq!(set("__ft", 4_000), "+OK\r\n");
}

fn expiry_can_have_any_length(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    // The shortest expiry is one millisecond. The longest exceeds the range of the store's clock.
    here.run(&["set", "short", "v", "--px", "1ns"]).version();
    here.run(&["set", "long", "v", "--px", "500000000years"]).version();
    here.run(&["get", "long"]).is(0, "v");
    here.run(&["set", "long", "w"]).version();
    here.run(&["get", "long"]).is(0, "w");
    for wrong in ["0s", "5", "-1s", "soon"] {
        let px = format!("--px={wrong}");
        here.run(&["set", "k", "v", &px]).fails(2, &["--ttl"]);
    }
}

#[test]
fn invalid_command_line_is_refused_with_a_hint() {
    for (line, hints) in [
        ("", &["Usage"][..]),
        ("frobnicate", &["frobnicate", "--help"]),
        ("get", &["<KEY>", "--help"]),
        ("set k", &["<VALUE>"]),
        ("set k v --file f", &["--file"]),
        ("vdel k", &["<VALUE>"]),
        ("get k l", &["'l'"]),
        ("get k --output xml", &["text", "json"]),
        ("get k --timeout soon", &["500ms"]),
        ("get k --timeout 10", &["10ms or 10s"]),
        ("watch k --count many", &["--count"]),
        ("serve --node-id a:b", &["--node-id: "]),
        ("serve --node-id=", &["--node-id"]),
        ("serve --dialect both", &["auto", "spec", "deployed"]),
        ("serve --max-keys=-1", &["--max-keys"]),
        ("serve --max-bytes 1G", &["--max-bytes"]),
        ("serve --client-quota-percent 0", &["--client-quota-percent", "at least 1"]),
        ("serve --client-quota-percent 101", &["--client-quota-percent", "at most 100"]),
        ("serve --max-clock-drift 61s", &["--max-clock-drift", "60s"]),
        ("serve --max-clock-drift 500ms", &["--max-clock-drift", "1s"]),
        ("serve --password p", &["--password", "give broker"]),
        ("serve --listen 127.0.0.1:0 --data-dir /proc/nope", &["/proc/nope", "check the path"]),
        ("get k --password p", &["--user"]),
        ("completions tcsh", &["bash"]),
        ("set k v --fencing-token 1:2", &["--fencing-token 1:2", "`statestore set` printed"]),
        ("get k --tls-ca /nowhere", &["mqtts://"]),
        ("get k --broker mqtts://x --tls-ca /nowhere", &["/nowhere"]),
        ("get k --broker mqtt://x --tls-cert c --tls-key k", &["mqtts://"]),
        ("get k --broker mqtts://x --tls-cert c", &["--tls-key"]),
    ] {
        let ended = run(statestore().args(line.split_whitespace()));
        assert_eq!((ended.code, ended.text()), (Some(2), ""), "{line}: {}", ended.err);
        for hint in hints {
            assert!(ended.err.contains(hint), "{line}: {hint:?} is not in {}", ended.err);
        }
    }
}
