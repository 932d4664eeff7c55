//! The state store protocol over a session of the Azure IoT Operations SDK: a [`Link`] for the
//! handles of `statestore-tokio`.
//!
//! An application that has a `Session` of `azure_iot_operations_mqtt` gets a handle which uses the
//! connection of that session:
//!
//! ```no_run
//! use azure_iot_operations_mqtt::aio::connection_settings::MqttConnectionSettingsBuilder;
//! use azure_iot_operations_mqtt::session::{Session, SessionOptionsBuilder};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = MqttConnectionSettingsBuilder::from_environment()?.build()?;
//! let options = SessionOptionsBuilder::default().connection_settings(settings).build()?;
//! let session = Session::new(options)?;
//! let exit = session.create_exit_handle();
//! let store = statestore_azure_mqtt::connect(&session)?;
//! let running = tokio::spawn(session.run());
//!
//! let version = store.set("setpoint", "21").await?;
//! let found = store.get("setpoint").await?.expect("the value was just set");
//! assert_eq!(found.version, Some(version));
//!
//! store.shutdown().await;
//! exit.try_exit()?;
//! running.await??;
//! # Ok(())
//! # }
//! ```
//!
//! [`connect_with`] accepts other timeouts and limits. For the limits of the link, create a
//! [`SessionLink`] and pass it to [`StateStore::builder`]. Applications without a session of the
//! SDK use `statestore-client`.
//!
//! # The session
//!
//! The session belongs to the application, which runs and ends it. The link never opens a
//! connection. It waits for that of the session, also if the session does not run yet. To detect
//! the connection or the end of the session, it unsubscribes from `statestore-azure-mqtt/probe`.
//!
//! * **Lost connections.** The SDK reconnects according to its reconnect policy, and sends
//!   unacknowledged packets again. The handle reports the loss as with every link: a request in
//!   flight ends with [`Error::ConnectionLost`], and its effect is unknown; a watch reports a gap,
//!   registers again and reads its key. A request that was sent before the loss may reach the store
//!   after it, until its time limit.
//! * **Lost sessions.** If the broker has lost the session, for example in a restart without
//!   persistence, the SDK ends it. So does `SessionExitHandle`. The handle ends then, and its
//!   requests fail with [`Error::Closed`], whose cause is the error of the SDK. If the application
//!   drops the future of `Session::run` instead, the handle detects that with its next request or
//!   renewal of a watch.
//! * **Shutdown.** [`StateStore::shutdown`] unsubscribes from the responses. The session continues,
//!   and so does the subscription to notifications, since the SDK's own client shares it.
//!
//! # Next to the SDK's client of the state store
//!
//! Both can use one session. They have separate response topics and one topic of notifications, and
//! the store registers a client once for each key:
//!
//! * Watch a key with one of the two. If both watch it, the first that stops ends the registration
//!   of both. A watch of the handle registers again at its next
//!   [renewal](Builder::renew_watches), and reports a gap if it has missed a change. An observation
//!   of the SDK does not.
//! * The SDK's client unsubscribes from the notifications of both in `shutdown`, and when it is
//!   dropped. End the handle first. Otherwise watches of the handle detect changes only at renewals, until
//!   the session reconnects.
//! * The SDK's client logs a warning for each notification of a key that it does not observe.
//! * For the same reasons, create one handle for each session, and clone it.
//!
//! # Acknowledgements
//!
//! A message is acknowledged when the machine has handled it. The SDK sends acknowledgements in the
//! order of arrival, so messages that the application has not acknowledged delay those of the
//! handle, and count for the Receive Maximum of the session. The link receives the messages of two
//! filters, its responses and its notifications; receivers of the application for the same topics
//! get them too, and must acknowledge them as well.
//!
//! # Limits
//!
//! * Requests: at most [`SessionLink::max_in_flight`] packets wait for an acknowledgement. If the
//!   application fills the queue of the SDK, one packet of the link waits for it. The machine
//!   queues the others, within its own limits.
//! * Messages: the SDK queues received messages without a bound. At QoS 1 the Receive Maximum of
//!   the session bounds them, 65,535 by default. At QoS 0, clients that may publish to the two
//!   topics can fill the queue, at the speed of the network, while the task of the handle does not
//!   run.
//! * Packets: set [`SessionLink::max_packet_size`] to the limit of the broker.
//!
//! # Limitations of the SDK
//!
//! * It does not report Session Present, Receive Maximum and Maximum Packet Size of the CONNACK. It
//!   obeys neither of the two limits.
//! * It does not report why a connection was lost, except to its reconnect policy.
//! * It cannot receive at QoS 2. Link and SDK subscribe at QoS 1.
//!
//! The link is for clients. A store over it would acknowledge a request before its response, and so
//! lose requests in a crash: host stores with `statestore-client` or `statestore-server`.
#![forbid(unsafe_code)]

mod convert;
mod link;
mod receivers;
mod sending;
mod session;

use azure_iot_operations_mqtt::session::Session;

pub use azure_iot_operations_mqtt;
pub use convert::Message;
pub use link::SessionLink;
pub use statestore_tokio::*;

/// Returns a handle that uses the connection of a session, with the client id of the session.
///
/// # Errors
/// [`ConfigError`] if the client id is invalid.
///
/// # Panics
/// Outside of a tokio runtime; see [`connect_with`].
#[track_caller]
pub fn connect(session: &Session) -> Result<StateStore, ConfigError> {
    connect_with(session, |builder| builder)
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
    session: &Session,
    build: impl FnOnce(Builder) -> Builder,
) -> Result<StateStore, ConfigError> {
    build(StateStore::builder()).spawn(SessionLink::from(session))
}

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The program in the page about this package.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/azure-session.md")]
struct Page;
