//! Monitoring over HTTP: metrics, health and readiness.

mod connections;
mod hosts;
mod metrics;
mod recent;
mod traffic;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};
use statestore_tokio::service::{StatsHandle, TrafficHandle};
use statestore_tokio::{Status, StatusWatch, StoreService};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::clock::system_now;
use crate::config::Http;
use crate::listen::tls::ServerTls;
use crate::reload::Reloader;
use crate::sync::lock;
use hosts::AllowedHosts;
use recent::RecentText;
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

impl ExportError {
    pub(crate) const fn cause(&self) -> &io::Error {
        &self.source
    }
}

/// Serves the metrics of the current store and of the broker.
pub(crate) struct Exporter {
    address: SocketAddr,
    source: Arc<Source>,
    task: JoinHandle<()>,
}

impl Drop for Exporter {
    /// Closes the listener and its connections.
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Exporter {
    /// Closes the listener, and returns when it is closed. Its connections end soon afterwards.
    pub(crate) async fn close(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

/// Content type of a line of text.
const TEXT: &str = "text/plain; charset=utf-8";

struct Source {
    hosts: AllowedHosts,
    recent_metrics: RecentText,
    recent_traffic: RecentText,
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
    /// Listens at this address, for requests to the allowed hosts.
    pub(crate) async fn start(address: &str, settings: &Http) -> Result<Self, ExportError> {
        let failed = |source| ExportError { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let source = Arc::new(Source::new(&settings.http_allowed_hosts));
        let responder = Arc::clone(&source);
        let serve = connections::serve(listener, move |request| responder.respond(request));
        let task = tokio::spawn(serve);
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
    fn new(allowed_hosts: &[String]) -> Self {
        Self {
            hosts: AllowedHosts::new(allowed_hosts),
            recent_metrics: RecentText::default(),
            recent_traffic: RecentText::default(),
            store: Mutex::default(),
            traffic: Mutex::default(),
            broker: Mutex::default(),
            files: Mutex::default(),
        }
    }

    fn respond<B>(&self, request: &Request<B>) -> Response<String> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = line(StatusCode::METHOD_NOT_ALLOWED, "use GET");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let path = request.uri().path();
        // A process that responds is alive. The response says nothing else, so every client may
        // have it.
        if path == "/healthz" {
            return line(StatusCode::OK, "ok");
        }
        let mut allowed = self.hosts.check(request);
        if path == "/traffic" {
            allowed = allowed.and_then(|()| hosts::check_origin(request));
        }
        if let Err(rejection) = allowed {
            return line(rejection.status(), rejection.text());
        }
        self.page(path).unwrap_or_else(|| {
            let text = "paths: /metrics, /healthz, /readyz, and /traffic if it is enabled";
            line(StatusCode::NOT_FOUND, text)
        })
    }

    /// Returns `None` for an unknown path.
    fn page(&self, path: &str) -> Option<Response<String>> {
        let now = Instant::now();
        match path {
            "/metrics" => {
                let text = self.recent_metrics.get(now, || self.metrics());
                Some(response(StatusCode::OK, metrics::CONTENT_TYPE, text))
            }
            "/traffic" => {
                let traffic = lock(&self.traffic).clone()?;
                let table = || TrafficTable::new(&traffic.current()).encode();
                let text = self.recent_traffic.get(now, table);
                Some(response(StatusCode::OK, traffic::CONTENT_TYPE, text))
            }
            "/readyz" => Some(match self.unready() {
                None => line(StatusCode::OK, "ready"),
                Some(reason) => line(StatusCode::SERVICE_UNAVAILABLE, &reason),
            }),
            _ => None,
        }
    }

    /// Returns why the server is not ready, if it is not: requests do not reach the store, or the
    /// certificate has expired.
    fn unready(&self) -> Option<String> {
        let offline = match &mut *lock(&self.store) {
            None => Some("starting".to_owned()),
            Some((status, _)) => match status.current() {
                Status::Online => None,
                Status::Offline { last_error: None } => {
                    Some("offline: loading, standby, or connecting".to_owned())
                }
                status => Some(status.to_string()),
            },
        };
        offline.or_else(|| {
            let expiry = self.certificate_expiry().filter(|expiry| *expiry <= system_now())?;
            Some(format!("the server certificate expired on {}", format_rfc3339_seconds(expiry)))
        })
    }

    fn metrics(&self) -> String {
        let is_ready = self.unready().is_none();
        let stats = lock(&self.store).as_ref().map(|(_, stats)| stats.current());
        let broker = lock(&self.broker).upgrade();
        let broker = broker.map(|broker| (broker.stats(), broker.traffic()));
        let mut text = metrics::text(&stats.unwrap_or_default(), is_ready, broker.as_ref());
        let expiry = self.certificate_expiry();
        if let Some(Files { reloader, .. }) = &*lock(&self.files) {
            text += &metrics::files(&reloader.last_reloads(), expiry);
        }
        text
    }

    fn certificate_expiry(&self) -> Option<SystemTime> {
        lock(&self.files).as_ref()?.tls.as_ref()?.not_after()
    }
}

/// A response of one line of text.
fn line(status: StatusCode, line: &str) -> Response<String> {
    response(status, TEXT, format!("{line}\n"))
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(method: &str, path: &str, host: &str) -> Response<String> {
        let source = Source::new(&["store.example".to_owned()]);
        let request = Request::builder().method(method).uri(path).header("Host", host);
        source.respond(&request.body(()).unwrap())
    }

    fn status(method: &str, path: &str, host: &str) -> (u16, String) {
        let response = response(method, path, host);
        (response.status().as_u16(), response.into_body())
    }

    #[test]
    fn method_path_and_host_select_the_response() {
        for (method, path, host, expected) in [
            ("GET", "/metrics", "store.example:1", 200),
            ("HEAD", "/metrics?a=b", "localhost", 200),
            ("GET", "/readyz", "localhost", 503),
            ("GET", "/metrics/", "localhost", 404),
            ("GET", "/traffic", "localhost", 404),
            ("POST", "/metrics", "localhost", 405),
            ("GET", "/metrics", "evil.example", 421),
            ("GET", "/traffic", "evil.example", 421),
            ("GET", "/readyz", "evil.example", 421),
            ("GET", "/", "evil.example", 421),
            ("GET", "/healthz", "evil.example", 200),
        ] {
            assert_eq!(status(method, path, host).0, expected, "{method} {path} {host}");
        }
        let refused = response("POST", "/metrics", "localhost");
        assert_eq!(refused.headers().get(ALLOW), Some(&HeaderValue::from_static("GET, HEAD")));
        let rejected = status("GET", "/readyz", "evil.example").1;
        assert!(rejected.contains("--http-allowed-hosts") && !rejected.contains("starting"));
    }
}
