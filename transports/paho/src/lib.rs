//! The state store protocol over Eclipse Paho: a [`Link`] for the handles of `statestore-tokio`.
//!
//! ```no_run
//! use statestore_paho::{Options, connect};
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
//! use statestore_paho::{Options, serve};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut service = serve(Options::new("statestore", "localhost", 1883).presence(true));
//! service.connected().await?;
//! println!("stopped: {}", service.stopped().await);
//! # Ok(())
//! # }
//! ```
//!
//! [`connect_with`] takes other time-outs and limits. For another store, or what only Paho has, make a [`PahoLink`] and
//! give it to [`StateStore::builder`] or [`StoreService::builder`]. The package `statestore-rumqttc` offers the same
//! in Rust alone, and more of it; this one is for applications that speak Paho already.
//!
//! # To build it
//!
//! Paho's C library comes with the crate and is built on the way: that takes a C compiler and `cmake`
//! (`apt-get install gcc cmake`), and with the feature `tls` also the headers of OpenSSL
//! (`apt-get install libssl-dev pkg-config`). The library sets `TCP_NODELAY`; the 1.3.12 that Debian 12 ships does not,
//! and takes 88 ms for each request. Paho is licensed EPL-2.0 or BSD-3-Clause, at your choice.
//!
//! # The broker
//!
//! Any MQTT 5 broker. For mosquitto, in its file:
//!
//! ```text
//! # or one request at a time takes 44 ms instead of 0.2
//! set_tcp_nodelay true
//! # or a burst of more than 1,000 requests loses some without a word
//! max_queued_messages 100000
//! ```
//!
//! As a store, an ordinary client cannot know who sent a request, nor disconnect anyone: let the access rules of the
//! broker decide who may write to the request topic.
//!
//! # What Paho cannot do
//!
//! * It acknowledges a message as soon as it was read. A store on Paho that crashes **loses the requests that it had
//!   read and not answered**: their senders get no answer in time, and nobody sends them again.
//! * It drops the reason of a PUBACK that is no failure. "Nobody subscribes to this topic" is not told, so that a request
//!   without a store ends by time-out, and a watch whose client is gone is noticed by [`Options::presence`] only.
//!   Failures are told.
//! * It does not tell the DUP flag, nor empty correlation data from absent.
//! * Its log (crate `log`) has payloads at level `debug`, and those of the C library `trace` them.
//! * A broker that breaks MQTT's rule that a topic name is UTF-8 without NUL ends the process: Paho panics where that
//!   cannot unwind. Clients cannot bring that about through a broker that keeps the rule, as mosquitto does.
//!
//! # What is bounded by what
//!
//! * Requests: [`Options::in_flight`] wait for the broker and [`Options::queue`] for Paho; the rest stays with the
//!   machine, which has limits of its own.
//! * Messages: Paho cannot be made to read no more. When [`PahoLink::inbox`] messages wait for the machine, the link says
//!   goodbye, hands out what waits, and connects again. A store's broker keeps later requests meanwhile; a client takes
//!   that for a lost connection, of which it tells its watches. What still arrives until the goodbye is out waits too, up
//!   to 16,384 messages; what comes beyond that is lost with a warning. Messages at QoS 0 beyond the inbox are dropped.
//! * Packets: what is larger than the broker allows is not sent, and reported as
//!   [`PACKET_TOO_LARGE`](statestore_proto::mqtt::ReasonCode::PACKET_TOO_LARGE). What is larger than
//!   [`Options::max_packet_size`] the broker does not deliver.
//! * Copies: a payload is copied once on its way out (into the C library; once more before that while something else
//!   holds it, as the cache of answers does) and twice on its way in (by the C library, and by its binding). This package
//!   adds none.
//!
//! # A lost connection
//!
//! Every connection has a Paho client of its own. Paho's own way to reconnect does not come back after a DISCONNECT of
//! the broker, and leaves requests without an end; here the machines decide what is sent again. A refusal of the
//! credentials or the client id, and another client that takes over the client id, end the handle instead of being tried
//! again.
//!
//! With [several addresses](Options::or_at) the next one is tried where one is not there or sends the client elsewhere. Which
//! other server a broker names Paho tells with a DISCONNECT and not with a CONNACK; it is followed to one of these only.
//!
//! Paho 1.3.16 crashes the process when it takes a client apart that lost its connection while it wrote a publish (it frees
//! it twice, [issue 1621](https://github.com/eclipse-paho/paho.mqtt.c/issues/1621)). Such clients are left in memory
//! instead, with what they had in flight, and a warning says so; all others are freed. For that a clean session asks the
//! broker for an expiry of one second instead of none.
//!
//! # Threads
//!
//! Paho has two threads of its own for all clients of a process, and one lock that each of its calls takes for a moment.
//! Nothing here waits for the network on the threads of the runtime. Each connection has a thread that sleeps until its
//! client is to be taken apart.
//!
//! # Features
//!
//! * `tls`: `Options::tls` with OpenSSL.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod convert;
mod link;
mod mailbox;
mod options;
#[cfg(feature = "tls")]
mod tls;

pub use convert::Message;
pub use link::PahoLink;
pub use paho_mqtt;
pub use statestore_tokio::*;
#[cfg(feature = "tls")]
pub use tls::tls_config;

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
    build(StateStore::builder()).spawn(PahoLink::for_client(options))
}

/// The same for code without async: see [`blocking`].
///
/// # Errors
/// [`blocking::SpawnError`] when the client id cannot be one, or there is no thread.
pub fn connect_blocking(options: Options) -> Result<blocking::StateStore, blocking::SpawnError> {
    blocking::StateStore::spawn(PahoLink::for_client(options), |builder| builder)
}

/// A store with default limits. It connects at once.
///
/// # Panics
/// Outside of a tokio runtime; [`ServiceBuilder::runtime`] takes another.
#[must_use]
#[track_caller]
pub fn serve(options: Options) -> StoreService {
    StoreService::builder().spawn(PahoLink::for_store(options))
}
