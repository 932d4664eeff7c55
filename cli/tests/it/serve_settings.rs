//! Settings of `serve`: file, environment, command line, and their precedence.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use crate::embedded_broker::Scratch;
use crate::process::{Running, run, statestore};

#[test]
fn environment_takes_precedence_over_the_file() {
    let file = Scratch::new("serve.toml");
    let text = "[listen]\nlisten = [\"127.0.0.1:0\"]\n[store]\nnode-id = \"from-a-file\"\n";
    fs::write(file.path(), text).expect("a file");
    let serve = Running::start(statestore().args(["serve", "--config", file.path()]));
    let line = serve.line();
    let url = line.split(';').next().and_then(|line| line.rsplit(' ').next()).expect("an address");
    let version = run(statestore().args(["set", "k", "v", "--broker", url])).version();
    assert!(version.ends_with(":from-a-file"), "{version}");
    let mut print = statestore();
    print.env("STATESTORE_SERVE_CONFIG", file.path());
    print.env("STATESTORE_SERVE_NODE_ID", "from-environment");
    let printed = run(print.args(["serve", "--max-keys", "7", "--print-config"]));
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let has = |line: &str| printed.text().lines().any(|other| other == line);
    assert!(has("node-id = \"from-environment\" # environment"), "{printed:?}");
    assert!(has(&format!("listen = [\"127.0.0.1:0\"] # {}:2", file.path())), "{printed:?}");
    assert!(has("max-keys = 7 # command line"), "{printed:?}");
    assert!(has("# max-bytes = 1073741824 # default"), "{printed:?}");
    // The output is a configuration file with the same settings.
    fs::write(file.path(), printed.text()).expect("a file");
    let again = run(statestore().args(["serve", "--config", file.path(), "--print-config"]));
    let settings = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split(" # ").next().map(ToOwned::to_owned)).collect()
    };
    assert_eq!(settings(again.text()), settings(printed.text()));
}

#[test]
fn option_turns_off_a_setting_of_the_file() {
    let file = Scratch::new("turned-off.toml");
    fs::write(file.path(), "[store]\nexplain-refusals = true\n").expect("a file");
    let printed = |options: &[&str]| {
        let mut serve = statestore();
        serve.args(["serve", "--print-config", "--config", file.path()]).args(options);
        run(&mut serve).text().lines().find(|line| line.contains("explain")).map(ToOwned::to_owned)
    };
    let from_file = format!("explain-refusals = true # {}:2", file.path());
    assert_eq!(printed(&[]), Some(from_file));
    let off = Some("explain-refusals = false # command line".to_owned());
    assert_eq!(printed(&["--explain-refusals=false"]), off);
}

#[test]
fn error_of_a_setting_names_its_source() {
    let file = Scratch::new("wrong.toml");
    let serve = |text: &str, options: &[&str]| {
        fs::write(file.path(), text).expect("a file");
        run(statestore().args(["serve", "--config", file.path()]).args(options))
    };
    let place = |line: u32, rest: &str| format!("{}:{line}: {rest}", file.path());
    let unknown = serve("[limits]\nmax-keys = 1\nno-such = 1\n", &[]);
    unknown.fails(2, &[&place(3, "unknown field `no-such`")]);
    let unmet = serve("[http]\n\ntraffic = true\n", &[]);
    unmet.fails(2, &[&place(3, "traffic: it requires metrics-listen")]);
    let option = serve("[limits]\nmax-keys = 1\n", &["--traffic"]);
    option.fails(2, &["--traffic: it requires metrics-listen"]);
    let mut variable = statestore();
    variable.arg("serve").env("STATESTORE_SERVE_TRAFFIC", "true");
    run(&mut variable).fails(2, &["STATESTORE_SERVE_TRAFFIC: it requires metrics-listen"]);
    let mut misspelt = statestore();
    misspelt.arg("serve").env("STATESTORE_SERVE_MAX_KEYZ", "4");
    run(&mut misspelt).fails(2, &["STATESTORE_SERVE_MAX_KEYZ: unknown setting"]);
    for (name, value) in [
        ("STATESTORE_SERVE_MAX_KEYS", "many"),
        ("STATESTORE_SERVE_MAX_CLOCK_DRIFT", "5"),
        ("STATESTORE_SERVE_TRAFFIC", "perhaps"),
        ("STATESTORE_SERVE_DURABLE", "none"),
    ] {
        let mut wrong = statestore();
        run(wrong.arg("serve").env(name, value))
            .fails(2, &[value, &format!("of the variable {name}")]);
    }
    let mut odd = statestore();
    odd.arg("serve").env("STATESTORE_SERVE_NODE_ID", OsStr::from_bytes(b"\xff"));
    run(&mut odd).fails(2, &["STATESTORE_SERVE_NODE_ID: the value is not UTF-8"]);
    run(statestore().args(["serve", "--config", "/no/such/file"])).fails(2, &["/no/such/file: "]);
}

/// File, environment and command line use the same name for a setting.
#[test]
fn every_setting_is_an_option_and_a_variable() {
    let printed = run(statestore().args(["serve", "--print-config"]));
    let help = run(statestore().args(["serve", "--help"]));
    let keys = printed.text().lines().filter_map(|line| line.strip_prefix("# ")?.split(' ').next());
    let keys: Vec<&str> = keys.collect();
    assert!(keys.len() > 25, "{keys:?}");
    for key in keys {
        assert!(help.text().contains(&format!("--{key}")), "{key}");
        let variable = format!("STATESTORE_SERVE_{}", key.replace('-', "_").to_uppercase());
        let mut serve = statestore();
        serve.args(["serve", "--print-config"]).env(&variable, "\u{7f}");
        // An invalid value is reported, and a text is printed.
        let ended = run(&mut serve);
        let is_read = ended.code == Some(2) || ended.text().contains("# environment");
        assert!(is_read, "{variable}: {ended:?}");
    }
}

#[test]
fn help_of_serve_is_short_and_complete() {
    let lines = |options: &[&str]| run(statestore().args(options)).text().lines().count();
    assert!(lines(&["serve", "-h"]) <= 50, "one screen");
    assert!(lines(&["serve", "--help"]) <= 130, "two screens");
    let help = run(statestore().args(["serve", "--help"]));
    assert!(help.text().starts_with("Run a state store with an embedded or an external broker\n"));
    assert!(!help.text().contains("see more"), "{}", help.text());
}
