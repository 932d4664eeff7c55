//! The complete configuration of each page for operators starts and does what its page describes.

use std::fs;

#[cfg(feature = "etcd")]
use statestore_testkit::brokers::Etcd;
use statestore_testkit::credentials::Certificates;
use statestore_testkit::credentials::tokens::{Issuer, key_set};

use crate::deployment::test_name;
use crate::embedded_broker::{EmbeddedStore, Scratch};
use crate::process::{Ended, Running, run, run_with_input, statestore};

/// Returns the text of the first block of this language in a page.
fn first_block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a block");
    rest.split_once("```").expect("its end").0
}

/// The configuration of a page, with files and addresses of this test.
struct Configuration(Scratch);

impl Configuration {
    /// Replaces each of these texts, which must all occur. No path of a real system may remain, and
    /// a server for other machines must have a policy or permit anonymous clients.
    fn of_page(name: &str, page: &str, replacements: &[(&str, &str)]) -> Self {
        let mut text = first_block(page, "toml").to_owned();
        if text.contains("0.0.0.0") {
            let permits = text.contains("policy = ") || text.contains("allow-anonymous = true");
            assert!(permits, "{name}: it does not start with this address");
        }
        for (documented, used) in replacements {
            assert!(text.contains(documented), "{name}: {documented}");
            text = text.replace(documented, used);
        }
        assert!(!text.contains("\"/etc/") && !text.contains("\"/var/"), "{name}: {text}");
        let file = Scratch::new(&format!("documented-{name}.toml"));
        fs::write(file.path(), text).expect("a file");
        Self(file)
    }

    fn serve(&self) -> Running {
        Running::start(statestore().args(["serve", "--config", self.0.path()]))
    }

    /// Starts the server and waits for its ready line.
    fn start(&self) -> EmbeddedStore {
        ready(self.serve())
    }
}

/// Waits for the ready line of a server.
fn ready(store: Running) -> EmbeddedStore {
    let line = store.line();
    let url = line.strip_prefix("statestore: ready on ");
    let url = url.and_then(|rest| rest.split(';').next()).unwrap_or_else(|| panic!("{line:?}"));
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    EmbeddedStore { port: port.unwrap_or_else(|| panic!("{line:?}")), store }
}

/// Writes a password file with these users, whose password is `secret`.
fn password_file(name: &str, users: &[&str]) -> Scratch {
    let file = Scratch::new(name);
    for user in users {
        let mut command = statestore();
        command.args(["passwd", file.path(), user]);
        run_with_input(&mut command, b"secret\n").is(0, "");
    }
    file
}

/// Writes the policy of the page about authorization.
fn documented_policy(name: &str) -> Scratch {
    let file = Scratch::new(name);
    let page = include_str!("../../../docs/authorization.md");
    fs::write(file.path(), first_block(page, "yaml")).expect("a file");
    file
}

fn run_as(server: &EmbeddedStore, scheme: &str, user: &str, arguments: &[&str]) -> Ended {
    let mut command = server.command(scheme, arguments);
    run(command.args(["--user", user]).env("STATESTORE_PASSWORD", "secret"))
}

#[test]
fn tls_configuration_admits_clients_by_certificate() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let ca = path("ca.pem");
    let configuration = Configuration::of_page(
        "tls",
        include_str!("../../../docs/tls.md"),
        &[
            ("0.0.0.0:8883", "127.0.0.1:0"),
            ("/etc/statestore/server.pem", &path("broker.pem")),
            ("/etc/statestore/server.key", &path("broker.key")),
            ("/etc/statestore/clients-ca.pem", &ca),
        ],
    );
    let server = configuration.start();
    let (cert, key) = (path("client.pem"), path("client.key"));
    let login = ["set", "k", "v", "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    run(server.command("mqtts", &login).args(["--user", "client"])).version();
    let ended = run(server.command("mqtts", &login).args(["--user", "other"]));
    assert_ne!(ended.code, Some(0), "the certificate is that of another user");
}

