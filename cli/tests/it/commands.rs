//! GET, SET, DEL and VDEL on the command line, and the commands that need no broker.

use std::fs;

use serde_json::json;

use crate::deployment::{Mode, in_each_mode, test_name};
use crate::embedded_broker::Scratch;
use crate::process::{run, statestore};

in_each_mode!(
    set_get_and_del_change_one_key,
    every_result_has_a_json_form,
    values_from_files_and_standard_input_are_unchanged,
    empty_value_differs_from_absence,
    negative_number_is_a_value,
    conditional_set_respects_its_condition,
    keys_are_listed,
    bench_measures_and_cleans_up,
);

fn set_get_and_del_change_one_key(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["get", "k"]).is(1, "");
    let first = here.run(&["set", "k", "21"]).version();
    assert!(first.ends_with(":StateStore"), "{first:?}");
    here.run(&["get", "k"]).is(0, "21");
    let second = here.run(&["set", "k", "22"]).version();
    assert_ne!(first, second);
    here.run(&["vdel", "k", "21"]).is(1, "");
    here.run(&["vdel", "k", "22"]).is(0, "");
    here.run(&["vdel", "k", "22"]).is(1, "");
    here.run(&["del", "k"]).is(1, "");
    here.run(&["set", "k", "23"]).version();
    here.run(&["del", "k"]).is(0, "");
    here.run(&["get", "k"]).is(1, "");
}

fn every_result_has_a_json_form(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let run_json = |arguments: &[&str]| {
        let ended = here.run(&[arguments, &["--output", "json"]].concat());
        (ended.code, ended.json())
    };
    assert_eq!(run_json(&["get", "k"]), (Some(1), json!({"result": "absent", "key": "k"})));
    let (code, done) = run_json(&["set", "k", "a\nb"]);
    let version = done["version"].clone();
    assert_eq!(code, Some(0));
    assert_eq!(done, json!({"result": "done", "key": "k", "version": version}));
    assert!(version.as_str().is_some_and(|text| text.ends_with(":StateStore")), "{version}");
    let found = json!({"result": "found", "key": "k", "value": "a\nb", "version": version});
    assert_eq!(run_json(&["get", "k"]), (Some(0), found));
    let refused = (Some(1), json!({"result": "not applied", "key": "k"}));
    assert_eq!(run_json(&["set", "k", "v", "--nx"]).0, Some(1));
    assert_eq!(run_json(&["set", "k", "v", "--nx"]).1["result"], "not applied");
    assert_eq!(run_json(&["vdel", "k", "v"]), refused);
    assert_eq!(
        run_json(&["vdel", "k", "a\nb"]),
        (Some(0), json!({"result": "removed", "key": "k"}))
    );
    assert_eq!(run_json(&["vdel", "k", "v"]), (Some(1), json!({"result": "absent", "key": "k"})));
    assert_eq!(run_json(&["del", "k"]), (Some(1), json!({"result": "absent", "key": "k"})));

    let bytes = here.run_with_input(&["set", "k", "--file", "-"], &[0xff, 0]);
    assert_eq!(bytes.code, Some(0));
    let found = run_json(&["get", "k"]).1;
    assert_eq!((&found["value_base64"], &found["value"]), (&json!("/wA="), &json!(null)));
    assert_eq!(run_json(&["del", "k"]), (Some(0), json!({"result": "removed", "key": "k"})));
}

fn keys_are_listed(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["keys", "*"]).is(1, "");
    for key in ["rooms/2", "rooms/1", "line\nfeed", "z"] {
        here.run(&["set", key, &format!("of {key}")]).version();
    }
    here.run(&["keys", "*"]).is(0, "line\\nfeed\nrooms/1\nrooms/2\nz\n");
    here.run(&["keys", "rooms/?"]).is(0, "rooms/1\nrooms/2\n");
    here.run(&["keys", "rooms"]).is(1, "");
    let values = "line\\nfeed\tof line\\nfeed\nz\tof z\n";
    here.run(&["keys", "[!r]*", "--values"]).is(0, values);
    let listed = here.run(&["keys", "z", "--output", "json"]);
    assert_eq!((listed.code, listed.json()), (Some(0), json!({"result": "found", "key": "z"})));
    let found = here.run(&["keys", "z", "--values", "--output", "json"]).json();
    let version = found["version"].clone();
    let expected = json!({"result": "found", "key": "z", "value": "of z", "version": version});
    assert!(found == expected && version.is_string(), "{found}");
    here.run(&["set", r"back\slash", "v"]).version();
    here.run(&["keys", "back*"]).is(0, "back\\\\slash\n");
    // The listing has several pages, and more output than one write.
    let many: Vec<String> = (0..300).map(|number| format!("many/{number:0>100}")).collect();
    let mut raw = here.raw("raw");
    for key in &many {
        assert_eq!(raw.command(&["SET", key, "v"]), b"+OK\r\n");
    }
    let lines = |tail: &str| many.iter().map(|key| format!("{key}{tail}\n")).collect::<String>();
    here.run(&["keys", "many/*"]).is(0, &lines(""));
    here.run(&["keys", "many/*", "--values"]).is(0, &lines("\tv"));
    here.run(&["keys", &"?".repeat(40_000)]).fails(2, &["the pattern is too long"]);
    here.run(&["keys", "rooms/["]).fails(2, &["invalid pattern", "[*]"]);
    here.run(&["keys", ""]).fails(2, &["the pattern is empty"]);
}

