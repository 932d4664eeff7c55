//! A client over a plain `std::net::TcpStream`: no runtime, no MQTT library, one thread.
//!
//! `cargo run -p statestore-proto --example blocking_client [HOST:PORT]`, with a store there: `statestore serve`, or the
//! example `blocking_store` beside any MQTT 5 broker.
//!
//! The loop is `mqtt5/drive.rs`. What is here is an application: it sets, gets and watches a key, takes a lock, and
//! writes another key guarded by the token of the lock.

#[allow(dead_code, reason = "each example uses a part of it")]
pub mod mqtt5;

use std::collections::VecDeque;
use std::error::Error;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use mqtt5::{Clock, Connection, Options, drive};
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request, WatchEvent};
use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{BoundLock, Lock, LockConfig, LockEvent};
use statestore_proto::time::Now;

/// The key that is watched.
const GREETING: &str = "example/greeting";
/// The key that only the holder of the lock writes.
const GUARDED: &str = "example/guarded";
/// The key of the lock.
const LOCK: &str = "example/lock";
/// How long a lock is held unless it is renewed, and how long to wait for it.
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
    // Two clients with one id would end each other's connections.
    let client_id = format!("blocking-client-{:08x}", fastrand::u32(..));
    let mut store = Blocking::connect(address, &client_id)?;

    let version = store.ask(Request::set(GREETING, "hello"))?.into_version()?;
    println!("set {GREETING}, version {}", version.ok_or("a SET without a condition applies")?);
    let found = store.ask(Request::get(GREETING))?.into_value()?.ok_or("it was just set")?;
    println!("get {GREETING}: {}", shown(Some(&found.value)));

    // A watch begins with the value that is there.
    store.watch(GREETING)?;
    println!("watched: {}", shown(store.change()?.as_deref()));
    store.ask(Request::set(GREETING, "good evening"))?.into_version()?;
    println!("changed: {}", shown(store.change()?.as_deref()));
    store.ask(Request::del(GREETING))?.into_removal()?;
    println!("changed: {}", shown(store.change()?.as_deref()));

    println!("locked, token {}", store.lock()?);
    store.ask_guarded(Request::set(GUARDED, "by the holder"))?.into_version()?;
    let Err(refused) = store.ask(Request::set(GUARDED, "by anybody"))?.into_version() else {
        return Err("a write without a token was not refused".into());
    };
    println!("a write without the token: {refused}");
    store.ask_guarded(Request::del(GUARDED))?.into_removal()?;
    store.release()?;
    println!("released");
    store.connection.close()?;
    Ok(())
}

/// A client whose calls wait for their answers.
struct Blocking {
    client: Client,
    lock: BoundLock,
    connection: Connection,
    clock: Clock,
    /// Changes of the watched key that came while something else was waited for.
    changes: VecDeque<Option<Bytes>>,
}

impl Blocking {
    fn connect(address: &str, client_id: &str) -> Result<Self, Box<dyn Error>> {
        let clock = Clock::start();
        let client = Client::new(ClientConfig::new(client_id, nonce())?);
        let lock = Lock::new(LockConfig::new(LOCK, client_id, nonce(), LEASE));
        let connection = Connection::open(address, clock, Options::new(client_id))?;
        Ok(Self { client, lock: BoundLock::new(lock), connection, clock, changes: VecDeque::new() })
    }

    /// Sends a request and waits for what becomes of it. It has a time limit of its own.
    fn ask(&mut self, request: Request) -> Result<Outcome, Box<dyn Error>> {
        let asked = self.client.submit(self.clock.now(), request)?;
        self.wait_for(|told| match told {
            Told::Client(Event::Completed { id, outcome }) if id == asked => Some(Ok(outcome)),
            _ => None,
        })
    }

    /// The same for a write that only the holder of the lock may do.
    fn ask_guarded(&mut self, request: Request) -> Result<Outcome, Box<dyn Error>> {
        let guarded = self.lock.lock().guard(self.clock.now().instant, request);
        self.ask(guarded.ok_or("the lock was lost")?)
    }

    /// Watches a key, and waits until its changes are told.
    fn watch(&mut self, key: &str) -> Result<(), Box<dyn Error>> {
        self.client.watch(self.clock.now(), key)?;
        self.wait_for(|told| match told {
            Told::Client(Event::Watch { event: WatchEvent::Live, .. }) => Some(Ok(())),
            Told::Client(Event::Watch { event: WatchEvent::Ended(end), .. }) => {
                Some(Err(format!("the watch has ended: {end:?}").into()))
            }
            _ => None,
        })
    }

    /// Waits for the next change of the watched key; `None` when its value is gone.
    fn change(&mut self) -> Result<Option<Bytes>, Box<dyn Error>> {
        if self.changes.is_empty() {
            self.wait_for(|told| match told {
                Told::Client(Event::Watch { event: WatchEvent::Changed { .. }, .. }) => {
                    Some(Ok(()))
                }
                _ => None,
            })?;
        }
        self.changes.pop_front().ok_or_else(|| "no change was told".into())
    }

    fn lock(&mut self) -> Result<FencingToken, Box<dyn Error>> {
        let now = self.clock.now().instant;
        self.lock.lock_mut().acquire(now, Some(now + LEASE * 2))?;
        self.wait_for(|told| match told {
            Told::Lock(LockEvent::Acquired { token }) => Some(Ok(token)),
            Told::Lock(LockEvent::GaveUp(why)) => Some(Err(format!("not locked: {why}").into())),
            _ => None,
        })
    }

    fn release(&mut self) -> Result<(), Box<dyn Error>> {
        self.lock.lock_mut().release(self.clock.now().instant);
        self.wait_for(|told| match told {
            Told::Lock(LockEvent::Released { .. } | LockEvent::Lost(_)) => Some(Ok(())),
            _ => None,
        })
    }

    /// Drives everything until `found` has what it looks for. What else happens meanwhile is kept, or told.
    fn wait_for<T>(
        &mut self,
        mut found: impl FnMut(Told) -> Option<Result<T, Box<dyn Error>>>,
    ) -> Result<T, Box<dyn Error>> {
        let Self { client, lock, connection, clock, changes } = self;
        let mut result = None;
        drive(client, connection, *clock, |now, client| {
            while let Some(told) = next(now, client, lock) {
                match &told {
                    Told::Client(Event::Watch {
                        event: WatchEvent::Changed { value, .. }, ..
                    }) => changes.push_back(value.clone()),
                    Told::Lock(LockEvent::Lost(why)) => eprintln!("the lock is lost: {why}"),
                    _ => {}
                }
                result = found(told);
                if result.is_some() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(lock.poll_timeout())
        })?;
        result.ok_or("the loop ends with a result")?
    }
}

/// What client or lock tell the application.
enum Told {
    Client(Event),
    Lock(LockEvent),
}

/// Has the lock do what it wants, and takes the next event of either.
fn next(now: Now, client: &mut Client, lock: &mut BoundLock) -> Option<Told> {
    loop {
        lock.drive(now, client);
        if let Some(event) = lock.lock_mut().poll_event() {
            return Some(Told::Lock(event));
        }
        let event = client.poll_event()?;
        if let Some(event) = lock.handle_event(now, event) {
            return Some(Told::Client(event));
        }
    }
}

fn shown(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "no value any more".to_owned(), |value| value.escape_ascii().to_string())
}

fn nonce() -> [u8; 8] {
    fastrand::u64(..).to_be_bytes()
}
