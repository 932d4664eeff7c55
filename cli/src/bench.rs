//! `bench`: throughput and latency of a store, half SET, half GET, with separate keys for each run.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use statestore_tokio::diagnostics::nagle;
use statestore_tokio::{Error, StateStore, Status, StoreClosed};
use tokio::task::JoinSet;

use crate::args::{Bench, Output};
use crate::connection::{self, unique_id};
use crate::failure::Failure;
use crate::output::{notice, raw};
use crate::signals::{self, Signals};

/// Number of keys.
const KEYS: u64 = 100;

/// Longest recorded latency in microseconds. Longer ones count as this.
const LATENCY_MAX: u64 = 3_600_000_000;

/// Significant decimal digits of a recorded latency.
const DIGITS: u8 = 3;

pub(crate) async fn run(args: Bench) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?.with_hangup()?;
    let mut measured = Measured {
        is_begun: false,
        latencies: Histogram::new_with_max(LATENCY_MAX, DIGITS).map_err(Failure::system)?,
        elapsed: Duration::ZERO,
    };
    let store = connection::store(&args.common)?;
    let prefix = unique_id("bench");
    let (mut stopped_by, result) = tokio::select! {
        result = measure(&args, &store, &prefix, &mut measured) => (None, result),
        signal = signals.received() => (Some(signal), Ok(())),
    };
    if stopped_by.is_some() && measured.is_begun {
        notice("stopping: removing the keys of this run; a second signal keeps them");
    }
    // The keys are removed in every case, unless the store does not respond: then each of the
    // hundred requests would time out.
    let is_unresponsive = result.as_ref().is_err_and(Error::may_be_applied);
    let is_clean = !is_unresponsive
        && store.status().current() == Status::Online
        && match signals.or_received(remove_keys(&store, &prefix)).await {
            Ok(removed) => removed.is_ok(),
            Err(signal) => {
                stopped_by = Some(signal);
                false
            }
        };
    if measured.is_begun && !is_clean {
        notice(format_args!("some keys of this run may be left; they begin with {prefix}-"));
    }
    result.map_err(Failure::request)?;
    store.shutdown().await;
    if let Some(signal) = stopped_by {
        return Ok(signals::exit_code(signal));
    }
    raw(table(&measured.latencies, measured.elapsed, args.common.format.output).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

struct Measured {
    /// Set once a key was set.
    is_begun: bool,
    /// In microseconds.
    latencies: Histogram<u64>,
    elapsed: Duration,
}

impl Measured {
    fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(micros.max(1));
    }
}

async fn measure(
    args: &Bench,
    store: &StateStore,
    prefix: &str,
    measured: &mut Measured,
) -> Result<(), Error> {
    let value = Bytes::from(vec![b'v'; usize::try_from(args.value_size).unwrap_or(usize::MAX)]);
    // The first request is not measured: it waits for the connection, and fails early if there is
    // no store.
    request(store.clone(), format!("{prefix}-0"), Some(value.clone())).await?;
    measured.is_begun = true;

    let (mut tasks, mut reported) = (JoinSet::new(), now());
    let start = now();
    for number in 0..args.requests {
        // Each key is set, then read.
        let (key, store) = (format!("{prefix}-{}", number / 2 % KEYS), store.clone());
        let value = number.is_multiple_of(2).then(|| value.clone());
        tasks.spawn(request(store, key, value));
        while tasks.len() as u64 >= args.in_flight {
            if let Some(latency) = next(&mut tasks).await.transpose()? {
                measured.record(latency);
            }
        }
        if reported.elapsed() > Duration::from_secs(1) {
            reported = now();
            notice(format_args!("{} of {} requests", measured.latencies.len(), args.requests));
        }
    }
    while let Some(latency) = next(&mut tasks).await {
        measured.record(latency?);
    }
    measured.elapsed = start.elapsed();
    Ok(())
}

