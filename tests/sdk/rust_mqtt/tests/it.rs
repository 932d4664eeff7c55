//! The example against a store in the embedded broker.

use std::net::SocketAddr;
use std::process::Command;

use statestore_server::{Options, serve};
use statestore_testkit::process::timely;

fn example(address: &str) -> tokio::task::JoinHandle<std::process::Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statestore-rust-mqtt-example"));
    command.arg(address);
    tokio::task::spawn_blocking(move || command.output().expect("it starts"))
}

#[tokio::test]
async fn client_sets_and_gets_over_rust_mqtt() {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let (broker, _service) = serve(Options::new(loopback)).await.expect("a free port");
    let address = broker.local_addr().to_string();
    let output = timely(example(&address)).await.expect("it ends");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (set, get) = text.split_once('\n').expect("two lines");
    assert!(set.starts_with("set example/rust-mqtt, version "), "{set:?}");
    assert_eq!(get, "get example/rust-mqtt: 21.5\n");
}

#[tokio::test]
async fn closed_port_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let output = timely(example(&address)).await.expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
}
