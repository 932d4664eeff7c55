//! A store over Paho.
//!
//! `cargo run -p statestore-paho --example serve -- --broker mqtt://127.0.0.1:1883`

#[path = "shared/args.rs"]
mod args;

use std::error::Error;

use statestore_paho::serve;

const USAGE: &str = "usage: serve [--broker mqtt://HOST:PORT] [--id CLIENT_ID]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (options, rest) = args::options(USAGE, "statestore");
    if let Some(argument) = rest.first() {
        args::refuse(USAGE, &format!("unexpected argument {argument:?}"));
    }
    println!("connecting: {options:?}");
    let service = serve(options.read_mosquitto_log(true));
    service.wait_connected().await?;
    println!("serving; stop with Ctrl-C");
    tokio::select! {
        stopped = service.wait_closed() => Err(format!("stopped: {stopped}").into()),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            service.shutdown().await;
            Ok(())
        }
    }
}
