//! The state store protocol for tokio, over any MQTT 5 stack.
//!
//! * [`StateStore`] is a cloneable handle: `store.set(key, value).await?`. [`Watch`] is a stream of
//!   the changes of a key. It continues after a reconnect, and reports a gap when it may have
//!   missed changes.
//! * [`StoreService`] hosts a [`Store`](statestore_proto::store::Store) on a broker. Its builder,
//!   journals, statistics and captures are in [`service`].
//! * [`Link`] is the interface to an MQTT stack. One drive loop serves both ends over any link: it
//!   connects, reconnects with growing pauses, keeps deadlines, and moves packets. [`ManagedLink`]
//!   implements `Link` over an MQTT library, for which an adapter crate implements the traits of
//!   [`adapter`]. `statestore-loopback` implements `Link` with a broker in memory, for tests of an
//!   application in one process.
//!
//! ```
//! use statestore_loopback::Hub;
//! use statestore_tokio::{StateStore, StoreService};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Hub::new();
//! let service = StoreService::builder().spawn(broker.store_link("statestore"));
//! service.wait_connected().await?;
//! let store = StateStore::builder().spawn(broker.link("thermostat-7"))?;
//!
//! let version = store.set("setpoint", "21").await?;
//! let found = store.get("setpoint").await?.expect("it was just set");
//! assert_eq!((&found.value[..], found.version), (b"21".as_slice(), Some(version)));
//!
//! store.shutdown().await;
//! service.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Observability
//!
//! * [`StoreService::stats`] counts requests by verb and by outcome, and refusals by reason. It
//!   also reports the largest clock skew of clients, the duration of responses and commits, and
//!   queue lengths.
//! * The feature `metrics`, off by default, sends the same values to the recorder of the
//!   [`metrics`](https://docs.rs/metrics) crate. They have the names that the command `statestore`
//!   exports. The feature costs one look-up per request and per gauge that changes.
//! * [`ServiceBuilder::traffic`](service::ServiceBuilder::traffic) counts requests by client and by
//!   key.
//! * At level `debug`, `tracing` shows each request on both sides. The client emits a span with
//!   verb, key and request id, and an event with outcome and milliseconds. The store emits an event
//!   with verb, client id, whether the broker has verified that id, verdict and microseconds. Keys
//!   are shortened, and values are never logged.
//! * At level `warn`, a client logs refused subscriptions, and a store clock that is ahead of its
//!   own. Once per connection it logs that the broker delays small packets
//!   ([`diagnostics::nagle`]).
//!
//! # Waiting
//!
//! * Methods that begin with `wait_` are async, and complete when the handle, the service or the
//!   lock reaches a state: [`StateStore::wait_connected`], [`StateStore::wait_closed`],
//!   [`StoreService::wait_connected`], [`StoreService::wait_closed`], [`LockGuard::wait_lost`],
//!   [`Leadership::wait_lost`]. They may be cancelled at any time and called again.
//! * `wait` blocks the thread until a future is complete, for code without async: [`Call::wait`],
//!   [`blocking::StateStore::wait`].
//! * Methods that end in `timeout` set a time limit: [`Builder::timeout`], [`Call::timeout`],
//!   [`LeasedLock::acquire_timeout`], [`Election::campaign_timeout`].
//! * `next` of a stream returns its next item. [`StatusWatch::changed`] returns the next status.
//!
//! # Cancellation
//!
//! Dropping the future of a request cancels the request. It may have been applied already, or may
//! still be applied. Dropping a [`Watch`] ends it.
#![forbid(unsafe_code)]

pub mod adapter;
pub mod blocking;
mod chain;
mod client;
mod closed;
pub mod diagnostics;
mod drive;
mod journal;
mod link;
mod lock;
mod metrics;
pub mod service;
mod status;

pub use client::batch::Batch;
pub use client::call::{Call, Set};
pub use client::error::Error;
pub use client::fence::LockLost;
pub use client::handle::{Builder, StateStore};
pub use client::keys::Keys;
pub use client::pattern_watch::{PatternEnd, PatternEvent, PatternWatch};
pub use client::replacements::{Replacements, StoreReplaced};
pub use client::typed::{Codec, Typed, TypedError, TypedValue};
#[cfg(feature = "json")]
pub use client::typed::{Json, JsonError};
pub use client::watch::Watch;
pub use closed::{CloseReason, StoreClosed};
pub use drive::backoff::Backoff;
pub use journal::JournalError;
pub use link::address::Address;
pub use link::addresses::{Addresses, InUse};
pub use link::options::{Options, Tls, Transport};
pub use link::{
    AsIncoming, Connected, Link, LinkError, LinkErrorKind, LinkEvent, ManagedLink, Proxy,
    SettingNames, SettingsError, TlsProblem, UrlError,
};
#[cfg(feature = "tls")]
pub use link::{PemError, TlsError, tls_config};
pub use lock::{Election, HolderWatch, Leadership, LeasedLock, LockError, LockGuard, Update};
pub use metrics::histogram::Histogram;
pub use metrics::stats::ClientStats;
pub use service::StoreService;
pub use status::{Status, StatusWatch};

// Types of the core, so that an application needs no dependency on it.
pub use bytes::Bytes;
pub use statestore_proto as proto;
pub use statestore_proto::client::{
    ClientConfig, ConfigError, IntoBytes, Removal, SubmitError, VersionedValue, WatchEnd,
    WatchEvent,
};
pub use statestore_proto::hlc::{FencingToken, Version};
pub use statestore_proto::limits::ClientLimits;
pub use statestore_proto::lock::{Holder, HolderStatus, LockConfigError, LossReason, NotAcquired};
pub use statestore_proto::message::{Operand, Refusal, ServiceError};
