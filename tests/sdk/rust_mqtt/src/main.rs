//! Runs the driver over TCP on a computer, with tokio in place of the board's executor.
//!
//! Run `cargo run [HOST:PORT]` in this folder, with a store at that address.

use std::error::Error;
use std::future::Future;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use embedded_io_adapters::tokio_1::FromTokio;
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_rust_mqtt_example::{Board, drive};
use tokio::net::TcpStream;

/// The clocks of the computer.
struct Computer(tokio::time::Instant);

impl Board for Computer {
    #[expect(clippy::disallowed_methods, reason = "the driver of a machine reads the clocks")]
    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now::new(Instant::from_origin(self.0.elapsed()), UnixTime::from_epoch(unix))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> impl Future<Output = ()> {
        let since = deadline.map(|at| at.duration_since(Instant::default()));
        let at = since.and_then(|since| self.0.checked_add(since));
        async move {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:1883".to_owned());
    match run(&address).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rust_mqtt: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(address: &str) -> Result<(), Box<dyn Error>> {
    let board = Computer(tokio::time::Instant::now());
    let client_id = format!("rust-mqtt-{:08x}", fastrand::u32(..));
    let nonce = fastrand::u64(..).to_be_bytes();
    let mut client = Client::new(ClientConfig::new(&client_id, nonce))?;
    let now = board.now();
    let set = client.submit(now, Request::set("example/rust-mqtt", "21.5"))?;
    let get = client.submit(now, Request::get("example/rust-mqtt"))?;

    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut outcomes: Vec<(_, Outcome)> = Vec::new();
    drive(&mut client, FromTokio::new(stream), &board, |_, client| {
        while let Some(event) = client.poll_event() {
            if let Event::Completed { id, outcome } = event {
                outcomes.push((id, outcome));
            }
        }
        if outcomes.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(None) }
    })
    .await?;
    for (id, outcome) in outcomes {
        if id == set {
            let version = outcome.into_version()?.ok_or("a SET without a condition applies")?;
            println!("set example/rust-mqtt, version {version}");
        } else if id == get {
            let value = outcome.into_value()?.ok_or("it was just set")?.value;
            println!("get example/rust-mqtt: {}", value.escape_ascii());
        }
    }
    Ok(())
}
