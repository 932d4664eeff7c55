//! Blocking handles for applications without async.
//!
//! A thread behind each [`StateStore`] and its clones runs the connection; the application needs no
//! runtime.
//!
//! ```
//! use statestore_loopback::Hub;
//! use statestore_tokio::{StoreService, blocking};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let broker = Hub::new();
//! # let mut runtime = tokio::runtime::Builder::new_multi_thread();
//! # let runtime = runtime.worker_threads(1).enable_all().build()?;
//! # let service = StoreService::builder().runtime(runtime.handle().clone());
//! # let service = service.spawn(broker.store_link("statestore"));
//! # runtime.block_on(service.wait_connected())?;
//! let store = blocking::StateStore::spawn(broker.link("thermostat-7"), |builder| builder)?;
//! let version = store.set("setpoint", "21").wait()?;
//! let found = store.get("setpoint").wait()?.expect("it was just set");
//! assert_eq!(found.version, Some(version));
//!
//! let mut changes = store.watch("setpoint")?;
//! println!("{:?}", changes.next());
//!
//! let guard = store.wait(store.lock("locks/boiler").acquire())?;
//! guard.set("boiler", "on").wait()?; // refused if a newer holder has written the key
//! store.wait(guard.release())?;
//! # Ok(())
//! # }
//! ```
//!
//! Requests have a method [`wait`](Call::wait), which blocks the thread until the reply arrives.
//! [`StateStore::wait`] does the same for any other future of the async handle. So every operation
//! of the async handle is available, with the same options and errors.

use std::convert::Infallible;
use std::fmt;
use std::future::IntoFuture;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{
    ConfigError, DelRequest, IntoBytes, Removal, VersionedValue, WatchEvent,
};
use statestore_proto::hlc::Version;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::client::call::{Call, Set};
use crate::client::error::Error;
use crate::client::handle::Builder;
use crate::drive::SHUTDOWN_MAX;
use crate::link::Link;
use crate::lock::{Election, LeasedLock};

/// A state store for an application without async. Clones share one connection and one thread.
///
/// When the last clone and the last [`Watch`] are dropped, the connection is closed and the thread
/// ends.
#[derive(Clone)]
pub struct StateStore {
    store: crate::StateStore,
    background: Arc<Background>,
}

/// The thread that runs the connection. It ends when the last reference to it is dropped.
struct Background {
    runtime: Handle,
    /// No value is sent; the thread waits for the end of the channel.
    _alive: oneshot::Sender<Infallible>,
}

/// Error of creating a blocking handle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The client id of the link or a value of the configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The runtime or the thread of the connection could not be created.
    #[error("cannot start the thread of the connection: {0}")]
    Thread(io::Error),
}

impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        Self::Thread(error)
    }
}

