//! A message that a broker forwards at QoS 1: from the PUBLISH of the publisher to the PUBACK of
//! each subscriber.

use std::hint::black_box;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::BytesMut;
use statestore_broker::{Broker, Config, ConnectionId, Output, Wake};
use statestore_mqtt::packet::{
    Ack, Connect, Packet, Publish, Subscribe, Subscription, Subscriptions,
};
use statestore_mqtt::{Qos, Reason};

use super::Path;
use crate::packets::{TOPIC, request_bytes};

/// After the time in which the broker throttles new connections.
const NOW: Duration = Duration::from_secs(10);

/// A PUBLISH to one and to many subscribers.
#[must_use]
pub fn broker() -> Vec<Path> {
    vec![
        Path::new("broker/publish/1-subscriber", || publish_to(1)).messages(1).counted(),
        Path::new("broker/publish/100-subscribers", || publish_to(100))
            .messages(100)
            .counted_with(50),
    ]
}

fn publish_to(subscribers: usize) -> impl FnMut() {
    let mut clients = Clients::new();
    let publisher = clients.connect("publisher");
    for number in 0..subscribers {
        let id = clients.connect(&format!("subscriber-{number}"));
        clients.subscribe(id);
    }
    let publish = request_bytes();
    let expected = Received { publishes: subscribers, publisher_acknowledgements: 1 };
    assert_eq!(clients.publish(publisher, &publish), expected);
    move || assert_eq!(clients.publish(publisher, black_box(&publish)), expected)
}

/// Packets that the broker has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Received {
    publishes: usize,
    publisher_acknowledgements: usize,
}

struct Clients {
    broker: Broker,
    output: BytesMut,
    acknowledgement: BytesMut,
}

impl Clients {
    fn new() -> Self {
        let broker = Broker::new(Config::default());
        Self { broker, output: BytesMut::new(), acknowledgement: BytesMut::new() }
    }

    fn connect(&mut self, client_id: &str) -> ConnectionId {
        let id = self.broker.handle_accept(Duration::ZERO, None).expect("a connection is free");
        let connect = Packet::Connect(Connect {
            client_id,
            clean_start: true,
            keep_alive: 0,
            properties: (),
            will: None,
            user_name: None,
            password: None,
        });
        let mut bytes = BytesMut::new();
        connect.encode(&mut bytes).expect("a valid packet");
        self.broker.handle_bytes(Duration::ZERO, id, &bytes);
        self.expect(id, |packet| matches!(packet, Packet::ConnAck(_)));
        id
    }

    fn subscribe(&mut self, id: ConnectionId) {
        let filters = [Subscription::new(TOPIC, Qos::AtLeastOnce)];
        let subscriptions = Subscriptions::new(&filters);
        let subscribe =
            Packet::Subscribe(Subscribe { id: NonZeroU16::MIN, properties: (), subscriptions });
        let mut bytes = BytesMut::new();
        subscribe.encode(&mut bytes).expect("a valid packet");
        self.broker.handle_bytes(NOW, id, &bytes);
        self.expect(id, |packet| matches!(packet, Packet::SubAck(_)));
    }

    fn expect(&mut self, id: ConnectionId, is_expected: impl FnOnce(&Packet<'_>) -> bool) {
        self.output.clear();
        assert_eq!(self.broker.poll_output(NOW, id, &mut self.output), Output::Idle);
        let packet = Packet::decode(&self.output).expect("one packet");
        assert!(is_expected(&packet), "{packet:?}");
    }

    /// Publishes a packet, and acknowledges what the subscribers receive.
    fn publish(&mut self, publisher: ConnectionId, packet: &[u8]) -> Received {
        let mut received = Received::default();
        self.broker.handle_bytes(NOW, publisher, packet);
        while let Some(wake) = self.broker.poll_wake() {
            let Wake::Connection(id) = wake else { continue };
            self.output.clear();
            let _ = self.broker.poll_output(NOW, id, &mut self.output);
            match Packet::decode(&self.output) {
                Ok(Packet::Publish(Publish { id: Some(packet_id), .. })) => {
                    received.publishes += 1;
                    let ack = Ack { id: packet_id, reason: Reason::SUCCESS, properties: () };
                    self.acknowledgement.clear();
                    Packet::PubAck(ack).encode(&mut self.acknowledgement).expect("it is short");
                    self.broker.handle_bytes(NOW, id, &self.acknowledgement);
                }
                Ok(Packet::PubAck(_)) => received.publisher_acknowledgements += 1,
                _ => {}
            }
        }
        received
    }
}
