//! A store that leads, or is a standby of the one that leads.

use std::time::Duration;

use statestore_broker::Redirect;
use statestore_etcd::{
    EtcdJournal, Leader, Leadership, MAX_VALUE_BYTES, Options, Role, RoleWatch, Tls,
};
use statestore_proto::limits::StoreLimits;
use statestore_proto::store::{Durability, StoreConfig};
use statestore_tokio::{CloseReason, Status, StatusWatch, StoreClosed, StoreService};
use tokio::sync::watch;

use crate::access::shared_policy::SharedPolicy;
use crate::broker::Broker;
use crate::config::{Config, ConfigError, Durable, Etcd, Reads};
use crate::event::Event;
use crate::host::{Host, Hosted, wait_stopped};
use crate::state::{ServerError, State};
use crate::store::store_config;

/// Pause before the next attempt to become a standby, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Reason for the end of a term.
enum End {
    /// The server was stopped.
    Stopped,
    /// Another store may lead, or etcd cannot be reached. This store becomes a standby again.
    Over(String),
    /// Another attempt would fail too.
    Failed(ServerError),
}

/// A member of a cluster.
pub(crate) struct Cluster {
    config: Config,
    policy: Option<SharedPolicy>,
    options: Options,
}

impl Cluster {
    pub(crate) fn new(
        config: Config,
        policy: Option<SharedPolicy>,
        host: &Host,
    ) -> Result<Self, ConfigError> {
        let options = options(&config.etcd, host.broker().map(|broker| &**broker))?;
        let cluster = Self { config, policy, options };
        // An invalid setting is reported at the start.
        cluster.store_config()?;
        EtcdJournal::new(cluster.options.clone())
            .map_err(|error| ConfigError::setting("etcd", error.to_string()))?;
        Ok(cluster)
    }

    /// Is a standby and leads in turns, until it is stopped.
    pub(crate) async fn run(
        &self,
        host: &Host,
        states: &watch::Sender<State>,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), ServerError> {
        let mut pause = PAUSE_MIN;
        let mut former: Option<Leadership> = None;
        // An outage that continues is reported once.
        let mut reported: Option<String> = None;
        let is_stopped = wait_stopped(&mut stopped, host);
        tokio::pin!(is_stopped);
        loop {
            redirect(host, Redirect::UnknownServer);
            let start = tokio::time::Instant::now();
            let journal = match &former {
                None => EtcdJournal::new(self.options.clone()),
                Some(former) => EtcdJournal::after(self.options.clone(), former),
            };
            let journal =
                journal.map_err(|error| ConfigError::setting("etcd", error.to_string()))?;
            let (role, leadership) = (journal.role(), journal.leadership());
            let service = StoreService::builder()
                .journal(journal)
                .config(self.store_config()?)
                .map_err(|error| ConfigError::setting("durable", error.to_string()))?;
            let hosted = match self.config.etcd.etcd_reads {
                Reads::Strict => host.spawn(service),
                Reads::Lease => host.spawn_leased(service, leadership.clone()),
            };
            let durability = self.durability();
            let mut term = Term { host, hosted: &hosted, states, durability, leader: None };
            let end = tokio::select! {
                end = term.run(role) => end,
                () = &mut is_stopped => End::Stopped,
            };
            // Decisions are still committed and sent, unless another store leads by now.
            hosted.service.shutdown().await;
            match end {
                End::Stopped => {
                    resign(host, &leadership).await;
                    redirect(host, Redirect::UnknownServer);
                    return Ok(());
                }
                End::Failed(error) => {
                    resign(host, &leadership).await;
                    return Err(error);
                }
                End::Over(reason) => {
                    // The lease may still be held. It expires if etcd cannot be reached.
                    let _ = leadership.resign().await;
                    if reported.as_ref() != Some(&reason) {
                        let reason = reason.clone();
                        host.observer.report(&Event::LeadershipLost { reason });
                    }
                    reported = Some(reason);
                }
            }
            former = Some(leadership);
            // Sessions must not contain messages from the time when this store led.
            if let Some(broker) = host.broker() {
                broker.start().await?;
            }
            redirect(host, Redirect::UnknownServer);
            let was_short = start.elapsed() <= PAUSE_MAX;
            pause = if was_short { (pause * 2).min(PAUSE_MAX) } else { PAUSE_MIN };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = &mut is_stopped => return Ok(()),
            }
        }
    }

    fn store_config(&self) -> Result<StoreConfig, ConfigError> {
        let limits = StoreLimits::default();
        let value_bytes_max = MAX_VALUE_BYTES - limits.key_bytes_max;
        let limits = StoreLimits { value_bytes_max, ..limits };
        let config = store_config(&self.config, self.policy.as_ref(), limits)?;
        Ok(config
            .durability(match self.durable() {
                Durable::Requested => Durability::Requested,
                Durable::All => Durability::All,
            })
            // Sessions at an external broker survive the store, and their clients do not register
            // again.
            .durable_registrations(!self.config.broker.broker.is_empty())
            .linearizable_reads(self.config.etcd.etcd_reads == Reads::Strict))
    }

    fn durable(&self) -> Durable {
        self.config.storage.durable.unwrap_or(Durable::All)
    }

    /// Which keys survive, and where.
    fn durability(&self) -> String {
        let what = match self.durable() {
            Durable::Requested => "keys that clients persist survive",
            Durable::All => "all keys survive",
        };
        let Etcd { etcd, etcd_prefix, .. } = &self.config.etcd;
        format!("{what} in etcd at {}, below {etcd_prefix}", etcd.join(","))
    }
}

