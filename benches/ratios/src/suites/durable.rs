//! SETs that are on the disk when they are answered: ours without a network against an append of the same bytes, and
//! behind the broker against other stores. The folder for temporary files says which disk (`TMPDIR`).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use statestore_client::{Options, connect};
use statestore_proto::store::{Durability, Store, StoreConfig};
use statestore_sqlite::SqliteJournal;
use statestore_tokio::service::Journal as _;

use super::Suite;
use crate::aside::{Aside, runtime};
use crate::bare::{self, Failure, Load, Session};
use crate::engines::{
    Append, Embedded, Engine, Etcd, Figures, KEYS, Machine, Postgres, Redis, VALUE_LEN, broker,
};
use crate::race::{Lap, median, percentile};
use crate::report::Report;
use statestore_benches::stage;

pub(super) const SUITE: Suite = Suite {
    name: "durable",
    about: "durable SETs against an append, Redis, etcd and Postgres: us a request, p50, p99, CPU; flushes; loading",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let folder = Folder::new()?;
    writes(&folder.0, report)?;
    reads_beside_writes(&folder.0, report)?;
    loading(&folder.0, report)
}

/// A folder that is removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("statestore-durable-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The figures of one engine, round by round.
#[derive(Default)]
struct Rounds {
    each: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    cpu: Vec<f64>,
    flushes: Vec<f64>,
    kilobytes: Vec<f64>,
}

impl Rounds {
    /// Which figures there are, and those: time and CPU in microseconds, the rest for a thousand requests.
    fn figures(&self) -> [(&'static str, &[f64]); 6] {
        [
            ("each", &self.each),
            ("p50", &self.p50),
            ("p99", &self.p99),
            ("cpu", &self.cpu),
            ("flushes-of-1000", &self.flushes),
            ("kB-of-1000", &self.kilobytes),
        ]
        .map(|(name, rounds)| (name, rounds.as_slice()))
    }
}

fn writes(folder: &Path, report: &mut Report<'_>) -> Result<(), Failure> {
    let mut engines: Vec<Box<dyn Engine>> = vec![
        Box::new(Machine::start(&folder.join("machine"), KEYS)?),
        Box::new(Append::start(folder)?),
        Box::new(Embedded::start(folder)?),
    ];
    match Redis::start(folder)? {
        Some(redis) => engines.push(Box::new(redis)),
        None => eprintln!("durable: no Redis here (apt-get install redis-server)"),
    }
    match Etcd::start(folder)? {
        Some(etcd) => engines.push(Box::new(etcd)),
        None => eprintln!("durable: no etcd here (apt-get install etcd-server)"),
    }
    match Postgres::start(folder)? {
        Some(postgres) => engines.push(Box::new(postgres)),
        None => eprintln!("durable: no Postgres here (apt-get install postgresql)"),
    }
    let disk = Disk::of(folder)?;
    let (rounds, seconds) = if report.is_rehearsal() { (1, 0.01) } else { (9, 0.7) };
    for in_flight in [1, 64, 512] {
        eprintln!("durable/{in_flight} ({} stores, {rounds} rounds)", engines.len());
        let mut results = Vec::new();
        for engine in &mut engines {
            let warm = engine.run(in_flight.max(20), in_flight)?;
            results.push((requests(warm, seconds, in_flight), Rounds::default()));
        }
        for _ in 0..rounds {
            for (engine, (requests, rounds)) in engines.iter_mut().zip(&mut results) {
                let (cpu, [flushes, sectors]) = (cpu(engine.server())?, disk.counts()?);
                let figures = engine.run(*requests, in_flight)?;
                let after = disk.counts()?;
                let number = figure(*requests);
                rounds.each.push(figures.each);
                rounds.p50.push(figures.p50);
                rounds.p99.push(figures.p99);
                rounds.cpu.push((self::cpu(engine.server())? - cpu) * 1e6 / number);
                rounds.flushes.push(figure(after[0] - flushes) * 1e3 / number);
                rounds.kilobytes.push(figure(after[1] - sectors) / 2.0 * 1e3 / number);
                // The next run takes as long as it should, whatever this one did.
                *requests = self::requests(figures, seconds, in_flight);
            }
        }
        for (name, peers) in [("machine", 1..engines.len()), ("embedded", 3..engines.len())] {
            let own = engines.iter().position(|engine| engine.name() == name).unwrap_or_default();
            for peer in peers.filter(|peer| engines[*peer].name() != "embedded") {
                let pairs = results[own].1.figures().into_iter().zip(results[peer].1.figures());
                for ((what, ours), (_, theirs)) in pairs {
                    let line = format!("durable/{name}/{in_flight}-in-flight/{what}");
                    report.compare(&line, ours, engines[peer].name(), theirs)?;
                }
            }
        }
    }
    Ok(())
}

/// How many requests take so long, in whole batches.
pub(super) fn requests(figures: Figures, seconds: f64, in_flight: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size of a run")]
    let requests = (seconds * 1e6 / figures.each) as usize;
    requests.clamp(in_flight.max(20), 2_000_000).div_ceil(in_flight) * in_flight
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
const fn figure(number: usize) -> f64 {
    number as f64
}

/// Seconds of CPU that this process and a server have taken, with their children.
fn cpu(server: Option<u32>) -> Result<f64, Failure> {
    let mut ticks = ticks("self")?.1;
    if let Some(server) = server {
        ticks += self::ticks(&server.to_string())?.1;
        for entry in fs::read_dir("/proc")? {
            // Who has ended meanwhile counts as its parent's child.
            let process = entry?.file_name();
            if let Some((parent, its)) = process.to_str().and_then(|it| self::ticks(it).ok())
                && parent == server
            {
                ticks += its;
            }
        }
    }
    // Of every Linux that there is.
    const TICKS_PER_SECOND: f64 = 100.0;
    Ok(figure(ticks) / TICKS_PER_SECOND)
}

/// The parent of a process, and the ticks that it and its ended children have taken.
fn ticks(process: &str) -> Result<(u32, usize), Failure> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let words: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = words.iter().skip(11).take(4).map(|word| word.parse().unwrap_or(0_usize)).sum();
    Ok((words.get(1).ok_or("no parent")?.parse()?, ticks))
}

/// What the device of a folder counts; everybody's.
struct Disk(Option<PathBuf>);

impl Disk {
    fn of(folder: &Path) -> Result<Self, Failure> {
        let device = fs::metadata(folder)?.dev();
        // As the system packs a small major and minor number.
        let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        if !stat.exists() {
            eprintln!("durable: {} is on no disk; choose another by TMPDIR", folder.display());
            return Ok(Self(None));
        }
        Ok(Self(Some(stat)))
    }

