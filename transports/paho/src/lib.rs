//! The state store protocol over Eclipse Paho: a [`Link`] for the handles of `statestore-tokio`.
//!
//! ```no_run
//! use statestore_paho::{Options, connect};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = connect(Options::new("thermostat-7", "localhost", 1883))?;
//! let version = store.set("setpoint", "21").await?;
//! let found = store.get("setpoint").await?.expect("the value was just set");
//! assert_eq!(found.version, Some(version));
//! store.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! If the broker does not provide a store, [`serve`] hosts one:
//!
//! ```no_run
//! use statestore_paho::{Options, serve};
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
//! [`connect_with`] accepts other timeouts and limits. For another configuration of the store, or
//! for options of [`Paho`], create a [`PahoLink`] and pass it to [`StateStore::builder`] or
//! [`StoreService::builder`]. Use this package if your application uses Paho already. Otherwise
//! prefer `statestore-client`, which is written in Rust and has none of the limits below.
//!
//! # Build requirements
//!
//! The crate `paho-mqtt` contains Paho's C library and builds it. That requires a C compiler and
//! `cmake` (`apt-get install gcc cmake`), and with the feature `tls` also the headers of OpenSSL
//! (`apt-get install libssl-dev pkg-config`). The library sets `TCP_NODELAY`; the 1.3.12 of Debian
//! 12 does not, and each request takes 88 ms with it. Paho is licensed under EPL-2.0 or
//! BSD-3-Clause, at your choice.
//!
//! # The broker
//!
//! Any MQTT 5 broker works. Add these lines to the configuration file of mosquitto:
//!
//! ```text
//! # otherwise sequential requests take 44 ms each instead of 0.2
//! set_tcp_nodelay true
//! # otherwise mosquitto drops requests of a burst of more than 1,000 without a report
//! max_queued_messages 100000
//! ```
//!
//! A store that is an ordinary client of the broker cannot identify the sender of a request, and
//! cannot disconnect clients. Restrict with the broker's access rules which clients may publish to
//! the request topic.
//!
//! # Limitations of Paho
//!
//! * Paho acknowledges a message when it reads it. If a store over Paho crashes, it **loses the
//!   requests that it has read and not answered**: their senders time out, and the broker does not
//!   redeliver them.
//! * Paho drops the reason code of a successful PUBACK, so *no matching subscribers* is not
//!   reported. A request without a store ends by timeout, and only [`Options::read_mosquitto_log`]
//!   reports that the client of a watch has gone. Reason codes of failures are reported.
//! * Paho does not report the DUP flag, and does not distinguish empty correlation data from
//!   absent.
//! * Its log (crate `log`) contains payloads at level `debug`. The C library writes them to its
//!   trace.
//! * If a broker sends a topic name that is not UTF-8 or contains NUL, which MQTT forbids, Paho
//!   panics in a callback that cannot unwind, and the process aborts. Clients cannot cause that
//!   through a broker that enforces the rule, as mosquitto does.
//!
//! # Limits
//!
//! * Requests: at most [`Options::max_in_flight`] wait for the broker and
//!   [`Options::max_queued_packets`] for Paho. The machine queues the others, within its own
//!   limits.
//! * Messages: Paho cannot stop reading. When [`Paho::inbox`] messages are queued for the machine,
//!   the link disconnects, returns the queued messages while the machine can receive, and
//!   reconnects; the other queued messages are lost. The broker of a store queues further requests
//!   until then; a client treats the disconnect as a lost connection and reports it to its watches.
//!   Up to 16,384 messages that arrive before the DISCONNECT is written are queued too. Further
//!   ones are lost, with a warning in the log. Messages at QoS 0 beyond the inbox are dropped.
//! * Packets: a packet that exceeds the broker's limit is not sent, and is reported as
//!   [`PACKET_TOO_LARGE`](statestore_proto::transport::ReasonCode::PACKET_TOO_LARGE). The broker
//!   does not deliver packets that exceed [`Options::max_packet_size`].
//! * Copies: a sent payload is copied once into the C library, and once more before that if another
//!   owner shares it, for example the deduplication cache. A received payload is copied twice, by
//!   the C library and by its binding. This package adds no copy.
//!
//! # Lost connections
//!
//! Each connection has a Paho client. Paho's automatic reconnect is not used: it does not reconnect
//! after a DISCONNECT of the broker, and leaves requests without an outcome. Here the machines
//! decide which packets are sent again. Rejected credentials, a rejected client id, and another
//! client with the same client id end the handle.
//!
//! With [several addresses](Options::add_address), the link tries the next one if an address is
//! unreachable or sends the client to another server. Paho reports the Server Reference of a
//! DISCONNECT, but not that of a CONNACK. It is followed only to a configured address.
//!
//! Paho 1.3.16 crashes the process if it frees a client that lost its connection while it wrote a
//! publish, because it frees the publish twice
//! ([issue 1621](https://github.com/eclipse-paho/paho.mqtt.c/issues/1621)). Such clients and their
//! packets in flight stay in memory, and a warning is logged; all other clients are freed. For the
//! same reason a clean session requests an expiry of one second instead of zero.
//!
//! # Threads
//!
//! Paho has two threads for all clients of a process, and one lock that each call takes for a
//! moment. This package does not wait for the network on threads of the runtime. Each connection
//! has a thread that sleeps until its client can be freed.
//!
//! # Features
//!
//! * `tls`: `Options::tls` with OpenSSL.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod convert;
mod link;
mod options;
#[cfg(feature = "tls")]
mod tls;

pub use connection::Connection;
pub use convert::Message;
pub use link::{Paho, PahoLink};
pub use paho_mqtt;
pub use statestore_tokio::*;
#[cfg(feature = "tls")]
pub use tls::tls_config;

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
    adapter::connect::<Paho>(options, build)
}

/// Does the same as [`connect`] for code without async: see [`blocking`].
///
/// # Errors
/// [`blocking::SpawnError`] if the client id is invalid or the thread does not start.
pub fn connect_blocking(options: Options) -> Result<blocking::StateStore, blocking::SpawnError> {
    adapter::connect_blocking::<Paho>(options)
}

/// Hosts a store with default limits on a broker. It connects in the background.
///
/// # Panics
/// Outside of a tokio runtime; [`ServiceBuilder::runtime`](service::ServiceBuilder::runtime)
/// accepts another.
#[must_use]
#[track_caller]
pub fn serve(options: Options) -> StoreService {
    adapter::serve::<Paho>(options)
}
