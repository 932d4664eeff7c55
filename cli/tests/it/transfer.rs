//! `export` and `import`.

use std::fs;
use std::path::PathBuf;

use crate::deployment::{Mode, in_each_mode};
use crate::process::run;

in_each_mode!(
    exported_keys_are_imported_again,
    refused_keys_do_not_end_an_import,
    interrupted_import_names_the_key_to_continue_with,
);

const HEADER: &str = r#"{"format":"statestore-dump","format_version":1,"from":"requests"}"#;

fn temporary(mode: Mode, name: &str) -> PathBuf {
    let process = std::process::id();
    std::env::temp_dir().join(format!("statestore-transfer-{process}-{mode:?}-{name}"))
}

/// An input with these keys, whose values are the letter v.
fn input(keys: &[&str]) -> String {
    let lines = keys.iter().map(|key| format!("{{\"key\":\"{key}\",\"value\":\"v\"}}\n"));
    format!("{HEADER}\n{}", lines.collect::<String>())
}

fn exported_keys_are_imported_again(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let version = here.run(&["set", "rooms/1", "21"]).version();
    here.run_with_input(&["set", "rooms/2", "--file", "-"], b"\x00\xff").version();
    here.run(&["set", "lamps/1", "on"]).version();
    let ended = here.run(&["export", "rooms/*"]);
    assert!(ended.code == Some(0) && ended.err.contains("exported 2 keys"), "{ended:?}");
    let lines: Vec<&str> = ended.text().lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with(HEADER.trim_end_matches('}')), "{lines:?}");
    let first = format!(r#"{{"key":"rooms/1","value":"21","version":"{version}"}}"#);
    assert!(lines.contains(&&*first), "{lines:?}");
    let none = here.run(&["export", "nothing*"]);
    assert!(none.code == Some(0) && none.text().lines().count() == 1, "{none:?}");
    assert!(none.err.contains("0 keys matched the pattern nothing*"), "{none:?}");
    let file = temporary(mode, "keys.jsonl");
    let path = file.to_str().expect("text");
    here.run(&["export", "--file", path]).is(0, "");

    here.run(&["del", "rooms/2"]).is(0, "");
    here.run(&["set", "rooms/1", "changed"]).version();
    here.run(&["import", path, "--if-absent"])
        .is(0, "set 1, not applied 2, expired 0, refused 0\n");
    here.run(&["get", "rooms/1"]).is(0, "changed");
    assert_eq!(here.run(&["get", "rooms/2"]).out, b"\x00\xff");
    let json = here.run(&["import", path, "--output", "json"]).json();
    assert_eq!((&json["set"], &json["refused"]), (&3.into(), &0.into()), "{json}");
    here.run(&["get", "rooms/1"]).is(0, "21");
    // Standard input, with a key that expires, one that has expired and one whose lease continues.
    let expiring = input(&[])
        + r#"{"key":"past","value":"v","expires":{"at":1,"after":1}}"#
        + "\n"
        + r#"{"key":"lease","value":"v","expires":{"at":1,"after":600000,"lease":true}}"#;
    here.run_with_input(&["import"], expiring.as_bytes())
        .is(0, "set 1, not applied 0, expired 1, refused 0\n");
    here.run(&["get", "lease"]).is(0, "v");
    here.run(&["get", "past"]).is(1, "");
    let _ = fs::remove_file(file);
}

fn refused_keys_do_not_end_an_import(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let version = here.run(&["set", "fenced", "old"]).version();
    here.run(&["set", "fenced", "old", "--fencing-token", &version]).version();
    let ended = here.run_with_input(&["import"], input(&["a", "fenced", "b"]).as_bytes());
    ended.is(2, "set 2, not applied 0, expired 0, refused 1\n");
    assert!(ended.err.contains("the key fenced: the store refused"), "{ended:?}");
    here.run(&["get", "fenced"]).is(0, "old");
    here.run(&["get", "b"]).is(0, "v");
    let many: Vec<String> = (0..20).map(|_| "fenced".to_owned()).collect();
    let many = input(&many.iter().map(|key| &**key).collect::<Vec<_>>());
    let ended = here.run_with_input(&["import"], many.as_bytes());
    ended.is(2, "set 0, not applied 0, expired 0, refused 20\n");
    assert_eq!(ended.err.matches("the key fenced").count(), 10, "{ended:?}");
}

fn interrupted_import_names_the_key_to_continue_with(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let broken = input(&["a", "b"]) + "{\"key\":\"c\"}\n";
    let ended = here.run_with_input(&["import"], broken.as_bytes());
    ended.fails(2, &["line 4", "value", "correct that line; 0 keys were set; run it again"]);
    assert!(!ended.err.contains("dump"), "{ended:?}");
    // The keys before the line that were skipped are not counted again.
    let ended = here.run_with_input(&["import", "--skip", "2"], broken.as_bytes());
    ended.fails(2, &["line 4", "0 keys were set; continue with --skip 2"]);
    let ended = here.run_with_input(&["import", "--skip", "1"], input(&["c", "d"]).as_bytes());
    ended.is(0, "set 1, not applied 0, expired 0, refused 0\n");
    here.run(&["get", "c"]).is(1, "");
    here.run(&["get", "d"]).is(0, "v");
    let ended = here.run_with_input(&["import", "--skip", "3"], input(&["c", "d"]).as_bytes());
    ended.fails(2, &["--skip 3: the file has 2 keys"]);
    assert!(!ended.err.contains("continue"), "{ended:?}");
    let mut nowhere =
        here.command(&["import", "--broker", "mqtt://127.0.0.1:1", "--timeout=200ms"]);
    let file = temporary(mode, "two.jsonl");
    fs::write(&file, input(&["e", "f"])).expect("a file");
    run(nowhere.arg(&file)).fails(3, &["--broker", "0 keys were set; run it again"]);
    here.run(&["import", "/nowhere"]).fails(2, &["/nowhere"]);
    let _ = fs::remove_file(file);
}
