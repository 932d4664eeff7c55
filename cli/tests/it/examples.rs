//! The examples of the core, run like a reader would: against an embedded broker, an external
//! broker, and as the store of an external broker.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::Port;

use crate::deployment::{Mode, in_each_mode, test_name};
use crate::process::{Running, run};

in_each_mode!(client_prints_each_step, client_without_an_allocator_prints_each_step);

/// Expected output of the client, without versions.
const STEPS: [&str; 8] = [
    "set example/greeting, version ",
    "get example/greeting: hello",
    "watched: hello",
    "changed: good evening",
    "changed: no value any more",
    "locked, token ",
    "a write without the token: the store refused: a fencing token is required for this request",
    "released",
];

/// Returns the command of an example. The first call builds all examples.
fn example(name: &str) -> Command {
    static BUILT: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let programs = BUILT.get_or_init(build);
    let is_it = |path: &&PathBuf| path.file_stem().is_some_and(|stem| stem == name);
    Command::new(programs.iter().find(is_it).unwrap_or_else(|| panic!("{name} was built")))
}

/// Builds all examples of the core with cargo, and returns their paths.
fn build() -> Vec<PathBuf> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--locked",
        "--examples",
        "--message-format=json",
        "--manifest-path",
        manifest,
    ]);
    let built = cargo.output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let lines = built.stdout.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect()
}

/// Runs the client against this port and checks its output.
fn client_succeeds(port: u16) {
    let ended = run(example("blocking_client").arg(format!("127.0.0.1:{port}")));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.text().lines().collect();
    assert_eq!(lines.len(), STEPS.len(), "{lines:#?}");
    for (line, step) in lines.iter().zip(STEPS) {
        assert!(line.starts_with(step), "{line:?} is not {step:?}");
    }
}

fn client_prints_each_step(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    client_succeeds(here.port());
    // The client has deleted its keys, so it can run again.
    here.run(&["get", "example/guarded"]).is(1, "");
    client_succeeds(here.port());
}

fn client_without_an_allocator_prints_each_step(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let ended = run(example("bare_metal").arg(format!("127.0.0.1:{}", here.port())));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (first, rest) = ended.text().split_once('\n').expect("lines");
    assert!(first.starts_with("set example/device, version "), "{first:?}");
    assert_eq!(rest, "get example/device: 21.5\nget example/nothing: None\n");
    here.run(&["get", "example/device"]).is(0, "21.5");
}

#[test]
fn client_without_a_store_reports_it() {
    let idle = Mosquitto::start(&test_name());
    if let Some(broker) = &idle {
        let address = format!("127.0.0.1:{}", broker.port());
        let ended = run(example("blocking_client").arg(&address));
        ended.fails(1, &[&address, "no matching subscribers"]);
        run(example("bare_metal").arg(&address)).fails(1, &[&address, "no matching subscribers"]);
    }
    let closed = Port::free();
    let address = format!("127.0.0.1:{}", closed.number());
    run(example("blocking_client").arg(&address)).fails(1, &[&address]);
    run(example("bare_metal").arg(&address)).fails(1, &[&address]);
}

#[test]
fn store_with_an_external_broker_survives_its_restart() {
    let Some(mut broker) = Mosquitto::start(&test_name()) else { return };
    let store =
        Running::start(example("blocking_store").arg(format!("127.0.0.1:{}", broker.port())));
    assert_eq!(store.line(), "ready");
    client_succeeds(broker.port());
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let statestore = |arguments: &[&str]| {
        let mut command = crate::process::statestore();
        run(command.args(arguments).args(["--broker", &url, "--timeout", "20s"]))
    };
    statestore(&["set", "k", "v"]).version();
    // Mosquitto's limit of concurrent messages is lower, so responses wait for capacity.
    let bench = statestore(&["bench", "--requests", "2000", "--in-flight", "128"]);
    assert_eq!(bench.code, Some(0), "{bench:?}");
    assert!(broker.restart(), "mosquitto starts again");
    assert!(store.complaint().contains("127.0.0.1"));
    assert_eq!(store.line(), "ready");
    statestore(&["get", "k"]).is(0, "v");
}

#[test]
fn compare_and_swap_loses_no_increment() {
    let ended = run(&mut example("compare_and_swap"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.text().starts_with("400 increments, none lost, "), "{ended:?}");
}
