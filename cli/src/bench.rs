//! Requests a second and how long they take: half SET, half GET, on keys of this run's own.

mod plot;

use std::fs::File;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use statestore_tokio::diagnostics::nagle;
use statestore_tokio::{Error, StateStore, Status};
use tokio::task::JoinSet;

use crate::args::{Bench, Output};
use crate::connection::{self, unique_id};
use crate::failure::Failure;
use crate::output::{raw, say};
use crate::signals::Signals;
use plot::Answered;

/// Keys that take turns.
const KEYS: u64 = 100;

pub(crate) async fn run(args: Bench) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?.with_hangup()?;
    // What cannot be written is said before anything is measured.
    let drawing = args.plot.as_ref().map(|path| File::create(path).map(|file| (path, file)));
    let drawing = drawing.transpose().map_err(|error| Failure::path("--plot", &error))?;
    let store = connection::store(&args.common)?;
    let prefix = unique_id("bench");
    let mut seen = Seen::default();
    let (asked, measured) = tokio::select! {
        measured = measure(&args, &store, &prefix, &mut seen) => (None, measured),
        asked = signals.received() => (Some(asked), Ok(())),
    };
    if asked.is_some() && seen.is_begun {
        say("stopping; its keys are removed first, unless it is told so once more");
    }
    // Whatever has happened, keys are not left behind; but who has not answered is not asked a hundred times more.
    let is_silent = measured.as_ref().is_err_and(Error::may_be_applied);
    let is_free = !is_silent
        && store.status().current() == Status::Online
        && matches!(signals.unless_received(free(&store, &prefix)).await, Some(Ok(())));
    if seen.is_begun && !is_free {
        say(format_args!("keys that begin with {prefix}- may be left"));
    }
    measured.map_err(|error| Failure::request(error, &store))?;
    store.shutdown().await;
    if let Some(asked) = asked {
        return Ok(asked.code());
    }
    if let Some((path, mut file)) = drawing {
        let title = format!(
            "{} requests, half SET and half GET, {} in flight, values of {} bytes",
            seen.answered.len(),
            args.in_flight,
            args.value_size
        );
        let svg = plot::svg(&title, &seen.answered, seen.spent);
        file.write_all(svg.as_bytes()).map_err(|error| Failure::path(path.display(), &error))?;
    }
    let mut times: Vec<Duration> = seen.answered.iter().map(|one| one.took).collect();
    raw(table(&mut times, seen.spent, args.common.output).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What was measured so far.
#[derive(Default)]
struct Seen {
    /// Whether a key was set.
    is_begun: bool,
    answered: Vec<Answered>,
    spent: Duration,
}

async fn measure(
    args: &Bench,
    store: &StateStore,
    prefix: &str,
    seen: &mut Seen,
) -> Result<(), Error> {
    let value = Bytes::from(vec![b'v'; usize::try_from(args.value_size).unwrap_or(usize::MAX)]);
    // The first one waits for the connection, and tells early when there is no store.
    request(store.clone(), format!("{prefix}-0"), Some(value.clone())).await?;
    seen.is_begun = true;

    let (mut tasks, mut shown) = (JoinSet::new(), now());
    let start = now();
    for number in 0..args.requests {
        // Each key is set, then read.
        let (key, store) = (format!("{prefix}-{}", number / 2 % KEYS), store.clone());
        let value = number.is_multiple_of(2).then(|| value.clone());
        tasks.spawn(request(store, key, value));
        while tasks.len() as u64 >= args.in_flight {
            let took = next(&mut tasks).await.transpose()?;
            let at = start.elapsed_since();
            seen.answered.extend(took.map(|took| Answered { at, took }));
        }
        if shown.elapsed_since() > Duration::from_secs(1) {
            shown = now();
            say(format_args!("{} of {} requests", seen.answered.len(), args.requests));
        }
    }
    while let Some(time) = next(&mut tasks).await {
        seen.answered.push(Answered { at: start.elapsed_since(), took: time? });
    }
    seen.spent = start.elapsed_since();
    Ok(())
}

/// Deletes the keys, those included that are still on their way: requests are answered in their order.
async fn free(store: &StateStore, prefix: &str) -> Result<(), Error> {
    for number in 0..KEYS {
        store.del(format!("{prefix}-{number}")).await?;
    }
    Ok(())
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
