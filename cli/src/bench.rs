//! Requests a second and how long they take: half SET, half GET, on keys of this run's own.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use statestore_tokio::diagnostics::nagle;
use statestore_tokio::{Error, StateStore};
use tokio::task::JoinSet;

use crate::args::{Bench, Output};
use crate::connection::{self, unique_id};
use crate::failure::Failure;
use crate::output::raw;

/// Keys that take turns.
const KEYS: u64 = 100;

pub(crate) async fn run(args: Bench) -> Result<ExitCode, Failure> {
    let store = connection::store(&args.common)?;
    let prefix = unique_id("bench");
    let value = Bytes::from(vec![b'v'; args.value_size]);
    let failed = |error: Error| Failure::request(error, store.status().current().reason());
    // The first one waits for the connection, and tells early when there is no store.
    request(store.clone(), format!("{prefix}-0"), Some(value.clone())).await.map_err(failed)?;

    let (mut tasks, mut times, mut shown) = (JoinSet::new(), Vec::new(), now());
    let start = now();
    for number in 0..args.requests {
        // Each key is set, then read.
        let (key, store) = (format!("{prefix}-{}", number / 2 % KEYS), store.clone());
        let value = number.is_multiple_of(2).then(|| value.clone());
        tasks.spawn(request(store, key, value));
        while tasks.len() as u64 >= args.in_flight {
            times.extend(next(&mut tasks).await.transpose().map_err(failed)?);
        }
        if shown.elapsed_since() > Duration::from_secs(1) {
            shown = now();
            let _ = writeln!(std::io::stderr(), "{} of {} requests", times.len(), args.requests);
        }
    }
    while let Some(time) = next(&mut tasks).await {
        times.push(time.map_err(failed)?);
    }
    let spent = start.elapsed_since();
    for number in 0..KEYS {
        store.del(format!("{prefix}-{number}")).await.map_err(failed)?;
    }
    store.shutdown().await;
    raw(table(&mut times, spent, args.common.output).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// One SET or GET, and how long it took.
async fn request(store: StateStore, key: String, value: Option<Bytes>) -> Result<Duration, Error> {
    let start = now();
    match value {
        Some(value) => drop(store.set(key, value).await?),
        None => drop(store.get(key).await?),
    }
    Ok(start.elapsed_since())
}

async fn next(tasks: &mut JoinSet<Result<Duration, Error>>) -> Option<Result<Duration, Error>> {
    // A task that panics is a mistake of this program, and its time is none.
    tasks.join_next().await.map(|joined| joined.unwrap_or(Err(Error::Unknown)))
}

fn table(times: &mut [Duration], spent: Duration, output: Output) -> String {
    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(index).copied().unwrap_or_default().as_secs_f64() * 1e3
    };
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = times.len() as f64 / spent.as_secs_f64();
    let (p50, p90, p99, max) = (at(50), at(90), at(99), at(100));
    if output == Output::Json {
        let object = serde_json::json!({
            "requests": times.len(), "per_second": rate, "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": max,
        });
        return format!("{object}\n");
    }
    let mut text = format!("{} requests, {rate:.0} a second\n", times.len());
    for (name, value) in [("p50", p50), ("p90", p90), ("p99", p99), ("max", max)] {
        text.push_str(&format!("{name:>5} {value:>9.3} ms\n"));
    }
    if times.len() > 10 && nagle::is_delay(Duration::from_secs_f64(p50 / 1e3)) {
        text.push_str(&format!("Some {p50:.0} ms each: {}\n", nagle::REMEDY));
    }
    text
}

/// A stopwatch, since measuring is what this command is for.
#[derive(Clone, Copy)]
struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "a stopwatch reads a clock")]
fn now() -> Stopwatch {
    Stopwatch(Instant::now())
}

impl Stopwatch {
    fn elapsed_since(self) -> Duration {
        now().0.duration_since(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_remedy_for_slow_brokers_only() {
        let mut slow = vec![Duration::from_millis(44); 100];
        assert!(table(&mut slow, Duration::from_secs(4), Output::Raw).contains("set_tcp_nodelay"));
        let mut fast = vec![Duration::from_micros(140); 100];
        let text = table(&mut fast, Duration::from_millis(14), Output::Raw);
        assert!(
            text.contains("100 requests, 7143 a second") && !text.contains("nodelay"),
            "{text}"
        );
    }
}
