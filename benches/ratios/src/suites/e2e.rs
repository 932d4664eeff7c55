//! A client and a store over mosquitto, against an echo written directly on an MQTT library.
//!
//! The adapters of rumqttc and Paho are compared with an echo on the same library,
//! `statestore-client` with an echo on rumqttc. Both sides take turns.

use std::time::Duration;

use statestore_testkit::brokers::Mosquitto;
use statestore_tokio::{StateStore, StoreService};
use tokio::task::JoinSet;

use super::Suite;
#[cfg(feature = "paho")]
use crate::bare::{BarePaho, Paho};
use crate::bare::{BareRumqttc, Client, ECHO, Echo, Failure, Library, Load, Rumqttc};
use crate::race::{Lap, median};
use crate::report::Report;

pub(super) const SUITE: Suite = Suite {
    name: "e2e",
    about: "a GET over mosquitto against an echo on an MQTT library: us per request, p50",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(broker) = Mosquitto::start_with("e2e", "max_inflight_messages 0") else {
        eprintln!("e2e: skipped: mosquitto is not installed (apt-get install mosquitto)");
        return Ok(());
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let all = async {
        over::<Client, BareRumqttc>(broker.port(), report).await?;
        over::<Rumqttc, BareRumqttc>(broker.port(), report).await?;
        #[cfg(feature = "paho")]
        over::<Paho, BarePaho>(broker.port(), report).await?;
        Ok(())
    };
    runtime.block_on(all)
}

async fn over<L: Library, E: Echo>(port: u16, report: &mut Report<'_>) -> Result<(), Failure> {
    let service = StoreService::builder().spawn(L::store("statestore", port));
    service.wait_connected().await?;
    let store = StateStore::builder().spawn(L::client("load", port))?;
    store.set("k", vec![b'v'; 64]).await?;
    let echo = tokio::spawn(E::echo(port));
    let mut bare = Load::<E>::new(port, ECHO).await?;
    // The broker drops requests until the echo has subscribed.
    while tokio::time::timeout(Duration::from_millis(200), bare.run(1, 1)).await.is_err() {}

    let (rounds, requests) = if report.is_test() { (1, 100) } else { (15, 4_000) };
    for in_flight in [1, 64, 512] {
        let name = format!("e2e/{}/{in_flight}-in-flight", L::NAME);
        eprintln!("{name} ({rounds} rounds)");
        let requests = if in_flight == 1 { requests / 4 } else { requests };
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            let lap = Lap::start();
            let times = gets(&store, requests, in_flight).await?;
            ours.add(times, lap.time());
            let lap = Lap::start();
            let times = bare.run(requests, in_flight).await?;
            theirs.add(times, lap.time());
        }
        report.compare(&format!("{name}/each"), &ours.each, E::NAME, &theirs.each)?;
        report.compare(&format!("{name}/p50"), &ours.p50, E::NAME, &theirs.p50)?;
    }
    echo.abort();
    store.shutdown().await;
    service.shutdown().await;
    Ok(())
}

/// Runs the same closed loop through the handle, with one task for each request in flight.
pub(super) async fn gets(
    store: &StateStore,
    requests: usize,
    in_flight: usize,
) -> Result<Vec<Duration>, Failure> {
    let mut tasks = JoinSet::new();
    for task in 0..in_flight {
        let share = requests / in_flight + usize::from(task < requests % in_flight);
        let store = store.clone();
        tasks.spawn(async move {
            let mut times = Vec::with_capacity(share);
            for _ in 0..share {
                let lap = Lap::start();
                assert!(store.get("k").await?.is_some(), "the value exists");
                times.push(lap.time());
            }
            Ok::<_, statestore_tokio::Error>(times)
        });
    }
    let mut times = Vec::with_capacity(requests);
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    Ok(times)
}

/// Microseconds, round by round.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) each: Vec<f64>,
    pub(super) p50: Vec<f64>,
}

impl Samples {
    pub(super) fn add(&mut self, times: Vec<Duration>, spent: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        self.each.push(spent.as_secs_f64() * 1e6 / times.len() as f64);
        self.p50.push(median(times.iter().map(|time| time.as_secs_f64() * 1e6).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn both_sides_respond() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
