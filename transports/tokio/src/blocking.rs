//! The same handles for applications without async: each call waits for its answer.
//!
//! A thread behind each [`StateStore`] and its clones runs the connection; the application needs no runtime.
//!
//! ```
//! use statestore_loopback::Hub;
//! use statestore_tokio::{StoreService, blocking};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let broker = Hub::new();
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
//! # let service = StoreService::builder().runtime(runtime.handle().clone()).spawn(broker.store_link("statestore"));
//! # runtime.block_on(service.connected())?;
//! let store = blocking::StateStore::spawn(broker.link("thermostat-7"), |builder| builder)?;
//! let version = store.set("setpoint", "21").wait()?;
//! let found = store.get("setpoint").wait()?.expect("it was just set");
//! assert_eq!(found.version, Some(version));
//!
//! let mut changes = store.watch("setpoint")?;
//! println!("{:?}", changes.next());
//!
//! let guard = store.wait(store.lock("locks/boiler").acquire())?;
//! guard.set("boiler", "on").wait()?; // refused if somebody else has got the lock meanwhile
//! store.wait(guard.release())?;
//! # Ok(())
//! # }
//! ```
//!
//! Requests have a method [`wait`](Call::wait); whatever else the async handle makes is given to
//! [`StateStore::wait`]. So everything that the async handle can do can be waited for, with the same options and errors.

use std::fmt;
use std::future::IntoFuture;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{ConfigError, IntoBytes, Removal, VersionedValue, WatchEvent};
use statestore_proto::hlc::Version;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::call::{Call, Set};
use crate::drive::GOODBYE_MAX;
use crate::error::Error;
use crate::handle::Builder;
use crate::link::Link;
use crate::lock::{Election, LeasedLock};

/// A state store for an application without async. Clones share one connection and one thread.
///
/// When the last clone and the last [`Watch`] are gone the connection is closed and the thread ends.
#[derive(Clone)]
pub struct StateStore {
    store: crate::StateStore,
    background: Arc<Background>,
}

/// The thread that runs the connection. It ends when nothing refers to it any more.
struct Background {
    runtime: Handle,
    _alive: oneshot::Sender<Never>,
}

/// Nothing is ever said to the thread.
enum Never {}

/// Why there is no blocking handle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The client id of the link cannot be one.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no thread for the connection.
    #[error("no thread for the connection: {0}")]
    Thread(#[from] io::Error),
}

impl StateStore {
    /// Starts a thread with the drive loop. It connects at once, and again whenever the connection is lost. `build` sets
    /// time-outs, limits and pauses.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn(
        link: impl Link,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Result<Self, SpawnError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let store = build(crate::StateStore::builder()).runtime(handle.clone()).spawn(link)?;
        let (alive, ended) = oneshot::channel();
        let status = store.status();
        let run = move || {
            runtime.block_on(async {
                let _ = ended.await;
                // Locks are given back by tasks of this runtime, and a goodbye is said.
                let _ = tokio::time::timeout(2 * GOODBYE_MAX, status.ended()).await;
            });
        };
        std::thread::Builder::new().name("statestore".into()).spawn(run)?;
        Ok(Self { store, background: Arc::new(Background { runtime: handle, _alive: alive }) })
    }

    /// Waits for whatever the async handle makes: a request, a lock, an election.
    ///
    /// # Panics
    /// In async code, which must not wait; use the [async handle](Self::as_async) there.
    #[track_caller]
    pub fn wait<F: IntoFuture>(&self, what: F) -> F::Output {
        self.background.runtime.block_on(what.into_future())
    }

    /// Reads a value; to be [waited for](Call::wait).
    pub fn get(&self, key: impl IntoBytes) -> Call<Option<VersionedValue>> {
        self.store.get(key)
    }

    /// Stores a value; to be [waited for](Set::wait).
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        self.store.set(key, value)
    }

    /// Removes a key; to be [waited for](Call::wait).
    pub fn del(&self, key: impl IntoBytes) -> Call<bool> {
        self.store.del(key)
    }

    /// Removes a key if its value is `value`; to be [waited for](Call::wait).
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal> {
        self.store.vdel(key, value)
    }

    /// Lists the keys that match a [pattern](statestore_proto::glob), as [there](crate::StateStore::scan).
    ///
    /// ```no_run
    /// # fn example(store: &statestore_tokio::blocking::StateStore) -> Result<(), statestore_tokio::Error> {
    /// for key in store.scan("rooms/*/temperature") {
    ///     println!("{}", key?.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, pattern: impl IntoBytes) -> Keys {
        Keys { keys: self.store.scan(pattern), background: Arc::clone(&self.background) }
    }

    /// A lock with this key; what it makes is to be [waited for](Self::wait).
    pub fn lock(&self, key: impl IntoBytes) -> LeasedLock {
        self.store.lock(key)
    }

    /// An election with this key; what it makes is to be [waited for](Self::wait).
    pub fn election(&self, key: impl IntoBytes) -> Election {
        self.store.election(key)
    }

    /// Watches a key: its value now, and every change from then on.
    ///
    /// # Errors
    /// As [`StateStore::watch`](crate::StateStore::watch).
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn watch(&self, key: impl IntoBytes) -> Result<Watch, Error> {
        let watch = self.wait(self.store.watch(key.into_bytes()))?;
        Ok(Watch { watch, background: Arc::clone(&self.background) })
    }

    /// The async handle underneath: its status, statistics and client id.
    #[must_use]
    pub const fn as_async(&self) -> &crate::StateStore {
        &self.store
    }

    /// Ends the connection; requests without an answer fail. Returns when the drive loop has ended.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn shutdown(self) {
        let Self { store, background } = self;
        background.runtime.block_on(store.shutdown());
    }
}

impl fmt::Debug for StateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.store, f)
    }
}

/// The keys that match a pattern, as an iterator that waits for the next page where it needs one. It goes on after an error
/// and ends as the [async one](crate::Keys) does: whoever drops errors, as with `.flatten()`, waits for as long as there is no
/// connection.
#[must_use = "keys are asked for when they are taken"]
pub struct Keys {
    keys: crate::Keys,
    background: Arc<Background>,
}

impl Keys {
    /// How long each page may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { keys: self.keys.timeout(timeout), background: self.background }
    }
}

impl Iterator for Keys {
    type Item = Result<Bytes, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.background.runtime.block_on(self.keys.next()).transpose()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.keys, f)
    }
}

/// Changes of one key, as an iterator that waits for the next one. It ends as the [async one](crate::Watch) does.
pub struct Watch {
    watch: crate::Watch,
    background: Arc<Background>,
}

impl Watch {
    /// What happens next, unless nothing does for so long: then `None`, as at the end; [`is_over`](Self::is_over) tells
    /// which.
    ///
    /// # Panics
    /// As [`StateStore::wait`].
    pub fn next_within(&mut self, patience: Duration) -> Option<WatchEvent> {
        let Self { watch, background } = self;
        let next = async { tokio::time::timeout(patience, watch.next()).await };
        background.runtime.block_on(next).ok().flatten()
    }

    /// Whether nothing more will come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.watch.is_over()
    }
}

impl Iterator for Watch {
    type Item = WatchEvent;

    fn next(&mut self) -> Option<WatchEvent> {
        self.background.runtime.block_on(self.watch.next())
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.watch, f)
    }
}