    /// Flushes, and sectors of 512 bytes written.
    fn counts(&self) -> Result<[usize; 2], Failure> {
        let Some(stat) = &self.0 else { return Ok([0, 0]) };
        let text = fs::read_to_string(stat)?;
        let numbers: Vec<usize> =
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Ok([15, 6].map(|at| numbers.get(at).copied().unwrap_or_default()))
    }
}

/// A GET of a key that nobody writes, while another client writes as fast as one at a time goes.
fn reads_beside_writes(folder: &Path, report: &mut Report<'_>) -> Result<(), Failure> {
    let disk = broker(Some(&folder.join("busy")))?;
    let memory = broker(None)?;
    let (rounds, requests) = if report.is_rehearsal() { (1, 20) } else { (9, 4_000) };
    let runtime = runtime()?;
    let mut reading = Vec::new();
    for broker in [&disk, &memory] {
        runtime.block_on(async {
            let store = connect(Options::new("load", "127.0.0.1", broker.port))?;
            store.set("k", vec![b'v'; VALUE_LEN]).await?;
            store.shutdown().await;
            Ok::<_, Failure>(())
        })?;
        reading.push(runtime.block_on(Load::<Session>::new(broker.port, bare::GET))?);
    }
    let mut alone = Vec::new();
    let mut beside = [Vec::new(), Vec::new()];
    eprintln!("durable/get ({rounds} rounds)");
    for _ in 0..rounds {
        alone.push(p50(&runtime, &mut reading[0], requests)?);
        for ((broker, reading), beside) in
            [&disk, &memory].into_iter().zip(&mut reading).zip(&mut beside)
        {
            let writer = Writer::start(broker)?;
            beside.push(p50(&runtime, reading, requests)?);
            writer.end()?;
        }
    }
    let [on_disk, in_memory] = &beside;
    report.compare("durable/get-beside-sets/p50", on_disk, "in-memory", in_memory)?;
    report.compare("durable/get-beside-sets/p50", on_disk, "alone", &alone)?;
    Ok(())
}

fn p50(
    runtime: &tokio::runtime::Runtime,
    load: &mut Load<Session>,
    requests: usize,
) -> Result<f64, Failure> {
    let times = runtime.block_on(load.run(requests, 1))?;
    Ok(percentile(times.iter().map(|time| time.as_secs_f64() * 1e6).collect(), 50))
}

/// A client in a thread of its own that writes until it is told to end.
struct Writer {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<(), Failure>>,
}

impl Writer {
    fn start(broker: &Aside) -> Result<Self, Failure> {
        let (port, is_over) = (broker.port, Arc::new(AtomicBool::new(false)));
        let its = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let runtime = runtime()?;
            let mut load = runtime.block_on(Load::<Session>::new(port, bare::SET))?;
            while !its.load(Ordering::Relaxed) {
                runtime.block_on(load.run(10, 1))?;
            }
            Ok(())
        });
        Ok(Self { is_over, thread })
    }

    fn end(self) -> Result<(), Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the writer has panicked")?
    }
}

/// From a directory that a store has filled with so many keys to a store that has them.
fn loading(folder: &Path, report: &mut Report<'_>) -> Result<(), Failure> {
    let keys = if report.is_rehearsal() { 1_000 } else { 1_000_000 };
    let (directory, runtime) = (folder.join("load"), runtime()?);
    eprintln!("durable/load ({keys} keys)");
    let mut full = Machine::start(&directory, keys)?;
    full.run(keys, 512)?;
    drop(full);
    let mut seconds = Vec::new();
    for _ in 0..if report.is_rehearsal() { 1 } else { 5 } {
        let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
        let lap = Lap::start();
        let mut journal = SqliteJournal::open(&directory)?;
        while let Some(records) = runtime.block_on(journal.load())? {
            records.iter().for_each(|record| store.restore(stage::now(), record));
        }
        seconds.push(lap.time().as_secs_f64());
        assert_eq!(store.len(), keys, "all keys are there");
    }
    report.figure("durable/load/milliseconds", median(seconds) * 1e3)?;
    let files = fs::read_dir(&directory)?.map(|entry| Ok(entry?.metadata()?.len()));
    let bytes: u64 = files.sum::<Result<u64, std::io::Error>>()?;
    report.figure("durable/load/bytes-a-key", figure(usize::try_from(bytes)?) / figure(keys))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn all_sides_answer() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
