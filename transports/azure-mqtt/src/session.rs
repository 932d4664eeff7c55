//! The connection of a session, which the SDK owns.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use azure_iot_operations_mqtt::control_packet::{TopicFilter, UnsubscribeProperties};
use azure_iot_operations_mqtt::error::CompletionError;
use azure_iot_operations_mqtt::session::{SessionManagedClient, SessionMonitor};
use statestore_tokio::{LinkError, LinkErrorKind};
use tokio::sync::Notify;

/// A filter to which no client subscribes.
const PROBE: &str = "statestore-azure-mqtt/probe";

/// A connection of the session, until the session loses it.
pub(crate) struct Connection {
    state: Arc<State>,
    /// Registered with the monitor, which wakes it at the next change of the session.
    _disconnected: Pin<Box<dyn Future<Output = ()> + Send>>,
}

struct State {
    is_lost: AtomicBool,
    changed: Arc<Notify>,
}

/// The session may reconnect before any task runs, and then the future of the monitor continues to
/// wait. So the call of its waker counts, and not its output.
impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.is_lost.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

impl Connection {
    /// Waits until the session is connected. Calls `changed` when it loses the connection.
    ///
    /// The monitor alone is not sufficient: a session that has ended never changes again. So the
    /// broker is sent an UNSUBSCRIBE, which the SDK fails when the session has ended.
    pub(crate) async fn open(
        client: &SessionManagedClient,
        monitor: &SessionMonitor,
        changed: &Arc<Notify>,
    ) -> Result<Self, LinkError> {
        loop {
            let filter = TopicFilter::new(PROBE).map_err(invalid)?;
            let sent = client.unsubscribe(filter, UnsubscribeProperties::default()).await;
            match sent.map_err(ended)?.await {
                Ok(_) => {}
                Err(error @ CompletionError::Detached) => return Err(ended(error)),
                // The connection was lost before the UNSUBACK.
                Err(CompletionError::Canceled(_)) => continue,
            }
            if let Some(connection) = Self::watch(monitor.clone(), changed) {
                return Ok(connection);
            }
        }
    }

    /// Registers with the monitor. `None` if the session is not connected.
    fn watch(monitor: SessionMonitor, changed: &Arc<Notify>) -> Option<Self> {
        let state = State { is_lost: AtomicBool::new(false), changed: Arc::clone(changed) };
        let state = Arc::new(state);
        let mut disconnected: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { monitor.disconnected().await });
        let waker = Waker::from(Arc::clone(&state));
        let is_connected =
            disconnected.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        is_connected.then_some(Self { state, _disconnected: disconnected })
    }

    /// Returns whether the session has lost this connection.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.is_lost.load(Ordering::Acquire)
    }
}

/// The error of a session that has ended.
pub(crate) fn ended(source: impl std::error::Error + Send + Sync + 'static) -> LinkError {
    LinkError::new(LinkErrorKind::Lost, "the session of the SDK has ended")
        .with_advice(
            "`Session::run` has returned the reason; create a new session and a new handle",
        )
        .with_source(source)
        .permanent()
}

/// The error of a connection that the session has lost.
pub(crate) fn lost() -> LinkError {
    LinkError::new(LinkErrorKind::Lost, "the session of the SDK has lost its connection")
}

/// The error of a topic that the SDK rejects.
fn invalid(source: impl std::error::Error + Send + Sync + 'static) -> LinkError {
    LinkError::from_source(LinkErrorKind::Other, source).permanent()
}
