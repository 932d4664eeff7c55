//! Secrets in files, arguments and variables, wherever they are, are never printed.

use std::fs;

use statestore_testkit::credentials::canary::{CANARY, assert_no_canary};

use crate::embedded_broker::Scratch;
use crate::process::{Ended, run, statestore};

/// Runs a command that must fail, and checks its output.
#[track_caller]
fn check(line: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = statestore();
    let ended = run(command.args(line).envs(variables.iter().copied()));
    assert!(ended.code.is_some_and(|code| code != 0), "{line:?}: {ended:?}");
    assert_no_canary(&String::from_utf8_lossy(&ended.out));
    assert_no_canary(&ended.err);
    ended
}

/// Texts of a private key after mistakes: without line breaks, truncated, not Base64, and no PEM.
fn damaged_keys() -> [String; 6] {
    let key = format!("-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n");
    [
        key.replace('\n', " "),
        key.replace('\n', ""),
        key[..key.len() - 10].to_owned(),
        key.replace(CANARY, &format!("!{CANARY}")),
        key.replace("KEY-----\n", "KEY----\n"),
        CANARY.to_owned(),
    ]
}

#[test]
fn damaged_key_is_never_printed() {
    let dir = Scratch::new("secrets-keys");
    let made = run(statestore().args(["certificates", dir.path()]));
    assert_eq!(made.code, Some(0), "{made:?}");
    let path = |name: &str| format!("{}/{name}", dir.path());
    let (good, good_key, ca, bad) =
        (path("server.pem"), path("server.key"), path("ca.pem"), path("bad.key"));
    let tls = ["serve", "--listen-tls", "127.0.0.1:0"];
    let client = |options: &[&str]| {
        for command in [&["get", "k"][..], &["doctor"], &["watch", "k"], &["serve"]] {
            let broker = ["--broker", "mqtts://localhost:1"];
            check(&[command, &broker, options].concat(), &[]);
        }
    };
    for text in damaged_keys() {
        fs::write(&bad, &text).expect("a file");
        let serve = |options: &[&str]| check(&[&tls[..], options].concat(), &[]);
        let ended = serve(&["--listen-tls-cert", &good, "--listen-tls-key", &bad]);
        assert!(ended.err.contains("bad.key"), "{ended:?}");
        serve(&["--listen-tls-cert", &bad, "--listen-tls-key", &good_key]);
        let own = ["--listen-tls-cert", &good, "--listen-tls-key", &good_key];
        serve(&[&own[..], &["--listen-tls-client-ca", &bad]].concat());
        let with_ca = [&own[..], &["--listen-tls-client-ca", &ca]].concat();
        serve(&[&with_ca[..], &["--listen-tls-crl", &bad]].concat());
        client(&["--tls-ca", &bad]);
        client(&["--tls-cert", &good, "--tls-key", &bad]);
        client(&["--tls-cert", &bad, "--tls-key", &good_key]);
    }
}

/// Each file is not what the option expects.
#[test]
fn wrong_file_is_never_printed() {
    let dir = Scratch::new("secrets-files");
    fs::create_dir_all(dir.path()).expect("a directory");
    let file = format!("{}/file", dir.path());
    let [joined, ..] = damaged_keys();
    let texts = [
        CANARY.to_owned(),
        joined,
        format!("password = {CANARY}"),
        format!("[broker]\nuser = \"{CANARY}\nmax-keys = \"{CANARY}\""),
        format!("[limits]\nmax-keys = \"{CANARY}\""),
        format!("[storage]\ndurable = \"{CANARY}\""),
        format!("alice:{CANARY}"),
        format!("\"{CANARY}\""),
        format!("[\"{CANARY}\"]"),
        format!("{{\"keys\": \"{CANARY}\"}}"),
        format!("{{\"a\": \"{CANARY}\", \"b\": null}}"),
        format!("rules: {CANARY}"),
        format!("kind: {CANARY}\nspec: {{rules: []}}"),
        format!("{CANARY}\0"),
    ];
    let issuer = ["--service-account-issuer", "https://issuer.example"];
    let keys = ["serve", "--listen", "127.0.0.1:0", "--service-account-keys", &file];
    for text in texts {
        fs::write(&file, &text).expect("a file");
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        for option in ["--config", "--password-file", "--policy"] {
            check(&[&serve[..], &[option, &file]].concat(), &[]);
        }
        check(&[&keys[..], &issuer].concat(), &[]);
        // A pair is a valid seed.
        if !text.starts_with("{\"keys\"") {
            check(&[&serve[..], &["--seed", &file]].concat(), &[]);
        }
        check(&["policy", "check", &file], &[]);
        check(&["policy", "test", &file, &file], &[]);
        check(&["policy", "explain", &file, "get", "k", "--password-file", &file], &[]);
        check(&["passwd", &file, "alice"], &[]);
        check(&["replay", &file], &[]);
        check(&["data", "check", dir.path()], &[]);
        check(&["data", "restore", &format!("{}/new", dir.path()), &file], &[]);
        check(&["import", &file, "--broker", "mqtt://localhost:1", "--timeout", "100ms"], &[]);
    }
}

