//! Durable SETs: our store without a network against an append of the same bytes, and in the
//! embedded broker against other stores. The data is in the folder for temporary files (`TMPDIR`).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use statestore_client::{Options, connect};

use super::Suite;
use crate::bare::{self, Failure, Load, Session};
use crate::engines::{
    Append, Embedded, Engine, Etcd, Figures, KEYS, Machine, Postgres, Redis, VALUE_LEN, broker,
};
use crate::folder::Folder;
use crate::race::percentile;
use crate::report::Report;
use crate::server_thread::{ServerThread, runtime};

pub(super) const SUITE: Suite = Suite {
    name: "durable",
    about: "durable SETs against an append, Redis, etcd and Postgres: us per request, p50, p99, \
            CPU; flushes",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let folder = Folder::new("durable")?;
    writes(&folder.0, report)?;
    reads_during_writes(&folder.0, report)
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
    /// Returns all figures with their names: times in microseconds, others per 1,000 requests.
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
        None => eprintln!("durable: Redis is not installed (apt-get install redis-server)"),
    }
    match Etcd::start()? {
        Some(etcd) => engines.push(Box::new(etcd)),
        None => eprintln!("durable: etcd is not installed (apt-get install etcd-server)"),
    }
    match Postgres::start(folder)? {
        Some(postgres) => engines.push(Box::new(postgres)),
        None => eprintln!("durable: Postgres is not installed (apt-get install postgresql)"),
    }
    let disk = Disk::of(folder)?;
    let (rounds, seconds) = if report.is_test() { (1, 0.01) } else { (9, 0.7) };
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
                // Adapts the next run to the intended duration.
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

/// Returns the number of requests that take `seconds`, in whole batches.
pub(super) fn requests(figures: Figures, seconds: f64, in_flight: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size of a run")]
    let requests = (seconds * 1e6 / figures.each) as usize;
    requests.clamp(in_flight.max(20), 2_000_000).div_ceil(in_flight) * in_flight
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
const fn figure(number: usize) -> f64 {
    number as f64
}

/// Returns the CPU seconds of this process, of a server, and of their children.
fn cpu(server: Option<u32>) -> Result<f64, Failure> {
    let mut ticks = ticks("self")?.1;
    if let Some(server) = server {
        ticks += self::ticks(&server.to_string())?.1;
        for entry in fs::read_dir("/proc")? {
            // The time of a process that has ended is part of its parent's.
            let process = entry?.file_name();
            if let Some((parent, its)) = process.to_str().and_then(|it| self::ticks(it).ok())
                && parent == server
            {
                ticks += its;
            }
        }
    }
    // The same on all current Linux systems.
    const TICKS_PER_SECOND: f64 = 100.0;
    Ok(figure(ticks) / TICKS_PER_SECOND)
}

/// Returns the parent of a process, and the ticks of the process and of its ended children.
fn ticks(process: &str) -> Result<(u32, usize), Failure> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let words: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = words.iter().skip(11).take(4).map(|word| word.parse().unwrap_or(0_usize)).sum();
    Ok((words.get(1).ok_or("no parent")?.parse()?, ticks))
}

/// Counters of the device of a folder, for all processes.
struct Disk(Option<PathBuf>);

impl Disk {
    fn of(folder: &Path) -> Result<Self, Failure> {
        let device = fs::metadata(folder)?.dev();
        // The system's encoding of small major and minor numbers.
        let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        if !stat.exists() {
            eprintln!("durable: {} is not on a disk; set TMPDIR", folder.display());
            return Ok(Self(None));
        }
        Ok(Self(Some(stat)))
    }

    /// Returns the numbers of flushes and of written sectors (512 bytes).
    fn counts(&self) -> Result<[usize; 2], Failure> {
        let Some(stat) = &self.0 else { return Ok([0, 0]) };
        let text = fs::read_to_string(stat)?;
        let numbers: Vec<usize> =
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Ok([15, 6].map(|at| numbers.get(at).copied().unwrap_or_default()))
    }
}

/// Measures a GET while another client writes other keys, with one request in flight.
fn reads_during_writes(folder: &Path, report: &mut Report<'_>) -> Result<(), Failure> {
    let disk = broker(Some(&folder.join("busy")))?;
    let memory = broker(None)?;
    let (rounds, requests) = if report.is_test() { (1, 20) } else { (9, 4_000) };
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
    let mut during = [Vec::new(), Vec::new()];
    eprintln!("durable/get ({rounds} rounds)");
    for _ in 0..rounds {
        alone.push(p50(&runtime, &mut reading[0], requests)?);
        for ((broker, reading), during) in
            [&disk, &memory].into_iter().zip(&mut reading).zip(&mut during)
        {
            let writer = Writer::start(broker)?;
            during.push(p50(&runtime, reading, requests)?);
            writer.end()?;
        }
    }
    let [on_disk, in_memory] = &during;
    report.compare("durable/get-during-sets/p50", on_disk, "in-memory", in_memory)?;
    report.compare("durable/get-during-sets/p50", on_disk, "alone", &alone)?;
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

/// A client in a separate thread that writes until [`end`](Self::end).
struct Writer {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<(), Failure>>,
}

impl Writer {
    fn start(broker: &ServerThread) -> Result<Self, Failure> {
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
        self.thread.join().map_err(|_| "the writer panicked")?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn all_sides_respond() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
