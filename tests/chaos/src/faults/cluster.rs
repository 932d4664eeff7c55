//! Three stores and three members of etcd, with a proxy between each pair.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use statestore_client::Options;
use statestore_testkit::brokers::Etcd;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::Port;
use tokio::time::{Instant, sleep};

use crate::faults::store::Store;
use crate::proxy::{Mode, Proxy};

/// Number of stores, and of members of etcd.
pub(crate) const SIZE: usize = 3;

/// Time limit of anything that must happen without intervention.
const PATIENCE: Duration = Duration::from_secs(30);

/// The brokers that clients connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The embedded brokers of the stores.
    Embedded,
    /// One mosquitto, with the stores as its clients.
    External,
    /// Embedded brokers of stores that share nothing, which the checker must detect.
    Twin,
}

impl Form {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::External => "mosquitto",
            Self::Twin => "twin",
        }
    }
}

pub(crate) struct Cluster {
    form: Form,
    lease: Duration,
    ports: Vec<Port>,
    pub(crate) stores: Vec<Store>,
    pub(crate) members: Vec<Etcd>,
    /// The proxies of each store, one to each member.
    proxies: Vec<Vec<Proxy>>,
    broker: Option<Mosquitto>,
    /// Data directories of the form `Twin`.
    directory: Option<PathBuf>,
}

impl Cluster {
    /// Starts everything. Prints a note and returns `None` if etcd or mosquitto is not installed.
    pub(crate) async fn start(
        program: &Path,
        form: Form,
        lease: Duration,
    ) -> Result<Option<Self>, String> {
        let mut cluster = Self {
            form,
            lease,
            ports: (0..SIZE).map(|_| Port::free()).collect(),
            stores: Vec::new(),
            members: Vec::new(),
            proxies: Vec::new(),
            broker: None,
            directory: None,
        };
        match form {
            Form::Twin => {
                let name = format!("statestore-faults-{}", std::process::id());
                cluster.directory = Some(std::env::temp_dir().join(name));
            }
            Form::Embedded | Form::External => {
                let Some(members) = Etcd::cluster("faults", SIZE) else { return Ok(None) };
                for _ in 0..SIZE {
                    let mut proxies = Vec::new();
                    for member in &members {
                        let proxy = Proxy::start(member.port()).await;
                        proxies.push(proxy.map_err(|error| format!("a proxy: {error}"))?);
                    }
                    cluster.proxies.push(proxies);
                }
                cluster.members = members;
            }
        }
        if form == Form::External {
            let Some(broker) = Mosquitto::start("faults") else { return Ok(None) };
            cluster.broker = Some(broker);
        }
        for number in 0..SIZE {
            let store = Store::start(program, cluster.arguments(number)?)?;
            cluster.stores.push(store);
        }
        cluster.wait_for_leader(0).await?;
        Ok(Some(cluster))
    }

    fn arguments(&self, number: usize) -> Result<Vec<String>, String> {
        let port = self.ports.get(number).map_or(0, Port::number);
        let mut arguments = match &self.broker {
            None => vec!["serve".to_owned(), "--listen".to_owned(), format!("127.0.0.1:{port}")],
            Some(broker) => vec![
                "serve".to_owned(),
                "--broker".to_owned(),
                format!("mqtt://127.0.0.1:{}", broker.port()),
                "--client-id".to_owned(),
                "the store".to_owned(),
                "--advertise".to_owned(),
                format!("store-{number}"),
            ],
        };
        if let Some(directory) = &self.directory {
            let directory = directory.join(number.to_string());
            fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
            let directory = directory.display().to_string();
            arguments.extend(["--data-dir".to_owned(), directory]);
            arguments.extend(["--durable".to_owned(), "all".to_owned()]);
        } else {
            let proxies = self.proxies.get(number).into_iter().flatten();
            let urls = proxies.map(|proxy| format!("http://127.0.0.1:{}", proxy.port()));
            let urls = urls.collect::<Vec<_>>().join(",");
            arguments.extend(["--etcd".to_owned(), urls]);
            let lease = format!("{}s", self.lease.as_secs());
            arguments.extend(["--etcd-lease".to_owned(), lease]);
        }
        Ok(arguments)
    }

    /// Options for a client.
    pub(crate) fn options(&self, client_id: &str) -> Options {
        let mut ports = match &self.broker {
            Some(broker) => vec![broker.port()],
            None => self.ports.iter().map(Port::number).collect::<Vec<_>>(),
        };
        let first = ports.remove(0);
        let options = Options::new(client_id, "127.0.0.1", first);
        let options = options.keep_alive(Duration::from_secs(2));
        let options = options.connect_timeout(Duration::from_secs(1));
        ports.into_iter().fold(options, |options, port| options.add_address("127.0.0.1", port))
    }

    pub(crate) const fn lease(&self) -> Duration {
        self.lease
    }

    /// The leader and its epoch. A stopped store may still report that it leads, in an older epoch.
    pub(crate) fn leader(&self) -> Option<(usize, u64)> {
        let stores = self.stores.iter().enumerate();
        if self.form == Form::Twin {
            return stores.filter(|(_, store)| store.is_started()).map(|(at, _)| (at, 1)).next();
        }
        let leaders = stores.filter_map(|(at, store)| Some((at, store.leading_epoch()?)));
        leaders.max_by_key(|(_, epoch)| *epoch)
    }

    /// Waits for a leader with a later epoch.
    pub(crate) async fn wait_for_leader(&self, epoch: u64) -> Result<usize, String> {
        if self.form == Form::Twin {
            return Ok(0);
        }
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some((leader, now)) = self.leader()
                && now > epoch
            {
                return Ok(leader);
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err(format!("no store leads after epoch {epoch} within {PATIENCE:?}"))
    }

    /// Sets the connectivity between a store and etcd.
    pub(crate) fn cut(&self, store: usize, mode: Mode) {
        for proxy in self.proxies.get(store).into_iter().flatten() {
            proxy.switch(mode);
        }
    }

    /// The member of etcd that is the raft leader.
    pub(crate) fn leading_member(&self) -> usize {
        self.members.iter().position(Etcd::leads).unwrap_or_default()
    }

    /// Violations of the stores.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        for (number, store) in self.stores.iter_mut().enumerate() {
            if let Some(status) = store.ended() {
                complaints.push(format!("store {number} has ended: {status}"));
            }
            for line in store.output() {
                if line.text.contains("panicked") {
                    complaints.push(format!("store {number}: {}", line.text));
                }
            }
        }
        complaints
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stores.clear();
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}
