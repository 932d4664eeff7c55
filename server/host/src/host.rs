//! The broker of a store: the embedded one, or an external one.

use std::sync::Arc;
use std::time::Duration;

use statestore_client::{InUse, LinkError, ManagedLink, Options};
use statestore_tokio::adapter::Diagnosis;
use statestore_tokio::service::ServiceBuilder;
use statestore_tokio::{Address, Link, Status, StatusWatch, StoreService};
use tokio::sync::watch;

use crate::broker::Broker;
use crate::capture::CaptureFile;
use crate::event::{Event, Observer, Ready};
use crate::http::Exporter;
use crate::other_store::{CHECK_MAX, CheckedConnector};

/// Time after which a missing connection is reported.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// A hook that replaces the error of a failed connection attempt.
pub(crate) type Diagnose = Arc<dyn Fn(LinkError, Address) -> Diagnosis + Send + Sync>;

/// The broker of a store.
pub(crate) enum Place {
    Embedded(Arc<Broker>),
    External {
        options: Box<Options>,
        /// URLs as configured.
        urls: Vec<String>,
        diagnose: Option<Diagnose>,
        /// Set to start only if no other store responds.
        is_checked: bool,
    },
}

/// Starts a store over a link of any type.
trait Spawn {
    fn spawn<L: Link>(self, service: ServiceBuilder, link: L) -> StoreService;
}

/// A store that is not part of a cluster.
struct Unleased;

impl Spawn for Unleased {
    fn spawn<L: Link>(self, service: ServiceBuilder, link: L) -> StoreService {
        service.spawn(link)
    }
}

#[cfg(feature = "etcd")]
impl Spawn for statestore_etcd::Leadership {
    fn spawn<L: Link>(self, service: ServiceBuilder, link: L) -> StoreService {
        service.spawn(statestore_etcd::LeasedLink::new(link, self))
    }
}

/// The broker of a store, and everything that outlives a leadership.
pub(crate) struct Host {
    pub(crate) place: Place,
    /// URLs of the embedded broker's listeners.
    pub(crate) urls: Vec<String>,
    /// Which clients can connect, and what they may do.
    pub(crate) access: String,
    pub(crate) exporter: Option<Exporter>,
    pub(crate) capture: Option<CaptureFile>,
    pub(crate) is_traffic_counted: bool,
    pub(crate) observer: Observer,
}

/// A store that runs there.
pub(crate) struct Hosted {
    pub(crate) service: StoreService,
    /// Which of several external brokers is in use.
    in_use: Option<InUse>,
}

impl Host {
    /// Starts a store.
    pub(crate) fn spawn(&self, service: ServiceBuilder) -> Hosted {
        self.spawn_with(service, Unleased)
    }

    /// Starts a store that sends nothing unless it leads.
    #[cfg(feature = "etcd")]
    pub(crate) fn spawn_leased(
        &self,
        service: ServiceBuilder,
        leadership: statestore_etcd::Leadership,
    ) -> Hosted {
        self.spawn_with(service, leadership)
    }

    fn spawn_with(&self, service: ServiceBuilder, spawn: impl Spawn) -> Hosted {
        let service = self.observed(service);
        self.measured(match &self.place {
            Place::Embedded(broker) => {
                Hosted { service: spawn.spawn(service, broker.store_link()), in_use: None }
            }
            Place::External { options, diagnose, is_checked, .. } => {
                let connector = match is_checked {
                    true => CheckedConnector::with_check(self.observer.clone()),
                    false => CheckedConnector::without_check(),
                };
                let link = external_link(options, diagnose.as_ref(), connector);
                let in_use = Some(link.in_use());
                Hosted { service: spawn.spawn(service, link), in_use }
            }
        })
    }

    fn observed(&self, service: ServiceBuilder) -> ServiceBuilder {
        let service = service.traffic(self.is_traffic_counted);
        match &self.capture {
            Some(capture) => capture.attach(service),
            None => service,
        }
    }

    fn measured(&self, hosted: Hosted) -> Hosted {
        if let Some(exporter) = &self.exporter {
            exporter.follow(&hosted.service);
        }
        hosted
    }

    /// Reports that requests reach the store.
    pub(crate) fn report_ready(&self, hosted: &Hosted, durability: Option<String>) {
        let urls = match &self.place {
            Place::Embedded(_) => self.urls.clone(),
            Place::External { urls, .. } => vec![url_in_use(urls, hosted.in_use.as_ref())],
        };
        self.observer.report(&Event::Ready(Ready {
            urls,
            access: self.access.clone(),
            durability,
            keys: hosted.service.stats().keys,
            capture: self.capture.as_ref().map(CaptureFile::description),
        }));
    }

    /// Reports once if an external broker is not reached soon.
    pub(crate) fn report_if_slow(&self, hosted: &Hosted) {
        if let Place::External { urls, .. } = &self.place {
            let (urls, observer) = (urls.clone(), self.observer.clone());
            tokio::spawn(report_if_slow(hosted.service.status(), urls, observer));
        }
    }

    /// Returns the embedded broker.
    pub(crate) fn broker(&self) -> Option<&Arc<Broker>> {
        match &self.place {
            Place::Embedded(broker) => Some(broker),
            Place::External { .. } => None,
        }
    }

    /// Stops the embedded broker, the capture and the HTTP listener. No store may be running.
    pub(crate) async fn close(self) {
        if let Some(broker) = self.broker() {
            broker.stop().await;
        }
        if let Some(capture) = self.capture {
            let _ = tokio::task::spawn_blocking(|| capture.close()).await;
        }
        if let Some(exporter) = self.exporter {
            exporter.close().await;
        }
    }
}

/// Waits for the stop, and reports it.
pub(crate) async fn wait_stopped(stopped: &mut watch::Receiver<bool>, host: &Host) {
    // The channel is closed when the server is dropped.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    host.observer.report(&Event::Stopping);
}

fn external_link(
    options: &Options,
    diagnose: Option<&Diagnose>,
    connector: CheckedConnector,
) -> ManagedLink<CheckedConnector> {
    let link = ManagedLink::for_store_with(options.clone(), connector);
    match diagnose.cloned() {
        Some(diagnose) => link.diagnose(move |error, address| diagnose(error, address)),
        None => link,
    }
}

async fn report_if_slow(mut status: StatusWatch, brokers: Vec<String>, observer: Observer) {
    tokio::time::sleep(REPORT_AFTER).await;
    if matches!(status.current(), Status::Offline { last_error: None }) {
        // It may still be looking for another store.
        tokio::time::sleep(CHECK_MAX).await;
    }
    if let Status::Offline { last_error } = status.current() {
        let reason = last_error.map(|error| error.to_string());
        observer.report(&Event::NotConnected { brokers, reason });
    }
}

/// The configured URL of the broker that is in use, or all URLs.
fn url_in_use(urls: &[String], in_use: Option<&InUse>) -> String {
    let address = in_use.and_then(InUse::address);
    // A URL may have several addresses.
    let is_it = |url: &&String| {
        let options = Options::from_url(url).ok();
        options.is_some_and(|options| options.addresses().any(|other| Some(other) == address))
    };
    urls.iter().find(is_it).cloned().unwrap_or_else(|| urls.join(", "))
}