#[test]
fn login_configuration_admits_users_by_password_over_tls() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let users = password_file("documented-logins-users", &["ann"]);
    let policy = documented_policy("documented-logins.yaml");
    let keys = Scratch::new("documented-logins.json");
    fs::write(keys.path(), key_set(&[&Issuer::p256("key")])).expect("a file");
    let configuration = Configuration::of_page(
        "logins",
        include_str!("../../../docs/logins.md"),
        &[
            ("0.0.0.0:8883", "127.0.0.1:0"),
            ("/etc/statestore/server.pem", &path("broker.pem")),
            ("/etc/statestore/server.key", &path("broker.key")),
            ("/etc/statestore/users", users.path()),
            ("/etc/statestore/jwks.json", keys.path()),
            ("/etc/statestore/policy.yaml", policy.path()),
        ],
    );
    let server = configuration.start();
    let ca = path("ca.pem");
    let set = ["set", "private/ann/k", "v", "--tls-ca", &ca];
    run_as(&server, "mqtts", "ann", &set).version();
    run_as(&server, "mqtts", "bob", &set).fails(2, &["refused"]);
}

#[test]
fn authorization_configuration_enforces_the_documented_policy() {
    let users = password_file("documented-authorization-users", &["ann", "bob"]);
    let policy = documented_policy("documented-authorization.yaml");
    let configuration = Configuration::of_page(
        "authorization",
        include_str!("../../../docs/authorization.md"),
        &[
            ("127.0.0.1:1883", "127.0.0.1:0"),
            ("/etc/statestore/users", users.path()),
            ("/etc/statestore/policy.yaml", policy.path()),
        ],
    );
    let server = configuration.start();
    let run_as = |user: &str, arguments: &[&str]| run_as(&server, "mqtt", user, arguments);
    run_as("bob", &["set", "private/bob/k", "v"]).version();
    run_as("ann", &["get", "private/bob/k"]).fails(2, &["not authorized"]);
    run_as("ann", &["set", "shared/k", "v"]).version();
    run_as("bob", &["get", "shared/k"]).is(0, "v");
    run_as("bob", &["set", "shared/k", "w"]).fails(2, &["not authorized"]);
}

#[test]
fn durability_configuration_persists_the_documented_keys() {
    let directory = Scratch::new("documented-data");
    let configuration = Configuration::of_page(
        "durability",
        include_str!("../../../docs/durability.md"),
        &[("127.0.0.1:1883", "127.0.0.1:0"), ("/var/lib/statestore", directory.path())],
    );
    let server = configuration.start();
    let set = |key: &str, options: &[&str]| {
        run(server.command("mqtt", &["set", key, "v"]).args(options)).version();
    };
    set("settings/a", &[]);
    set("requested", &["--persist"]);
    set("other", &[]);
    server.store.kill();
    let server = configuration.start();
    let get = |key: &str| run(&mut server.command("mqtt", &["get", key]));
    get("settings/a").is(0, "v");
    get("requested").is(0, "v");
    get("other").is(1, "");
}

#[cfg(feature = "etcd")]
#[test]
fn cluster_configuration_starts_a_leader() {
    let Some(etcd) = Etcd::start(&test_name()) else { return };
    let url = etcd.url();
    let configuration = Configuration::of_page(
        "cluster",
        include_str!("../../../docs/cluster.md"),
        &[
            ("0.0.0.0:1883", "127.0.0.1:0"),
            ("http://10.0.0.1:2379", &url),
            ("http://10.0.0.2:2379", &url),
            ("http://10.0.0.3:2379", &url),
        ],
    );
    let server = configuration.start();
    run(&mut server.command("mqtt", &["set", "k", "v"])).version();
    let status = run(statestore().args(["status", "--etcd", &url]));
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.text().contains(" at 10.0.0.1:1883, since "), "{status:?}");
}

#[test]
fn monitoring_configuration_serves_metrics_and_traffic() {
    let configuration = Configuration::of_page(
        "metrics",
        include_str!("../../../docs/metrics.md"),
        &[("127.0.0.1:1883", "127.0.0.1:0"), ("127.0.0.1:9464", "127.0.0.1:0")],
    );
    let store = configuration.serve();
    let line = store.complaint();
    let url = line.strip_prefix("statestore: metrics on ").expect("the address");
    let url = url.strip_suffix("/metrics").expect("the path").to_owned();
    let server = ready(store);
    run(&mut server.command("mqtt", &["set", "k", "v"])).version();
    let status = run(statestore().args(["status", "--ready", "--metrics-url", &url]));
    assert_eq!(status.code, Some(0), "{status:?}");
}
