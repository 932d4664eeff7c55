//! Applications of the deployed Rust SDK, as published on its registry, for tests against this
//! project's store.

use std::sync::Arc;
use std::time::Duration;

use azure_iot_operations_mqtt::aio::connection_settings::{
    MqttConnectionSettings, MqttConnectionSettingsBuilder,
};
use azure_iot_operations_mqtt::error::SessionError;
use azure_iot_operations_mqtt::session::{
    Session, SessionExitHandle, SessionManagedClient, SessionMonitor, SessionOptionsBuilder,
};
use azure_iot_operations_protocol::application::ApplicationContextBuilder;
use azure_iot_operations_services::state_store::{Client, ClientOptionsBuilder};
use tokio::task::JoinHandle;

/// Maximum time that the SDK waits for a reply.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A session of the SDK that runs in a task.
pub struct RunningSession {
    /// The client of the session.
    pub client: SessionManagedClient,
    /// The monitor of the session.
    pub monitor: SessionMonitor,
    exit: SessionExitHandle,
    running: JoinHandle<Result<(), SessionError>>,
}

impl RunningSession {
    /// Starts a session with a broker on this machine.
    ///
    /// # Panics
    /// If the SDK rejects its configuration, or outside of a runtime.
    #[must_use]
    pub fn start(client_id: &str, port: u16) -> Self {
        Self::with(settings(client_id, "127.0.0.1", port).build().expect("settings"))
    }

    /// Starts a session with these settings.
    ///
    /// # Panics
    /// If the SDK rejects its configuration, or outside of a runtime.
    #[must_use]
    pub fn with(settings: MqttConnectionSettings) -> Self {
        let options = SessionOptionsBuilder::default()
            .connection_settings(settings)
            .build()
            .expect("options");
        let session = Session::new(options).expect("a session");
        Self {
            client: session.create_managed_client(),
            monitor: session.create_session_monitor(),
            exit: session.create_exit_handle(),
            running: tokio::spawn(session.run()),
        }
    }

    /// A new client of the store over this session.
    ///
    /// # Panics
    /// If the SDK rejects its configuration.
    #[must_use]
    pub fn store(&self) -> Client {
        let client = Client::new(
            ApplicationContextBuilder::default().build().expect("a context"),
            self.client.clone(),
            self.monitor.clone(),
            ClientOptionsBuilder::default().build().expect("options"),
        );
        client.expect("a client")
    }

    /// Ends the session, also if it is not connected. Returns the result of `Session::run`.
    ///
    /// # Panics
    /// If the session does not end.
    pub async fn exit(self) -> Result<(), SessionError> {
        // The session may already have ended.
        if self.exit.try_exit().is_err() {
            self.exit.force_exit();
        }
        let ended = tokio::time::timeout(TIMEOUT, self.running).await;
        ended.expect("the session ends").expect("no panic")
    }

    /// Drops the future of the session, which does not disconnect.
    pub fn abort(&self) {
        self.running.abort();
    }

    /// Waits until the session ends by itself. Returns the result of `Session::run`.
    ///
    /// # Panics
    /// If the session panics.
    pub async fn wait_ended(self) -> Result<(), SessionError> {
        self.running.await.expect("no panic")
    }
}

/// The settings of a session without TLS.
#[must_use]
pub fn settings(client_id: &str, host: &str, port: u16) -> MqttConnectionSettingsBuilder {
    MqttConnectionSettingsBuilder::default()
        .client_id(client_id)
        .hostname(host)
        .tcp_port(port)
        .use_tls(false)
}

/// An application of the SDK: one session and one client of the store.
pub struct Application {
    /// The SDK's client.
    pub client: Arc<Client>,
    session: RunningSession,
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
        Self::with(settings(client_id, host, port).build().expect("settings"))
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
        let session = RunningSession::with(settings);
        Self { client: Arc::new(session.store()), session }
    }

    /// Ends the client and its session.
    pub async fn close(self) {
        // The session may already have ended.
        let _ = self.client.shutdown().await;
        let _ = self.session.exit().await;
    }
}
