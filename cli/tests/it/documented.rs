//! The configuration files of the documentation.

use std::fs;
use std::path::Path;

use statestore_tests::mosquitto::Mosquitto;

use crate::own_broker::Scratch;
use crate::place::test_name;
use crate::process::{Running, run, run_with_input, statestore};

/// The first block of a page in this language.
fn block<'p>(page: &'p str, language: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a block");
    rest.split_once("```").expect("its end").0
}

/// Starts a server with the configuration of a page, whose files and addresses are replaced.
fn start(page: &str, directory: &Path, broker: &str) -> Running {
    let scratch = directory.to_str().expect("text");
    let mut config = block(page, "toml").replace("/etc/statestore", scratch);
    let data = directory.join(format!("data-{}", page.len()));
    config = config.replace("/var/lib/statestore-external", data.to_str().expect("text"));
    config = config.replace("/var/lib/statestore", data.to_str().expect("text"));
    for port in ["1883", "8883", "9464"] {
        for address in ["127.0.0.1", "0.0.0.0"] {
            config = config.replace(&format!("\"{address}:{port}\""), "\"127.0.0.1:0\"");
        }
    }
    config = config.replace("mqtt://127.0.0.1:1883", broker);
    let file = directory.join("statestore.toml");
    fs::write(&file, config).expect("the configuration");
    let server = Running::start(statestore().args(["serve", "--config"]).arg(file));
    assert!(server.line().starts_with("statestore: ready on mqtt"), "{page}");
    server
}

#[test]
fn each_documented_configuration_starts() {
    let scratch = Scratch::new(&test_name());
    let directory = Path::new(scratch.path());
    let made = run(statestore().arg("certificates").arg(directory));
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::copy(directory.join("ca.pem"), directory.join("clients-ca.pem")).expect("a copy");
    let users = directory.join("users");
    run_with_input(statestore().arg("passwd").arg(&users).arg("ann"), b"secret\n").is(0, "");
    let authorization = include_str!("../../../docs/authorization.md");
    fs::write(directory.join("policy.yaml"), block(authorization, "yaml")).expect("the policy");
    for page in [
        include_str!("../../../docs/tls.md"),
        include_str!("../../../docs/logins.md"),
        authorization,
        include_str!("../../../docs/durability.md"),
        include_str!("../../../docs/metrics.md"),
    ] {
        let server = start(page, directory, "");
        server.signal("-TERM");
        assert_eq!(server.end().code, Some(0));
    }
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    start(include_str!("../../../docs/brokers.md"), directory, &url);
}

/// Starting it takes an etcd cluster, so only its settings are checked.
#[test]
fn documented_configuration_of_a_cluster_is_valid() {
    let scratch = Scratch::new(&test_name());
    let page = include_str!("../../../docs/deployment.md");
    fs::write(scratch.path(), block(page, "toml")).expect("the configuration");
    let printed = run(statestore().args(["serve", "--print-config", "--config", scratch.path()]));
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(printed.text().contains("10.0.0.2:2379"), "{printed:?}");
}