#[test]
fn url_with_a_password_is_never_printed() {
    for url in [
        format!("mqtt://me:{CANARY}"),
        format!("mqtt://me:{CANARY}@localhost:1"),
        format!("me:{CANARY}@localhost:1"),
        format!("mqtts://me:{CANARY}/@localhost:1"),
        format!("http://me:{CANARY}"),
        format!("http://me:{CANARY}@localhost:x"),
        format!("mqtt://localhost:1?{CANARY}"),
        CANARY.to_owned(),
    ] {
        for command in ["get k", "doctor", "serve", "keys *", "bench"] {
            let command: Vec<&str> = command.split(' ').collect();
            check(&[&command[..], &["--broker", &url]].concat(), &[]);
            let variable = match command[0] {
                "serve" => "STATESTORE_SERVE_BROKER",
                _ => "STATESTORE_BROKER",
            };
            check(&command, &[(variable, &url)]);
        }
        let proxied = ["get", "k", "--broker", "mqtt://localhost:1", "--timeout", "100ms"];
        check(&[&proxied[..], &["--proxy", &url]].concat(), &[]);
        check(&proxied, &[("STATESTORE_PROXY", &url)]);
        check(&["status", "--metrics-url", &url], &[]);
        check(&["serve", "--etcd", &url], &[]);
        check(&["serve", "--websocket-origin", &format!("{url}/")], &[]);
    }
}

#[test]
fn stray_argument_is_never_printed() {
    for line in [
        &["passwd", "/nonexistent/users", "alice", CANARY][..],
        &["passwd", "/nonexistent/users", &format!("alice:{CANARY}")],
        &["set", "k", "v", CANARY],
        &["vdel", "k", "v", CANARY],
        &["get", "k", &format!("--passwort={CANARY}")],
        &["get", "k", "--passwort", CANARY],
        &["get", "k", &format!("-P{CANARY}")],
        &["get", "k", "-P", CANARY],
        &["get", "k", "--user", "alice", CANARY],
        &["get", "k", "--password", CANARY],
        &["serve", "--password", CANARY],
        &["serve", "--etcd-password", CANARY, "--etcd-user", "root"],
    ] {
        check(line, &[]);
    }
}

#[test]
fn file_of_a_development_store_is_never_printed() {
    let dir = Scratch::new("secrets-dev");
    let path = dir.path().to_owned();
    let made = run(statestore().args(["dev", "--dir", &path, "--ports", "any", "--", "true"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    let files: Vec<_> = fs::read_dir(&path).expect("a directory").flatten().collect();
    assert!(files.len() > 5, "{files:?}");
    for file in files.iter().filter(|file| file.path().is_file()) {
        let before = fs::read(file.path()).expect("a file");
        for text in damaged_keys().into_iter().chain([format!("{{\"a\": \"{CANARY}\"}}")]) {
            fs::write(file.path(), &text).expect("a file");
            let mut dev = statestore();
            let dev = dev.args(["dev", "--dir", &path, "--ports", "any", "--", "true"]);
            let ended = run(dev);
            assert_no_canary(&ended.err);
            let ended = run(statestore().args(["dev", "env", "--dir", &path]));
            assert_no_canary(&ended.err);
        }
        fs::write(file.path(), &before).expect("a file");
    }
}
