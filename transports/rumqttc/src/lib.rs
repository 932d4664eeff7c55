//! The state store protocol over rumqttc: a [`Link`] for the handles of `statestore-tokio`.
//!
//! ```no_run
//! use statestore_rumqttc::{Options, connect};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = connect(Options::new("thermostat-7", "localhost", 1883))?;
//! let version = store.set("setpoint", "21").await?;
//! let found = store.get("setpoint").await?.expect("it was just set");
//! assert_eq!(found.version, Some(version));
//! store.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Where the broker has no store, [`serve`] hosts one:
//!
//! ```no_run
//! use statestore_rumqttc::{Options, serve};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut service = serve(Options::new("statestore", "localhost", 1883).presence(true));
//! service.connected().await?;
//! println!("stopped: {}", service.stopped().await);
//! # Ok(())
//! # }
//! ```
//!
//! [`connect_with`] takes other time-outs and limits. For another store, or what only rumqttc has, make a [`RumqttcLink`]
//! and give it to [`StateStore::builder`] or [`StoreService::builder`]. This crate names everything that an application
//! needs; it can depend on nothing else.
//!
//! # The broker
//!
//! Any MQTT 5 broker. For mosquitto, in its file:
//!
//! ```text
//! # or one request at a time takes 44 ms instead of 0.1
//! set_tcp_nodelay true
//! # or a burst of more than 1,000 requests loses some without a word
//! max_queued_messages 100000
//! ```
//!
//! An ordinary client has two limits as a store. It cannot know who sent a request: whatever a request says of its
//! sender is a claim, so let the broker's access rules decide who may write to the request topic, and who may read which
//! replies. And it cannot disconnect another client: requests that break the rules are dropped and counted.
//!
//! # What is bounded by what
//!
//! * Requests: [`Options::queue`] wait for rumqttc, [`Options::in_flight`] for the broker; the rest stays with the
//!   machine, which has limits of its own.
//! * Messages: [`Options::receive_maximum`]. With [`RumqttcLink::manual_acks`] the broker holds back the rest; otherwise
//!   this side stops reading until there is room. Messages at QoS 0 beyond that are dropped.
//! * Packets: what is larger than the broker allows is not sent, and reported as
//!   [`PACKET_TOO_LARGE`](statestore_proto::mqtt::ReasonCode::PACKET_TOO_LARGE). What is larger than
//!   [`Options::max_packet_size`] the broker does not deliver.
//!
//! # A lost connection
//!
//! Every connection has an event loop of its own. rumqttc's own way to reconnect loses requests, and can get stuck; here
//! the machines decide what is sent again. A refusal of the credentials or the client id, and another client that takes
//! over the client id, end the handle instead of being tried again, where the broker says that it is so: one that only
//! closes the connection, as the embedded one does, has two clients of one id throw each other out for as long as both run.
//!
//! With [several addresses](Options::or_at) the next one is tried where one is not there or sends the client elsewhere. Which
//! other server a broker names then rumqttc does not tell, so they are tried in their order.
//!
//! A second store with the client id of the first takes over, with the session and the requests that wait in it: it
//! serves, and the first ends. See [`RumqttcLink::without_claim`].
//!
//! # Features
//!
//! * `tls`: `Options::tls` with rustls and ring.
#![forbid(unsafe_code)]

mod connection;
mod convert;
mod link;
mod mailbox;
mod offenders;
mod options;
#[cfg(feature = "tls")]
mod probe;
mod pump;
mod redelivery;
mod takeover;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod trouble;

pub use convert::{Message, REFUSED, publish_reason, subscribe_reason};
pub use link::RumqttcLink;
pub use options::mqtt_options;
pub use rumqttc;
#[cfg(feature = "tls")]
pub use rustls;
pub use statestore_tokio::*;
#[cfg(feature = "tls")]
pub use tls::{TlsError, tls_config};
#[cfg(feature = "tls")]
pub use trouble::Trouble;

/// A handle for an application, with the client id of `options`. It connects at once.
///
/// # Errors
/// [`ConfigError`] when the client id cannot be one.
///
/// # Panics
/// Outside of a tokio runtime; see [`connect_with`].
#[track_caller]
pub fn connect(options: Options) -> Result<StateStore, ConfigError> {
    connect_with(options, |builder| builder)
}

/// As [`connect`], with other time-outs, limits or pauses, or on another runtime.
///
/// ```no_run
/// use std::time::Duration;
/// use statestore_rumqttc::{Options, connect_with};
///
/// # fn example(handle: tokio::runtime::Handle) -> Result<(), statestore_rumqttc::ConfigError> {
/// let options = Options::new("thermostat-7", "localhost", 1883);
/// let store = connect_with(options, |builder| builder.timeout(Duration::from_secs(3)).runtime(handle))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ConfigError`] when the client id cannot be one.
///
/// # Panics
/// Outside of a tokio runtime, unless the builder is given [one](Builder::runtime).
#[track_caller]
pub fn connect_with(
    options: Options,
    build: impl FnOnce(Builder) -> Builder,
) -> Result<StateStore, ConfigError> {
    build(StateStore::builder()).spawn(RumqttcLink::for_client(options))
}

/// The same for code without async: see [`blocking`].
///
/// ```no_run
/// use statestore_rumqttc::{Options, connect_blocking};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let store = connect_blocking(Options::new("thermostat-7", "localhost", 1883))?;
///     store.set("setpoint", "21").wait()?;
///     let guard = store.wait(store.lock("locks/boiler").acquire())?;
///     guard.set("boiler", "on").wait()?;
///     store.wait(guard.release())?;
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`blocking::SpawnError`] when the client id cannot be one, or there is no thread.
pub fn connect_blocking(options: Options) -> Result<blocking::StateStore, blocking::SpawnError> {
    blocking::StateStore::spawn(RumqttcLink::for_client(options), |builder| builder)
}

/// A store with default limits. It connects at once.
///
/// # Panics
/// Outside of a tokio runtime; [`ServiceBuilder::runtime`] takes another.
#[must_use]
#[track_caller]
pub fn serve(options: Options) -> StoreService {
    StoreService::builder().spawn(RumqttcLink::for_store(options))
}

/// The programs in the README of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The programs in the pages of the repository.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/embedding.md")]
    struct Embedding;

    #[doc = include_str!("../../../docs/locks.md")]
    struct Locks;

    #[doc = include_str!("../../../docs/watches.md")]
    struct Watches;
}

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;
