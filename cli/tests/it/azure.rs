//! Connection settings from the variables of Azure IoT Operations.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use statestore_testkit::credentials::Certificates;

use crate::deployment::{Deployment, Mode, in_each_mode, test_name};
use crate::process::{Running, run, run_with_input, statestore};

in_each_mode!(
    azure_variables_connect_unless_a_broker_is_given,
    azure_mistakes_name_the_variable,
    command_does_not_take_over_the_connection_of_the_application,
);

/// A command with the address of a place in variables of Azure.
fn command(here: &Deployment, words: &[&str]) -> Command {
    let mut command = statestore();
    command.env("AIO_BROKER_HOSTNAME", "127.0.0.1").env("AIO_MQTT_USE_TLS", "false");
    command.env("AIO_BROKER_TCP_PORT", here.port().to_string());
    command.args(words).args(["--timeout", "20s"]);
    command
}

fn azure_variables_connect_unless_a_broker_is_given(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    run(&mut command(&here, &["set", "k", "v"])).version();
    run(&mut command(&here, &["get", "k"])).is(0, "v");
    let ended = run(command(&here, &["doctor"]).env("AIO_MQTT_KEEP_ALIVE", "30"));
    // On a busy machine, it warns about the latency.
    let summary = format!("{}: no problem found", here.url());
    assert!(ended.text().starts_with(&summary), "{ended:?}");
    // A given broker replaces all variables, so that it does not receive their login.
    let url = here.url();
    for (name, value) in [
        ("AIO_BROKER_TCP_PORT", "1"),
        ("AIO_BROKER_TCP_PORT", "none"),
        ("AIO_MQTT_PASSWORD_FILE", "/nowhere"),
        ("AIO_MQTT_KEEP_ALIV", "30"),
    ] {
        run(command(&here, &["get", "k", "--broker", &url]).env(name, value)).is(0, "v");
        let mut variable = command(&here, &["get", "k"]);
        run(variable.env("STATESTORE_BROKER", &url).env(name, value)).is(0, "v");
    }
}

fn azure_mistakes_name_the_variable(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    for (name, value, parts) in [
        ("AIO_BROKER_TCP_PORT", "0", &["AIO_BROKER_TCP_PORT is invalid", "65535"][..]),
        ("AIO_BROKER_HOSTNAME", "", &["AIO_BROKER_HOSTNAME is not set"]),
        ("AIO_BROKER_HOSTNAM", "h", &["did you mean AIO_BROKER_HOSTNAME?"]),
        ("AIO_MQTT_PASSWORD", "secret", &["AIO_MQTT_PASSWORD_FILE"]),
        ("AIO_MQTT_PASSWORD_FILE", "/nowhere", &["AIO_MQTT_PASSWORD_FILE", "/nowhere"]),
        ("AIO_TLS_CERT_FILE", "/chain", &["AIO_TLS_CERT_FILE", "AIO_TLS_KEY_FILE"]),
    ] {
        let ended = run(command(&here, &["get", "k"]).env(name, value));
        ended.fails(2, parts);
        ended.fails(2, &["--broker"]);
        assert!(!ended.err.contains("secret"), "{name}: {ended:?}");
    }
    let conflict = run(command(&here, &["get", "k"])
        .env("AIO_SAT_FILE", "/token")
        .env("AIO_MQTT_PASSWORD_FILE", "/password"));
    conflict.fails(2, &["AIO_MQTT_PASSWORD_FILE and AIO_SAT_FILE are both set: remove one"]);
    let token = run(command(&here, &["get", "k"]).env("AIO_SAT_FILE", "/nowhere"));
    token.fails(2, &["AIO_SAT_FILE /nowhere: "]);
    let tls = command(&here, &["get", "k"])
        .env("AIO_MQTT_USE_TLS", "")
        .env("AIO_TLS_CA_FILE", "/nowhere")
        .output()
        .expect("the command runs");
    let text = String::from_utf8_lossy(&tls.stderr).into_owned();
    assert!(tls.status.code() == Some(2) && text.contains("AIO_TLS_CA_FILE: /nowhere"), "{text}");
}

fn command_does_not_take_over_the_connection_of_the_application(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    run(&mut command(&here, &["set", "k", "1"])).version();
    // The application, with its client id.
    let mut watch = here.command(&["watch", "k", "--count", "2", "--client-id", "app"]);
    let application = Running::start(&mut watch);
    assert_eq!(application.line(), "1");
    let with_id = |words: &[&str]| {
        let mut command = command(&here, words);
        command.env("AIO_MQTT_CLIENT_ID", "app");
        command
    };
    for _ in 0..2 {
        run(&mut with_id(&["get", "k"])).is(0, "1");
    }
    run(&mut with_id(&["set", "k", "2"])).version();
    assert_eq!(application.line(), "2");
    let ended = application.end();
    assert!(ended.code == Some(0) && !ended.err.contains("gap"), "{ended:?}");
}

