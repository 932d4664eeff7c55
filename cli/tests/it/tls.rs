//! TLS that cannot be: told at once, with what mends it.

use std::process::Command;

use statestore_tests::certificates::Certificates;
use statestore_tests::mosquitto::Mosquitto;

use crate::place::test_name;
use crate::process::{Running, run, statestore};

/// A client that would wait for an hour.
fn client(port: u16, scheme: &str, options: &[&str]) -> Command {
    let mut command = statestore();
    command.args(["get", "k", "--timeout", "1h", "--broker"]);
    command.arg(format!("{scheme}://localhost:{port}")).args(options);
    command
}

fn serve(options: &[&str]) -> (Running, u16) {
    let serve =
        Running::start(statestore().args(["serve", "--listen", "127.0.0.1:0"]).args(options));
    let line = serve.line();
    let port = line.split(';').next().and_then(|url| url.rsplit(':').next()?.parse().ok());
    (serve, port.unwrap_or_else(|| panic!("{line:?}")))
}

/// What either broker does not accept.
fn is_told(port: u16, made: &Certificates) {
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (ca, other) = (path("ca.pem"), path("other.pem"));
    run(&mut client(port, "mqtt", &[])).fails(3, &["speaks TLS on this port", "mqtts://"]);
    let wrong = run(&mut client(port, "mqtts", &["--ca", &other]));
    wrong.fails(3, &["an authority that is not trusted here", "--ca"]);
    let anonymous = run(&mut client(port, "mqtts", &["--ca", &ca]));
    anonymous.fails(3, &["wants a certificate of this client", "--cert and --key-file"]);
    let (cert, key) = (path("other.pem"), path("other.key"));
    let stranger = ["--ca", &ca, "--cert", &cert, "--key-file", &key];
    let refused = run(&mut client(port, "mqtts", &stranger));
    refused.fails(3, &["does not take this client's certificate", "--cert and --key-file"]);
    let mut elsewhere = statestore();
    elsewhere.args(["get", "k", "--timeout", "1h", "--ca", &ca, "--broker"]);
    let ended = run(elsewhere.arg(format!("mqtts://127.0.0.1:{port}")));
    ended.fails(3, &["is for localhost, and not for 127.0.0.1", "--broker"]);
    // A store beside that broker does not wait either.
    let mut store = statestore();
    let ended = run(store.args(["serve", "--broker", &format!("mqtt://localhost:{port}")]));
    ended.fails(3, &["mqtts://"]);
}

#[test]
fn a_store_says_what_its_clients_lack() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    made.make_authority("other");
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("broker.pem"), path("broker.key"));
    let (_serve, port) = serve(&["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca]);
    is_told(port, &made);
    let (_serve, port) = serve(&[]);
    let ended = run(&mut client(port, "mqtts", &["--ca", &ca]));
    ended.fails(3, &["speaks without TLS on this port", "mqtt://"]);
}

#[test]
fn another_broker_says_what_its_clients_lack() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    made.make_authority("other");
    let Some(broker) = Mosquitto::start_with(&test_name(), &made.broker_lines()) else { return };
    is_told(broker.port(), &made);
    made.make_dated("old", "20200101000000Z", "20210101000000Z");
    let lines = made.broker_lines().replace("broker.pem", "old.pem").replace("true", "false");
    let Some(broker) = Mosquitto::start_with(&test_name(), &lines) else { return };
    let ca = made.path("ca.pem").to_str().expect("text").to_owned();
    let ended = run(&mut client(broker.port(), "mqtts", &["--ca", &ca]));
    ended.fails(3, &["certificate expired on 2021-01-01T00:00:00Z", "it needs a new one"]);
}

#[test]
fn serve_refuses_a_certificate_that_no_client_takes() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    made.make_dated("old", "20200101000000Z", "20210101000000Z");
    made.make_dated("early", "20900101000000Z", "20910101000000Z");
    let key = made.path("broker.key").to_str().expect("text").to_owned();
    for (name, told) in [
        ("old.pem", "expired on 2021-01-01T00:00:00Z; get a new one"),
        ("early.pem", "valid from 2090-01-01T00:00:00Z on only; is the clock"),
    ] {
        let cert = made.path(name).to_str().expect("text").to_owned();
        let mut serve = statestore();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key]);
        run(&mut serve).fails(2, &[&cert, told]);
    }
}
