//! The state store protocol for tokio, over any MQTT 5 stack.
//!
//! * [`StateStore`] is a cloneable handle: `store.set(key, value).await?`. [`Watch`] is a stream of changes of a
//!   key that goes on over reconnects and says when it may have missed something.
//! * [`StoreService`] hosts a [`Store`](statestore_proto::store::Store) behind a broker.
//! * [`Link`] is what an MQTT stack has to offer for that. One drive loop serves both ends over any link: it connects,
//!   connects again with growing pauses, keeps time, and moves packets. The adapter crates implement it; so does
//!   `statestore-loopback`, which needs no broker at all, so that an application can test itself in one process.
//!
//! ```
//! use statestore_loopback::Hub;
//! use statestore_tokio::{StateStore, StoreService};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Hub::new();
//! let service = StoreService::builder().spawn(broker.store_link("statestore"));
//! service.connected().await?;
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
//! # What can be seen
//!
//! [`StoreService::stats`] counts requests by verb and by what came of them, refusals by reason, and says how far the
//! clocks of clients were off, how long answers and commits took, and how much waits. With the feature `metrics`, which is
//! off by default, the same goes to the recorder of the [`metrics`](https://docs.rs/metrics) crate, under the names that the
//! command exports them by; it costs a look-up for each request and each gauge that moves. [`ServiceBuilder::traffic`] counts who asks,
//! and for which keys. With `tracing` at `debug` both sides tell of each request: the client in a span with verb,
//! key and number, and an event with outcome and milliseconds; the store in an event with verb, client id, whether a
//! broker vouches for that, verdict and microseconds. Keys are cut short and values are never told. At `warn` a client
//! tells of refused subscriptions, of a clock that is ahead, and once per connection of a broker that holds small packets
//! back ([`diagnostics::nagle`]).
//!
//! # Cancellation
//!
//! Dropping the future of a request gives the request up: it may have been applied, or may still be. Dropping an
//! [`Watch`] ends it.
#![forbid(unsafe_code)]

mod address;
mod addresses;
mod backoff;
pub mod blocking;
mod call;
mod client_task;
mod clock;
pub mod diagnostics;
mod drive;
mod error;
mod fence;
mod handle;
mod histogram;
mod journal;
mod keeping;
mod keys;
mod link;
mod lock;
#[cfg(feature = "metrics")]
mod metrics;
mod options;
mod recording;
mod releases;
mod service;
mod stats;
mod status;
mod task;
mod traffic;
mod watch;
mod watchers;

pub use address::Address;
pub use addresses::{Addresses, InUse};
pub use backoff::Backoff;
pub use call::{Call, Set};
pub use error::{Error, StoreClosed};
pub use handle::{Builder, StateStore};
pub use histogram::Histogram;
pub use journal::{Commit, Journal, JournalError, SnapshotPart};
pub use keys::Keys;
pub use link::{AsIncoming, Connected, Link, LinkError, LinkEvent};
pub use lock::{
    Election, HolderWatch, Leadership, LeasedLock, LockError, LockGuard, LockLost, Update,
};
pub use options::{Options, Tls};
pub use recording::{Recording, RecordingReader, recording, redaction_key};
pub use service::{NotDurable, ServiceBuilder, StoreService};
pub use stats::{ClientStats, StatsHandle, StoreStats};
pub use status::{Status, StatusWatch};
pub use traffic::{ClientTraffic, KeyTraffic, Traffic, TrafficHandle};
pub use watch::Watch;

// What an application needs of the core, so that it depends on nothing else.
pub use bytes::Bytes;
pub use statestore_proto as proto;
pub use statestore_proto::client::{
    ClientConfig, ConfigError, IntoBytes, Removal, SubmitError, VersionedValue, WatchEnd,
    WatchEvent,
};
pub use statestore_proto::hlc::{FencingToken, Version};
pub use statestore_proto::limits::{ClientLimits, StoreLimits};
pub use statestore_proto::lock::{Holder, HolderStatus, LossReason, NotAcquired};
pub use statestore_proto::message::{Operand, Refusal, ServiceError};
pub use statestore_proto::store::{Access, Authorizer, Durability, Principal, StoreConfig};
