//! Eclipse Paho and its adapter. Messages are read from the stream, as in Paho's examples.

use bytes::Bytes;
use paho_mqtt::{
    AsyncClient, AsyncReceiver, ConnectOptions, ConnectOptionsBuilder, CreateOptionsBuilder,
    MQTT_VERSION_5, Message, MessageBuilder, Properties, PropertyCode as Code, QoS,
};
use statestore_paho::{Options, PahoLink, paho_mqtt};

use super::{Bare, CAPACITY, ECHO, EXPIRY, Echo, Failure, IN_FLIGHT, Library, Question, REQUEST};

/// `statestore-paho`.
pub struct Paho;

impl Library for Paho {
    const NAME: &'static str = "paho";
    type Link = PahoLink;

    fn client(client_id: &str, port: u16) -> PahoLink {
        PahoLink::for_client(Options::new(client_id, "127.0.0.1", port))
    }

    fn store(client_id: &str, port: u16) -> PahoLink {
        PahoLink::for_store(Options::new(client_id, "127.0.0.1", port))
    }
}

/// A connection written directly on Paho, with one subscription.
pub struct BarePaho {
    question: Question,
    client: AsyncClient,
    messages: AsyncReceiver<Option<Message>>,
}

impl BarePaho {
    async fn open(client_id: &str, port: u16, topic: &str) -> Result<Self, Failure> {
        let create = CreateOptionsBuilder::new()
            .server_uri(format!("mqtt://127.0.0.1:{port}"))
            .client_id(client_id)
            .mqtt_version(MQTT_VERSION_5)
            .persistence(None)
            .max_buffered_messages(i32::try_from(CAPACITY)?)
            .finalize();
        let mut client = AsyncClient::new(create)?;
        let messages = client.get_stream(None);
        client.connect(how()).await?;
        client.subscribe(topic, QoS::AtLeastOnce).await?;
        Ok(Self { question: ECHO, client, messages })
    }

    fn publish(&self, topic: &str, payload: &[u8], properties: Properties) -> Result<(), Failure> {
        let message = MessageBuilder::new()
            .topic(topic)
            .payload(payload)
            .qos(QoS::AtLeastOnce)
            .properties(properties)
            .finalize();
        self.client.try_publish(message)?;
        Ok(())
    }
}

fn how() -> ConnectOptions {
    let mut builder = ConnectOptionsBuilder::new_v5();
    builder.clean_start(true).max_inflight(IN_FLIGHT.into()).finalize()
}

impl Bare for BarePaho {
    async fn connect(port: u16, question: Question) -> Result<Self, Failure> {
        let connection = Self::open(question.client_id, port, question.response_topic).await?;
        Ok(Self { question, ..connection })
    }

    fn send(&mut self, correlation: [u8; 16], payload: Bytes) -> Result<(), Failure> {
        let question = self.question;
        let mut properties = Properties::new();
        properties.push_string(Code::ResponseTopic, question.response_topic)?;
        properties.push_binary(Code::CorrelationData, correlation)?;
        properties.push_string(Code::ContentType, "application/octet-stream")?;
        properties.push_u32(Code::MessageExpiryInterval, EXPIRY)?;
        for (name, value) in question.properties() {
            properties.push_string_pair(Code::UserProperty, name, value)?;
        }
        self.publish(question.topic, &payload, properties)
    }

    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        let echo = self.messages.recv().await?.ok_or("disconnected")?;
        Ok(echo.properties().get_binary(Code::CorrelationData).unwrap_or_default())
    }
}

impl Echo for BarePaho {
    const NAME: &'static str = "paho-echo";

    async fn echo(port: u16) -> Result<(), Failure> {
        let connection = Self::open("bare-echo", port, REQUEST).await?;
        loop {
            let request = connection.messages.recv().await?.ok_or("disconnected")?;
            let asked = request.properties();
            let topic = asked.get_string(Code::ResponseTopic).unwrap_or_default();
            let data = asked.get_binary(Code::CorrelationData).unwrap_or_default();
            let mut properties = Properties::new();
            properties.push_binary(Code::CorrelationData, data)?;
            properties.push_string_pair(Code::UserProperty, "__stat", "200")?;
            connection.publish(&topic, request.payload(), properties)?;
        }
    }
}
