//! Real etcd processes, and store machines driven by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Client, GetOptions};
use statestore_etcd::{EtcdJournal, Options};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Durability, Record, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic;
use statestore_proto::transport::{Incoming, Transmit};
use statestore_testkit::process::Port;
use statestore_tokio::JournalError;
use statestore_tokio::service::{Commit, Journal as _};

const CLIENT: &str = "lamp-1";
const RESPONSE_TOPIC: &str = "clients/lamp-1/services/statestore/_any_/command/invoke/response";
const STARTED: u64 = 1_700_000_000_000;
const PREFIX: &str = "/statestore/";

/// A member of etcd. Dropping it ends its process and removes its directory.
pub(crate) struct Server {
    child: Child,
    dir: PathBuf,
    /// The port for clients, and the port for other members, which a restarted process uses too.
    ports: Vec<Port>,
    args: Vec<String>,
}

/// Arguments of a member without others.
const ALONE: [&str; 4] = ["--name", "one", "--listen-peer-urls", "http://127.0.0.1:0"];

fn program() -> Option<&'static str> {
    ["/usr/bin/etcd", "/usr/local/bin/etcd"].into_iter().find(|path| Path::new(path).exists())
}

impl Server {
    /// Starts a single member. Without etcd, prints a line and returns `None`.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(args: &[&str]) -> Option<Self> {
        let port = Port::free();
        let url = format!("http://127.0.0.1:{}", port.number());
        let server = Self::spawn(vec![port], &url, &[&ALONE, args].concat())?;
        server.wait_ready().await;
        Some(server)
    }

    /// Starts a cluster of three members.
    pub(crate) async fn cluster() -> Option<[Self; 3]> {
        let ports = [(); 3].map(|()| vec![Port::free(), Port::free()]);
        let url = |port: &Port| format!("http://127.0.0.1:{}", port.number());
        let all: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(at, ports)| format!("m{at}={}", url(&ports[1])))
            .collect();
        let all = all.join(",");
        let start = |at: usize, ports: Vec<Port>| {
            let (name, peer) = (format!("m{at}"), url(&ports[1]));
            let args = ["--name", &name, "--listen-peer-urls", &peer];
            let cluster = ["--initial-advertise-peer-urls", &peer, "--initial-cluster", &all];
            let url = url(&ports[0]);
            Self::spawn(ports, &url, &[args, cluster].concat())
        };
        let [first, second, third] = ports;
        let servers = [start(0, first)?, start(1, second)?, start(2, third)?];
        for server in &servers {
            server.wait_ready().await;
        }
        Some(servers)
    }

    /// Returns whether this member is the leader of etcd.
    pub(crate) async fn is_leader(&self) -> bool {
        let status = self.client().await.status().await.unwrap();
        status.leader() == status.header().unwrap().member_id()
    }

    /// Stops or continues the process.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Starts a member that listens at this address, without waiting for it.
    pub(crate) fn spawn(ports: Vec<Port>, url: &str, args: &[&str]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(program) = program() else {
            eprintln!("skipped: etcd is not installed (apt-get install etcd-server)");
            return None;
        };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("etcd-{}-{count}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let urls = ["--listen-client-urls", url, "--advertise-client-urls", url];
        let args = [&urls, args].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let child = spawn(program, &dir, &args);
        Some(Self { child, dir, ports, args })
    }

    /// The port for clients.
    pub(crate) fn port(&self) -> u16 {
        self.ports[0].number()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the member again after it was killed.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(program().unwrap(), &self.dir, &self.args);
        self.wait_ready().await;
    }

    /// Kills the member, removes its data, and starts it again.
    pub(crate) async fn restart_empty(&mut self) {
        self.kill();
        fs::remove_dir_all(&self.dir).unwrap();
        fs::create_dir_all(&self.dir).unwrap();
        self.restart().await;
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect([self.url()], None).await.unwrap()
    }

    async fn wait_ready(&self) {
        for _ in 0..600 {
            let mut client = self.client().await;
            let response =
                tokio::time::timeout(Duration::from_secs(1), client.get("ready", None)).await;
            if matches!(response, Ok(Ok(_))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("etcd does not respond");
    }

    /// Returns all keys below the prefix, with their values.
    pub(crate) async fn keys(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let options = GetOptions::new().with_prefix();
        let mut found = self.client().await.get(PREFIX, Some(options)).await.unwrap();
        found.take_kvs().into_iter().map(etcd_client::KeyValue::into_key_value).collect()
    }

    pub(crate) async fn has(&self, key: &str) -> bool {
        let key = format!("{PREFIX}{key}");
        self.keys().await.iter().any(|(other, _)| *other == key.as_bytes())
    }

    /// Returns the epoch and the sequence of the head.
    pub(crate) async fn head(&self) -> (u64, u64) {
        let found = self.client().await.get(format!("{PREFIX}head"), None).await.unwrap();
        let text = found.kvs()[0].value_str().unwrap().to_owned();
        let mut fields = text.split(' ').map(|field| field.parse().unwrap_or_default());
        (fields.next().unwrap(), fields.next().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn spawn(program: &str, dir: &Path, args: &[String]) -> Child {
    let log = fs::File::create(dir.join("log")).unwrap();
    Command::new(program)
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--logger", "zap", "--log-level", "error"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Options with a lease in seconds.
pub(crate) fn options(url: &str, name: &str, lease: u64) -> Options {
    Options::new([url]).name(name).advertise("mqtt://here").lease(Duration::from_secs(lease))
}

pub(crate) fn journal(url: &str, name: &str, lease: u64) -> EtcdJournal {
    EtcdJournal::new(options(url, name, lease)).unwrap()
}

/// Time stands still, so remaining durations stay the same.
fn now() -> Now {
    Now::new(Instant::from_millis(0), UnixTime::from_millis(STARTED))
}

pub(crate) fn new_store() -> Store {
    let config = StoreConfig::new(7).durability(Durability::All).durable_registrations(true);
    let mut store = Store::new(config);
    store.handle(Now::default(), Input::Connected { session_present: false });
    while store.poll_transmit().is_some() {}
    store
}

pub(crate) fn set(store: &mut Store, number: u64, key: &[u8], value: &[u8]) -> Vec<Record> {
    request(store, number, &[b"SET", key, value])
}

/// Executes a request and returns its records. Its response is ready afterwards.
pub(crate) fn request(store: &mut Store, number: u64, words: &[&[u8]]) -> Vec<Record> {
    stamped(store, number, number, words)
}

/// Executes a request with this counter in its timestamp.
pub(crate) fn stamped(
    store: &mut Store,
    number: u64,
    counter: u64,
    words: &[&[u8]],
) -> Vec<Record> {
    let mut payload = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        payload.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        payload.extend_from_slice(word);
        payload.extend_from_slice(b"\r\n");
    }
    let payload = Bytes::from(payload);
    let correlation = number.to_be_bytes();
    let mut incoming = Incoming::new(topic::REQUEST, &payload);
    incoming.response_topic = Some(RESPONSE_TOPIC);
    incoming.correlation_data = Some(&correlation);
    let stamp = format!("{STARTED}:{counter}:{CLIENT}");
    incoming.user_property("__ts", &stamp);
    incoming.verified_sender = Some(CLIENT);
    store.handle_publish(now(), &incoming);
    let records = store.poll_records().map(|batch| {
        store.handle_persisted(batch.id);
        batch.records
    });
    records.unwrap_or_default()
}

/// Drains the store's packets and returns the payloads of its responses.
pub(crate) fn responses(store: &mut Store) -> Vec<Bytes> {
    let sent = std::iter::from_fn(|| store.poll_transmit());
    let payloads = sent.filter_map(|sent| match sent {
        Transmit::Publish(publish) => Some(publish.payload),
        _ => None,
    });
    payloads.collect()
}

pub(crate) async fn commit(
    journal: &mut EtcdJournal,
    records: Vec<Record>,
) -> Result<(), JournalError> {
    journal.commit(Commit { records, snapshot: None }).await
}

/// Loads all records until this journal leads.
pub(crate) async fn load(journal: &mut EtcdJournal) -> Result<Vec<Record>, JournalError> {
    let mut all = Vec::new();
    while let Some(portion) = journal.load().await? {
        all.extend(portion);
    }
    Ok(all)
}

pub(crate) fn restore(records: &[Record]) -> Store {
    let mut store = new_store();
    records.iter().for_each(|record| store.restore(now(), record));
    store
}

/// Returns the durable state of a store except its clock, which can be later in a journal.
pub(crate) fn contents(store: &Store) -> Vec<Record> {
    store.snapshot(now()).filter(|record| !matches!(record, Record::Issued { .. })).collect()
}
