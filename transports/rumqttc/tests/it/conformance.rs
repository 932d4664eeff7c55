//! rumqttc over a real broker as a transport.

use statestore_rumqttc::RumqttcLink;
use statestore_tests::conformance::{Stage, cases, run};

use statestore_tests::mosquitto::Mosquitto;

use crate::Connects;

struct Rumqttc(Mosquitto);

impl Stage for Rumqttc {
    type Link = RumqttcLink;

    fn link(&self, client_id: &str) -> RumqttcLink {
        RumqttcLink::for_client(self.0.options(client_id))
    }

    fn store_link(&self, client_id: &str) -> RumqttcLink {
        RumqttcLink::for_store(self.0.options(client_id).presence(true))
    }

    fn restart(&mut self) {
        assert!(self.0.restart(), "the broker starts again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rumqttc_conforms() {
    for (name, case) in cases::<Rumqttc>() {
        let presence = "log_dest topic\nlog_type notice\nlog_type error";
        let Some(broker) = Mosquitto::start_with(name, presence) else { return };
        run(name, case, &mut Rumqttc(broker)).await;
    }
}
