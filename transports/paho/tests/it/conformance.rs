//! Paho over a real broker as a transport.

use std::sync::Arc;

use statestore_paho::PahoLink;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::conformance::handles::{Stage, cases, run};
use statestore_testkit::conformance::suite::{EXTERNAL_BROKER, assert_conformant, every_case};
use statestore_tokio::StoreService;
use statestore_verify::over_client;

/// Sufficient for all cases except the one that exceeds it.
const PACKET_BYTES_MAX: usize = 100_000;

struct Paho(Mosquitto);

impl Stage for Paho {
    type Link = PahoLink;
    const PACKET_BYTES_MAX: Option<usize> = Some(PACKET_BYTES_MAX);

    fn link(&self, client_id: &str) -> PahoLink {
        PahoLink::for_client(self.0.options(client_id))
    }

    fn store_link(&self, client_id: &str) -> PahoLink {
        PahoLink::for_store(self.0.options(client_id).read_mosquitto_log(true))
    }

    fn narrow_link(&self, client_id: &str) -> PahoLink {
        PahoLink::for_client(
            self.0.options(client_id).receive_maximum(5).max_in_flight(5).max_queued_packets(5),
        )
    }

    fn narrow_store_link(&self, client_id: &str) -> PahoLink {
        PahoLink::for_store(
            self.0.options(client_id).receive_maximum(5).max_in_flight(5).max_queued_packets(5),
        )
    }

    fn restart(&mut self) {
        assert!(self.0.restart(), "the broker restarts");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_over_paho_pass_the_conformance_suite() {
    for (name, case) in cases::<Paho>() {
        let presence = "log_dest topic\nlog_type notice\nlog_type error";
        let lines = format!("{presence}\nmax_packet_size {PACKET_BYTES_MAX}");
        let Some(broker) = Mosquitto::start_with(name, &lines) else { return };
        run(name, case, &mut Paho(broker)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn store_over_paho_passes_the_conformance_suite() {
    let Some(broker) = Mosquitto::start("kit") else { return };
    let service = StoreService::builder().spawn(PahoLink::for_store(broker.options("statestore")));
    service.wait_connected().await.expect("the store connects");
    let place = over_client::Broker(broker.options(""));
    assert_conformant(&every_case(Arc::new(place)).await, &EXTERNAL_BROKER);
    assert_eq!(service.stats().keys, 0);
}