#[test]
fn connection_errors_name_the_variables() {
    let nowhere = |variables: &[(&str, &str)]| {
        let mut get = statestore();
        get.args(["get", "k", "--timeout", "200ms"]).env("AIO_BROKER_HOSTNAME", "127.0.0.1");
        run(get.env("AIO_BROKER_TCP_PORT", "1").envs(variables.iter().copied()))
    };
    let plain = nowhere(&[("AIO_MQTT_USE_TLS", "false")]);
    plain.fails(3, &["check AIO_BROKER_HOSTNAME, AIO_BROKER_TCP_PORT and AIO_MQTT_USE_TLS"]);
    plain.fails(3, &["if `statestore dev env` has set them, start `statestore dev` again"]);
    assert!(!plain.err.contains("--broker"), "{plain:?}");
    let mut doctor = statestore();
    doctor.args(["doctor", "--timeout", "200ms"]).env("AIO_BROKER_HOSTNAME", "127.0.0.1");
    let ended = run(doctor.env("AIO_BROKER_TCP_PORT", "1").env("AIO_MQTT_USE_TLS", "false"));
    let once = "--broker by AIO_BROKER_HOSTNAME, AIO_BROKER_TCP_PORT and AIO_MQTT_USE_TLS\n";
    assert!(ended.err.contains(once), "{ended:?}");
    // An option has precedence.
    let mut get = statestore();
    get.args(["get", "k", "--timeout", "200ms", "--broker", "mqtt://127.0.0.1:1"]);
    let ended = run(get.env("AIO_BROKER_HOSTNAME", "elsewhere"));
    ended.fails(3, &["check --broker"]);
    assert!(!ended.err.contains("statestore dev"), "{ended:?}");
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("statestore-azure-{}-{name}", std::process::id()))
}

#[test]
fn login_is_replaced_as_a_whole() {
    let (users, password) = (temporary("users"), temporary("password"));
    let path = users.to_str().expect("text");
    for user in ["alice", "bob"] {
        let added = run_with_input(statestore().args(["passwd", path, user]), b"secret\n");
        assert_eq!(added.code, Some(0), "{added:?}");
    }
    fs::write(&password, "secret\n").expect("a file");
    let Some(here) = Mode::Embedded.start(&["--password-file", path]) else { return };
    let login = |words: &[&str]| {
        let mut command = command(&here, words);
        command.env("AIO_MQTT_USERNAME", "alice").env("AIO_MQTT_PASSWORD_FILE", &password);
        command
    };
    run(&mut login(&["set", "k", "v"])).version();
    // The password of the variables is not sent for another user.
    run(&mut login(&["get", "k", "--user", "bob"])).fails(2, &["--user"]);
    run(login(&["get", "k", "--user", "bob"]).env("STATESTORE_PASSWORD", "secret")).is(0, "v");
    let ids = [("alice-7", "bob-7"), ("bob-7", "alice-7")];
    for ((variable, option), is_variable) in ids.into_iter().zip([true, false]) {
        let mut with_variable = login(&["get", "k"]);
        let ended = run(with_variable.env("AIO_MQTT_CLIENT_ID", variable));
        let mut with_option = login(&["get", "k", "--client-id", option]);
        let other = run(with_option.env("AIO_MQTT_CLIENT_ID", variable));
        let (good, bad) = if is_variable { (ended, other) } else { (other, ended) };
        good.is(0, "v");
        let source = if is_variable { "--client-id" } else { "AIO_MQTT_CLIENT_ID" };
        bad.fails(2, &[&format!("leave out {source}, ")]);
    }
    let _ = fs::remove_file(users);
    let _ = fs::remove_file(password);
}

#[test]
fn azure_defaults_use_tls() {
    let Some(made) = Certificates::make(&test_name()) else { return };
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let serve = Running::start(statestore().args([
        "serve",
        "--listen-tls",
        "127.0.0.1:0",
        "--listen-tls-cert",
        &path("broker.pem"),
        "--listen-tls-key",
        &path("broker.key"),
    ]));
    let line = serve.line();
    let port = line.split(';').next().and_then(|url| url.rsplit(':').next()).expect("a port");
    let mut set = statestore();
    set.env("AIO_BROKER_HOSTNAME", "localhost").env("AIO_BROKER_TCP_PORT", port);
    set.args(["set", "k", "v", "--timeout", "20s"]);
    run(set.env("AIO_TLS_CA_FILE", path("ca.pem"))).version();
}
