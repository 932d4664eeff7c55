//! Ours: the store with its journal, without a network and behind the broker, and the append that bounds both.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use statestore_proto::store::{
    BatchId, Durability, Principal, Record, SnapshotPosition, Store, StoreConfig, encode_records,
};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_sqlite::SqliteJournal;
use statestore_tokio::{Commit, Journal as _, SnapshotPart, StoreService};
use tokio::runtime::Runtime;

use super::{Engine, Failure, Figures};
use crate::aside::{Aside, runtime};
use crate::bare::{self, Library, Load, Rumqttc};
use crate::race::{Lap, percentile};
use crate::stage::{self, Ask};

/// Bytes of a part of a snapshot, as the driver makes them.
const PART_BYTES: usize = 64 << 10;

/// The bytes that ours commits, appended to a file and synced: what no log that grows can beat.
#[derive(Debug)]
pub struct Append(File);

impl Append {
    /// A new file below this folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn start(below: &Path) -> Result<Self, Failure> {
        Ok(Self(OpenOptions::new().create_new(true).append(true).open(below.join("append"))?))
    }
}

impl Engine for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let mut store = Numbered::new();
        store.ask(in_flight);
        let bytes = encode_records(&store.records().1);
        let mut times = Vec::new();
        let lap = Lap::start();
        for _ in 0..requests.div_ceil(in_flight) {
            let lap = Lap::start();
            self.0.write_all(&bytes)?;
            self.0.sync_data()?;
            times.push(lap.time());
        }
        Ok(batches(times, in_flight, lap.time()))
    }
}

/// The store machine and its journal: from requests as they come off the wire to the replies, a batch at a time.
pub struct Machine {
    store: Numbered,
    journal: SqliteJournal,
    snapshot: Option<SnapshotPosition>,
    runtime: Runtime,
}

impl Machine {
    /// A new one below this folder.
    ///
    /// # Errors
    /// When its directory cannot be made.
    pub fn start(below: &Path) -> Result<Self, Failure> {
        let runtime = runtime()?;
        let mut journal = SqliteJournal::open(&below.join("machine"))?;
        while runtime.block_on(journal.load())?.is_some() {}
        Ok(Self { store: Numbered::new(), journal, snapshot: None, runtime })
    }

    fn batch(&mut self, requests: usize) -> Result<(), Failure> {
        self.store.ask(requests);
        if self.snapshot.is_none() && self.journal.wants_snapshot() {
            self.snapshot = Some(SnapshotPosition::default());
        }
        let (batch, records) = self.store.records();
        let snapshot = self.snapshot.take().map(|position| {
            let is_first = position == SnapshotPosition::default();
            let now = self.store.now();
            let (records, next) = self.store.store.snapshot_part(now, &position, PART_BYTES);
            self.snapshot = next;
            SnapshotPart { records, is_first, is_last: self.snapshot.is_none() }
        });
        self.runtime.block_on(self.journal.commit(Commit { records, snapshot }))?;
        let replies = self.store.replies(batch);
        assert_eq!(replies, requests, "each request has its reply");
        Ok(())
    }
}

impl Engine for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let mut times = Vec::new();
        let lap = Lap::start();
        for _ in 0..requests.div_ceil(in_flight) {
            let lap = Lap::start();
            self.batch(in_flight)?;
            times.push(lap.time());
        }
        Ok(batches(times, in_flight, lap.time()))
    }
}

/// Figures of requests that are answered a batch at a time.
fn batches(times: Vec<Duration>, in_flight: usize, spent: Duration) -> Figures {
    let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = spent.as_secs_f64() * 1e6 / (times.len() * in_flight) as f64;
    Figures { each, p50: percentile(times.clone(), 50), p99: percentile(times, 99) }
}

/// A store in which everything is durable, and one request after another about the keys in turn.
struct Numbered {
    store: Store,
    asked: u64,
    started: Lap,
}

impl Numbered {
    fn new() -> Self {
        let config = StoreConfig::new(7).durability(Durability::All);
        Self { store: Store::new(config), asked: 0, started: Lap::start() }
    }

    /// Remembered answers end, so time goes on.
    fn now(&self) -> Now {
        let millis = u64::try_from(self.started.time().as_millis()).unwrap_or(u64::MAX);
        let start = stage::now();
        Now::new(
            Instant::from_millis(start.instant.as_millis() + millis),
            UnixTime::from_millis(start.unix.as_millis() + millis),
        )
    }

    fn ask(&mut self, requests: usize) {
        for _ in 0..requests {
            self.asked += 1;
            let number = usize::try_from(self.asked).unwrap_or_default() % super::KEYS;
            let payload = stage::payload(Ask::Set, number);
            let mut incoming = stage::incoming(&payload, "client-1");
            let correlation = u128::from(self.asked).to_be_bytes();
            incoming.correlation_data = Some(&correlation);
            self.store.handle_publish(self.now(), Principal::claimed(&incoming), &incoming);
        }
    }

    fn records(&mut self) -> (Option<BatchId>, Vec<Record>) {
        self.store.poll_records().map_or((None, Vec::new()), |it| (Some(it.id), it.records))
    }

    /// How many replies may go out now.
    fn replies(&mut self, batch: Option<BatchId>) -> usize {
        if let Some(batch) = batch {
            self.store.handle_persisted(batch);
        }
        std::iter::from_fn(|| self.store.poll_transmit())
            .filter(|transmit| matches!(transmit, statestore_proto::mqtt::Transmit::Publish(_)))
            .count()
    }
}

/// The broker with a durable store in it, and a client that is written directly on rumqttc.
pub struct Embedded {
    broker: Aside,
    load: Load<<Rumqttc as Library>::Bare>,
    runtime: Runtime,
}

impl Embedded {
    /// A new one below this folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn start(below: &Path) -> Result<Self, Failure> {
        let broker = broker(Some(&below.join("embedded")))?;
        let runtime = runtime()?;
        let load = runtime.block_on(Load::new(broker.port, bare::SET))?;
        Ok(Self { broker, load, runtime })
    }

    /// Ends the broker.
    pub fn end(self) {
        drop((self.load, self.runtime));
        self.broker.end();
    }
}

impl Engine for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let lap = Lap::start();
        let times = self.runtime.block_on(self.load.run(requests, in_flight))?;
        Ok(Figures::new(&times, lap.time()))
    }
}

/// A broker with a store in it that keeps everything in that folder, or nothing.
///
/// # Errors
/// When it cannot be made.
pub fn broker(folder: Option<&Path>) -> Result<Aside, Failure> {
    let journal = folder.map(SqliteJournal::open).transpose()?;
    Aside::spawn(async move |told, end| {
        let options = statestore_embedded::Options::new((Ipv4Addr::LOCALHOST, 0));
        let mut service = StoreService::builder();
        if let Some(journal) = journal {
            let config = StoreConfig::new(7).durability(Durability::All);
            service = service.journal(journal).config(config)?;
        }
        let (broker, service) = statestore_embedded::serve_with(options, service).await?;
        service.connected().await?;
        let _ = told.send(broker.local_addr().port());
        let _ = end.await;
        service.shutdown().await;
        broker.stop().await;
        Ok(())
    })
}
