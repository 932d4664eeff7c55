//! `dev`: a store for development. Its command reaches the store, and nothing is left afterwards.

mod files;
mod refusals;

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use statestore_testkit::process::HANGS;

use crate::embedded_broker::Scratch;
use crate::process::{Ended, Running, run, statestore};

/// Returns `statestore dev` with a directory and free ports.
fn dev(dir: &Scratch, options: &[&str]) -> Command {
    let mut command = statestore();
    command.args(["dev", "--dir", dir.path(), "--ports", "any"]).args(options);
    command
}

/// Adds a client with these words as the command of `dev`.
fn with_client<'a>(dev: &'a mut Command, words: &[&str]) -> &'a mut Command {
    let program = env!("CARGO_BIN_EXE_statestore");
    dev.args(["--", program]).args(words).args(["--timeout", "20s"])
}

/// Runs a client with the variables that `dev env` prints.
fn client(dir: &Scratch, login: &str, words: &[&str]) -> Ended {
    let program = env!("CARGO_BIN_EXE_statestore");
    let script = format!(
        "eval \"$(\"$0\" dev env --dir '{}' --login {login})\" || exit 9\n\
         exec \"$0\" \"$@\" --timeout 20s",
        dir.path()
    );
    run(Command::new("sh").args(["-c", &script, program]).args(words))
}

fn start(dir: &Scratch, options: &[&str]) -> Running {
    let running = Running::start(&mut dev(dir, options));
    // The files are written before the table is printed.
    assert!(running.line().contains("not for production"));
    running
}

fn read(dir: &Scratch, name: &str) -> String {
    fs::read_to_string(Path::new(dir.path()).join(name)).unwrap_or_else(|error| {
        panic!("{name}: {error}");
    })
}

