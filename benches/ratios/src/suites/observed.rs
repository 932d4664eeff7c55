//! The cost of observing a store: traffic counters, capture, and explained refusals.

use statestore_loopback::Hub;
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_tokio::service::{ServiceBuilder, StoreConfig, capture};
use statestore_tokio::{StateStore, StoreService};

use super::Suite;
use super::e2e::{Samples, gets};
use crate::bare::Failure;
use crate::race::Lap;
use crate::report::Report;
use crate::server_thread::runtime;

pub(super) const SUITE: Suite = Suite {
    name: "observed",
    about: "traffic counters, capture and explained refusals, against none of them: us per request",
    run,
};

/// Maximum size of capture frames that wait, in bytes: more than one lap needs.
const WAITING_MAX: u32 = 256 << 20;

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    runtime()?.block_on(compare(report))
}

/// A store and a client in one process, without a network.
struct Side {
    name: &'static str,
    service: StoreService,
    store: StateStore,
}

impl Side {
    async fn new(
        name: &'static str,
        of: impl FnOnce(ServiceBuilder) -> ServiceBuilder,
    ) -> Result<Self, Failure> {
        let hub = Hub::new();
        let service = of(StoreService::builder()).spawn(hub.store_link("statestore"));
        service.wait_connected().await?;
        let store = StateStore::builder().spawn(hub.link("load"))?;
        store.set("k", vec![b'v'; 64]).await?;
        let token = FencingToken::new("1:0:load".parse::<Hlc>()?);
        store.set("fenced", "v").fencing_token(token).await?;
        Ok(Self { name, service, store })
    }

    /// Sends SETs without the required fencing token.
    async fn refusals(&self, requests: usize) -> Result<Vec<std::time::Duration>, Failure> {
        let mut times = Vec::with_capacity(requests);
        for _ in 0..requests {
            let lap = Lap::start();
            assert!(self.store.set("fenced", "w").await.is_err(), "the key is fenced");
            times.push(lap.time());
        }
        Ok(times)
    }
}

async fn compare(report: &mut Report<'_>) -> Result<(), Failure> {
    let (captured, mut reader) = capture(WAITING_MAX);
    // Discards the frames that would be written to a file.
    std::thread::spawn(move || while reader.blocking_recv().is_some() {});
    let explaining = StoreConfig::new(1).explain(true);
    let sides = [
        Side::new("nothing", |service| service).await?,
        Side::new("counted", |service| service.traffic(true)).await?,
        Side::new("captured", |service| service.capture(captured)).await?,
        Side::new("explained", |service| {
            service.config(explaining).unwrap_or_else(|_| StoreService::builder())
        })
        .await?,
    ];
    let (rounds, requests) = if report.is_test() { (1, 100) } else { (31, 8_000) };
    for (what, in_flight) in [("get", 1), ("get", 64), ("refused", 1)] {
        eprintln!("observed/{what}/{in_flight} ({rounds} rounds)");
        let requests = if in_flight == 1 { requests / 4 } else { requests };
        let mut samples: [Samples; 4] = Default::default();
        for _ in 0..rounds {
            for (side, samples) in sides.iter().zip(&mut samples) {
                let lap = Lap::start();
                let times = match what {
                    "get" => gets(&side.store, requests, in_flight).await?,
                    _ => side.refusals(requests).await?,
                };
                samples.add(times, lap.time());
            }
        }
        let [nothing, others @ ..] = &samples;
        for (side, samples) in sides.iter().skip(1).zip(others) {
            let name = format!("observed/{}/{what}/{in_flight}-in-flight", side.name);
            report.compare(&name, &samples.each, "nothing", &nothing.each)?;
        }
    }
    for side in sides {
        side.store.shutdown().await;
        side.service.shutdown().await;
    }
    Ok(())
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