/// Deletes the keys. Requests are processed in order, so this includes keys of pending SETs.
async fn remove_keys(store: &StateStore, prefix: &str) -> Result<(), Error> {
    for number in 0..KEYS {
        store.del(format!("{prefix}-{number}")).await?;
    }
    Ok(())
}

/// Sends a SET or GET and returns its latency.
async fn request(store: StateStore, key: String, value: Option<Bytes>) -> Result<Duration, Error> {
    let start = now();
    match value {
        Some(value) => drop(store.set(key, value).await?),
        None => drop(store.get(key).await?),
    }
    Ok(start.elapsed())
}

async fn next(tasks: &mut JoinSet<Result<Duration, Error>>) -> Option<Result<Duration, Error>> {
    // A task that panics does not report a latency.
    tasks
        .join_next()
        .await
        .map(|joined| joined.unwrap_or_else(|_| Err(Error::Closed(StoreClosed::default()))))
}

fn table(latencies: &Histogram<u64>, elapsed: Duration, output: Output) -> String {
    let millis = |micros: u64| Duration::from_micros(micros).as_secs_f64() * 1e3;
    let at = |quantile: f64| millis(latencies.value_at_quantile(quantile));
    let count = latencies.len();
    #[expect(clippy::cast_precision_loss, reason = "for display only")]
    let rate = count as f64 / elapsed.as_secs_f64();
    let (p50, p90, p99, max) = (at(0.5), at(0.9), at(0.99), millis(latencies.max()));
    if output == Output::Json {
        let object = serde_json::json!({
            "requests": count,
            "per_second": rate,
            "p50_ms": p50,
            "p90_ms": p90,
            "p99_ms": p99,
            "max_ms": max,
        });
        return format!("{object}\n");
    }
    let mut text = format!("{count} requests, {rate:.0} per second\n");
    for (name, value) in [("p50", p50), ("p90", p90), ("p99", p99), ("max", max)] {
        text.push_str(&format!("{name:>5} {value:>9.3} ms\n"));
    }
    if count > 10 && nagle::is_delay(Duration::from_secs_f64(p50 / 1e3)) {
        text.push_str(&format!("About {p50:.0} ms per request: {}\n", nagle::REMEDY));
    }
    text
}

/// A stopwatch.
#[derive(Clone, Copy)]
struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "the command measures time")]
fn now() -> Stopwatch {
    Stopwatch(Instant::now())
}

impl Stopwatch {
    fn elapsed(self) -> Duration {
        now().0.duration_since(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(latencies: impl IntoIterator<Item = Duration>) -> Histogram<u64> {
        let empty = Histogram::new_with_max(LATENCY_MAX, DIGITS).unwrap();
        let mut measured = Measured { is_begun: true, latencies: empty, elapsed: Duration::ZERO };
        latencies.into_iter().for_each(|latency| measured.record(latency));
        measured.latencies
    }

    #[test]
    fn table_contains_remedy_for_delayed_acknowledgements_only() {
        let slow = histogram(vec![Duration::from_millis(44); 100]);
        assert!(table(&slow, Duration::from_secs(4), Output::Text).contains("set_tcp_nodelay"));
        let fast = histogram(vec![Duration::from_micros(140); 100]);
        let text = table(&fast, Duration::from_millis(14), Output::Text);
        assert!(
            text.contains("100 requests, 7143 per second") && !text.contains("nodelay"),
            "{text}"
        );
    }

    #[test]
    fn percentiles_have_three_digits() {
        let latencies = histogram((1..=10_000).map(|n| Duration::from_micros(n * 10)));
        let text = table(&latencies, Duration::from_secs(1), Output::Json);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (name, expected) in
            [("p50_ms", 50.0), ("p90_ms", 90.0), ("p99_ms", 99.0), ("max_ms", 100.0)]
        {
            let found = json[name].as_f64().unwrap();
            assert!((found / expected - 1.0).abs() < 0.002, "{name}: {found}");
        }
        let long = histogram([Duration::from_secs(1_000_000), Duration::ZERO]);
        assert!(table(&long, Duration::from_secs(1), Output::Text).contains("2 requests"));
    }
}
