//! The client of this project, and its MQTT session without the state store machine.

use bytes::Bytes;
use statestore_client::{ClientLink, Options, SessionSocket};
use statestore_mqtt::Qos;
use statestore_mqtt::packet::Subscription;
use statestore_mqtt::property::Property;
use statestore_mqtt::session::{self, Event};

use super::{Bare, EXPIRY, Failure, IN_FLIGHT, Library, Question};

/// `statestore-client`.
pub struct Client;

impl Library for Client {
    const NAME: &'static str = "client";
    type Link = ClientLink;

    fn client(client_id: &str, port: u16) -> ClientLink {
        ClientLink::for_client(Options::new(client_id, "127.0.0.1", port))
    }

    fn store(client_id: &str, port: u16) -> ClientLink {
        ClientLink::for_store(Options::new(client_id, "127.0.0.1", port))
    }
}

/// A connection written directly on the MQTT session of `statestore-client`.
pub struct Session {
    question: Question,
    socket: SessionSocket,
}

impl Bare for Session {
    async fn connect(port: u16, question: Question) -> Result<Self, Failure> {
        let options = Options::new(question.client_id, "127.0.0.1", port).max_in_flight(IN_FLIGHT);
        let (mut socket, _) = SessionSocket::connect(&options).await?;
        let filter = Subscription::new(question.response_topic, Qos::AtLeastOnce);
        socket.session_mut().subscribe(&[filter], (), 0)?;
        while !matches!(socket.next_event().await?, Event::Subscribed { .. }) {}
        Ok(Self { question, socket })
    }

    fn send(&mut self, correlation: [u8; 16], payload: Bytes) -> Result<(), Failure> {
        let question = &self.question;
        let [first, second, third] =
            question.properties().map(|(name, value)| Property::User(name, value));
        let properties = [
            Property::MessageExpiry(EXPIRY),
            Property::ContentType("application/octet-stream"),
            Property::ResponseTopic(question.response_topic),
            Property::CorrelationData(&correlation),
            first,
            second,
            third,
        ];
        let publish = session::Publish {
            topic: question.topic,
            payload,
            qos: Qos::AtLeastOnce,
            retain: false,
            properties: &properties[..],
            token: 0,
        };
        self.socket.session_mut().publish(publish)?;
        Ok(())
    }

    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            if let Event::Message(message) = self.socket.next_event().await? {
                let correlation = message.properties().find(|property| match property {
                    Property::CorrelationData(data) => Some(data.to_vec()),
                    _ => None,
                });
                return Ok(correlation.unwrap_or_default());
            }
        }
    }
}
