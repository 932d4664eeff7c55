//! Where a store serves: in a broker of its own, or beside another.

use std::sync::Arc;

use statestore_embedded::Broker;
#[cfg(feature = "etcd")]
use statestore_embedded::Referral;
#[cfg(feature = "etcd")]
use statestore_etcd::{Leadership, LeasedLink};
use statestore_rumqttc::{InUse, Options, RumqttcLink};
use statestore_tokio::{ServiceBuilder, StoreService};

use crate::args::Serve;
use crate::connection;
use crate::failure::Failure;
use crate::metrics::Exporter;
use crate::output;
use crate::own_broker::{self, Files};
use crate::policy::{PolicyFile, counted};
use crate::recording::Recorder;
use crate::signals::{Asked, Signals};
use crate::supervisor::Supervisor;

enum Place {
    Own(Arc<Broker>),
    Beside(Box<Options>),
}

/// Where a store serves.
pub(crate) struct Host<'a> {
    args: &'a Serve,
    place: Place,
    files: Files,
    line: String,
    supervisor: Arc<Supervisor>,
    metrics: Option<Exporter>,
    recorder: Option<Recorder>,
}

/// A store that serves there.
pub(crate) struct Hosted {
    pub(crate) service: StoreService,
    /// Which of several other brokers it is at.
    in_use: Option<InUse>,
}

impl<'a> Host<'a> {
    pub(crate) async fn open(
        args: &'a Serve,
        policy: Option<PolicyFile>,
        supervisor: Arc<Supervisor>,
    ) -> Result<Self, Failure> {
        let metrics = match &args.metrics {
            Some(address) => Some(Exporter::start(address).await?),
            None => None,
        };
        let recorder = Recorder::open(&args.record)?;
        if args.broker.is_empty() {
            let (broker, files, line) = own_broker::start(&args.listen, policy).await?;
            let broker = Arc::new(broker);
            if let Some(metrics) = &metrics {
                metrics.follow_broker(&broker);
            }
            let place = Place::Own(broker);
            return Ok(Self { args, place, files, line, supervisor, metrics, recorder });
        }
        let files = Files { policy, ..Files::default() };
        let options = connection::options(&args.broker, &args.login, "statestore")?;
        let options = options.presence(args.presence);
        let trust = match &files.policy {
            None => {
                "requesters are who they claim to be, so let the broker's access rules decide who may send requests"
            }
            Some(_) => "the policy trusts that requesters are who they claim to be",
        };
        let line = format!("as client {}; {trust}", options.client_id);
        let place = Place::Beside(Box::new(options));
        Ok(Self { args, place, files, line, supervisor, metrics, recorder })
    }

    /// Starts a store there.
    pub(crate) fn spawn(&self, service: ServiceBuilder) -> Hosted {
        let service = self.observed(service);
        self.measured(match &self.place {
            Place::Own(broker) => {
                Hosted { service: service.spawn(broker.store_link()), in_use: None }
            }
            Place::Beside(options) => {
                let link = self.link(options);
                let in_use = Some(link.in_use());
                Hosted { service: service.spawn(link), in_use }
            }
        })
    }

    fn observed(&self, service: ServiceBuilder) -> ServiceBuilder {
        let service = service.traffic(self.args.traffic);
        match &self.recorder {
            Some(recorder) => recorder.record(service),
            None => service,
        }
    }

    fn measured(&self, hosted: Hosted) -> Hosted {
        if let Some(metrics) = &self.metrics {
            metrics.follow(&hosted.service);
        }
        hosted
    }

    /// The same, for a store that says nothing unless it leads.
    #[cfg(feature = "etcd")]
    pub(crate) fn spawn_leased(&self, service: ServiceBuilder, leadership: Leadership) -> Hosted {
        let service = self.observed(service);
        self.measured(match &self.place {
            Place::Own(broker) => {
                let link = LeasedLink::new(broker.store_link(), leadership);
                Hosted { service: service.spawn(link), in_use: None }
            }
            Place::Beside(options) => {
                let link = self.link(options);
                let in_use = Some(link.in_use());
                Hosted { service: service.spawn(LeasedLink::new(link, leadership)), in_use }
            }
        })
    }

    fn link(&self, options: &Options) -> RumqttcLink {
        let link = RumqttcLink::for_store(options.clone());
        connection::as_account(link, &self.args.login).fail_fast(connection::advice)
    }

    /// Prints the line that says that requests reach the store, what survives, and how much there is.
    pub(crate) fn say_ready(&self, hosted: &Hosted, keeps: Option<&str>) {
        let mut line = self.line(hosted);
        if let Some(text) = keeps {
            let keys = counted(hosted.service.stats().keys, "key");
            line = format!("{line}{text}; it begins with {keys}");
        }
        if let Some(recorder) = &self.recorder {
            line += recorder.line();
        }
        self.supervisor.ready(&line);
        // Requests come from the broker: a store serves whether somebody reads this or not.
        drop(tokio::spawn(output::line(line + "\n")));
    }

    fn line(&self, hosted: &Hosted) -> String {
        let line = &self.line;
        match &hosted.in_use {
            None => line.clone(),
            Some(in_use) => {
                let url = connection::url_in_use(&self.args.broker, in_use);
                format!("statestore: ready on {url} {line}")
            }
        }
    }

    /// A store that stands by has started as well as one that serves.
    #[cfg(feature = "etcd")]
    pub(crate) fn stands_by(&self, status: &str) {
        self.supervisor.ready(status);
    }

    /// Its own broker, if it has one.
    pub(crate) fn broker(&self) -> Option<&Broker> {
        match &self.place {
            Place::Own(broker) => Some(broker),
            Place::Beside(_) => None,
        }
    }

    /// Sends clients elsewhere or takes them, where the broker is its own.
    #[cfg(feature = "etcd")]
    pub(crate) fn refer(&self, to: Referral<'_>) {
        if let Some(broker) = self.broker() {
            broker.refer(to);
        }
    }

    /// Forgets sessions and retained messages, where the broker is its own.
    #[cfg(feature = "etcd")]
    pub(crate) async fn restart(&self) -> Result<(), Failure> {
        let Some(broker) = self.broker() else { return Ok(()) };
        broker
            .start()
            .await
            .map_err(|error| Failure::bad_input(format_args!("cannot serve: {error}")))
    }

    /// Says so if the other broker is not reached soon.
    pub(crate) fn say_if_slow(&self, service: &StoreService) {
        if !self.args.broker.is_empty() {
            tokio::spawn(connection::say_if_slow(service.status(), self.args.broker.clone()));
        }
    }

    /// Returns when it is told to stop. SIGHUP, which others send to whatever has files to read again, never is the end.
    pub(crate) async fn told_to_stop(&self, stop: &mut Signals) {
        while stop.received().await == Asked::Hangup {
            self.supervisor.reloading();
            self.files.reload(self.broker()).await;
            self.supervisor.ready("its files were read again");
        }
        self.supervisor.stopping();
    }

    /// Ends its own broker, and the recording. No store may run there any more.
    pub(crate) async fn close(self) {
        if let Some(broker) = self.broker() {
            broker.stop().await;
        }
        if let Some(recorder) = self.recorder {
            let _ = tokio::task::spawn_blocking(|| recorder.close()).await;
        }
    }
}
