//! Conformance of a store over rumqttc and mosquitto.

use std::sync::Arc;

use statestore_rumqttc::RumqttcLink;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::conformance::handles::{Stage, cases, run};
use statestore_testkit::conformance::suite::{EXTERNAL_BROKER, assert_conformant, every_case};
use statestore_tokio::StoreService;
use statestore_verify::over_client;

/// Maximum packet size of the broker, enough for all other cases.
const PACKET_BYTES_MAX: usize = 100_000;

struct Rumqttc(Mosquitto);

impl Stage for Rumqttc {
    type Link = RumqttcLink;
    const PACKET_BYTES_MAX: Option<usize> = Some(PACKET_BYTES_MAX);

    fn link(&self, client_id: &str) -> RumqttcLink {
        RumqttcLink::for_client(self.0.options(client_id))
    }

    fn store_link(&self, client_id: &str) -> RumqttcLink {
        RumqttcLink::for_store(self.0.options(client_id).read_mosquitto_log(true))
    }

    fn narrow_link(&self, client_id: &str) -> RumqttcLink {
        RumqttcLink::for_client(
            self.0.options(client_id).receive_maximum(5).max_in_flight(5).max_queued_packets(5),
        )
    }

    fn narrow_store_link(&self, client_id: &str) -> RumqttcLink {
        RumqttcLink::for_store(
            self.0.options(client_id).receive_maximum(5).max_in_flight(5).max_queued_packets(5),
        )
    }

    fn restart(&mut self) {
        assert!(self.0.restart(), "the broker starts again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_over_rumqttc_pass_the_conformance_suite() {
    for (name, case) in cases::<Rumqttc>() {
        let presence = "log_dest topic\nlog_type notice\nlog_type error";
        let lines = format!("{presence}\nmax_packet_size {PACKET_BYTES_MAX}");
        let Some(broker) = Mosquitto::start_with(name, &lines) else { return };
        run(name, case, &mut Rumqttc(broker)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn store_over_rumqttc_passes_the_conformance_suite() {
    let Some(broker) = Mosquitto::start("kit") else { return };
    let link = RumqttcLink::for_store(broker.options("statestore"));
    let service = StoreService::builder().spawn(link);
    service.wait_connected().await.expect("the store connects");
    let place = over_client::Broker(broker.options(""));
    assert_conformant(&every_case(Arc::new(place)).await, &EXTERNAL_BROKER);
    assert_eq!(service.stats().keys, 0);
}
