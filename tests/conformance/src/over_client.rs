//! Connections to any MQTT 5 broker, with `statestore-client`.

use std::collections::VecDeque;

use bytes::Bytes;
use statestore_client::SessionSocket;
use statestore_mqtt::Qos;
use statestore_mqtt::packet::Subscription;
use statestore_mqtt::property::Property;
use statestore_mqtt::session::{Event, Publish};

pub use statestore_client::Options;

use crate::wire::{Connection, Connector, Lost, Message, Pending};

/// Maximum size of the messages that arrive while an acknowledgement is awaited.
const ARRIVED_BYTES_MAX: usize = 8 << 20;

/// The options of a broker. The suite replaces their client id.
#[derive(Clone, Debug)]
pub struct Broker(pub Options);

impl Connector for Broker {
    fn connect<'a>(&'a self, client_id: &'a str) -> Pending<'a, Box<dyn Connection>> {
        Box::pin(async move {
            let mut options = self.0.clone();
            options.client_id = client_id.to_owned();
            options.session_expiry = None;
            let (socket, _) = SessionSocket::connect(&options).await.map_err(Lost::because)?;
            let open = Open { socket, arrived: VecDeque::new(), arrived_bytes: 0, last_token: 0 };
            Ok(Box::new(open) as Box<dyn Connection>)
        })
    }
}

struct Open {
    socket: SessionSocket,
    /// Messages that arrived while an acknowledgement was awaited.
    arrived: VecDeque<Message>,
    arrived_bytes: usize,
    last_token: u64,
}

impl Open {
    const fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Waits for the next event other than a message.
    async fn event(&mut self) -> Result<Event, Lost> {
        loop {
            match self.socket.next_event().await.map_err(Lost::because)? {
                Event::Message(message) => {
                    let message = received(&message);
                    self.arrived_bytes += message.size();
                    self.arrived.push_back(message);
                    if self.arrived_bytes > ARRIVED_BYTES_MAX {
                        return Err(Lost::because("more than 8 MiB of unrequested messages"));
                    }
                }
                other => return Ok(other),
            }
        }
    }
}

impl Connection for Open {
    fn subscribe<'a>(&'a mut self, filter: &'a str) -> Pending<'a, u8> {
        Box::pin(async move {
            let token = self.token();
            let subscriptions = [Subscription::new(filter, Qos::AtLeastOnce)];
            let session = self.socket.session_mut();
            session.subscribe(&subscriptions, (), token).map_err(Lost::because)?;
            loop {
                match self.event().await? {
                    Event::Subscribed { token: answered, reasons, .. } if answered == token => {
                        return Ok(reasons.first().map_or(0x80, |reason| reason.0));
                    }
                    _ => {}
                }
            }
        })
    }

    fn publish<'a>(&'a mut self, message: &'a Message) -> Pending<'a, u8> {
        Box::pin(async move {
            let qos = match message.qos {
                0 => Qos::AtMostOnce,
                1 => Qos::AtLeastOnce,
                _ => Qos::ExactlyOnce,
            };
            let mut properties: Vec<_> = [
                message.message_expiry.map(Property::MessageExpiry),
                message.content_type.as_deref().map(Property::ContentType),
                message.response_topic.as_deref().map(Property::ResponseTopic),
                message.correlation_data.as_deref().map(Property::CorrelationData),
            ]
            .into_iter()
            .flatten()
            .collect();
            let user = message.user_properties.iter();
            properties.extend(user.map(|(name, value)| Property::User(name, value)));
            let token = self.token();
            let publish = Publish {
                topic: &message.topic,
                payload: message.payload.clone(),
                qos,
                retain: message.retain,
                properties: &properties[..],
                token,
            };
            self.socket.session_mut().publish(publish).map_err(Lost::because)?;
            if qos == Qos::AtMostOnce {
                self.socket.flush().await.map_err(Lost::because)?;
                return Ok(0);
            }
            loop {
                match self.event().await? {
                    Event::Published { token: answered, reason, .. } if answered == token => {
                        return Ok(reason.0);
                    }
                    _ => {}
                }
            }
        })
    }

    fn next(&mut self) -> Pending<'_, Message> {
        Box::pin(async move {
            if let Some(message) = self.arrived.pop_front() {
                self.arrived_bytes -= message.size();
                return Ok(message);
            }
            loop {
                let event = self.socket.next_event().await.map_err(Lost::because)?;
                if let Event::Message(message) = event {
                    return Ok(received(&message));
                }
            }
        })
    }

    fn disconnect(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.socket.close().await;
            Ok(())
        })
    }
}

fn received(message: &statestore_mqtt::session::Message) -> Message {
    let mut converted = Message {
        topic: message.topic().to_owned(),
        payload: message.payload_bytes(),
        qos: message.qos() as u8,
        retain: message.retain(),
        ..Message::default()
    };
    for property in &message.properties() {
        match property {
            Property::ResponseTopic(topic) => converted.response_topic = Some(topic.to_owned()),
            Property::CorrelationData(data) => {
                converted.correlation_data = Some(Bytes::copy_from_slice(data));
            }
            Property::ContentType(text) => converted.content_type = Some(text.to_owned()),
            Property::MessageExpiry(seconds) => converted.message_expiry = Some(seconds),
            Property::User(name, value) => {
                converted.user_properties.push((name.to_owned(), value.to_owned()));
            }
            _ => {}
        }
    }
    converted
}
