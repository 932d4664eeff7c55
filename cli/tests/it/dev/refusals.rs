//! Bad input of `dev`: each error names the remedy, and no foreign file is changed.

use std::os::unix::fs::{lchown, symlink};

use statestore_testkit::process::Port;

use super::*;

/// The contents of all files in a directory.
fn contents(path: &str) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(path)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file() && !path.ends_with(".statestore-dev"))
        .map(|path| (path.display().to_string(), fs::read(&path).expect("a file")))
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn directory_that_cannot_be_made_is_refused() {
    for path in ["/proc/nope", "/no/such/parent/session", "/dev/null"] {
        let mut command = statestore();
        let ended = run(command.args(["dev", "--dir", path, "--ports", "any", "--", "true"]));
        ended.fails(2, &["--dir", path]);
        let has_remedy = ended.err.contains("check the path") || ended.err.contains("another name");
        assert!(has_remedy, "{ended:?}");
    }
}

#[test]
fn directory_with_other_files_is_refused_and_unchanged() {
    let dir = Scratch::new("dev-foreign");
    fs::create_dir_all(dir.path()).expect("a directory");
    for name in ["token.txt", "notes.md"] {
        let path = Path::new(dir.path()).join(name);
        fs::write(&path, "mine").expect("a file");
        let before = contents(dir.path());
        run(dev(&dir, &[]).args(["--", "true"]))
            .fails(2, &[name, "did not make", "an empty or a new directory"]);
        assert_eq!(contents(dir.path()), before);
        fs::remove_file(path).expect("a file");
    }
    assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0), "it is empty");
}

#[test]
fn files_of_other_programs_are_neither_used_nor_overwritten() {
    for name in ["client.crt", "token.txt", "broker-ca.key", "env", "jwks.json", ".gitignore"] {
        let dir = Scratch::new(&format!("dev-changed-{name}"));
        assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
        fs::write(Path::new(dir.path()).join(name), "mine").expect("a file");
        let before = read(&dir, name);
        run(dev(&dir, &[]).args(["--", "true"]))
            .fails(2, &[name, "another program", "a new directory"]);
        assert_eq!(read(&dir, name), before, "{name}");
    }
}

#[test]
fn certificate_without_its_key_is_refused() {
    for (missing, left) in [
        ("client.key", "client.crt"),
        ("client.crt", "client.key"),
        ("server.key", "server.crt"),
        ("broker-ca.key", "broker-ca.crt"),
        ("token-signing.key", "jwks.json"),
    ] {
        let dir = Scratch::new(&format!("dev-half-{missing}"));
        assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
        fs::remove_file(Path::new(dir.path()).join(missing)).expect("a file");
        let before = read(&dir, left);
        let ended = run(dev(&dir, &[]).args(["--", "true"]));
        ended.fails(2, &[left, &format!("{missing} is missing"), "delete both"]);
        assert_eq!(read(&dir, left), before);
        // The remedy of the message.
        fs::remove_file(Path::new(dir.path()).join(left)).expect("a file");
        assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0), "{missing}");
    }
}

#[test]
fn marker_that_names_another_file_is_refused_and_the_file_unchanged() {
    let dir = Scratch::new("dev-marker");
    let victim = Scratch::new("dev-victim");
    fs::create_dir_all(victim.path()).expect("a directory");
    let victim = Path::new(victim.path()).join("notes");
    fs::create_dir_all(dir.path()).expect("a directory");
    let marker = Path::new(dir.path()).join(".statestore-dev");
    let own = |path: &Path, text: &str| {
        fs::write(path, text).expect("a file");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("a mode");
    };
    let refused = |reason: &str| {
        run(dev(&dir, &[]).args(["--", "true"])).fails(2, &[reason, "a new directory"]);
        fs::remove_file(&marker).expect("a marker");
    };
    own(&victim, "mine");
    symlink(&victim, &marker).expect("a link");
    refused("symbolic link");
    fs::hard_link(&victim, &marker).expect("a link");
    refused("another name");
    assert_eq!(fs::read_to_string(&victim).expect("a file"), "mine");
    for text in ["mine", "123456789012345678901"] {
        own(&marker, text);
        run(dev(&dir, &[]).args(["--", "true"])).fails(2, &["something else"]);
        assert_eq!(fs::read_to_string(&marker).expect("a file"), text);
    }
    fs::write(&marker, "").expect("a file");
    fs::set_permissions(&marker, fs::Permissions::from_mode(0o644)).expect("a mode");
    refused("other users have access");
    fs::create_dir(&marker).expect("a directory");
    run(dev(&dir, &[]).args(["--", "true"])).fails(2, &[".statestore-dev"]);
}

