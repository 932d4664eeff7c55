//! Messages at QoS 1 through the MQTT session of a client.

use std::hint::black_box;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use statestore_mqtt::packet::{Ack, ConnAck, Packet};
use statestore_mqtt::session::{Event, Options, Publish, Session};
use statestore_mqtt::{Qos, Reason};

use super::Path;
use crate::packets::{PAYLOAD, PROPERTIES, TOPIC, request_bytes};

const NOW: Duration = Duration::from_secs(1);

struct Connected {
    session: Session,
    input: BytesMut,
    output: BytesMut,
}

impl Connected {
    fn new() -> Self {
        let mut session = Session::new(Options::new("line-3").keep_alive(0));
        session.handle_connected(NOW);
        let mut connected = Self { session, input: BytesMut::new(), output: BytesMut::new() };
        connected.write();
        let accepted = ConnAck { session_present: false, reason: Reason::SUCCESS, properties: () };
        Packet::ConnAck(accepted).encode(&mut connected.input).expect("a valid packet");
        connected.session.handle_bytes(NOW, &mut connected.input);
        assert!(matches!(connected.session.poll_event(), Some(Event::Connected(_))));
        connected
    }

    /// Takes the output of the session.
    fn write(&mut self) {
        self.output.clear();
        for chunk in self.session.chunks() {
            self.output.extend_from_slice(chunk);
        }
        self.session.written(NOW, self.output.len());
    }

    /// Publishes a message and acknowledges it. Returns whether the session reported that.
    fn publish(&mut self) -> bool {
        let publish = Publish {
            topic: TOPIC,
            payload: Bytes::from_static(black_box(PAYLOAD)),
            qos: Qos::AtLeastOnce,
            retain: false,
            properties: &PROPERTIES[..],
            token: 42,
        };
        self.session.publish(publish).expect("the queue has capacity");
        self.write();
        let Ok(Packet::Publish(statestore_mqtt::packet::Publish { id: Some(id), .. })) =
            Packet::decode(&self.output)
        else {
            return false;
        };
        let ack = Ack { id, reason: Reason::SUCCESS, properties: () };
        Packet::PubAck(ack).encode(&mut self.input).expect("it is short");
        self.session.handle_bytes(NOW, &mut self.input);
        matches!(self.session.poll_event(), Some(Event::Published { token: 42, .. }))
    }

    /// Receives a message. Returns the packet identifier that the session acknowledged.
    fn receive(&mut self, packet: &[u8]) -> Option<NonZeroU16> {
        self.input.extend_from_slice(packet);
        self.session.handle_bytes(NOW, &mut self.input);
        let event = self.session.poll_event();
        let Some(Event::Message(message)) = black_box(event) else { return None };
        assert_eq!(message.payload().len(), PAYLOAD.len());
        self.write();
        match Packet::decode(&self.output) {
            Ok(Packet::PubAck(ack)) => Some(ack.id),
            _ => None,
        }
    }
}

/// A message in each direction.
#[must_use]
pub fn session() -> Vec<Path> {
    vec![
        // From `publish` to the event that follows the PUBACK.
        Path::new("session/publish-out", || {
            let mut connected = Connected::new();
            assert!(connected.publish());
            move || assert!(connected.publish(), "the publish is acknowledged")
        })
        .messages(1)
        .counted(),
        // From the PUBLISH to the message and the PUBACK.
        Path::new("session/publish-in", || {
            let mut connected = Connected::new();
            let packet = request_bytes();
            let id = connected.receive(&packet);
            assert!(id.is_some());
            move || assert_eq!(connected.receive(black_box(&packet)), id)
        })
        .messages(1)
        .counted(),
    ]
}
