//! `certificates`: the created files start a server and connect a client.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::embedded_broker::{EmbeddedStore, Scratch};
use crate::process::{run, statestore};

#[test]
fn created_certificates_start_a_server_and_connect_a_client() {
    let dir = Scratch::new("certificates");
    let mut create = statestore();
    create.args(["certificates", dir.path(), "--host", "broker.example", "--client", "lamp"]);
    let created = run(&mut create);
    assert_eq!(created.code, Some(0), "{created:?}");
    let path = |name: &str| format!("{}/{name}", dir.path());
    for name in ["ca.key", "server.key", "lamp.key"] {
        let mode = fs::metadata(path(name)).expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // The printed command lines, on a free port.
    let line = |command: &str| {
        let text = created.text();
        let line = text.lines().find(|line| line.contains(command)).expect(command);
        let words = line.split_whitespace().skip(2).map(ToOwned::to_owned);
        words.collect::<Vec<_>>()
    };
    let serve = line("statestore serve");
    // `EmbeddedStore` replaces the first two words by a free port.
    assert_eq!(serve[..2], ["--listen-tls", "127.0.0.1:8883"]);
    let options: Vec<&str> = serve.iter().skip(2).map(|word| &**word).collect();
    let server = EmbeddedStore::start(&options);
    let doctor = line("statestore doctor").join(" ").replace(":8883", &format!(":{}", server.port));
    let doctor: Vec<&str> = doctor.split(' ').collect();
    let checked = run(statestore().arg("doctor").args(&doctor));
    assert!(checked.text().contains("no problem found"), "{checked:?}");

    let (ca, cert, key) = (path("ca.pem"), path("lamp.pem"), path("lamp.key"));
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        let url = format!("mqtts://{host}:{}", server.port);
        let mut get = statestore();
        get.args(["set", "k", "v", "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key]);
        let ended = run(get.args(["--timeout", "20s", "--broker", &url]));
        // The server listens on 127.0.0.1 only.
        assert_eq!(ended.code, Some(if host == "[::1]" { 3 } else { 0 }), "{host}: {ended:?}");
        assert!(!ended.err.contains("certificate"), "{host}: {ended:?}");
    }
    let with = |tls: &[&str]| {
        let mut get = server.command("mqtts", &["get", "k", "--tls-ca", &ca]);
        run(get.args(tls))
    };
    with(&[]).fails(3, &["requires a client certificate", "set --tls-cert and --tls-key"]);
    with(&["--tls-cert", &key, "--tls-key", &cert]).fails(2, &[&cert, &key, "swap them"]);
    let other = path("server.key");
    let mismatch = with(&["--tls-cert", &cert, "--tls-key", &other]);
    mismatch.fails(2, &[&other, "is not the key of", &cert]);

    let before = fs::read(path("ca.pem")).expect("a certificate");
    run(&mut create).fails(2, &["ca.pem exists and is not overwritten"]);
    assert_eq!(fs::read(path("ca.pem")).expect("a certificate"), before);
    // No file of another client is left by a run that fails.
    let mut other = statestore();
    run(other.args(["certificates", dir.path(), "--client", "other"])).fails(2, &["exists"]);
    assert!(!fs::exists(path("other.pem")).expect("a directory"));
}

#[test]
fn invalid_names_are_refused() {
    let dir = Scratch::new("no-certificates");
    for (options, part) in [
        (["--client", "../x"], "--client"),
        (["--client", "ca"], "--client ca"),
        (["--host", "h\u{f6}st"], "--host"),
    ] {
        let mut create = statestore();
        run(create.args(["certificates", dir.path()]).args(options)).fails(2, &[part]);
        assert!(!fs::exists(dir.path()).expect("a path"), "{options:?}");
    }
}
