//! Paho over a real broker as a transport.

use statestore_paho::PahoLink;
use statestore_tests::conformance::{Stage, cases, run};
use statestore_tests::mosquitto::Mosquitto;

/// Enough for every other case.
const PACKET_BYTES_MAX: usize = 100_000;

struct Paho(Mosquitto);

impl Stage for Paho {
    type Link = PahoLink;
    const PACKET_BYTES_MAX: Option<usize> = Some(PACKET_BYTES_MAX);

    fn link(&self, client_id: &str) -> PahoLink {
        PahoLink::for_client(self.0.options(client_id))
    }

    fn store_link(&self, client_id: &str) -> PahoLink {
        PahoLink::for_store(self.0.options(client_id).presence(true))
    }

    fn narrow_link(&self, client_id: &str) -> PahoLink {
        PahoLink::for_client(self.0.options(client_id).receive_maximum(5).in_flight(5).queue(5))
    }

    fn narrow_store_link(&self, client_id: &str) -> PahoLink {
        PahoLink::for_store(self.0.options(client_id).receive_maximum(5).in_flight(5).queue(5))
    }

    fn restart(&mut self) {
        assert!(self.0.restart(), "the broker starts again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paho_conforms() {
    for (name, case) in cases::<Paho>() {
        let presence = "log_dest topic\nlog_type notice\nlog_type error";
        let lines = format!("{presence}\nmax_packet_size {PACKET_BYTES_MAX}");
        let Some(broker) = Mosquitto::start_with(name, &lines) else { return };
        run(name, case, &mut Paho(broker)).await;
    }
}
