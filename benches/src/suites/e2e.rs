//! A client and a store over mosquitto, against a bare echo written directly on the same MQTT library.

use std::error::Error;
use std::time::Duration;

use statestore_rumqttc::{Options, connect, serve};
use statestore_tests::mosquitto::Mosquitto;
use statestore_tokio::StateStore;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::Suite;
use crate::bare;
use crate::race::{Lap, median};
use crate::report::Report;

pub(super) const SUITE: Suite = Suite {
    name: "e2e",
    about: "a GET over mosquitto against a bare echo on the same library: us a request, and p50 in us",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Box<dyn Error>> {
    let Some(broker) = Mosquitto::start_with("e2e", "max_inflight_messages 0") else {
        eprintln!("e2e: skipped, there is no mosquitto here (apt-get install mosquitto)");
        return Ok(());
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(over_rumqttc(broker.port(), report))
}

async fn over_rumqttc(port: u16, report: &mut Report<'_>) -> Result<(), Box<dyn Error>> {
    let service = serve(Options::new("statestore", "127.0.0.1", port));
    service.connected().await?;
    let store = connect(Options::new("load", "127.0.0.1", port))?;
    store.set("k", vec![b'v'; 64]).await?;
    let (ready, is_ready) = oneshot::channel();
    let echo = tokio::spawn(bare::echo(port, ready));
    // A request that nobody hears is lost, and would be waited for without end.
    is_ready.await?;
    let mut bare = bare::Load::new(port).await?;
    bare.run(1, 1).await?;

    let (rounds, requests) = if report.is_rehearsal() { (1, 100) } else { (15, 4_000) };
    for in_flight in [1, 64, 512] {
        eprintln!("e2e/rumqttc/{in_flight} ({rounds} rounds)");
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
        let name = format!("e2e/rumqttc/{in_flight}-in-flight");
        report.line(&format!("{name}/each"), ours.each(), "bare-echo", theirs.each())?;
        report.line(&format!("{name}/p50"), ours.p50(), "bare-echo", theirs.p50())?;
    }
    echo.abort();
    store.shutdown().await;
    service.shutdown().await;
    Ok(())
}

/// The same closed loop through the handle: as many tasks as may be in flight.
pub(super) async fn gets(
    store: &StateStore,
    requests: usize,
    in_flight: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut tasks = JoinSet::new();
    for task in 0..in_flight {
        let share = requests / in_flight + usize::from(task < requests % in_flight);
        let store = store.clone();
        tasks.spawn(async move {
            let mut times = Vec::with_capacity(share);
            for _ in 0..share {
                let lap = Lap::start();
                assert!(store.get("k").await?.is_some(), "the value is there");
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
    each: Vec<f64>,
    p50: Vec<f64>,
}

impl Samples {
    pub(super) fn add(&mut self, times: Vec<Duration>, spent: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        self.each.push(spent.as_secs_f64() * 1e6 / times.len() as f64);
        self.p50.push(median(times.iter().map(|time| time.as_secs_f64() * 1e6).collect()));
    }

    pub(super) fn each(&self) -> f64 {
        median(self.each.clone())
    }

    pub(super) fn p50(&self) -> f64 {
        median(self.p50.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn both_sides_answer() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
