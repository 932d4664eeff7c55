//! Conformance of the embedded store, for clients over the network and in the process.

use std::sync::Arc;
use std::time::Duration;

use statestore_client::ClientLink;
use statestore_proto::transport::{Incoming, Transmit};
use statestore_server::{Broker, EmbeddedLink};
use statestore_testkit::conformance::handles::{Stage, cases, run};
use statestore_testkit::conformance::suite::{assert_conformant, every_case};
use statestore_tokio::{AsIncoming, Connected, Link, LinkError, LinkEvent, StoreService};
use statestore_verify::over_client;

use crate::{at, options};

/// Restarts a broker from synchronous code, such as a stage of the suite.
fn restart(broker: &Broker) {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        runtime.block_on(async {
            // A connection of another test may use the port for a moment.
            let mut pauses = 100;
            while let Err(error) = broker.start().await {
                assert!(pauses > 0, "restart: {error:?}");
                pauses -= 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    });
}

/// Clients over the network.
struct Network(Broker);

impl Stage for Network {
    type Link = Either;

    fn link(&self, client_id: &str) -> Either {
        Either::Network(Box::new(ClientLink::for_client(at(&self.0, client_id))))
    }

    fn store_link(&self, _: &str) -> Either {
        Either::Process(self.0.store_link())
    }

    fn restart(&mut self) {
        restart(&self.0);
    }
}

/// Clients in the process.
struct Process(Broker);

impl Stage for Process {
    type Link = EmbeddedLink;

    fn link(&self, client_id: &str) -> EmbeddedLink {
        self.0.link(client_id)
    }

    fn store_link(&self, _: &str) -> EmbeddedLink {
        self.0.store_link()
    }

    fn restart(&mut self) {
        restart(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_over_the_network_pass_the_conformance_suite() {
    for (name, case) in cases::<Network>() {
        let broker = Broker::bind(options()).await.expect("bind");
        run(name, case, &mut Network(broker)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_in_the_process_pass_the_conformance_suite() {
    for (name, case) in cases::<Process>() {
        let broker = Broker::bind(options()).await.expect("bind");
        run(name, case, &mut Process(broker)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_store_passes_the_conformance_suite() {
    let broker = Broker::bind(options()).await.expect("bind");
    let service = StoreService::builder().spawn(broker.store_link());
    service.wait_connected().await.expect("the store connects");
    let target = over_client::Broker(at(&broker, ""));
    assert_conformant(&every_case(Arc::new(target)).await, &[]);
    assert_eq!(service.stats().keys, 0);
}

/// Both kinds of links, because a stage has one link type.
enum Either {
    Network(Box<ClientLink>),
    Process(EmbeddedLink),
}

enum Message {
    Network(<ClientLink as Link>::Message),
    Process(statestore_server::Message),
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        match self {
            Self::Network(message) => message.as_incoming(),
            Self::Process(message) => message.as_incoming(),
        }
    }
}

impl Link for Either {
    type Message = Message;

    fn client_id(&self) -> &str {
        match self {
            Self::Network(link) => link.client_id(),
            Self::Process(link) => link.client_id(),
        }
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        match self {
            Self::Network(link) => link.connect().await,
            Self::Process(link) => link.connect().await,
        }
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        match self {
            Self::Network(link) => link.try_send(transmit),
            Self::Process(link) => link.try_send(transmit),
        }
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        Ok(match self {
            Self::Network(link) => map(link.next_event(messages).await?, Message::Network),
            Self::Process(link) => map(link.next_event(messages).await?, Message::Process),
        })
    }

    async fn disconnect(&mut self) {
        match self {
            Self::Network(link) => link.disconnect().await,
            Self::Process(link) => link.disconnect().await,
        }
    }
}

fn map<M, N>(event: LinkEvent<M>, wrap: impl FnOnce(M) -> N) -> LinkEvent<N> {
    match event {
        LinkEvent::Subscribed(token, reason) => LinkEvent::Subscribed(token, reason),
        LinkEvent::Published(token, reason) => LinkEvent::Published(token, reason),
        LinkEvent::Message(message) => LinkEvent::Message(wrap(message)),
        LinkEvent::ClientGone(client_id) => LinkEvent::ClientGone(client_id),
        LinkEvent::Writable => LinkEvent::Writable,
    }
}
