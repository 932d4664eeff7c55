//! A store with an external MQTT 5 broker, over a plain `std::net::TcpStream`: no runtime, no MQTT
//! library, one thread.
//!
//! Run `cargo run -p statestore-proto --example blocking_store [HOST:PORT]`. The store keeps its
//! values in memory, prints `ready` when it receives requests, and reconnects after a lost
//! connection.
//!
//! The loop is in `mqtt5/drive.rs`, and drives the example `blocking_client` too. For a store, it
//! acknowledges messages when the store requests it, and delivers them while the store has
//! capacity.

#[allow(dead_code, reason = "each example uses a part of it")]
pub mod mqtt5;

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::time::Duration;

use mqtt5::{Clock, Connection, Role, drive};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::Now;

/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// Timeout for the CONNACK and the SUBACK.
const READY_WITHIN: Duration = Duration::from_secs(20);

fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:1883".to_owned());
    let clock = Clock::start();
    // Clients choose the keys, so the seed of the hash table must be random. Clients detect by the
    // incarnation that this store, which starts empty, has replaced another one.
    let config = StoreConfig::new(fastrand::u64(..)).incarnation(fastrand::u64(..));
    let mut store = Store::new(config);
    loop {
        let Err(error) = serve(&mut store, &address, clock);
        eprintln!("blocking_store: {address}: {error}");
        pause(PAUSE);
    }
}

/// Serves one connection until it is lost. The store keeps its state for the next connection.
fn serve(store: &mut Store, address: &str, clock: Clock) -> Result<Infallible, Box<dyn Error>> {
    let options = Role::Store.options("statestore-blocking");
    let mut connection = Connection::open(address, clock, Role::Store, options)?;
    let ready_by = clock.now().instant + READY_WITHIN;
    let mut is_announced = false;
    drive(store, &mut connection, clock, |now: Now, store| match store.is_ready() {
        true => {
            if !std::mem::replace(&mut is_announced, true) {
                println!("ready");
            }
            ControlFlow::Continue(None)
        }
        // A rejected subscription emits no event: the store does not become ready.
        false if now.instant >= ready_by => ControlFlow::Break(()),
        false => ControlFlow::Continue(Some(ready_by)),
    })?;
    Err("the broker did not grant the subscription to requests".into())
}

#[expect(clippy::disallowed_methods, reason = "pauses between two attempts to connect")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