/// The ports of `env.json`, by login.
fn ports(dir: &Scratch) -> Vec<(String, u16)> {
    let all: Value = serde_json::from_str(&read(dir, "env.json")).expect("JSON");
    let all = all.as_object().expect("an object").iter();
    let port = |value: &Value| value["AIO_BROKER_TCP_PORT"].as_str()?.parse().ok();
    all.map(|(login, value)| (login.clone(), port(value).expect("a port"))).collect()
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Waits until a condition holds.
#[expect(clippy::disallowed_methods, reason = "a process changes files at its own pace")]
fn wait_until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_reached() {
        assert!(started.elapsed() < HANGS, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the duration is printed")]
fn command_reaches_the_store_by_each_login() {
    for login in ["token", "certificate", "none"] {
        let dir = Scratch::new(&format!("dev-{login}"));
        let started = Instant::now();
        let mut set = dev(&dir, &["--login", login]);
        run(with_client(&mut set, &["set", "k", "v"])).version();
        println!("{login}: first response after {:?} in an empty directory", started.elapsed());
        // The store ends with its command, and has no keys at the next start.
        let mut get = dev(&dir, &["--login", login]);
        run(with_client(&mut get, &["get", "k"])).is(1, "");
    }
}

#[test]
fn variables_of_other_logins_are_removed_and_a_client_id_stays() {
    let dir = Scratch::new("dev-variables");
    let mut command = dev(&dir, &["--login", "certificate", "--", "env"]);
    command.env("AIO_MQTT_CLIENT_ID", "mine").env("AIO_MQTT_USERNAME", "ann");
    let ended = run(command.env("AIO_SAT_FILE", "/elsewhere"));
    let mut variables: Vec<&str> =
        ended.text().lines().filter(|line| line.starts_with("AIO_")).collect();
    variables.sort_unstable();
    let names: Vec<&str> = variables.iter().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(
        names,
        [
            "AIO_BROKER_HOSTNAME",
            "AIO_BROKER_TCP_PORT",
            "AIO_MQTT_CLIENT_ID",
            "AIO_MQTT_USE_TLS",
            "AIO_TLS_CA_FILE",
            "AIO_TLS_CERT_FILE",
            "AIO_TLS_KEY_FILE",
        ]
    );
    assert!(variables.contains(&"AIO_MQTT_CLIENT_ID=mine"), "{variables:?}");
}

#[test]
fn exit_code_of_the_command_is_returned() {
    let dir = Scratch::new("dev-exit");
    let code = |script: &str| run(dev(&dir, &[]).args(["--", "sh", "-c", script])).code;
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -KILL $$"), Some(128 + 9));
}

#[test]
fn ports_are_closed_after_an_interrupt() {
    let dir = Scratch::new("dev-interrupt");
    let running = start(&dir, &[]);
    let ports = ports(&dir);
    assert_eq!(ports.len(), 3);
    for (login, port) in &ports {
        assert!(is_open(*port), "{login}");
        client(&dir, login, &["set", login, "v"]).version();
    }
    client(&dir, "none", &["keys", "*"]).is(0, "certificate\nnone\ntoken\n");
    running.signal("-INT");
    assert_eq!(running.end().code, Some(0));
    for (login, port) in ports {
        assert!(!is_open(port), "{login}");
    }
}

#[test]
fn termination_leaves_no_process_of_the_command() {
    let dir = Scratch::new("dev-terminate");
    let script = "sleep 300 & echo $!; wait";
    let running = Running::start(dev(&dir, &[]).args(["--", "sh", "-c", script]));
    let process = running.line();
    running.signal("-TERM");
    assert_eq!(running.end().code, Some(143));
    let is_there = || Path::new("/proc").join(&process).join("exe").exists();
    wait_until("the process in the background ends", || !is_there());
    for (login, port) in ports(&dir) {
        assert!(!is_open(port), "{login}");
    }
}

#[test]
fn two_stores_in_different_directories_are_separate() {
    let dirs = [Scratch::new("dev-first"), Scratch::new("dev-second")];
    let running = [start(&dirs[0], &[]), start(&dirs[1], &[])];
    for (dir, value) in dirs.iter().zip(["1", "2"]) {
        client(dir, "token", &["set", "k", value]).version();
    }
    for (dir, value) in dirs.iter().zip(["1", "2"]) {
        client(dir, "certificate", &["get", "k"]).is(0, value);
    }
    assert_ne!(read(&dirs[0], "broker-ca.crt"), read(&dirs[1], "broker-ca.crt"));
    // The token of the other store is rejected.
    let token = Path::new(dirs[1].path()).join("token.txt");
    let token = token.to_str().expect("a path");
    let program = env!("CARGO_BIN_EXE_statestore");
    let url = format!("mqtts://localhost:{}", ports(&dirs[0]).pop().expect("token").1);
    let ca = Path::new(dirs[0].path()).join("broker-ca.crt");
    let mut get = Command::new(program);
    get.args(["get", "k", "--broker", &url, "--service-account-token-file", token]);
    run(get.arg("--tls-ca").arg(ca)).fails(2, &["not authorized"]);
    drop(running);
}

/// Half of the validity is over after five seconds.
#[test]
fn tokens_are_replaced_while_the_store_runs() {
    let dir = Scratch::new("dev-renewal");
    let options = ["--token-lifetime", "10s", "--service-account", "shop/robot"];
    let running = start(&dir, &options);
    let first = read(&dir, "token.txt");
    assert_eq!(read(&dir, "tokens/shop.robot.txt"), first);
    wait_until("the token is renewed", || read(&dir, "token.txt") != first);
    let path = Path::new(dir.path()).join("token.txt");
    let mode = fs::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    client(&dir, "token", &["set", "k", "v"]).version();
    running.signal("-TERM");
    let ended = running.end();
    assert!(ended.err.is_empty(), "{ended:?}");
}

#[test]
fn other_machines_reach_only_the_listeners_with_login() {
    let dir = Scratch::new("dev-listen-all");
    let running = start(&dir, &["--listen-all", "--host", "localhost"]);
    let open: Vec<String> = ports(&dir).into_iter().map(|(login, _)| login).collect();
    assert_eq!(open, ["certificate", "token"]);
    client(&dir, "token", &["set", "k", "v"]).version();
    run(statestore().args(["dev", "env", "--login", "none", "--dir", dir.path()]))
        .fails(2, &["--login none", "--listen-all", "token or certificate"]);
    running.signal("-TERM");
    let ended = running.end();
    assert_eq!(ended.text().matches("mqtts://").count(), 2, "{ended:?}");
    assert!(!ended.text().contains("mqtt://") && !ended.text().contains("ws://"), "{ended:?}");
}

#[test]
fn store_starts_with_the_keys_of_a_seed() {
    let dir = Scratch::new("dev-seed");
    let path = format!("{}.json", dir.path());
    fs::write(&path, r#"{"factoryId": "north"}"#).expect("a file");
    run(with_client(&mut dev(&dir, &["--seed", &path]), &["get", "factoryId"])).is(0, "north");
    fs::remove_file(&path).expect("removed");
}

#[test]
fn policy_decides_and_is_reloaded() {
    let dir = Scratch::new("dev-policy");
    let path = format!("{}.yaml", dir.path());
    let policy = |keys: &str| {
        format!(
            "rules: [{{principals: {{clientIds: [sdk-sample-app]}}, brokerResources: [{{method: \
             Connect}}, {{method: Publish, topics: [\"#\"]}}, {{method: Subscribe, topics: [\"#\"]}}], \
             stateStoreResources: [{{method: ReadWrite, keyType: pattern, keys: [\"{keys}\"]}}]}}]"
        )
    };
    fs::write(&path, policy("open/*")).expect("a file");
    let running = start(&dir, &["--policy", &path]);
    // The client id that the policy names; without the option, it gets a suffix.
    let id = ["--client-id", "sdk-sample-app"];
    let set = |login: &str, key: &str| client(&dir, login, &["set", key, "v", id[0], id[1]]);
    set("token", "open/k").version();
    set("none", "closed/k").fails(2, &["not authorized"]);
    client(&dir, "token", &["set", "open/k", "v"]).fails(2, &["not authorized"]);
    fs::write(&path, policy("*")).expect("a file");
    wait_until("the policy is reloaded", || set("none", "closed/k").code == Some(0));
    drop(running);
    fs::remove_file(&path).expect("a file");
}

#[test]
fn durable_keys_survive_with_a_data_directory() {
    let (dir, data) = (Scratch::new("dev-durable"), Scratch::new("dev-durable-data"));
    let options = ["--data-dir", data.path()];
    let mut set = dev(&dir, &options);
    run(with_client(&mut set, &["set", "k", "v", "--persist"])).version();
    let mut get = dev(&dir, &options);
    run(with_client(&mut get, &["get", "k"])).is(0, "v");
}
