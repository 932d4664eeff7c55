//! A client and a store in the embedded broker, against the same client with mosquitto and a store
//! on it.

use std::net::Ipv4Addr;

use statestore_client::{Options, connect};
use statestore_testkit::brokers::Mosquitto;
use statestore_tokio::StateStore;

use super::Suite;
use super::e2e::{Samples, gets};
use crate::aside::{Aside, runtime};
use crate::bare::{self, Failure, Load, Session};
use crate::race::Lap;
use crate::report::Report;

pub(super) const SUITE: Suite = Suite {
    name: "embedded",
    about: "a GET from the store in the broker, against mosquitto and a store beside it: us a request, and p50 in us",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(mosquitto) = Mosquitto::start_with("embedded", "max_inflight_messages 0") else {
        eprintln!("embedded: skipped, there is no mosquitto here (apt-get install mosquitto)");
        return Ok(());
    };
    let own = Aside::spawn(async |told, end| {
        let options = statestore_server::Options::new((Ipv4Addr::LOCALHOST, 0));
        let (broker, service) = statestore_server::serve(options).await?;
        service.wait_connected().await?;
        let _ = told.send(broker.local_addr().port());
        let _ = end.await;
        service.shutdown().await;
        broker.stop().await;
        Ok(())
    })?;
    let port = mosquitto.port();
    let beside = Aside::spawn(async move |told, end| {
        let service = statestore_client::serve(Options::new("statestore", "127.0.0.1", port))?;
        service.wait_connected().await?;
        let _ = told.send(port);
        let _ = end.await;
        service.shutdown().await;
        Ok(())
    })?;
    runtime()?.block_on(compare(own.port, beside.port, report))?;
    Ok(())
}

/// Clients of one broker: a handle, and one written directly on the MQTT session.
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

async fn compare(own: u16, beside: u16, report: &mut Report<'_>) -> Result<(), Failure> {
    let mut sides = [Side::new(own).await?, Side::new(beside).await?];
    let (rounds, requests) = if report.is_rehearsal() { (1, 100) } else { (15, 8_000) };
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
        for (client, [own, beside]) in [("bare", bare), ("handle", handle)] {
            let name = format!("embedded/{client}/{in_flight}-in-flight");
            report.compare(&format!("{name}/each"), &own.each, "mosquitto", &beside.each)?;
            report.compare(&format!("{name}/p50"), &own.p50, "mosquitto", &beside.p50)?;
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
    fn both_sides_answer() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
