//! Sets a key, gets it, and watches it, over Paho and against any store.
//!
//! `cargo run -p statestore-paho --example client -- --broker mqtt://127.0.0.1:1883 thermostat 21`

#[path = "shared/args.rs"]
mod args;

use std::error::Error;
use std::time::Duration;

use statestore_paho::connect;
use statestore_proto::client::WatchEvent;

const USAGE: &str = "usage: client [--broker mqtt://HOST:PORT] [--id CLIENT_ID] [KEY [VALUE]]";

/// Timeout of connecting.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (options, rest) = args::options(USAGE, "paho-example");
    let mut rest = rest.into_iter();
    let key = rest.next().unwrap_or_else(|| "thermostat".into());
    let value = rest.next().unwrap_or_else(|| "21".into());
    if let Some(argument) = rest.next() {
        args::refuse(USAGE, &format!("unexpected argument {argument:?}"));
    }
    let store = connect(options)?;
    if tokio::time::timeout(PATIENCE, store.wait_connected()).await.is_err() {
        let status = store.status().current();
        return Err(format!("not connected: {status}; is the broker running?").into());
    }

    let version = store
        .set(key.clone(), value)
        .await
        .map_err(|error| format!("{error}; does a store run? `--example serve` hosts one"))?;
    println!("set: version {version}");
    let found = store.get(key.clone()).await?.ok_or("another client deleted the key")?;
    println!("get: {}", found.value.escape_ascii());

    let mut changes = store.watch(key.clone()).await?;
    let mut deletion = None;
    loop {
        match changes.next().await.ok_or("the watch has ended")? {
            WatchEvent::Changed { value: Some(value), .. } => {
                println!("watch: {}", value.escape_ascii());
            }
            WatchEvent::Changed { value: None, .. } => break,
            // The watch reports changes from now on.
            WatchEvent::Live if deletion.is_none() => {
                deletion = Some(store.del(key.clone()).await?)
            }
            other => println!("watch: {other:?}"),
        }
    }
    println!("watch: deleted");
    store.shutdown().await;
    Ok(())
}
