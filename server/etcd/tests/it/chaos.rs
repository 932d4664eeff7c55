//! Three stores whose connections to etcd stall, lose replies or close at random: acknowledged
//! writes exist once and in order.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_proto::hlc::Version;
use statestore_proto::store::Record;
use statestore_testkit::process::HANGS;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::proxy::{Mode, Proxy};
use crate::support::{Server, commit, journal, load, responses, restore, stamped};

/// Minimum duration of the faults.
const CHAOS: Duration = Duration::from_secs(12);

/// Requests of clients at a broker that delivers them to the current leader.
#[derive(Default)]
struct Requests {
    next: u64,
    /// Delivered and not acknowledged.
    pending: Vec<u64>,
    acknowledged: Vec<(u64, Version)>,
    terms: usize,
    /// Redelivered to a store that had a recorded response.
    repeated: usize,
}

impl Requests {
    /// Returns the next request to deliver: an unacknowledged one, or a new one.
    fn deliver(&mut self) -> u64 {
        self.pending.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next
        })
    }

    /// Returns whether the faults had an effect. On a busy machine, this takes longer.
    fn is_enough(&self) -> bool {
        self.terms > 3 && self.acknowledged.len() > 100
    }

    fn last(&self) -> Option<Version> {
        self.acknowledged.iter().map(|(_, version)| version.clone()).max()
    }
}

type Shared = Arc<Mutex<Requests>>;

fn version_in(records: &[Record]) -> Option<Version> {
    records.iter().find_map(|record| match record {
        Record::Put { version, .. } => Some(version.clone()),
        _ => None,
    })
}

/// Runs journals one after the other: each becomes a standby, leads and ends.
async fn store(
    url: String,
    name: String,
    seed: u64,
    requests: Shared,
    mut ended: watch::Receiver<bool>,
) {
    let mut rng = fastrand::Rng::with_seed(seed);
    while !*ended.borrow() {
        let mut journal = journal(&url, &name, 2);
        let loaded = tokio::select! {
            loaded = load(&mut journal) => loaded,
            () = async { drop(ended.wait_for(|ended| *ended).await) } => return,
        };
        let Ok(records) = loaded else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let mut store = restore(&records);
        let known: BTreeSet<&[u8]> = records.iter().filter_map(Record::key).collect();
        requests.lock().unwrap().terms += 1;
        let commits = rng.usize(..400);
        for _ in 0..commits {
            if *ended.borrow() {
                break;
            }
            let (number, before) = {
                let mut requests = requests.lock().unwrap();
                (requests.deliver(), requests.last())
            };
            let key = number.to_be_bytes();
            let records = stamped(&mut store, number, 0, &[b"SET", &key, b"v"]);
            responses(&mut store);
            let version = version_in(&records);
            assert_eq!(
                version.is_none(),
                known.contains(&key[..]),
                "one effect of request {number}"
            );
            let committed = commit(&mut journal, records).await;
            let mut requests = requests.lock().unwrap();
            match (committed, version) {
                (Ok(()), Some(version)) => {
                    assert!(Some(&version) > before.as_ref(), "{version:?} after {before:?}");
                    requests.acknowledged.push((number, version));
                }
                (Ok(()), None) => requests.repeated += 1,
                (Err(_), _) => {
                    requests.pending.push(number);
                    break;
                }
            }
        }
        if rng.bool() {
            let _ = journal.leadership().resign().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_exist_once_and_in_order() {
    let Some(server) = Server::start().await else { return };
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let requests = Shared::default();
    let begun = Instant::now();
    let (end, ended) = watch::channel(false);
    let mut client = server.client().await;
    let (mut proxies, mut stores) = (Vec::new(), Vec::new());
    for name in ["a", "b", "c"] {
        let proxy = Proxy::start(server.port()).await;
        let (url, requests) = (proxy.url(), Arc::clone(&requests));
        stores.push(tokio::spawn(store(
            url,
            name.to_owned(),
            rng.u64(..),
            requests,
            ended.clone(),
        )));
        proxies.push(proxy);
    }
    let is_enough = || requests.lock().unwrap().is_enough();
    while begun.elapsed() < CHAOS || !is_enough() && begun.elapsed() < HANGS {
        let proxy = &proxies[rng.usize(..proxies.len())];
        let modes = [Mode::Stall, Mode::DropReplies, Mode::DropReplies, Mode::Close];
        proxy.set(modes[rng.usize(..modes.len())]);
        // The leader does not notice this, as after a stop for longer than the lease.
        if rng.bool() {
            client.delete("/statestore/leader", None).await.unwrap();
        }
        sleep(Duration::from_millis(rng.u64(1..1_500))).await;
        proxy.set(Mode::Close);
        sleep(Duration::from_millis(20)).await;
        proxy.set(Mode::Open);
        sleep(Duration::from_millis(rng.u64(1..300))).await;
    }
    end.send_replace(true);
    for store in stores {
        store.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let mut last = journal(&server.url(), "last", 60);
    let records = load(&mut last).await.unwrap();
    let versions = |key: &[u8]| {
        let with_key = records.iter().filter(|record| record.key() == Some(key));
        with_key.filter_map(|record| version_in(std::slice::from_ref(record))).collect::<Vec<_>>()
    };
    let requests = requests.lock().unwrap();
    for (number, version) in &requests.acknowledged {
        assert_eq!(
            versions(&number.to_be_bytes()),
            std::slice::from_ref(version),
            "seed {seed}, {number}"
        );
    }
    let (acknowledged, repeated) = (requests.acknowledged.len(), requests.repeated);
    let unknown = requests.pending.len();
    eprintln!(
        "{} terms, {acknowledged} acknowledged, {repeated} repeated, {unknown} unknown, seed {seed}",
        requests.terms
    );
    assert!(requests.is_enough(), "too few: {} terms, {acknowledged} acknowledged", requests.terms);
}
