//! Applications of the deployed Rust SDK, as published on its registry, for tests against this
//! project's store.

use std::sync::Arc;
use std::time::Duration;

use azure_iot_operations_mqtt::aio::connection_settings::{
    MqttConnectionSettings, MqttConnectionSettingsBuilder,
};
use azure_iot_operations_mqtt::session::{Session, SessionExitHandle, SessionOptionsBuilder};
use azure_iot_operations_protocol::application::ApplicationContextBuilder;
use azure_iot_operations_services::state_store::{Client, ClientOptionsBuilder};
use tokio::task::JoinHandle;

/// Maximum time that the SDK waits for a reply.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// An application of the SDK: one session and one client of the store.
pub struct Application {
    /// The SDK's client.
    pub client: Arc<Client>,
    exit: SessionExitHandle,
    session: JoinHandle<()>,
}

impl Application {
    /// Connects to a broker on this machine.
    ///
    /// # Panics
    /// If the SDK rejects its configuration.
    #[must_use]
    pub fn connect(client_id: &str, port: u16) -> Self {
        Self::connect_to(client_id, "127.0.0.1", port)
    }

    /// Connects to a broker.
    ///
    /// # Panics
    /// If the SDK rejects its configuration.
    #[must_use]
    pub fn connect_to(client_id: &str, host: &str, port: u16) -> Self {
        let settings = MqttConnectionSettingsBuilder::default()
            .client_id(client_id)
            .hostname(host)
            .tcp_port(port)
            .use_tls(false)
            .build()
            .expect("settings");
        Self::with(settings)
    }

    /// Connects as the environment variables of the SDK describe.
    ///
    /// # Panics
    /// If the SDK rejects them.
    #[must_use]
    pub fn from_environment() -> Self {
        let settings = MqttConnectionSettingsBuilder::from_environment().expect("variables");
        Self::with(settings.build().expect("settings"))
    }

    fn with(settings: MqttConnectionSettings) -> Self {
        let options = SessionOptionsBuilder::default()
            .connection_settings(settings)
            .build()
            .expect("options");
        let session = Session::new(options).expect("a session");
        let client = Client::new(
            ApplicationContextBuilder::default().build().expect("a context"),
            session.create_managed_client(),
            session.create_session_monitor(),
            ClientOptionsBuilder::default().build().expect("options"),
        );
        let exit = session.create_exit_handle();
        let session = tokio::spawn(async move { _ = session.run().await });
        Self { client: Arc::new(client.expect("a client")), exit, session }
    }

    /// Ends the client and its session.
    pub async fn close(self) {
        // The session may already have ended.
        let _ = self.client.shutdown().await;
        if self.exit.try_exit().is_err() {
            self.exit.force_exit();
        }
        let _ = tokio::time::timeout(TIMEOUT, self.session).await;
    }
}