#[test]
fn files_that_other_users_can_read_are_refused() {
    for name in ["broker-ca.key", "token-signing.key", "client.key", ".made.json"] {
        let dir = Scratch::new(&format!("dev-planted-{name}"));
        assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
        let path = Path::new(dir.path()).join(name);
        // The mode of a file in a checkout of Git.
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("a mode");
        run(dev(&dir, &[]).args(["--", "true"]))
            .fails(2, &[name, "other users have access", "delete the directory"]);
    }
}

#[test]
fn copy_of_a_directory_is_refused() {
    let (dir, copy) = (Scratch::new("dev-original"), Scratch::new("dev-copy"));
    let running = start(&dir, &[]);
    // Like an archive that keeps modes.
    let copied = Command::new("cp").args(["-a", dir.path(), copy.path()]).status();
    assert!(copied.expect("cp").success());
    run(dev(&copy, &[]).args(["--", "true"])).fails(2, &["it is a copy", "delete the directory"]);
    run(statestore().args(["dev", "env", "--dir", copy.path()])).fails(2, &["it is a copy"]);
    // Its owner may move it.
    drop(running);
    fs::remove_dir_all(copy.path()).expect("a directory");
    fs::rename(dir.path(), copy.path()).expect("a directory");
    assert_eq!(run(dev(&copy, &[]).args(["--", "true"])).code, Some(0));
}

#[test]
fn directory_of_tokens_that_is_a_link_is_refused() {
    let dir = Scratch::new("dev-tokens-link");
    let other = Scratch::new("dev-tokens-other");
    assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
    fs::create_dir_all(other.path()).expect("a directory");
    let tokens = Path::new(dir.path()).join("tokens");
    fs::remove_dir_all(&tokens).expect("a directory");
    symlink(other.path(), &tokens).expect("a link");
    run(dev(&dir, &[]).args(["--", "true"]))
        .fails(2, &["tokens", "not a directory of this user", "a new directory"]);
    assert_eq!(contents(other.path()), []);
}

