//! A store beside any MQTT 5 broker, over a plain `std::net::TcpStream`: no runtime, no MQTT library, one thread.
//!
//! `cargo run -p statestore-proto --example blocking_store [HOST:PORT]`. It keeps its values in memory, says `ready` when
//! requests arrive, and connects again when it loses its broker.
//!
//! The loop is `mqtt5/drive.rs`, the same that drives the example `blocking_client`. What a store needs of it beside that:
//! messages are acknowledged when the store says so, and handed over while it has room.

#[allow(dead_code, reason = "each example uses a part of it")]
pub mod mqtt5;

use std::ops::ControlFlow;
use std::time::Duration;

use mqtt5::{Clock, Connection, Error, Options, drive};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::Now;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the broker has to accept the connection and the subscription.
const READY_WITHIN: Duration = Duration::from_secs(20);

fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:1883".to_owned());
    let clock = Clock::start();
    // Strangers choose the keys, so the seed of the hash is drawn. The incarnation tells clients when this store, which
    // begins with nothing, has taken the place of another.
    let config = StoreConfig::new(fastrand::u64(..)).incarnation(fastrand::u64(..));
    let mut store = Store::new(config);
    loop {
        let Err(error) = serve(&mut store, &address, clock);
        eprintln!("blocking_store: {address}: {error}");
        pause(PAUSE);
    }
}

/// Serves on one connection, until it is lost. The store keeps everything for the next one.
fn serve(
    store: &mut Store,
    address: &str,
    clock: Clock,
) -> Result<std::convert::Infallible, Error> {
    let mut connection = Connection::open(address, clock, options())?;
    let ready_by = clock.now().instant + READY_WITHIN;
    let mut told = false;
    drive(store, &mut connection, clock, |now: Now, store| match store.is_ready() {
        true => {
            if !std::mem::replace(&mut told, true) {
                println!("ready");
            }
            ControlFlow::Continue(None)
        }
        // A subscription that is refused is not told: the store is just not ready.
        false if now.instant >= ready_by => ControlFlow::Break(()),
        false => ControlFlow::Continue(Some(ready_by)),
    })?;
    Err(Error::Protocol("no grant of the subscription to requests"))
}

/// The broker keeps the session, so requests without an answer come again after a connection was lost.
fn options() -> Options {
    Options {
        clean_start: false,
        session_expiry: 3_600,
        // What waits here while the store has no room. Requests that come beyond that wait with the broker.
        receive_maximum: 64,
        acknowledges_by_hand: true,
        ..Options::new("statestore-blocking")
    }
}

#[expect(clippy::disallowed_methods, reason = "a broker that is away is not asked without a pause")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
