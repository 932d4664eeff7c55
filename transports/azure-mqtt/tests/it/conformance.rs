//! The promises of all handles, over sessions of the SDK.
//!
//! The SDK ends a session that the broker has lost, so a stage cuts the connections instead of
//! losing the sessions with the broker. `session_that_the_broker_has_lost_ends_the_handle` tests
//! the other case.

use std::collections::BTreeMap;
use std::sync::Mutex;

use statestore_azure_mqtt::SessionLink;
use statestore_sdk_tests::{RunningSession, settings};
use statestore_server::{Broker, EmbeddedLink, Options};
use statestore_testkit::conformance::handles::{Stage, cases, run};
use statestore_testkit::links::Either;

use crate::cable::Cable;

/// Sufficient for all cases except the one that exceeds it.
const PACKET_BYTES_MAX: u32 = 100_000;

/// An embedded broker, and a session for each client.
struct Sdk {
    broker: Broker,
    cable: Cable,
    sessions: Mutex<BTreeMap<String, RunningSession>>,
}

impl Sdk {
    /// A link over a new session, in place of the previous session of this client.
    fn client(&self, client_id: &str) -> SessionLink {
        let mut sessions = self.sessions.lock().expect("no panic");
        if let Some(previous) = sessions.remove(client_id) {
            let runtime = tokio::runtime::Handle::current();
            let _ = tokio::task::block_in_place(|| runtime.block_on(previous.exit()));
        }
        let settings = settings(client_id, "127.0.0.1", self.cable.port()).build();
        let session = RunningSession::with(settings.expect("settings"));
        let link = SessionLink::new(session.client.clone(), session.monitor.clone());
        sessions.insert(client_id.to_owned(), session);
        link.max_packet_size(PACKET_BYTES_MAX)
    }
}

impl Stage for Sdk {
    type Link = Either<SessionLink, EmbeddedLink>;
    const PACKET_BYTES_MAX: Option<usize> = Some(PACKET_BYTES_MAX as usize);

    fn link(&self, client_id: &str) -> Self::Link {
        Either::Client(self.client(client_id))
    }

    fn store_link(&self, _: &str) -> Self::Link {
        Either::Store(self.broker.store_link())
    }

    fn narrow_link(&self, client_id: &str) -> Self::Link {
        Either::Client(self.client(client_id).max_in_flight(5))
    }

    fn restart(&mut self) {
        self.cable.cut();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_over_a_session_pass_the_conformance_suite() {
    for (name, case) in cases::<Sdk>() {
        let broker = Broker::bind(Options::new(([127, 0, 0, 1], 0))).await.expect("a free port");
        let cable = Cable::to(broker.local_addr().port()).await;
        let mut stage = Sdk { broker, cable, sessions: Mutex::default() };
        println!("{name}");
        run(name, case, &mut stage).await;
    }
}
