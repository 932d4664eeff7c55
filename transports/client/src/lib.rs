//! A client for the MQTT 5 state store protocol, with its own MQTT connection.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = statestore_client::connect("mqtt://localhost")?;
//! let version = store.set("setpoint", "21").await?;
//! let found = store.get("setpoint").await?.expect("it was just set");
//! assert_eq!(found.version, Some(version));
//! store.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! State store machine, MQTT session and socket share one task: all packets that are ready are sent
//! in one vectored write, and all packets that have arrived are received in one read.
//!
//! # Connecting
//!
//! [`connect`] accepts a URL or [`Options`]. A URL names the broker and how to reach it:
//!
//! | URL | Connection |
//! |---|---|
//! | `mqtt://broker.example` | TCP, port 1883 |
//! | `mqtts://broker.example` | TLS, port 8883; needs the feature `tls` |
//! | `ws://broker.example/mqtt` | WebSocket, port 80; needs the feature `websocket` |
//! | `wss://broker.example/mqtt` | WebSocket over TLS, port 443; needs both features |
//! | `unix:///run/mosquitto.sock` | Unix socket |
//! | `mqtt://user:password@a.example,b.example:1884` | several addresses, with credentials |
//!
//! Without `?client_id=…`, the client id is random; with a user name, it begins with that.
//! [`Options`] have everything else: client id, certificates, a service account token, an HTTP
//! [proxy](Options::proxy), keep-alive, limits. They can start from a URL:
//!
//! ```
//! use statestore_client::{Options, Tls};
//!
//! let tls = Tls::default().ca_file("ca.pem").identity("client.pem", "client.key");
//! let options = Options::from_url("mqtts://broker.example")?.tls(tls);
//! # Ok::<(), statestore_client::UrlError>(())
//! ```
//!
//! The handle connects in the background, connects again after a loss, and reports its state with
//! [`StateStore::status`]. Requests wait for a connection until their timeout. Some errors end the
//! handle, since a retry cannot succeed: wrong credentials, a rejected client id, a takeover by
//! another client with the same client id, and invalid files of TLS. Then each request fails with
//! [`Error::Closed`].
//!
//! With a [service account token](Options::service_account_token), the handle stays connected while
//! the file of the token is renewed: it sends each new token on the same connection.
//!
//! # Limits
//!
//! * Requests: [`Options::max_in_flight`] await the broker's acknowledgement, or fewer if the
//!   broker allows fewer. The rest stays in the state store machine, which has its own limits.
//!   [`Options::max_queued_packets`] has no effect.
//! * Messages: a busy machine leaves [`Options::receive_maximum`] of them waiting, of at most
//!   [`Options::max_packet_size`] bytes each. The broker then withholds further messages of a
//!   store; one that exceeds the maximum fourfold is disconnected. A client stops reading from the
//!   socket when 256 more packets or 4 MiB have arrived.
//! * Packets: a packet larger than the broker's Maximum Packet Size is not sent, and the request
//!   fails. The broker does not deliver packets larger than [`Options::max_packet_size`].
//!
//! # A store
//!
//! [`serve`] hosts a store on a broker without one:
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = statestore_client::serve("mqtt://localhost?client_id=statestore")?;
//! service.wait_connected().await?;
//! println!("stopped: {}", service.wait_closed().await);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! * `tls`: TLS with rustls and ring, with client certificates.
//! * `encrypted-keys`: `tls` with [encrypted keys](Tls::key_password_file) of client certificates.
//! * `websocket`: MQTT over WebSocket.
//! * `json`: [values of the application's own types](StateStore::typed) as JSON.
#![forbid(unsafe_code)]

mod connection;
mod convert;
mod dial;
mod link;
mod proxy;
mod socket;
mod stream;
mod token_file;
#[cfg(feature = "websocket")]
mod websocket;

use std::convert::Infallible;

pub use connection::Connection;
pub use convert::Message;
pub use link::{ClientLink, Connector};
pub use proxy::open_tcp;
pub use socket::SessionSocket;
pub use statestore_mqtt as mqtt;
pub use statestore_tokio::*;
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;

