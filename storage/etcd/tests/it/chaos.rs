//! Three stores over ways to etcd that are shut, deaf or cut at random: what was acknowledged is there, once, and in order.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_proto::hlc::Version;
use statestore_proto::store::Record;
use tokio::time::{Instant, sleep};

use crate::proxy::{Proxy, Way};
use crate::support::{Server, answers, commit, journal, load, restore, stamped};

/// For how long the ways change.
const CHAOS: Duration = Duration::from_secs(12);

/// What clients have asked for, as one broker for all stores would have it.
#[derive(Default)]
struct Requests {
    next: u64,
    /// Sent and not acknowledged.
    pending: Vec<u64>,
    acknowledged: Vec<(u64, Version)>,
    leads: usize,
    /// Delivered again and answered as before.
    repeated: usize,
}

impl Requests {
    fn take(&mut self) -> u64 {
        self.pending.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next
        })
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

/// Stands by, leads and ends, again and again.
async fn store(url: String, name: String, seed: u64, requests: Shared, until: Instant) {
    let mut rng = fastrand::Rng::with_seed(seed);
    while Instant::now() < until {
        let mut journal = journal(&url, &name, 2);
        let loaded = tokio::time::timeout_at(until, load(&mut journal)).await;
        let Ok(Ok(records)) = loaded else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let mut store = restore(&records);
        let known: BTreeSet<&[u8]> = records.iter().filter_map(Record::key).collect();
        requests.lock().unwrap().leads += 1;
        let commits = rng.usize(..400);
        for _ in 0..commits {
            if Instant::now() > until {
                break;
            }
            let (number, before) = {
                let mut requests = requests.lock().unwrap();
                (requests.take(), requests.last())
            };
            let key = number.to_be_bytes();
            let records = stamped(&mut store, number, 0, &[b"SET", &key, b"v"]);
            answers(&mut store);
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
async fn what_was_acknowledged_is_there_once_and_in_order() {
    let Some(server) = Server::start().await else { return };
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let requests = Shared::default();
    let until = Instant::now() + CHAOS;
    let mut client = server.client().await;
    let (mut proxies, mut stores) = (Vec::new(), Vec::new());
    for name in ["a", "b", "c"] {
        let proxy = Proxy::to(server.port).await;
        let (url, requests) = (proxy.url(), Arc::clone(&requests));
        stores.push(tokio::spawn(store(url, name.to_owned(), rng.u64(..), requests, until)));
        proxies.push(proxy);
    }
    while Instant::now() < until {
        let proxy = &proxies[rng.usize(..proxies.len())];
        let ways = [Way::Shut, Way::Deaf, Way::Deaf, Way::Cut];
        proxy.set(ways[rng.usize(..ways.len())]);
        // Who leads does not know that it does not any more, as one that stood still.
        if rng.bool() {
            client.delete("/statestore/leader", None).await.unwrap();
        }
        sleep(Duration::from_millis(rng.u64(1..1_500))).await;
        proxy.set(Way::Cut);
        sleep(Duration::from_millis(20)).await;
        proxy.set(Way::Open);
        sleep(Duration::from_millis(rng.u64(1..300))).await;
    }
    for store in stores {
        store.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let mut last = journal(&server.url(), "last", 60);
    let records = load(&mut last).await.unwrap();
    let versions = |key: &[u8]| {
        let of_key = records.iter().filter(|record| record.key() == Some(key));
        of_key.filter_map(|record| version_in(std::slice::from_ref(record))).collect::<Vec<_>>()
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
        "{} leads, {acknowledged} acknowledged, {repeated} repeated, {unknown} unknown, seed {seed}",
        requests.leads
    );
    assert!(requests.leads > 3 && acknowledged > 100, "too little happened to tell");
}
