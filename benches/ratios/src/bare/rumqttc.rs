//! rumqttc and its adapter.

use bytes::Bytes;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PublishProperties};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use statestore_rumqttc::{Options, RumqttcLink};

use super::{Bare, CAPACITY, ECHO, EXPIRY, Echo, Failure, IN_FLIGHT, Library, Question, REQUEST};

/// `statestore-rumqttc`.
pub struct Rumqttc;

impl Library for Rumqttc {
    const NAME: &'static str = "rumqttc";
    type Link = RumqttcLink;

    fn client(client_id: &str, port: u16) -> RumqttcLink {
        RumqttcLink::for_client(Options::new(client_id, "127.0.0.1", port))
    }

    fn store(client_id: &str, port: u16) -> RumqttcLink {
        RumqttcLink::for_store(Options::new(client_id, "127.0.0.1", port))
    }
}

/// A connection written directly on rumqttc, with one subscription.
pub struct BareRumqttc {
    question: Question,
    client: AsyncClient,
    events: EventLoop,
}

impl BareRumqttc {
    fn open(client_id: &str, port: u16, topic: &str) -> Result<Self, Failure> {
        let mut options = MqttOptions::new(client_id, "127.0.0.1", port);
        let mut network = options.network_options();
        network.set_tcp_nodelay(true);
        options.set_network_options(network).set_outgoing_inflight_upper_limit(IN_FLIGHT);
        let (client, events) = AsyncClient::new(options, CAPACITY);
        client.try_subscribe(topic, QoS::AtLeastOnce)?;
        Ok(Self { question: ECHO, client, events })
    }

    async fn publish(&mut self) -> Result<(Bytes, PublishProperties), Failure> {
        loop {
            if let Event::Incoming(Packet::Publish(publish)) = self.events.poll().await? {
                return Ok((publish.payload, publish.properties.unwrap_or_default()));
            }
        }
    }
}

impl Bare for BareRumqttc {
    async fn connect(port: u16, question: Question) -> Result<Self, Failure> {
        let mut connection = Self::open(question.client_id, port, question.response_topic)?;
        connection.question = question;
        while !matches!(connection.events.poll().await?, Event::Incoming(Packet::SubAck(_))) {}
        Ok(connection)
    }

    fn send(&mut self, correlation: [u8; 16], payload: Bytes) -> Result<(), Failure> {
        let question = &self.question;
        let properties = PublishProperties {
            response_topic: Some(question.response_topic.into()),
            correlation_data: Some(Bytes::copy_from_slice(&correlation)),
            content_type: Some("application/octet-stream".into()),
            message_expiry_interval: Some(EXPIRY),
            user_properties: question
                .properties()
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            ..PublishProperties::default()
        };
        let (client, qos) = (&self.client, QoS::AtLeastOnce);
        client.try_publish_with_properties(question.topic, qos, false, payload, properties)?;
        Ok(())
    }

    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        let (_, properties) = self.publish().await?;
        Ok(properties.correlation_data.unwrap_or_default().to_vec())
    }
}

impl Echo for BareRumqttc {
    const NAME: &'static str = "rumqttc-echo";

    async fn echo(port: u16) -> Result<(), Failure> {
        let mut connection = Self::open("bare-echo", port, REQUEST)?;
        loop {
            let (payload, asked) = connection.publish().await?;
            let topic = asked.response_topic.unwrap_or_default();
            let properties = PublishProperties {
                correlation_data: asked.correlation_data,
                user_properties: vec![("__stat".into(), "200".into())],
                ..PublishProperties::default()
            };
            connection.client.try_publish_with_properties(
                topic,
                QoS::AtLeastOnce,
                false,
                payload,
                properties,
            )?;
        }
    }
}
