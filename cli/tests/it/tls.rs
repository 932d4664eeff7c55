//! TLS errors end a command at once, with advice.

use std::process::Command;

use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::credentials::Certificates;

use crate::deployment::test_name;
use crate::process::{Running, run, statestore};

/// A client with a timeout of an hour.
fn client(port: u16, scheme: &str, options: &[&str]) -> Command {
    let mut command = statestore();
    command.args(["get", "k", "--timeout", "1h", "--broker"]);
    command.arg(format!("{scheme}://localhost:{port}")).args(options);
    command
}

fn serve(options: &[&str]) -> (Running, u16) {
    let listen = if options.contains(&"--listen-tls-cert") { "--listen-tls" } else { "--listen" };
    let serve = Running::start(statestore().args(["serve", listen, "127.0.0.1:0"]).args(options));
    let line = serve.line();
    let port = line.split(';').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
    (serve, port.unwrap_or_else(|| panic!("{line:?}")))
}

/// Mistakes that both brokers detect.
fn mistakes_are_explained(port: u16, made: &Certificates) {
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (ca, other) = (path("ca.pem"), path("other.pem"));
    run(&mut client(port, "mqtt", &[])).fails(3, &["speaks TLS on this port", "mqtts://"]);
    let wrong = run(&mut client(port, "mqtts", &["--tls-ca", &other]));
    wrong.fails(3, &["from a CA that this client does not trust", "--tls-ca"]);
    let anonymous = run(&mut client(port, "mqtts", &["--tls-ca", &ca]));
    anonymous.fails(3, &["requires a client certificate", "--tls-cert and --tls-key"]);
    let (cert, key) = (path("other.pem"), path("other.key"));
    let stranger = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let refused = run(&mut client(port, "mqtts", &stranger));
    refused.fails(3, &["rejected the certificate of this client", "--tls-cert and --tls-key"]);
    let mut elsewhere = statestore();
    elsewhere.args(["get", "k", "--timeout", "1h", "--tls-ca", &ca, "--broker"]);
    let ended = run(elsewhere.arg(format!("mqtts://127.0.0.1:{port}")));
    ended.fails(3, &["is for localhost, not for 127.0.0.1", "--broker"]);
    // `serve` with that broker ends immediately too.
    let mut store = statestore();
    let ended = run(store.args(["serve", "--broker", &format!("mqtt://localhost:{port}")]));
    ended.fails(3, &["mqtts://"]);
}

#[test]
fn tls_mistakes_with_the_embedded_broker_are_explained() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    made.make_authority("other");
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("broker.pem"), path("broker.key"));
    let (_serve, port) = serve(&[
        "--listen-tls-cert",
        &cert,
        "--listen-tls-key",
        &key,
        "--listen-tls-client-ca",
        &ca,
    ]);
    mistakes_are_explained(port, &made);
    let (_serve, port) = serve(&[]);
    let ended = run(&mut client(port, "mqtts", &["--tls-ca", &ca]));
    ended.fails(3, &["speaks MQTT without TLS on this port", "mqtt://"]);
}

#[test]
fn tls_mistakes_with_an_external_broker_are_explained() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    made.make_authority("other");
    let Some(broker) = Mosquitto::start_with(&test_name(), &made.broker_lines()) else { return };
    mistakes_are_explained(broker.port(), &made);
    made.make_dated("old", "20200101000000Z", "20210101000000Z");
    let lines = made.broker_lines().replace("broker.pem", "old.pem").replace("true", "false");
    let Some(broker) = Mosquitto::start_with(&test_name(), &lines) else { return };
    let ca = made.path("ca.pem").to_str().expect("text").to_owned();
    let ended = run(&mut client(broker.port(), "mqtts", &["--tls-ca", &ca]));
    ended.fails(
        3,
        &["certificate expired on 2021-01-01T00:00:00Z", "renew the broker's certificate"],
    );
    // `openssl req -x509` creates the certificate of a CA.
    let lines = made.broker_lines().replace("broker.", "other.").replace("true", "false");
    let Some(broker) = Mosquitto::start_with(&test_name(), &lines) else { return };
    let other = made.path("other.pem").to_str().expect("text").to_owned();
    let ended = run(&mut client(broker.port(), "mqtts", &["--tls-ca", &other]));
    ended.fails(3, &["CA:TRUE", "openssl req -x509", "basicConstraints=CA:FALSE"]);
}

#[test]
fn serve_refuses_a_certificate_that_is_not_valid_now() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    made.make_dated("old", "20200101000000Z", "20210101000000Z");
    made.make_dated("early", "20900101000000Z", "20910101000000Z");
    let key = made.path("broker.key").to_str().expect("text").to_owned();
    for (name, reason) in [
        ("old.pem", "expired on 2021-01-01T00:00:00Z; get a new one"),
        ("early.pem", "not valid before 2090-01-01T00:00:00Z; is the clock"),
    ] {
        let cert = made.path(name).to_str().expect("text").to_owned();
        let mut serve = statestore();
        serve.args([
            "serve",
            "--listen-tls",
            "127.0.0.1:0",
            "--listen-tls-cert",
            &cert,
            "--listen-tls-key",
            &key,
        ]);
        run(&mut serve).fails(2, &[&cert, reason]);
    }
}

#[test]
fn key_of_an_unsupported_curve_is_named_with_those_that_are_supported() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (cert, key) = (path("p521.pem"), path("p521.key"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-521"]);
    openssl.args(["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-out", &cert, "-keyout", &key]);
    assert!(openssl.output().expect("openssl").status.success());
    let supported = ["of an unsupported kind", "P-384 (not P-521)", "Ed25519"];
    let mut serve = statestore();
    serve.args(["serve", "--listen-tls", "127.0.0.1:0"]);
    serve.args(["--listen-tls-cert", &cert, "--listen-tls-key", &key]);
    run(&mut serve).fails(2, &[&[&*key], &supported[..]].concat());
    let ca = path("ca.pem");
    let own = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    run(&mut client(1, "mqtts", &own)).fails(2, &[&[&*key, "--tls-key"], &supported[..]].concat());
    // The broker can use the curve, and this client cannot verify it.
    let lines = made.broker_lines().replace("broker.", "p521.").replace("true", "false");
    let Some(broker) = Mosquitto::start_with(&test_name(), &lines) else { return };
    run(&mut client(broker.port(), "mqtts", &["--tls-ca", &cert]))
        .fails(3, &["kind of certificate", "P-384 (not P-521)"]);
}
