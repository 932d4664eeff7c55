//! `serve --metrics`: what the store does, for Prometheus and for whoever asks whether it is ready.

mod http;
mod text;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use statestore_embedded::Broker;
use statestore_tokio::{StatsHandle, Status, StatusWatch, StoreService, TrafficHandle};
use tokio::net::TcpListener;

use crate::failure::Failure;
use crate::output::say;
use crate::own_broker::address;
use crate::traffic::{self, Traffic};
use http::Response;

/// Serves the numbers of the store that there is at the time.
pub(crate) struct Exporter {
    source: Arc<Source>,
}

/// Whose numbers they are.
#[derive(Default)]
struct Source {
    store: Mutex<Option<(StatusWatch, StatsHandle)>>,
    traffic: Mutex<Option<TrafficHandle>>,
    broker: Mutex<Weak<Broker>>,
}

impl Exporter {
    /// Listens, and says where.
    pub(crate) async fn start(text: &str) -> Result<Self, Failure> {
        let bad = |error| Failure::bad_input(format_args!("--metrics {text}: {error}"));
        let listener = TcpListener::bind(address("--metrics", text)?).await.map_err(bad)?;
        say(format_args!("metrics on http://{}/metrics", listener.local_addr().map_err(bad)?));
        let source = Arc::new(Source::default());
        let answering = Arc::clone(&source);
        tokio::spawn(http::serve(listener, move |path: &str| answering.answer(path)));
        Ok(Self { source })
    }

    /// Tells of this store from now on.
    pub(crate) fn follow(&self, service: &StoreService) {
        let store = (service.status(), service.stats_handle());
        *self.source.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
        *self.source.traffic.lock().unwrap_or_else(PoisonError::into_inner) = service.traffic();
    }

    /// Tells of this broker from now on.
    pub(crate) fn follow_broker(&self, broker: &Arc<Broker>) {
        let broker = Arc::downgrade(broker);
        *self.source.broker.lock().unwrap_or_else(PoisonError::into_inner) = broker;
    }
}

impl Source {
    fn answer(&self, path: &str) -> Option<Response> {
        match path {
            "/metrics" => Some(Response { code: "200 OK", kind: text::KIND, body: self.numbers() }),
            "/traffic" => {
                let counted = self.traffic.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let traffic = counted?.current();
                let (kind, body) = (traffic::KIND, Traffic::of(&traffic).encode());
                Some(Response { code: "200 OK", kind, body })
            }
            // It answers, so it lives.
            "/healthz" => Some(Response::text("200 OK", "ok")),
            "/readyz" => Some(match self.unready() {
                None => Response::text("200 OK", "ready"),
                Some(reason) => Response::text("503 Service Unavailable", &reason),
            }),
            _ => None,
        }
    }

    /// Why requests do not reach the store, if they do not.
    fn unready(&self) -> Option<String> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((status, _)) = &mut *store else { return Some("starting".to_owned()) };
        match status.current() {
            Status::Online => None,
            Status::Offline { reason: None } => {
                Some("offline: reading what was kept, standing by, or connecting".to_owned())
            }
            status => Some(status.to_string()),
        }
    }

    fn numbers(&self) -> String {
        let is_ready = self.unready().is_none();
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = store.as_ref().map(|(_, stats)| stats.current()).unwrap_or_default();
        drop(store);
        let broker = self.broker.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let broker = broker.map(|broker| (broker.stats(), broker.traffic()));
        text::of(&stats, is_ready, broker.as_ref())
    }
}
