//! A durable store with a million keys: its start, and SETs during a snapshot.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use statestore_benches::stage::{self, Operation};
use statestore_proto::store::{Durability, Record, Store, StoreConfig};
use statestore_sqlite::SqliteJournal;
use statestore_tokio::JournalError;
use statestore_tokio::service::{Commit, Journal};

use super::Suite;
use crate::bare::Failure;
use crate::engines::{Machine, service};
use crate::folder::Folder;
use crate::race::{Lap, median};
use crate::report::Report;
use crate::server_thread::runtime;

pub(super) const SUITE: Suite = Suite {
    name: "million",
    about: "a durable store with a million keys: us per SET and p99 during a snapshot, against \
            SETs without a snapshot; ms of a start, bytes per key on the disk",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let folder = Folder::new("million")?;
    let keys = if report.is_test() { 1_000 } else { 1_000_000 };
    eprintln!("million ({keys} keys)");
    sets(&folder.0, keys, report)?;
    start(&folder.0, keys, report)
}

/// Measures short runs of SETs, some of them during a snapshot.
fn sets(folder: &Path, keys: usize, report: &mut Report<'_>) -> Result<(), Failure> {
    let writes_snapshot = Arc::new(AtomicBool::new(false));
    let journal = SqliteJournal::open(folder)?;
    let journal = ObservedJournal { journal, writes_snapshot: Arc::clone(&writes_snapshot) };
    let config = StoreConfig::new(7).durability(Durability::All);
    let start = async move |link| Ok((service(journal, config)?.spawn(link), async || {}));
    let mut store = Machine::over(keys, start)?;
    store.measure(Operation::Set, keys, 512)?;
    let (slices_min, requests) = if report.is_test() { (1, 64) } else { (60, 6_400) };
    let (mut during, mut without) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    // The log of the second million needs another snapshot.
    for _ in 0..3 * keys / requests {
        let before = writes_snapshot.load(Ordering::Relaxed);
        let figures = store.measure(Operation::Set, requests, 64)?;
        let after = writes_snapshot.load(Ordering::Relaxed);
        let [each, p99] = match (before, after) {
            (true, true) => &mut during,
            (false, false) => &mut without,
            // A snapshot began or ended during the requests.
            _ => continue,
        };
        each.push(figures.each);
        p99.push(figures.p99);
        if during[0].len() >= slices_min && without[0].len() >= slices_min {
            break;
        }
    }
    for (what, (during, without)) in ["each", "p99"].into_iter().zip(during.iter().zip(&without)) {
        let name = format!("million/set-during-snapshot/{what}");
        report.compare(&name, during, "without", without)?;
    }
    Ok(())
}

/// Measures the start of a store from its data directory.
fn start(folder: &Path, keys: usize, report: &mut Report<'_>) -> Result<(), Failure> {
    let runtime = runtime()?;
    let (mut open, mut load) = (Vec::new(), Vec::new());
    for _ in 0..if report.is_test() { 1 } else { 5 } {
        let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
        let lap = Lap::start();
        let mut journal = SqliteJournal::open(folder)?;
        open.push(lap.time().as_secs_f64());
        let lap = Lap::start();
        while let Some(records) = runtime.block_on(journal.load())? {
            records.iter().for_each(|record| store.restore(stage::now(), record));
        }
        load.push(lap.time().as_secs_f64());
        assert_eq!(store.len(), keys, "all keys are there");
    }
    report.figure("million/start/open-ms", median(open) * 1e3)?;
    report.figure("million/start/load-ms", median(load) * 1e3)?;
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len()));
    let bytes: u64 = files.sum::<Result<u64, std::io::Error>>()?;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    report.figure("million/disk-bytes-per-key", bytes as f64 / keys as f64)?;
    Ok(())
}

/// A journal that reports whether its current commit has a part of a snapshot. To see
/// each commit, it does not give the queue to the other journal, which would be a little faster.
struct ObservedJournal {
    journal: SqliteJournal,
    writes_snapshot: Arc<AtomicBool>,
}

impl Journal for ObservedJournal {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        self.journal.load().await
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
        self.writes_snapshot.store(commit.snapshot.is_some(), Ordering::Relaxed);
        self.journal.commit(commit).await
    }

    fn wants_snapshot(&self) -> bool {
        self.journal.wants_snapshot()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.journal.free_bytes()
    }

    fn can_free_space(&self) -> bool {
        self.journal.can_free_space()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn a_store_starts_with_all_its_keys() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
