//! Files of `dev`: they are private, reused, and renewed in time.

use super::*;

/// Runs `dev` with a command that does nothing.
fn run_once(dir: &Scratch, options: &[&str]) -> Ended {
    let ended = run(dev(dir, options).args(["--", "true"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

/// Changes a number in the list of the files that `dev` has made.
fn change(dir: &Scratch, certificate: &str, key: &str, change: impl Fn(u64) -> u64) {
    let path = Path::new(dir.path()).join(".made.json");
    let mut made: Value = serde_json::from_str(&read(dir, ".made.json")).expect("JSON");
    let value = &mut made["certificates"][certificate][key];
    *value = change(value.as_u64().expect("seconds")).into();
    fs::write(path, made.to_string()).expect("a file");
}

pub(super) fn make_in_future(dir: &Scratch, certificate: &str, seconds: u64) {
    change(dir, certificate, "made", |made| made + seconds);
}

#[test]
fn directory_and_files_are_private() {
    let dir = Scratch::new("dev-private");
    let ended = run(dev(&dir, &[]).env("STATESTORE_LOG", "debug").args(["--", "true"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(Path::new(dir.path())), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir.path()).expect("a directory") {
        let path = entry.expect("an entry").path();
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
        names.push(path.file_name().expect("a name").to_string_lossy().into_owned());
    }
    names.sort_unstable();
    let expected = [
        ".gitignore",
        ".made.json",
        ".statestore-dev",
        "broker-ca.crt",
        "broker-ca.key",
        "client.crt",
        "client.key",
        "env",
        "env.json",
        "env.ps1",
        "jwks.json",
        "server.crt",
        "server.key",
        "token-signing.key",
        "token.txt",
        "tokens",
    ];
    assert_eq!(names, expected);
    assert_eq!(read(&dir, ".gitignore"), "*\n");
    // No secret is logged.
    let token = read(&dir, "token.txt");
    assert!(!ended.err.contains(&token) && !ended.text().contains(&token), "{ended:?}");
    assert!(!ended.err.contains("PRIVATE KEY"), "{ended:?}");
}

const CERTIFICATES: [&str; 3] = ["broker-ca.crt", "client.crt", "server.crt"];

/// Which certificates a run makes again.
fn renewed(dir: &Scratch, options: &[&str]) -> Vec<&'static str> {
    let before = CERTIFICATES.map(|name| read(dir, name));
    run_once(dir, options);
    let changed = CERTIFICATES.into_iter().zip(before);
    changed.filter(|(name, before)| read(dir, name) != *before).map(|(name, _)| name).collect()
}

#[test]
fn certificates_are_reused_and_renewed_before_they_expire() {
    const DAY: u64 = 24 * 60 * 60;
    let dir = Scratch::new("dev-reuse");
    run_once(&dir, &[]);
    let key = read(&dir, "token-signing.key");
    assert_eq!(renewed(&dir, &[]), [""; 0]);
    assert_eq!(read(&dir, "token-signing.key"), key);
    assert_eq!(renewed(&dir, &["--host", "store.example"]), ["server.crt"]);
    assert_eq!(renewed(&dir, &["--host", "store.example"]), [""; 0]);
    // The certificates are valid for 825 days.
    let host = ["--host", "store.example"];
    change(&dir, "client.crt", "expires", |expires| expires - (825 - 8) * DAY);
    assert_eq!(renewed(&dir, &host), [""; 0], "eight days are left");
    change(&dir, "client.crt", "expires", |expires| expires - 2 * DAY);
    assert_eq!(renewed(&dir, &host), ["client.crt"], "six days are left");
    change(&dir, "broker-ca.crt", "expires", |expires| expires - (825 - 6) * DAY);
    assert_eq!(renewed(&dir, &host), CERTIFICATES);
    let mut set = dev(&dir, &host);
    run(with_client(&mut set, &["set", "k", "v"])).version();
}

#[test]
fn certificate_has_the_names_of_the_server() {
    let dir = Scratch::new("dev-names");
    run_once(&dir, &["--host", "store.example", "--host", "10.9.8.7"]);
    let path = Path::new(dir.path()).join("server.crt");
    let mut show = Command::new("openssl");
    show.args(["x509", "-noout", "-ext", "subjectAltName", "-in"]).arg(path);
    let Ok(output) = show.output() else { return println!("skipped: openssl is not installed") };
    let text = String::from_utf8(output.stdout).expect("text");
    for name in [
        "DNS:localhost",
        "DNS:aio-broker",
        "DNS:host.docker.internal",
        "IP Address:127.0.0.1",
        "IP Address:0:0:0:0:0:0:0:1",
        "DNS:store.example",
        "IP Address:10.9.8.7",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn interrupted_creation_is_completed_by_the_next_start() {
    let dir = Scratch::new("dev-interrupted");
    run_once(&dir, &[]);
    let key = read(&dir, "token-signing.key");
    let key_set = read(&dir, "jwks.json");
    // The state after the keys were written, and before the certificate and the key set were.
    let path = |name: &str| Path::new(dir.path()).join(name);
    for name in ["client.crt", "jwks.json"] {
        fs::remove_file(path(name)).expect("a file");
    }
    let mut made: Value = serde_json::from_str(&read(&dir, ".made.json")).expect("JSON");
    made["certificates"].as_object_mut().expect("an object").remove("client.crt");
    fs::write(path(".made.json"), made.to_string()).expect("a file");
    let ended = run(with_client(&mut dev(&dir, &["--login", "certificate"]), &["set", "k", "v"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((read(&dir, "token-signing.key"), read(&dir, "jwks.json")), (key, key_set));
}