impl StateStore {
    /// Starts a thread with the drive loop. It connects at once, and again whenever the connection
    /// is lost. `build` sets timeouts, limits and pauses.
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
                // Tasks of this runtime release locks, and the drive loop disconnects.
                let _ = tokio::time::timeout(2 * SHUTDOWN_MAX, status.wait_closed()).await;
            });
        };
        std::thread::Builder::new().name("statestore".into()).spawn(run)?;
        Ok(Self { store, background: Arc::new(Background { runtime: handle, _alive: alive }) })
    }

    /// Blocks this thread until a future of the async handle is complete: a request, a lock, an
    /// election, or one of the methods that begin with `wait_`.
    ///
    /// # Panics
    /// In async code, which must not block; use the [async handle](Self::as_async) there.
    #[track_caller]
    pub fn wait<F: IntoFuture>(&self, future: F) -> F::Output {
        self.background.runtime.block_on(future.into_future())
    }

    /// Reads a value, once [`wait`](Call::wait) is called.
    pub fn get(&self, key: impl IntoBytes) -> Call<Option<VersionedValue>> {
        self.store.get(key)
    }

    /// Stores a value, once [`wait`](Call::wait) is called.
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        self.store.set(key, value)
    }

    /// Removes a key, once [`wait`](Call::wait) is called.
    pub fn del(&self, key: impl IntoBytes) -> Call<bool, DelRequest> {
        self.store.del(key)
    }

    /// Removes a key if its value is `value`, once [`wait`](Call::wait) is called.
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal, DelRequest> {
        self.store.vdel(key, value)
    }

    /// Lists the keys that match a [pattern](statestore_proto::glob), as the [async
    /// handle](crate::StateStore::scan) does.
    ///
    /// ```no_run
    /// # use statestore_tokio::{Error, blocking};
    /// # fn example(store: &blocking::StateStore) -> Result<(), Error> {
    /// for key in store.scan("rooms/*/temperature") {
    ///     println!("{}", key?.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, pattern: impl IntoBytes) -> Keys {
        Keys { keys: self.store.scan(pattern), background: Arc::clone(&self.background) }
    }

    /// A lock with this key. Pass its futures to [`wait`](Self::wait).
    pub fn lock(&self, key: impl IntoBytes) -> LeasedLock {
        self.store.lock(key)
    }

    /// An election with this key. Pass its futures to [`wait`](Self::wait).
    pub fn election(&self, key: impl IntoBytes) -> Election {
        self.store.election(key)
    }

    /// Watches a key: its current value, and every later change.
    ///
    /// # Errors
    /// As [`StateStore::watch`](crate::StateStore::watch).
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn watch(&self, key: impl IntoBytes) -> Result<Watch, Error> {
        self.watch_since(key, None)
    }

    /// As [`StateStore::watch_since`](crate::StateStore::watch_since).
    ///
    /// # Errors
    /// As [`StateStore::watch`](crate::StateStore::watch).
    pub fn watch_since(
        &self,
        key: impl IntoBytes,
        processed: Option<Version>,
    ) -> Result<Watch, Error> {
        let watch = self.wait(self.store.watch_since(key.into_bytes(), processed))?;
        Ok(Watch { watch, background: Arc::clone(&self.background) })
    }

    /// Blocks this thread until the client is connected, as
    /// [`StateStore::wait_connected`](crate::StateStore::wait_connected).
    ///
    /// # Errors
    /// [`Error::Closed`] if the handle ends before that.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_connected(&self) -> Result<(), Error> {
        self.wait(self.store.wait_connected())
    }

    /// The underlying async handle, with the status, the statistics and the client id.
    #[must_use]
    pub const fn as_async(&self) -> &crate::StateStore {
        &self.store
    }

    /// Closes the connection. Requests without a response fail. Returns when the drive loop has
    /// ended.
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

/// The keys that match a pattern, as an iterator that waits for the next page when it needs one.
///
/// It continues after a transient error and ends as the [async stream](crate::Keys) does. A caller
/// that discards errors, for example with `.flatten()`, therefore waits until the connection is
/// restored.
#[must_use = "keys are requested when the iterator is advanced"]
pub struct Keys {
    keys: crate::Keys,
    background: Arc<Background>,
}

impl Keys {
    /// Sets the time limit of each page.
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

/// Changes of one key, as an iterator that waits for the next change. It ends as the [async
/// stream](crate::Watch) does.
pub struct Watch {
    watch: crate::Watch,
    background: Arc<Background>,
}

impl Watch {
    /// Waits for the next event, for at most this duration. Returns `None` when the time is over,
    /// and also at the end; [`is_over`](Self::is_over) distinguishes the two.
    ///
    /// # Panics
    /// As [`StateStore::wait`].
    pub fn next_within(&mut self, limit: Duration) -> Option<WatchEvent> {
        let Self { watch, background } = self;
        let next = async { tokio::time::timeout(limit, watch.next()).await };
        background.runtime.block_on(next).ok().flatten()
    }

    /// Returns whether no event follows.
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