fn values_from_files_and_standard_input_are_unchanged(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let bytes: Vec<u8> = (0..=255).cycle().take(65_000).collect();
    here.run_with_input(&["set", "blob", "--file", "-"], &bytes).version();
    assert_eq!(here.run(&["get", "blob"]).out, bytes);

    let path = Scratch::new("value");
    let file = path.path();
    fs::write(file, &bytes[1..]).expect("a file");
    here.run(&["set", "blob", "--file", file]).version();
    assert_eq!(here.run(&["get", "blob"]).out, bytes[1..]);
    assert_eq!(here.run_with_input(&["vdel", "blob", "--file", "-"], &bytes).code, Some(1));
    here.run(&["vdel", "blob", "--file", file]).is(0, "");
    fs::remove_file(file).expect("it is ours");
    here.run(&["set", "blob", "--file", file]).fails(2, &[file, "No such file"]);
    here.run(&["get", "blob"]).is(1, "");
}

fn empty_value_differs_from_absence(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "k", ""]).version();
    here.run(&["get", "k"]).is(0, "");
    assert_eq!(here.run(&["get", "k", "--output", "json"]).json()["value"], "");
    here.run_with_input(&["vdel", "k", "--file", "-"], b"").is(0, "");
    here.run(&["get", "k"]).is(1, "");
}

fn negative_number_is_a_value(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "thermostat", "-5.5"]).version();
    here.run(&["get", "thermostat"]).is(0, "-5.5");
    here.run(&["vdel", "thermostat", "-5.5"]).is(0, "");
    here.run(&["set", "--px", "10s", "thermostat", "--", "--nx"]).version();
    here.run(&["get", "thermostat"]).is(0, "--nx");
    here.run(&["set", "thermostat", "--nxx"]).fails(2, &["--nxx", "--help"]);
}

fn conditional_set_respects_its_condition(mode: Mode) {
    let Some(here) = mode.start(&["--node-id", "edge-1"]) else { return };
    let first = here.run(&["set", "lock", "me", "--nex", "--px", "60s"]).version();
    assert_eq!(first.rsplit(':').next(), Some("edge-1"));
    here.run(&["set", "lock", "you", "--nex", "--px", "60s"]).is(1, "");
    here.run(&["set", "lock", "me", "--nx"]).is(1, "");
    let second = here.run(&["set", "lock", "me", "--nex", "--px", "60s"]).version();
    assert_ne!(first, second, "a renewal has a new version");
    here.run(&["get", "lock"]).is(0, "me");
    here.run(&["set", "other", "me", "--nx", "--persist"]).version();
    here.run(&["set", "lock", "me", "--nx", "--nex"]).fails(2, &["--nx", "--nex"]);
}

fn bench_measures_and_cleans_up(mode: Mode) {
    let Some(here) = mode.start(&["--max-keys", "101", "--client-quota-percent", "100"]) else {
        return;
    };
    here.run(&["set", "mine", "v"]).version();
    let options = ["--requests", "500", "--in-flight", "16", "--value-size", "1000"];
    for _ in 0..2 {
        // The hundred keys fit next to those of this test. In the second run they fit only if the
        // first run has deleted its keys.
        let json = here.run(&[&["bench", "--output", "json"][..], &options].concat()).json();
        assert_eq!(json["requests"], 500);
        for figure in ["per_second", "p50_ms", "p90_ms", "p99_ms", "max_ms"] {
            assert!(json[figure].as_f64().is_some_and(|figure| figure > 0.0), "{json}");
        }
    }
    let table = here.run(&["bench", "--requests", "1"]);
    assert!(table.text().starts_with("1 requests, ") && table.text().contains("p99"), "{table:?}");
    here.run(&["set", "other", "v"]).version();
    here.run(&["bench"]).fails(2, &["quota"]);
    for wrong in ["0", "1001"] {
        here.run(&["bench", "--in-flight", wrong]).fails(2, &["1..=1000"]);
    }
}

#[test]
fn completions_and_manual_need_no_broker() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(statestore().args(["completions", shell]));
        assert_eq!(script.code, Some(0), "{}: {script:?}", test_name());
        for word in ["statestore", "vdel", "fencing-token"] {
            assert!(script.text().contains(word), "{shell}: {word}");
        }
    }
    let page = run(statestore().arg("man"));
    assert!(page.code == Some(0) && page.text().contains(".TH statestore 1"), "{page:?}");
    let page = run(statestore().args(["man", "serve"]));
    assert!(page.code == Some(0) && page.text().contains(".TH statestore-serve 1"), "{page:?}");
    for option in ["policy", "password\\-file", "max\\-clock\\-drift"] {
        assert!(page.text().contains(option), "{option}: {page:?}");
    }
    let page = run(statestore().args(["man", "policy", "explain"]));
    assert!(page.text().contains("client\\-id"), "{page:?}");
    run(statestore().args(["man", "fly"])).fails(2, &["fly", "--help"]);
    let help = run(statestore().arg("--help"));
    assert!(help.code == Some(0) && help.text().contains("Exit codes"), "{help:?}");
    let version = run(statestore().arg("--version"));
    version.is(0, concat!("statestore ", env!("CARGO_PKG_VERSION"), "\n"));
}
