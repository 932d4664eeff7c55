//! The loopback as a transport.

use statestore_loopback::{Hub, HubLink};
use statestore_testkit::conformance::handles::{Stage, cases, run};

struct Loopback(Hub);

impl Stage for Loopback {
    type Link = HubLink;

    fn link(&self, client_id: &str) -> HubLink {
        self.0.link(client_id)
    }

    fn store_link(&self, client_id: &str) -> HubLink {
        self.0.store_link(client_id)
    }

    fn restart(&mut self) {
        self.0.stop();
        self.0.restart();
    }
}

#[tokio::test]
async fn handles_over_the_loopback_pass_every_case() {
    let all = cases::<Loopback>();
    assert!(all.len() >= 8);
    for (name, case) in all {
        run(name, case, &mut Loopback(Hub::new())).await;
    }
}
