//! The broker, and the constructors of its clients.

use std::sync::Arc;

use statestore_mqtt::Reason;
use statestore_proto::client::ConfigError;
use statestore_tokio::service::ServiceBuilder;
use statestore_tokio::{LinkError, StateStore, StoreClosed, StoreService};

use crate::connection::Shared;
use crate::link::HubLink;
use crate::raw::RawClient;

/// MQTT client id of the store that a hub starts.
const STORE: &str = "statestore";

/// An in-memory broker. Clones refer to the same broker.
///
/// Connections have clean sessions. Messages arrive at once and in order, so their expiry interval
/// never ends in the broker. At most 65,536 messages and results wait for each connection; a
/// connection that exceeds this limit is closed.
#[derive(Clone, Debug)]
pub struct Hub {
    shared: Shared,
    store: Option<Arc<StoreService>>,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl Hub {
    /// Creates a broker without a store.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: Shared::new(), store: None }
    }

    /// Creates a broker and a store with the default configuration. Waits until the store receives
    /// requests. The store stops when the last clone of the hub is dropped.
    ///
    /// # Errors
    /// [`StoreClosed`] if the store stops first.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn with_store() -> Result<Self, StoreClosed> {
        Self::with_service(StoreService::builder()).await
    }

    /// Creates a broker and a store with another configuration, as [`with_store`](Self::with_store)
    /// does.
    ///
    /// ```
    /// use statestore_loopback::Hub;
    /// use statestore_proto::limits::StoreLimits;
    /// use statestore_tokio::StoreService;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = StoreLimits { keys_max: 1, ..StoreLimits::default() };
    /// let hub = Hub::with_service(StoreService::builder().limits(limits)).await?;
    /// let store = hub.connect("thermostat-7")?;
    /// store.set("setpoint", "21").await?;
    /// store.set("another", "22").await.expect_err("the store is full");
    /// assert_eq!(hub.store().expect("the hub has a store").stats().keys, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StoreClosed`] if the store stops first, for instance because its journal failed.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless the builder has one.
    pub async fn with_service(builder: ServiceBuilder) -> Result<Self, StoreClosed> {
        let hub = Self::new();
        let service = builder.spawn(hub.store_link(STORE));
        service.wait_connected().await?;
        Ok(Self { store: Some(Arc::new(service)), ..hub })
    }

    /// Returns the store that [`with_store`](Self::with_store) started.
    #[must_use]
    pub fn store(&self) -> Option<&StoreService> {
        self.store.as_deref()
    }

    /// Starts a client with default options. It connects in the background, and its requests wait
    /// for that. For other options pass a [link](Self::link) to `StateStore::builder`.
    ///
    /// # Errors
    /// [`ConfigError`] if the client id is invalid.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[track_caller]
    pub fn connect(&self, client_id: &str) -> Result<StateStore, ConfigError> {
        StateStore::builder().spawn(self.link(client_id))
    }

    /// Returns a link for a client with this id.
    #[must_use]
    pub fn link(&self, client_id: &str) -> HubLink {
        HubLink::new(self.shared.clone(), client_id, false)
    }

    /// Returns a link for a store with this id. It also reports disconnected clients, as a broker
    /// that embeds the store does.
    #[must_use]
    pub fn store_link(&self, client_id: &str) -> HubLink {
        HubLink::new(self.shared.clone(), client_id, true)
    }

    /// Connects a client that sends and receives any messages, without a state machine: to test how
    /// a store handles invalid messages.
    ///
    /// ```
    /// use statestore_loopback::{Hub, Message};
    ///
    /// async fn overhear(hub: &Hub) -> Result<Message, statestore_tokio::LinkError> {
    ///     let client = hub.raw_client("observer")?;
    ///     client.subscribe("statestore/#");
    ///     client.next().await
    /// }
    /// ```
    ///
    /// # Errors
    /// [`LinkError`] if the broker is [stopped](Self::stop) or rejects the client id.
    pub fn raw_client(&self, client_id: &str) -> Result<RawClient, LinkError> {
        self.shared.connect(client_id, false).map(RawClient::new)
    }

    /// Closes the connection of a client, if it has one. A client with a drive loop reconnects.
    pub fn disconnect(&self, client_id: &str) {
        self.shared.state().disconnect_client(client_id, Reason::ADMINISTRATIVE_ACTION);
    }

    /// Closes all connections and rejects new ones until [`restart`](Self::restart), as a broker
    /// that is down.
    pub fn stop(&self) {
        self.shared.state().stop();
    }

    /// Accepts connections again. Clients and stores reconnect after their back-off.
    pub fn restart(&self) {
        self.shared.state().is_stopped = false;
    }
}