/// Redirects clients of the embedded broker, or lets them in.
fn redirect(host: &Host, to: Redirect<'_>) {
    if let Some(broker) = host.broker() {
        broker.redirect(to);
    }
}

async fn resign(host: &Host, leadership: &Leadership) {
    if let Err(error) = leadership.resign().await {
        host.observer.report(&Event::NotResigned { reason: error.to_string() });
    }
}

/// One time as a standby, and as the leader after that.
struct Term<'a> {
    host: &'a Host,
    hosted: &'a Hosted,
    states: &'a watch::Sender<State>,
    durability: String,
    /// The leader that was reported last.
    leader: Option<Option<Leader>>,
}

impl Term<'_> {
    async fn run(&mut self, mut role: RoleWatch) -> End {
        let mut status = self.hosted.service.status();
        let (mut now, mut is_ready) = (Some(role.current()), false);
        loop {
            if let Some(end) = now.take().and_then(|role| self.follow(role)) {
                return end;
            }
            tokio::select! {
                changed = role.changed() => match changed {
                    Some(role) => now = Some(role),
                    // The last role is still there.
                    None => return self.follow(role.current()).unwrap_or_else(|| end_of(&mut status)),
                },
                changed = status.changed() => match changed {
                    Some(Status::Online) if !is_ready => {
                        is_ready = true;
                        redirect(self.host, Redirect::None);
                        self.host.report_ready(self.hosted, Some(self.durability.clone()));
                        self.states.send_replace(State::Ready);
                    }
                    Some(Status::Failed(CloseReason::Journal(_))) | None => {
                        return self.follow(role.current()).unwrap_or_else(|| end_of(&mut status));
                    }
                    Some(Status::Failed(_)) => return end_of(&mut status),
                    Some(_) => {}
                },
            }
        }
    }

    /// Acts on a role. Returns the end if the role is one.
    fn follow(&mut self, role: Role) -> Option<End> {
        match role {
            Role::Standby { leader, .. } => {
                redirect(
                    self.host,
                    match &leader {
                        Some(leader) if !leader.address.is_empty() => {
                            Redirect::Server(&leader.address)
                        }
                        _ => Redirect::UnknownServer,
                    },
                );
                if self.leader.as_ref() != Some(&leader) {
                    let reported = leader.clone().map(|leader| (leader.name, leader.address));
                    self.host.observer.report(&Event::Standby { leader: reported });
                    self.leader = Some(leader);
                }
                None
            }
            Role::Leading { epoch, .. } => {
                self.host.observer.report(&Event::Leading { epoch });
                self.host.report_if_slow(self.hosted);
                None
            }
            Role::Deposed { reason } => Some(End::Over(format!("deposed: {reason}"))),
            Role::Lost { reason } => Some(End::Over(reason)),
            Role::Failed { reason } => Some(End::Failed(ServerError::Cluster(reason))),
            _ => None,
        }
    }
}

/// The end of a term by the state of its service.
fn end_of(status: &mut StatusWatch) -> End {
    match status.current() {
        Status::Failed(CloseReason::Journal(error)) => End::Over(error.to_string()),
        Status::Failed(reason) => {
            let closed = StoreClosed { reason: Some(reason) };
            End::Failed(ServerError::Disconnected(closed, false))
        }
        _ => End::Over("the store has ended".to_owned()),
    }
}

fn options(etcd: &Etcd, broker: Option<&Broker>) -> Result<Options, ConfigError> {
    let mut options =
        Options::new(etcd.etcd.iter().cloned()).prefix(&etcd.etcd_prefix).lease(etcd.etcd_lease);
    if let (Some(user), Some(password)) = (&etcd.etcd_user, &etcd.etcd_password) {
        options = options.user(user, password.expose());
    }
    let has = |scheme: &str| etcd.etcd.iter().any(|url| url.starts_with(scheme));
    match &etcd.etcd_tls_ca {
        None if has("https:") => {
            return Err(ConfigError::setting("etcd", "https URLs require etcd-tls-ca"));
        }
        Some(_) if has("http:") => {
            return Err(ConfigError::setting("etcd-tls-ca", "it requires https URLs in etcd"));
        }
        None => {}
        Some(ca) => {
            let mut tls = Tls::new(ca);
            if let (Some(cert), Some(key)) = (&etcd.etcd_tls_cert, &etcd.etcd_tls_key) {
                tls = tls.identity(cert, key);
            }
            options = options.tls(tls);
        }
    }
    let address = etcd.advertise.clone().or_else(|| {
        let address = broker?.local_addr();
        (!address.ip().is_unspecified()).then(|| address.to_string())
    });
    let name = etcd.etcd_name.clone().unwrap_or_else(|| {
        let machine = rustix::system::uname();
        format!("{}:{}", machine.nodename().to_string_lossy(), std::process::id())
    });
    Ok(options.name(name).advertise(address.unwrap_or_default()))
}
