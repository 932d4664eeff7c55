//! One run: a cluster, its load, a fault, and the result of the checker.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use statestore_client::Options;
use statestore_models::history::{History, Outcome, Reported};
use statestore_proto::hlc::Hlc;
use tokio::time::{Instant, sleep};

use crate::faults::catalog::{Fault, inject};
use crate::faults::cluster::{Cluster, Form};
use crate::faults::load::{self, GUARDED, KEPT, Load, PASSING};
use crate::faults::recorder::Recorder;
use crate::faults::store::Store;
use crate::output::print_line;

/// Time in which clients must be served again once the fault has ended.
const REPAIRED: Duration = Duration::from_secs(20);

/// Maximum number of printed violations per run.
pub(crate) const COMPLAINTS_MAX: usize = 12;

/// Maximum number of printed lines of each store of a failed run.
const LINES_MAX: usize = 30;

#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) seed: u64,
    /// True if the output of stores is printed for a run without violations.
    pub(crate) logs: bool,
}

/// Result of a run.
pub(crate) struct Report {
    pub(crate) requests: usize,
    pub(crate) unanswered: usize,
    /// The longest time without a reply.
    pub(crate) silence: Duration,
    /// Time from a fault to the first reply to a later request; the maximum over several faults.
    pub(crate) served: Option<Duration>,
    pub(crate) complaints: Vec<String>,
}

/// Runs one fault. Prints a note and returns `None` if etcd or mosquitto is missing.
pub(crate) async fn run(
    program: &Path,
    fault: &Fault,
    form: Form,
    settings: Settings,
) -> Result<Option<Report>, String> {
    let Settings { lease, seed, logs } = settings;
    let mut rng = Rng::with_seed(seed);
    let Some(mut cluster) = Cluster::start(program, form, lease).await? else { return Ok(None) };
    let recorder = Recorder::new();
    let begun = Instant::now();
    let mut load = Load::start(&recorder, |id| cluster.options(id), &mut rng)?;
    let (faults, ended) = match faults(fault, &mut cluster, &mut load, &recorder, &mut rng).await {
        Ok(faults) => (faults, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut complaints: Vec<String> = ended.into_iter().collect();
    let until = recorder.now();
    complaints.extend(load.stop().await.err());
    complaints.extend(settle(cluster.options("reader"), &load, &recorder).await);
    complaints.extend(cluster.complaints());
    complaints.extend(recorder.check());
    if logs || (!complaints.is_empty() && form != Form::Twin) {
        print_line(output(&cluster.stores, begun));
    }
    complaints.truncate(COMPLAINTS_MAX);
    Ok(Some(recorder.with_history(|history| Report {
        requests: history.operations.len(),
        unanswered: unanswered(history),
        silence: silence(history, until),
        served: faults.iter().filter_map(|at| served(history, *at)).max(),
        complaints,
    })))
}

/// Injects the faults at random moments, with load before and after each. Returns the times of the
/// faults.
async fn faults(
    fault: &Fault,
    cluster: &mut Cluster,
    load: &mut Load,
    recorder: &Recorder,
    rng: &mut Rng,
) -> Result<Vec<Duration>, String> {
    let mut faults = Vec::new();
    is_served(recorder, recorder.now()).await?;
    for step in fault.steps {
        sleep(Duration::from_millis(rng.u64(700..2_000))).await;
        faults.push(inject(*step, cluster, load, recorder, rng).await?);
        is_served(recorder, recorder.now()).await?;
    }
    sleep(Duration::from_millis(1_000)).await;
    Ok(faults)
}

/// Waits for a reply to a request that was sent after this time.
pub(crate) async fn is_served(recorder: &Recorder, after: Duration) -> Result<(), String> {
    let begun = Instant::now();
    while recorder.with_history(|history| served(history, after)).is_none() {
        if begun.elapsed() > REPAIRED {
            return Err(format!("no client was served within {REPAIRED:?} after the fault"));
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Reads every key after the last write, and waits until the watches have reported the last change.
pub(crate) async fn settle(options: Options, load: &Load, recorder: &Recorder) -> Vec<String> {
    let mut complaints = Vec::new();
    let store = match load::connect(options) {
        Ok(store) => store,
        Err(error) => return vec![error.to_string()],
    };
    let fresh: BTreeSet<String> = recorder.with_history(|history| {
        let keys = history.operations.iter().map(|operation| &operation.key);
        let fresh = keys.filter(|key| key.starts_with(b"fresh"));
        fresh.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    });
    let others = KEPT.into_iter().chain(PASSING).chain([GUARDED]).map(str::to_owned);
    for key in fresh.into_iter().chain(others) {
        let begun = Instant::now();
        while let Outcome::Unknown | Outcome::Refused =
            load::get(&store, recorder, "reader", &key).await
        {
            if begun.elapsed() > REPAIRED {
                complaints.push(format!("{key} cannot be read after the repair"));
                return complaints;
            }
        }
    }
    store.shutdown().await;
    let begun = Instant::now();
    while !(load.watches() && recorder.with_history(are_live)) {
        if begun.elapsed() > REPAIRED {
            complaints.push(format!("a watch is not live {REPAIRED:?} after the repair"));
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    // Notifications may still be in transit.
    sleep(Duration::from_millis(300)).await;
    complaints
}

/// Number of requests without an outcome.
pub(crate) fn unanswered(history: &History<Hlc>) -> usize {
    history.operations.iter().filter(|operation| operation.outcome == Outcome::Unknown).count()
}

fn are_live(history: &History<Hlc>) -> bool {
    history.watches.iter().all(|watch| {
        let state = watch.events.iter().rev().find_map(|(_, reported)| match reported {
            Reported::Live => Some(true),
            Reported::Gap | Reported::Ended => Some(false),
            Reported::Changed(..) | Reported::Gone(_) => None,
        });
        state == Some(true)
    })
}

/// The longest time without a reply, until this time.
fn silence(history: &History<Hlc>, until: Duration) -> Duration {
    let answered = history
        .operations
        .iter()
        .filter(|operation| !matches!(operation.outcome, Outcome::Unknown | Outcome::Refused));
    let mut times: Vec<_> = answered
        .filter_map(|operation| operation.completed)
        .map(|completed| Duration::from_millis(completed.at))
        .collect();
    times.retain(|time| *time < until);
    times.push(until);
    times.sort();
    let pairs = times.iter().zip(times.iter().skip(1));
    pairs.map(|(from, to)| to.saturating_sub(*from)).max().unwrap_or_default()
}

/// Time until the first reply to a request that was submitted after this time.
fn served(history: &History<Hlc>, at: Duration) -> Option<Duration> {
    let answered = history.operations.iter().filter(|operation| {
        Duration::from_millis(operation.invoked.at) > at
            && !matches!(operation.outcome, Outcome::Unknown | Outcome::Refused)
    });
    let first = answered.filter_map(|operation| operation.completed).min()?;
    Some(Duration::from_millis(first.at).saturating_sub(at))
}

/// The last lines of the stores' output.
pub(crate) fn output(stores: &[Store], begun: Instant) -> String {
    let mut text = String::new();
    for (number, store) in stores.iter().enumerate() {
        let lines = store.output();
        for line in lines.iter().skip(lines.len().saturating_sub(LINES_MAX)) {
            let at = line.at.saturating_duration_since(begun).as_secs_f64();
            let _ = writeln!(text, "    {at:7.3} store {number}: {}", line.text);
        }
    }
    text
}
