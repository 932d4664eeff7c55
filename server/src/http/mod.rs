//! Monitoring over HTTP: metrics, health and readiness.

mod connections;
mod metrics;
mod traffic;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use statestore_tokio::service::{StatsHandle, TrafficHandle};
use statestore_tokio::{Status, StatusWatch, StoreService};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::broker::Broker;
use crate::listen::tls::ServerTls;
use crate::reload::Reloader;
use connections::Response;
pub use traffic::{ClientRow, KeyRow, TrafficTable};

/// Error of a listener for HTTP.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {source}")]
pub struct ExportError {
    /// The address as configured.
    address: String,
    /// The cause.
    source: io::Error,
}

/// Serves the metrics of the current store and of the broker.
pub(crate) struct Exporter {
    address: SocketAddr,
    source: Arc<Source>,
    task: AbortHandle,
}

impl Drop for Exporter {
    /// Closes the listener and its connections.
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Default)]
struct Source {
    store: Mutex<Option<(StatusWatch, StatsHandle)>>,
    traffic: Mutex<Option<TrafficHandle>>,
    broker: Mutex<Weak<Broker>>,
    files: Mutex<Option<Files>>,
}

/// Files that can be reloaded.
struct Files {
    reloader: Arc<Reloader>,
    tls: Option<ServerTls>,
}

impl Exporter {
    /// Listens at this address.
    pub(crate) async fn start(address: &str) -> Result<Self, ExportError> {
        let failed = |source| ExportError { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let source = Arc::new(Source::default());
        let responder = Arc::clone(&source);
        let serve = connections::serve(listener, move |path: &str| responder.respond(path));
        let task = tokio::spawn(serve).abort_handle();
        Ok(Self { address: local, source, task })
    }

    /// The address, with the port that was selected for port 0.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the metrics of this store from now on.
    pub(crate) fn follow(&self, service: &StoreService) {
        let store = (service.status(), service.stats_handle());
        *lock(&self.source.store) = Some(store);
        *lock(&self.source.traffic) = service.traffic();
    }

    /// Serves the times of reloads, and the expiry of the certificate.
    pub(crate) fn follow_files(&self, reloader: &Arc<Reloader>, tls: Option<ServerTls>) {
        let reloader = Arc::clone(reloader);
        *lock(&self.source.files) = Some(Files { reloader, tls });
    }

    /// Serves the metrics of this broker from now on.
    pub(crate) fn follow_broker(&self, broker: &Arc<Broker>) {
        *lock(&self.source.broker) = Arc::downgrade(broker);
    }
}

impl Source {
    fn respond(&self, path: &str) -> Option<Response> {
        match path {
            "/metrics" => Some(Response {
                status: "200 OK",
                content_type: metrics::CONTENT_TYPE,
                body: self.metrics(),
            }),
            "/traffic" => {
                let traffic = lock(&self.traffic).clone()?.current();
                Some(Response {
                    status: "200 OK",
                    content_type: traffic::CONTENT_TYPE,
                    body: TrafficTable::new(&traffic).encode(),
                })
            }
            // A process that responds is alive.
            "/healthz" => Some(Response::text("200 OK", "ok")),
            "/readyz" => Some(match self.unready() {
                None => Response::text("200 OK", "ready"),
                Some(reason) => Response::text("503 Service Unavailable", &reason),
            }),
            _ => None,
        }
    }

    /// Returns why requests do not reach the store, if they do not.
    fn unready(&self) -> Option<String> {
        let mut store = lock(&self.store);
        let Some((status, _)) = &mut *store else { return Some("starting".to_owned()) };
        match status.current() {
            Status::Online => None,
            Status::Offline { last_error: None } => {
                Some("offline: loading, standby, or connecting".to_owned())
            }
            status => Some(status.to_string()),
        }
    }

    fn metrics(&self) -> String {
        let is_ready = self.unready().is_none();
        let stats = lock(&self.store).as_ref().map(|(_, stats)| stats.current());
        let broker = lock(&self.broker).upgrade();
        let broker = broker.map(|broker| (broker.stats(), broker.traffic()));
        let mut text = metrics::text(&stats.unwrap_or_default(), is_ready, broker.as_ref());
        if let Some(Files { reloader, tls }) = &*lock(&self.files) {
            let expiry = tls.as_ref().and_then(ServerTls::not_after);
            text += &metrics::files(&reloader.last_reloads(), expiry);
        }
        text
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