/// Error of a handle or a store that was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The configuration is invalid, for example the client id.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This build lacks a feature that the options need, `tls` or `websocket`.
    #[error(transparent)]
    Unsupported(#[from] LinkError),
    /// The thread of a blocking handle did not start.
    #[error(transparent)]
    Spawn(#[from] blocking::SpawnError),
}

impl From<Infallible> for ConnectError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Returns a handle for an application, which connects in the background.
///
/// `target` is a URL or [`Options`].
///
/// ```
/// use statestore_client::{Options, connect};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let by_url = connect("mqtt://localhost")?;
/// let by_options = connect(Options::new("thermostat-7", "localhost", 1883))?;
/// assert_eq!(by_options.client_id(), "thermostat-7");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ConnectError`] for an invalid URL or client id, or a missing feature. Errors of the connection
/// are reported by [`StateStore::status`] and by requests.
///
/// # Panics
/// Outside of a tokio runtime; [`Builder::runtime`] accepts another, see [`connect_with`].
#[track_caller]
pub fn connect<T>(target: T) -> Result<StateStore, ConnectError>
where
    T: TryInto<Options>,
    ConnectError: From<T::Error>,
{
    connect_with(target, |builder| builder)
}

/// Does the same as [`connect`], with other timeouts, limits or pauses, or on another runtime.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn example(handle: tokio::runtime::Handle) -> Result<(), statestore_client::ConnectError> {
/// let store = statestore_client::connect_with("mqtt://localhost", |builder| {
///     builder.timeout(Duration::from_secs(3)).runtime(handle)
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ConnectError`] for an invalid URL or client id.
///
/// # Panics
/// Outside of a tokio runtime, unless the builder has [one](Builder::runtime).
#[track_caller]
pub fn connect_with<T>(
    target: T,
    build: impl FnOnce(Builder) -> Builder,
) -> Result<StateStore, ConnectError>
where
    T: TryInto<Options>,
    ConnectError: From<T::Error>,
{
    Ok(adapter::connect::<Connector>(checked(target)?, build)?)
}

/// Does the same as [`connect`] for code without async: see [`blocking`].
///
/// ```no_run
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let store = statestore_client::connect_blocking("mqtt://localhost")?;
///     store.set("setpoint", "21").wait()?;
///     let guard = store.wait(store.lock("locks/boiler").acquire())?;
///     guard.set("boiler", "on").wait()?;
///     store.wait(guard.release())?;
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`ConnectError`] for an invalid URL or client id, or if the thread does not start.
pub fn connect_blocking<T>(target: T) -> Result<blocking::StateStore, ConnectError>
where
    T: TryInto<Options>,
    ConnectError: From<T::Error>,
{
    Ok(adapter::connect_blocking::<Connector>(checked(target)?)?)
}

/// Hosts a store with default limits on a broker. It connects in the background.
///
/// # Errors
/// [`ConnectError`] for an invalid URL.
///
/// # Panics
/// Outside of a tokio runtime; [`ServiceBuilder::runtime`](service::ServiceBuilder::runtime)
/// accepts another.
#[track_caller]
pub fn serve<T>(target: T) -> Result<StoreService, ConnectError>
where
    T: TryInto<Options>,
    ConnectError: From<T::Error>,
{
    Ok(adapter::serve::<Connector>(checked(target)?))
}

/// The options of a target, if this build has the features for them.
fn checked<T>(target: T) -> Result<Options, ConnectError>
where
    T: TryInto<Options>,
    ConnectError: From<T::Error>,
{
    let options = target.try_into()?;
    stream::check_features(&options)?;
    Ok(options)
}

#[cfg(all(test, not(feature = "tls")))]
#[tokio::test]
async fn tls_without_its_feature_fails_in_connect() {
    let error = connect("mqtts://localhost").expect_err("TLS is not built in").to_string();
    assert!(error.contains("feature `tls`"), "{error}");
}

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;

/// The programs in the pages of the repository.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/embedding.md")]
    struct Embedding;

    #[doc = include_str!("../../../docs/locks.md")]
    struct Locks;

    #[doc = include_str!("../../../docs/rust.md")]
    struct Rust;

    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;

    #[doc = include_str!("../../../docs/tutorial.md")]
    struct Tutorial;

    #[doc = include_str!("../../../docs/watches.md")]
    struct Watches;

    #[doc = include_str!("../../../fuzz/README.md")]
    struct Fuzz;
}

/// The programs in the README of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
