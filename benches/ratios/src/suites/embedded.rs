//! A store in the embedded broker, against a store that is connected to mosquitto.

use statestore_client::{Options, connect};
use statestore_testkit::brokers::Mosquitto;
use statestore_tokio::StateStore;

use super::Suite;
use super::e2e::{Samples, gets};
use crate::bare::{self, Failure, Load, Session};
use crate::engines::broker;
use crate::race::Lap;
use crate::report::Report;
use crate::server_thread::{ServerThread, runtime};

pub(super) const SUITE: Suite = Suite {
    name: "embedded",
    about: "a GET with an embedded broker against mosquitto with a store: us per request, p50",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(mosquitto) = Mosquitto::start_with("embedded", "max_inflight_messages 0") else {
        eprintln!("embedded: skipped: mosquitto is not installed (apt-get install mosquitto)");
        return Ok(());
    };
    let embedded = broker(None)?;
    let port = mosquitto.port();
    let external = ServerThread::spawn(async move |sender, end| {
        let service = statestore_client::serve(Options::new("statestore", "127.0.0.1", port))?;
        service.wait_connected().await?;
        let _ = sender.send(port);
        let _ = end.await;
        service.shutdown().await;
        Ok(())
    })?;
    runtime()?.block_on(compare(embedded.port, external.port, report))?;
    Ok(())
}

/// Clients of one broker: a handle, and a client on the MQTT session alone.
struct Side {
    store: StateStore,
    load: Load<Session>,
}

impl Side {
    async fn new(port: u16) -> Result<Self, Failure> {
        let store = connect(Options::new("load", "127.0.0.1", port))?;
        store.set("k", vec![b'v'; 64]).await?;
        let mut load = Load::new(port, bare::GET).await?;
        load.run(1, 1).await?;
        Ok(Self { store, load })
    }
}

async fn compare(embedded: u16, external: u16, report: &mut Report<'_>) -> Result<(), Failure> {
    let mut sides = [Side::new(embedded).await?, Side::new(external).await?];
    let (rounds, requests) = if report.is_test() { (1, 100) } else { (15, 8_000) };
    for in_flight in [1, 64] {
        eprintln!("embedded/{in_flight} ({rounds} rounds)");
        let requests = if in_flight == 1 { requests / 4 } else { requests };
        let mut bare: [Samples; 2] = Default::default();
        let mut handle: [Samples; 2] = Default::default();
        for _ in 0..rounds {
            for ((side, bare), handle) in sides.iter_mut().zip(&mut bare).zip(&mut handle) {
                let lap = Lap::start();
                bare.add(side.load.run(requests, in_flight).await?, lap.time());
                let lap = Lap::start();
                handle.add(gets(&side.store, requests, in_flight).await?, lap.time());
            }
        }
        for (client, [embedded, external]) in [("bare", bare), ("handle", handle)] {
            let name = format!("embedded/{client}/{in_flight}-in-flight");
            report.compare(&format!("{name}/each"), &embedded.each, "mosquitto", &external.each)?;
            report.compare(&format!("{name}/p50"), &embedded.p50, "mosquitto", &external.p50)?;
        }
    }
    for side in sides {
        side.store.shutdown().await;
    }
    Ok(())
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