/// Gives a file or link to another user. Returns false without the permission.
fn give_away(path: &Path) -> bool {
    match lchown(path, Some(65_534), Some(65_534)) {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

#[test]
fn link_to_a_directory_is_followed_only_if_this_user_made_it() {
    let (dir, link) = (Scratch::new("dev-linked"), Scratch::new("dev-link"));
    fs::create_dir_all(dir.path()).expect("a directory");
    symlink(dir.path(), link.path()).expect("a link");
    assert_eq!(run(dev(&link, &[]).args(["--", "true"])).code, Some(0));
    assert!(Path::new(dir.path()).join("client.crt").exists());
    if give_away(Path::new(link.path())) {
        run(dev(&link, &[]).args(["--", "true"])).fails(2, &["a symbolic link of another user"]);
        let mut slash = statestore();
        slash.args(["dev", "--ports", "any", "--dir", &format!("{}/", link.path()), "--", "true"]);
        run(&mut slash).fails(2, &["a symbolic link of another user"]);
        run(statestore().args(["dev", "env", "--dir", link.path()]))
            .fails(2, &["a symbolic link of another user"]);
    }
    fs::remove_file(link.path()).expect("a link");
}

#[test]
fn directory_that_other_users_can_change_is_refused() {
    let dir = Scratch::new("dev-writable");
    assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
    let refused = |reason: &str| {
        run(dev(&dir, &[]).args(["--", "true"])).fails(2, &[reason, "directory"]);
        let ended = run(statestore().args(["dev", "env", "--dir", dir.path()]));
        ended.fails(2, &[reason]);
        assert_eq!(ended.text(), "");
    };
    for mode in [0o720, 0o702, 0o777] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).expect("a mode");
        refused("other users can write to it");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("a mode");
    let file = Path::new(dir.path()).join("env.json");
    if give_away(&file) {
        refused("it belongs to another user");
        lchown(&file, Some(0), Some(0)).expect("an owner");
        assert!(give_away(Path::new(dir.path())));
        refused("it belongs to another user");
    }
}

#[test]
fn named_pipe_is_refused_at_once() {
    let dir = Scratch::new("dev-pipe");
    assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
    for name in ["env.json", "client.key", ".made.json"] {
        let path = Path::new(dir.path()).join(name);
        let before = fs::read(&path).expect("a file");
        fs::remove_file(&path).expect("a file");
        let made = Command::new("mkfifo").args(["-m", "600"]).arg(&path).status();
        assert!(made.expect("mkfifo").success());
        run(dev(&dir, &[]).args(["--", "true"]))
            .fails(2, &[name, "not a regular file", "a new directory"]);
        fs::remove_file(&path).expect("a pipe");
        fs::write(&path, before).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
}

#[test]
fn clock_that_is_an_hour_behind_the_certificates_is_refused() {
    let dir = Scratch::new("dev-clock");
    assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
    for certificate in ["client.crt", "broker-ca.crt"] {
        files::make_in_future(&dir, certificate, 3_600);
        run(dev(&dir, &[]).args(["--", "true"]))
            .fails(2, &[certificate, "in the future", "set the clock", "delete the directory"]);
    }
}

#[test]
fn command_that_does_not_exist_is_refused() {
    let dir = Scratch::new("dev-command");
    run(dev(&dir, &[]).args(["--", "no-such-program-1"]))
        .fails(127, &["no-such-program-1", "check its name", "PATH"]);
    run(dev(&dir, &[]).args(["--", "/dev/null"])).fails(126, &["/dev/null", "executable"]);
    for (_, port) in ports(&dir) {
        assert!(!is_open(port));
    }
}

#[test]
fn port_in_use_is_named_with_its_option() {
    let dir = Scratch::new("dev-ports");
    for option in ["--plain-port", "--certificate-port", "--token-port", "--websocket-port"] {
        let (port, _listener) = Port::bound();
        let number = port.number().to_string();
        run(dev(&dir, &[option, &number]).args(["--", "true"]))
            .fails(3, &[&number, option, "--ports any"]);
    }
}

#[test]
fn directory_in_use_is_refused() {
    let dir = Scratch::new("dev-in-use");
    let running = start(&dir, &[]);
    let process = format!("process {}", running.id());
    run(dev(&dir, &[]).args(["--", "true"])).fails(3, &["uses it", &process, "--ports any"]);
    client(&dir, "token", &["set", "k", "v"]).version();
    running.kill();
    // A killed one leaves no lock.
    assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
}

#[test]
fn invalid_options_are_refused() {
    let dir = Scratch::new("dev-options");
    for (options, parts) in [
        (&["--service-account", "robot"][..], &["--service-account", "NAMESPACE/NAME"][..]),
        (&["--service-account", "a/../b"], &["NAMESPACE/NAME"]),
        (&["--host", "h\u{f6}st"], &["--host", "not a host name"]),
        (&["--token-lifetime", "1s"], &["--token-lifetime", "10s"]),
        (&["--token-lifetime", "2d"], &["--token-lifetime", "24h"]),
        (&["--login", "none", "--listen-all"], &["--login none", "token or certificate"]),
        (&["--policy", "/no/such/policy"], &["/no/such/policy"]),
        (&["--metrics-listen", "x"], &["metrics-listen"]),
        (&["--plain-port", "70000"], &["--plain-port"]),
        (&["--websocket-origin", "panel"], &["--websocket-origin", "https://panel.example"]),
    ] {
        run(dev(&dir, options).args(["--", "true"])).fails(2, parts);
    }
}

#[test]
fn variables_of_a_directory_without_a_store_are_refused() {
    let dir = Scratch::new("dev-no-env");
    let env = || run(statestore().args(["dev", "env", "--dir", dir.path()]));
    env().fails(3, &[dir.path(), "no `statestore dev` runs there", "start one"]);
    assert_eq!(run(dev(&dir, &[]).args(["--", "true"])).code, Some(0));
    env().fails(3, &[dir.path(), "no `statestore dev` runs there"]);
    let running = start(&dir, &[]);
    let ended = env();
    assert!(ended.code == Some(0) && ended.err.is_empty(), "{ended:?}");
    drop(running);
    let listed = read(&dir, ".made.json");
    let list = Path::new(dir.path()).join(".made.json");
    fs::remove_file(&list).expect("a list");
    env().fails(2, &["env.json", "another program wrote or changed it"]);
    fs::write(&list, listed).expect("a list");
    fs::set_permissions(&list, fs::Permissions::from_mode(0o600)).expect("a mode");
    for damaged in ["", "[]", "{\"token\": 1}", "{\"token\": {\"AIO_X; rm\": \"v\"}}"] {
        fs::write(Path::new(dir.path()).join("env.json"), damaged).expect("a file");
        let ended = env();
        assert_eq!((ended.code, ended.text()), (Some(2), ""), "{damaged}: {ended:?}");
    }
    let list = Path::new(dir.path()).join(".made.json");
    fs::write(list, "damaged").expect("a file");
    run(dev(&dir, &[]).args(["--", "true"])).fails(2, &[".made.json", "delete the directory"]);
}
