//! Measures the cost of a commit: with this journal, with a plain file that is appended to and
//! synced, and with redb as a log. The engines are measured in turn.
//!
//! ```text
//! measure DIR [SECONDS] [ROUNDS] [/sys/block/DEVICE/stat]
//! ```
//!
//! With the statistics of a block device that only holds DIR, such as a loop device, it also counts
//! the flushes and the bytes written to that device.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redb::{Database, Durability, TableDefinition};
use statestore_proto::hlc::{Hlc, NodeId, Version};
use statestore_proto::store::{Record, encode_records};
use statestore_proto::time::UnixTime;
use statestore_sqlite::SqliteJournal;
use statestore_tokio::service::{Commit, Journal as _};

const BATCHES: [usize; 3] = [1, 64, 512];
const TICKS_PER_SECOND: u64 = 100;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// An engine to measure.
trait Log {
    fn commit(&mut self, records: Vec<Record>) -> Outcome<()>;
}

struct Append(File);

impl Log for Append {
    fn commit(&mut self, records: Vec<Record>) -> Outcome<()> {
        self.0.write_all(&encode_records(&records))?;
        Ok(self.0.sync_data()?)
    }
}

struct Redb(Database, u64);

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

impl Log for Redb {
    fn commit(&mut self, records: Vec<Record>) -> Outcome<()> {
        self.1 += 1;
        let mut tx = self.0.begin_write()?;
        tx.set_durability(Durability::Immediate)?;
        tx.open_table(TABLE)?.insert(self.1, encode_records(&records).as_slice())?;
        Ok(tx.commit()?)
    }
}

struct Sqlite(SqliteJournal, tokio::runtime::Runtime);

impl Log for Sqlite {
    fn commit(&mut self, records: Vec<Record>) -> Outcome<()> {
        Ok(self.1.block_on(self.0.commit(Commit { records, snapshot: None }))?)
    }
}

/// Results of one engine and one batch size over all rounds.
#[derive(Default)]
struct Figures {
    latencies: Vec<Duration>,
    best_per_second: f64,
    best_p50: Option<Duration>,
    cpu: Duration,
    flushes: u64,
    sectors: u64,
}

fn open(engine: &str, dir: &Path) -> Outcome<Box<dyn Log>> {
    fs::create_dir_all(dir)?;
    Ok(match engine {
        "append" => {
            let file = OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
            Box::new(Append(file))
        }
        "redb" => Box::new(Redb(Database::create(dir.join("log.redb"))?, 0)),
        _ => {
            let mut journal = SqliteJournal::open(dir)?;
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            while runtime.block_on(journal.load())?.is_some() {}
            Box::new(Sqlite(journal, runtime))
        }
    })
}

fn batch(rng: &mut fastrand::Rng, size: usize) -> Outcome<Vec<Record>> {
    let node = NodeId::new("StateStore")?;
    let mut record = || {
        let mut key = vec![0; 16];
        let mut value = vec![0; 64];
        rng.fill(&mut key);
        rng.fill(&mut value);
        let wall = UnixTime::from_millis(1_700_000_000_000 + rng.u64(..1 << 30));
        Record::Put {
            key: key.into(),
            value: value.into(),
            version: Version::new(Hlc::new(wall, 1, node.clone())),
            fencing_token: None,
            expires: None,
            persist: false,
        }
    };
    Ok((0..size).map(|_| record()).collect())
}

fn cpu() -> Outcome<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Returns the number of flushes, and of sectors of 512 bytes written.
fn device(stat: Option<&PathBuf>) -> Outcome<(u64, u64)> {
    let Some(stat) = stat else { return Ok((0, 0)) };
    let text = fs::read_to_string(stat)?;
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Ok((numbers.get(15).copied().unwrap_or(0), numbers.get(6).copied().unwrap_or(0)))
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "this measures time")]
fn run(
    log: &mut dyn Log,
    rng: &mut fastrand::Rng,
    size: usize,
    for_: Duration,
) -> Outcome<Vec<Duration>> {
    let started = Instant::now();
    let mut latencies = Vec::new();
    while started.elapsed() < for_ {
        let records = batch(rng, size)?;
        let begun = Instant::now();
        log.commit(records)?;
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(
        args.next().ok_or("measure DIR [SECONDS] [ROUNDS] [/sys/block/DEVICE/stat]")?,
    );
    let seconds: f64 = args.next().map_or(Ok(1.0), |word| word.parse())?;
    let rounds: u64 = args.next().map_or(Ok(5), |word| word.parse())?;
    let stat = args.next().map(PathBuf::from);
    let engines = ["append", "sqlite", "redb"];
    for size in BATCHES {
        let mut all: Vec<Figures> = engines.iter().map(|_| Figures::default()).collect();
        let mut logs = Vec::new();
        for engine in engines {
            logs.push(open(engine, &dir.join(format!("{engine}-{size}")))?);
        }
        for round in 0..=rounds {
            for (index, (log, figures)) in logs.iter_mut().zip(&mut all).enumerate() {
                let mut rng =
                    fastrand::Rng::with_seed(round * 100 + index as u64 * 10 + size as u64);
                let (cpu_before, (flushes, sectors)) = (cpu()?, device(stat.as_ref())?);
                let mut latencies =
                    run(&mut **log, &mut rng, size, Duration::from_secs_f64(seconds))?;
                // The first round fills caches and extends the files to their final size.
                if round == 0 {
                    continue;
                }
                let after = device(stat.as_ref())?;
                figures.cpu += cpu()?.saturating_sub(cpu_before);
                figures.flushes += after.0 - flushes;
                figures.sectors += after.1 - sectors;
                let busy: Duration = latencies.iter().sum();
                figures.best_per_second =
                    figures.best_per_second.max(latencies.len() as f64 / busy.as_secs_f64());
                latencies.sort_unstable();
                let p50 = percentile(&latencies, 50);
                figures.best_p50 = Some(figures.best_p50.map_or(p50, |best| best.min(p50)));
                figures.latencies.extend(latencies);
            }
        }
        for (engine, figures) in engines.iter().zip(&mut all) {
            figures.latencies.sort_unstable();
            let count = figures.latencies.len().max(1) as u64;
            let busy: Duration = figures.latencies.iter().sum();
            println!(
                "{engine:>7} {size:>4}: {:>7.0} commits/s ({:.0} best), best p50 {:?}, p50 {:?}, \
                 p99 {:?}, cpu {:?}, {:.2} flushes, {:.1} kB",
                count as f64 / busy.as_secs_f64(),
                figures.best_per_second,
                figures.best_p50.unwrap_or_default(),
                percentile(&figures.latencies, 50),
                percentile(&figures.latencies, 99),
                figures.cpu / u32::try_from(count)?,
                figures.flushes as f64 / count as f64,
                figures.sectors as f64 / 2.0 / count as f64,
            );
        }
    }
    Ok(())
}
