//! The service side: a [`StoreService`] runs a store over a [`Link`](crate::Link).
//!
//! [`StoreService`] is also at the root of the crate. This module has the rest of the service side:
//! its builder and configuration, the [`Journal`] that persists its state, statistics, traffic, and
//! captures.
//!
//! ```
//! use statestore_loopback::Hub;
//! use statestore_tokio::service::{StoreConfig, StoreLimits, StoreService};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = StoreLimits { keys_max: 1_000, ..StoreLimits::default() };
//! let config = StoreConfig::new(7).limits(limits);
//! let service = StoreService::builder().config(config)?;
//! let service = service.spawn(Hub::new().store_link("statestore"));
//! service.wait_connected().await?;
//! assert_eq!(service.stats().keys, 0);
//! service.shutdown().await;
//! # Ok(())
//! # }
//! ```

pub(crate) mod capture;
mod handle;
pub(crate) mod persistence;
mod seed;
mod task;
pub(crate) mod traffic;

pub use capture::{Capture, CaptureReader, capture, redaction_key};
pub use handle::{NotDurable, ServiceBuilder, StoreService};
pub use traffic::{ClientTraffic, KeyTraffic, Traffic, TrafficHandle};

pub use crate::journal::{Commit, CommitQueue, Journal, JournalError, SnapshotPart};
pub use crate::metrics::stats::{StatsHandle, StoreStats};
pub use crate::metrics::table::{Metric, MetricKind};

// Types of the core, so that an application needs no dependency on it.
pub use statestore_proto::limits::StoreLimits;
pub use statestore_proto::store::{Access, Authorizer, Durability, Principal, StoreConfig};
