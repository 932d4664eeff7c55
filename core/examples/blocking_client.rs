//! A client over a plain `std::net::TcpStream`: no runtime, no MQTT library, one thread.
//!
//! Run `cargo run -p statestore-proto --example blocking_client [HOST:PORT]` with a store at that
//! address: `statestore serve`, or the example `blocking_store` with an external broker.
//!
//! The loop is in `mqtt5/drive.rs`. This file is the application: it sets, gets and watches a key,
//! acquires a lock, and writes another key with the lock's fencing token.

#[allow(dead_code, reason = "each example uses a part of it")]
pub mod mqtt5;

use std::collections::VecDeque;
use std::error::Error;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use mqtt5::{Clock, Connection, Role, drive};
use statestore_proto::client::{
    Client, ClientConfig, Event, Outcome, Request, WatchEvent, WriteRequest,
};
use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{Lock, LockConfig, LockDriver, LockEvent};
use statestore_proto::time::Now;

/// The watched key.
const GREETING: &str = "example/greeting";
/// The key that only the holder of the lock may write.
const GUARDED: &str = "example/guarded";
/// The key of the lock.
const LOCK: &str = "example/lock";
/// Lease of the lock; half of the time to wait for it.
const LEASE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:1883".to_owned());
    match run(&address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("blocking_client: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(address: &str) -> Result<(), Box<dyn Error>> {
    // A broker disconnects a client when another one connects with the same id.
    let client_id = format!("blocking-client-{:08x}", fastrand::u32(..));
    let mut store = Blocking::connect(address, &client_id)?;

    let version = store.ask(Request::set(GREETING, "hello"))?.into_version()?;
    println!("set {GREETING}, version {}", version.ok_or("a SET without a condition applies")?);
    let found = store.ask(Request::get(GREETING))?.into_value()?.ok_or("it was just set")?;
    println!("get {GREETING}: {}", shown(Some(&found.value)));

    // The first event of a watch is the current value.
    store.watch(GREETING)?;
    println!("watched: {}", shown(store.change()?.as_deref()));
    store.ask(Request::set(GREETING, "good evening"))?.into_version()?;
    println!("changed: {}", shown(store.change()?.as_deref()));
    store.ask(Request::del(GREETING))?.into_removal()?;
    println!("changed: {}", shown(store.change()?.as_deref()));

    println!("locked, token {}", store.lock()?);
    store.ask_guarded(Request::set(GUARDED, "by the holder"))?.into_version()?;
    let Err(refused) = store.ask(Request::set(GUARDED, "without the lock"))?.into_version() else {
        return Err("a write without a token was not refused".into());
    };
    println!("a write without the token: {refused}");
    store.ask_guarded(Request::del(GUARDED))?.into_removal()?;
    store.release()?;
    println!("released");
    store.connection.close()?;
    Ok(())
}

/// A client with blocking calls.
struct Blocking {
    client: Client,
    lock: LockDriver,
    connection: Connection,
    clock: Clock,
    /// Changes of the watched key, received during another call.
    changes: VecDeque<Option<Bytes>>,
}

impl Blocking {
    fn connect(address: &str, client_id: &str) -> Result<Self, Box<dyn Error>> {
        let clock = Clock::start();
        let client = Client::new(ClientConfig::new(client_id, nonce()))?;
        let lock = Lock::new(LockConfig::new(LOCK, client_id, nonce(), LEASE))?;
        let connection =
            Connection::open(address, clock, Role::Client, Role::Client.options(client_id))?;
        Ok(Self {
            client,
            lock: LockDriver::new(lock),
            connection,
            clock,
            changes: VecDeque::new(),
        })
    }

    /// Sends a request and waits for its outcome. The client limits the time.
    fn ask(&mut self, request: impl Into<Request>) -> Result<Outcome, Box<dyn Error>> {
        let asked = self.client.submit(self.clock.now(), request)?;
        self.wait_for(|event| match event {
            AnyEvent::Client(Event::Completed { id, outcome }) if id == asked => Some(Ok(outcome)),
            _ => None,
        })
    }

    /// Sends a write with the fencing token of the lock and waits for its outcome.
    fn ask_guarded(&mut self, write: impl WriteRequest) -> Result<Outcome, Box<dyn Error>> {
        let guarded = self.lock.lock().fence(self.clock.now().instant, write);
        self.ask(guarded.ok_or("the lock was lost")?)
    }

    /// Watches a key and waits until the watch is live.
    fn watch(&mut self, key: &str) -> Result<(), Box<dyn Error>> {
        self.client.watch(self.clock.now(), key)?;
        self.wait_for(|event| match event {
            AnyEvent::Client(Event::Watch { event: WatchEvent::Live, .. }) => Some(Ok(())),
            AnyEvent::Client(Event::Watch { event: WatchEvent::Ended(end), .. }) => {
                Some(Err(format!("the watch has ended: {end:?}").into()))
            }
            _ => None,
        })
    }

    /// Waits for the next change of the watched key; `None` if the key was deleted.
    fn change(&mut self) -> Result<Option<Bytes>, Box<dyn Error>> {
        if self.changes.is_empty() {
            self.wait_for(|event| match event {
                AnyEvent::Client(Event::Watch { event: WatchEvent::Changed { .. }, .. }) => {
                    Some(Ok(()))
                }
                _ => None,
            })?;
        }
        self.changes.pop_front().ok_or_else(|| "the watch reports no change".into())
    }

    fn lock(&mut self) -> Result<FencingToken, Box<dyn Error>> {
        let now = self.clock.now().instant;
        self.lock.lock_mut().acquire(now, Some(now + LEASE * 2))?;
        self.wait_for(|event| match event {
            AnyEvent::Lock(LockEvent::Acquired { token }) => Some(Ok(token)),
            AnyEvent::Lock(LockEvent::AcquireFailed(why)) => {
                Some(Err(format!("not locked: {why}").into()))
            }
            _ => None,
        })
    }

    fn release(&mut self) -> Result<(), Box<dyn Error>> {
        self.lock.lock_mut().release(self.clock.now().instant);
        self.wait_for(|event| match event {
            AnyEvent::Lock(LockEvent::Released { .. } | LockEvent::Lost(_)) => Some(Ok(())),
            _ => None,
        })
    }

    /// Drives client and lock until `found` returns a result. Stores changes of the watched key.
    fn wait_for<T>(
        &mut self,
        mut found: impl FnMut(AnyEvent) -> Option<Result<T, Box<dyn Error>>>,
    ) -> Result<T, Box<dyn Error>> {
        let Self { client, lock, connection, clock, changes } = self;
        let mut result = None;
        drive(client, connection, *clock, |now, client| {
            while let Some(event) = next(now, client, lock) {
                match &event {
                    AnyEvent::Client(Event::Watch {
                        event: WatchEvent::Changed { value, .. },
                        ..
                    }) => changes.push_back(value.clone()),
                    AnyEvent::Lock(LockEvent::Lost(why)) => eprintln!("lock lost: {why}"),
                    _ => {}
                }
                result = found(event);
                if result.is_some() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(lock.poll_timeout())
        })?;
        result.ok_or("the loop has ended without a result")?
    }
}

/// An event of the client or the lock.
enum AnyEvent {
    Client(Event),
    Lock(LockEvent),
}

/// Drives the lock and returns the next event of lock or client.
fn next(now: Now, client: &mut Client, lock: &mut LockDriver) -> Option<AnyEvent> {
    loop {
        lock.drive(now, client);
        if let Some(event) = lock.lock_mut().poll_event() {
            return Some(AnyEvent::Lock(event));
        }
        let event = client.poll_event()?;
        if let Some(event) = lock.handle_event(now, event) {
            return Some(AnyEvent::Client(event));
        }
    }
}

fn shown(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "no value any more".to_owned(), |value| value.escape_ascii().to_string())
}

fn nonce() -> [u8; 8] {
    fastrand::u64(..).to_be_bytes()
}
