//! For authors of adapters: what a [`ManagedLink`] requires of an MQTT library, and building
//! blocks.
//!
//! An adapter implements [`Connector`] and [`Connection`]. A library that reads in a task or in its
//! own threads passes events on in a [`Mailbox`]. [`Outstanding`] pairs packet ids with tickets,
//! [`Completions`] pairs futures with tickets. [`connect`], [`connect_blocking`] and [`serve`] are
//! the functions of the same name of an adapter, for any connector.

use statestore_proto::client::ConfigError;

use crate::blocking::{self, SpawnError};
use crate::{Builder, ManagedLink, Options, StateStore, StoreService};

pub use crate::link::{
    Completions, Connection, ConnectionEvent, Connector, Delivered, Diagnosis, Mailbox, Negotiated,
    Opening, Outgoing, Outstanding, PacketId, PublishProperties, ReasonDetails, Received,
    ReceivedPublish, Ticket, machine_qos, machine_reason, packet_qos, packet_refusal,
    publish_packet, read_properties,
};
#[cfg(feature = "tls")]
pub use crate::link::{pem_section, pem_sections};

/// Returns a handle for an application, which connects in the background. `build` sets timeouts,
/// limits and pauses.
///
/// # Errors
/// [`ConfigError`] if the client id or a value of the builder is invalid.
///
/// # Panics
/// Outside of a tokio runtime, unless the builder has [one](Builder::runtime).
#[track_caller]
pub fn connect<C: Connector + Default>(
    options: Options,
    build: impl FnOnce(Builder) -> Builder,
) -> Result<StateStore, ConfigError> {
    build(StateStore::builder()).spawn(ManagedLink::<C>::for_client(options))
}

/// Does the same as [`connect`] for code without async.
///
/// # Errors
/// [`SpawnError`] if the client id is invalid, or if the thread does not start.
pub fn connect_blocking<C: Connector + Default>(
    options: Options,
) -> Result<blocking::StateStore, SpawnError> {
    blocking::StateStore::spawn(ManagedLink::<C>::for_client(options), |builder| builder)
}

/// Hosts a store with default limits, which connects in the background.
///
/// # Panics
/// Outside of a tokio runtime; [`ServiceBuilder::runtime`](crate::service::ServiceBuilder::runtime)
/// accepts another.
#[must_use]
#[track_caller]
pub fn serve<C: Connector + Default>(options: Options) -> StoreService {
    StoreService::builder().spawn(ManagedLink::<C>::for_store(options))
}
