//! The state store protocol over rumqttc: a [`Link`] for the handles of `statestore-tokio`.
//!
//! ```no_run
//! use statestore_rumqttc::{Options, connect};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = connect(Options::new("thermostat-7", "localhost", 1883))?;
//! let version = store.set("setpoint", "21").await?;
//! let found = store.get("setpoint").await?.expect("it was just set");
//! assert_eq!(found.version, Some(version));
//! store.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`serve`] hosts a store on a broker without one:
//!
//! ```no_run
//! use statestore_rumqttc::{Options, serve};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = serve(Options::new("statestore", "localhost", 1883).read_mosquitto_log(true));
//! service.wait_connected().await?;
//! println!("stopped: {}", service.wait_closed().await);
//! # Ok(())
//! # }
//! ```
//!
//! [`connect_with`] accepts other timeouts and limits. For a configured store, or for options that
//! only rumqttc has, create a [`RumqttcLink`] and pass it to [`StateStore::builder`] or
//! [`StoreService::builder`]. This crate re-exports everything that an application needs, so no
//! other dependency is necessary.
//!
//! # The broker
//!
//! Any MQTT 5 broker works. For mosquitto, set these options:
//!
//! ```text
//! # without it, a single request takes 44 ms instead of 0.1 ms
//! set_tcp_nodelay true
//! # without it, a burst of more than 1,000 requests silently loses some
//! max_queued_messages 100000
//! ```
//!
//! A store that is an ordinary MQTT client has two limitations:
//!
//! * It cannot verify the sender of a request. Let the access rules of the broker decide which
//!   clients may write to the request topic, and which may read which responses.
//! * It cannot disconnect another client. Requests that violate the protocol are dropped and
//!   counted.
//!
//! # Limits
//!
//! * Requests: [`Options::max_queued_packets`] bounds the packets that wait for rumqttc, and
//!   [`Options::max_in_flight`] those that wait for the broker. The rest stays in the machine,
//!   which has its own limits.
//! * Messages: [`Options::receive_maximum`] bounds them. With [`RumqttcLink::manual_acks`] the
//!   broker withholds further messages. Otherwise this side stops reading until the queue has
//!   capacity, and reconnects if the queue is full while the machine cannot receive. The queued
//!   messages are lost then. Messages at QoS 0 that exceed the limit are dropped.
//! * Packets: a packet larger than the broker's Maximum Packet Size is not sent, and is reported as
//!   [`PACKET_TOO_LARGE`](statestore_proto::transport::ReasonCode::PACKET_TOO_LARGE). The broker
//!   does not deliver packets larger than [`Options::max_packet_size`].
//!
//! # Lost connections
//!
//! Every connection has a new event loop of rumqttc. The reconnect of rumqttc itself loses requests
//! and can get stuck; here the machines decide which packets to send again.
//!
//! The handle ends if the broker rejects the credentials or the client id, or if another client
//! takes over the client id. A broker that closes the connection without a reason code, such as
//! mosquitto 2.0, does not report a takeover. On such a broker, two clients with the same id
//! disconnect each other as long as both run.
//!
//! With [several addresses](Options::add_address), the next address is tried if a broker is
//! unreachable or sends the client elsewhere. rumqttc does not report the Server Reference, so the
//! addresses are tried in order.
//!
//! A second store with the client id of the first one takes over the session and the requests that
//! wait in it, and the first store ends. See [`RumqttcLink::without_claim`].
//!
//! # Features
//!
//! * `tls`: `Options::tls` with rustls and ring.
#![forbid(unsafe_code)]

mod connection;
mod convert;
mod link;
mod options;

pub use connection::Connection;
pub use convert::{Message, publish_reason, subscribe_reason};
pub use link::{Rumqttc, RumqttcLink};
pub use options::mqtt_options;
pub use rumqttc;
#[cfg(feature = "tls")]
pub use rustls;
pub use statestore_tokio::*;

/// Returns a handle for an application, with the client id of `options`. It connects in the
/// background.
///
/// # Errors
/// [`ConfigError`] if the client id is invalid.
///
/// # Panics
/// Outside of a tokio runtime; see [`connect_with`].
#[track_caller]
pub fn connect(options: Options) -> Result<StateStore, ConfigError> {
    connect_with(options, |builder| builder)
}

/// Does the same as [`connect`], with other timeouts, limits or pauses, or on another runtime.
///
/// ```no_run
/// use std::time::Duration;
/// use statestore_rumqttc::{Options, connect_with};
///
/// # fn example(handle: tokio::runtime::Handle) -> Result<(), statestore_rumqttc::ConfigError> {
/// let options = Options::new("thermostat-7", "localhost", 1883);
/// let store = connect_with(options, |builder| {
///     builder.timeout(Duration::from_secs(3)).runtime(handle)
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ConfigError`] if the client id is invalid.
///
/// # Panics
/// Outside of a tokio runtime, unless the builder has [one](Builder::runtime).
#[track_caller]
pub fn connect_with(
    options: Options,
    build: impl FnOnce(Builder) -> Builder,
) -> Result<StateStore, ConfigError> {
    adapter::connect::<Rumqttc>(options, build)
}

/// Does the same as [`connect`] for code without async: see [`blocking`].
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
/// [`blocking::SpawnError`] if the client id is invalid, or if the thread does not start.
pub fn connect_blocking(options: Options) -> Result<blocking::StateStore, blocking::SpawnError> {
    adapter::connect_blocking::<Rumqttc>(options)
}

/// Hosts a store with default limits. It connects in the background.
///
/// # Panics
/// Outside of a tokio runtime; [`ServiceBuilder::runtime`](service::ServiceBuilder::runtime)
/// accepts another.
#[must_use]
#[track_caller]
pub fn serve(options: Options) -> StoreService {
    adapter::serve::<Rumqttc>(options)
}

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;
