//! `serve --seed`: keys of a file at the start.

use std::fs;
use std::path::PathBuf;

use crate::deployment::{Mode, in_each_mode};
use crate::process::{run, statestore};

in_each_mode!(store_starts_with_the_keys_of_a_seed, durable_values_win_over_a_seed);

/// A file that is removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("statestore-seed-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).expect("a file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The mode of Azure's tests of data flows.
const PAIRS: &str = "[\n  {\"factoryId\": \"north\"},\n  {\"machineId\": \"m1\"}\n]";

fn store_starts_with_the_keys_of_a_seed(mode: Mode) {
    let file = File::new(&format!("{mode:?}-pairs"), PAIRS);
    let Some(mut here) = mode.start(&["--seed", file.path()]) else { return };
    here.run(&["get", "factoryId"]).is(0, "north");
    let json = here.run(&["get", "machineId", "--output", "json"]).json();
    let seeded = json["version"].as_str().expect("a version").to_owned();
    // A later version, so that writes with the time of a client that is behind succeed too.
    let version = here.run(&["set", "machineId", "m2"]).version();
    assert_ne!(version, seeded);
    here.run(&["del", "factoryId"]).is(0, "");
    here.run(&["get", "factoryId"]).is(1, "");
    // Nothing is durable, so the store starts again with the file.
    here.kill_store();
    here.start_store();
    here.run(&["get", "factoryId"]).is(0, "north");
    here.run(&["get", "machineId"]).is(0, "m1");
    let exported = here.run(&["export"]);
    let export = File::new(&format!("{mode:?}-export"), exported.text());
    let Some(other) = mode.start(&["--seed", export.path()]) else { return };
    assert_eq!(other.run(&["keys", "*"]).text().lines().count(), 2);
    other.run(&["get", "machineId"]).is(0, "m1");
}

fn durable_values_win_over_a_seed(mode: Mode) {
    let file = File::new(&format!("{mode:?}-durable"), PAIRS);
    let dir = File(
        std::env::temp_dir().join(format!("statestore-seed-{}-{mode:?}-dir", std::process::id())),
    );
    let options = ["--seed", file.path(), "--data-dir", dir.path(), "--durable", "all"];
    let Some(mut here) = mode.start(&options) else { return };
    let changed = here.run(&["set", "machineId", "m2"]).version();
    for _ in 0..2 {
        here.kill_store();
        here.start_store();
        let json = here.run(&["get", "machineId", "--output", "json"]).json();
        assert_eq!((&json["value"], &json["version"]), (&"m2".into(), &changed.clone().into()));
        here.run(&["get", "factoryId"]).is(0, "north");
    }
}

#[test]
fn bad_seed_is_refused_before_a_listener_opens() {
    for (name, text, parts) in [
        (
            "null",
            "{\n\"a\": \"secret\",\n\"b\": null,\n\"c\": 1}",
            &["line 3", "null", "list of such"][..],
        ),
        ("twice", "[{\"a\": \"secret\"},\n{\"a\": \"w\"}]", &["line 2", "\"a\" has two values"]),
        ("text", "a = \"secret\"", &["line 1", "invalid JSON", "{\"key\": \"value\"}"]),
        ("empty", "", &["line 1", "ends early"]),
    ] {
        let file = File::new(name, text);
        // An address that is not available would be another error.
        let line = ["serve", "--listen", "192.0.2.1:1", "--seed", file.path()];
        let ended = run(statestore().args(line));
        ended.fails(2, parts);
        ended.fails(2, &["--seed: ", file.path()]);
        assert!(!ended.err.contains("secret"), "{ended:?}");
    }
    let missing = ["serve", "--listen", "127.0.0.1:0", "--seed", "/nowhere"];
    run(statestore().args(missing)).fails(2, &["--seed: /nowhere", "check the path"]);
    let file = File::new("limit", PAIRS);
    let small = ["serve", "--listen", "127.0.0.1:0", "--max-keys", "1", "--seed", file.path()];
    run(statestore().args(small)).fails(2, &["--seed: ", "2 keys", "max-keys"]);
    let cluster = ["serve", "--etcd", "http://127.0.0.1:1", "--seed", file.path()];
    run(statestore().args(cluster)).fails(2, &["--seed: it excludes etcd"]);
}
