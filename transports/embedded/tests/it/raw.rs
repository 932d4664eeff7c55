//! A client that speaks without a handle.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, LastWill, Packet, PubAckReason, Publish, PublishProperties, SubscribeReasonCode,
};
use rumqttc::v5::{AsyncClient, ConnectionError, Event, EventLoop, MqttOptions};
use statestore_embedded::Broker;
use statestore_proto::topic::REQUEST;

/// A connection; what arrives is read only while something is awaited.
pub(crate) struct Raw {
    pub(crate) id: String,
    client: AsyncClient,
    event_loop: EventLoop,
    /// Everything that arrived and was no answer.
    pub(crate) heard: Vec<Publish>,
}

impl Raw {
    /// A clean session, subscribed to its own answers and to nothing else.
    pub(crate) async fn connect(broker: &Broker, id: &str) -> Self {
        let (mut raw, _) = Self::open(broker, id, |_| {}).await.expect("a connection");
        raw.subscribe(&format!("clients/{id}/answers")).await;
        raw
    }

    /// With other options, and subscribed to nothing.
    pub(crate) async fn open(
        broker: &Broker,
        id: &str,
        change: impl FnOnce(&mut MqttOptions),
    ) -> Result<(Self, ConnAck), ConnectionError> {
        let mut options = MqttOptions::new(id, "127.0.0.1", broker.local_addr().port());
        let mut network = options.network_options();
        network.set_tcp_nodelay(true);
        options.set_network_options(network).set_max_packet_size(Some(2 << 20));
        options.set_outgoing_inflight_upper_limit(1_024);
        change(&mut options);
        let (client, mut event_loop) = AsyncClient::new(options, 4_096);
        loop {
            if let Event::Incoming(Packet::ConnAck(connack)) = event_loop.poll().await? {
                let heard = Vec::new();
                return Ok((Self { id: id.into(), client, event_loop, heard }, connack));
            }
        }
    }

    pub(crate) fn will(topic: &str, payload: &'static [u8]) -> LastWill {
        LastWill::new(topic, payload, QoS::AtLeastOnce, false, None)
    }

    /// The next packet that is no message.
    async fn packet(&mut self) -> Result<Packet, ConnectionError> {
        loop {
            match self.event_loop.poll().await? {
                Event::Incoming(Packet::Publish(message)) => self.heard.push(message),
                Event::Incoming(packet) => return Ok(packet),
                Event::Outgoing(_) => {}
            }
        }
    }

    pub(crate) async fn subscribe(&mut self, filter: &str) -> SubscribeReasonCode {
        self.client.try_subscribe(filter, QoS::AtLeastOnce).expect("room");
        loop {
            if let Packet::SubAck(suback) = self.packet().await.expect("a connection") {
                return suback.return_codes[0];
            }
        }
    }

    /// Publishes and gives the reason of the PUBACK.
    pub(crate) async fn publish(
        &mut self,
        topic: &str,
        retain: bool,
        payload: impl Into<Bytes>,
    ) -> PubAckReason {
        let properties = PublishProperties::default();
        let (client, qos) = (&self.client, QoS::AtLeastOnce);
        client
            .try_publish_with_properties(topic, qos, retain, payload.into(), properties)
            .expect("room");
        loop {
            if let Packet::PubAck(puback) = self.packet().await.expect("a connection") {
                return puback.reason;
            }
        }
    }

    /// A request as deployed clients send it, naming itself.
    pub(crate) fn request(&self, words: &[&str]) -> Publish {
        self.request_as(words, &self.id, &format!("clients/{}/answers", self.id))
    }

    /// The same with another name and another response topic.
    pub(crate) fn request_as(&self, words: &[&str], name: &str, response_topic: &str) -> Publish {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let properties = PublishProperties {
            response_topic: Some(response_topic.into()),
            message_expiry_interval: Some(10),
            user_properties: vec![
                pair("__ts", "001696374425000:00000:device"),
                pair("__srcId", name),
                pair("__protVer", "1.0"),
            ],
            ..PublishProperties::default()
        };
        Publish::new(REQUEST, QoS::AtLeastOnce, resp(words), Some(properties))
    }

    /// Sends a request and does not wait.
    pub(crate) fn send(&self, request: Publish) -> Bytes {
        // A repeated one would be a repeated request, also on another connection.
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let asked = ASKED.fetch_add(1, Ordering::Relaxed);
        let correlation = Bytes::copy_from_slice(&u128::from(asked).to_be_bytes());
        let mut properties = request.properties.expect("properties");
        properties.correlation_data.get_or_insert_with(|| correlation.clone());
        let sent = self.client.try_publish_with_properties(
            String::from_utf8(request.topic.to_vec()).expect("a topic"),
            QoS::AtLeastOnce,
            false,
            request.payload,
            properties,
        );
        sent.expect("room");
        correlation
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn answer(&mut self, request: Publish) -> Publish {
        let asked = request.properties.as_ref().and_then(|it| it.correlation_data.clone());
        let sent = self.send(request);
        self.answer_to(&asked.unwrap_or(sent)).await
    }

    /// Waits for one answer.
    pub(crate) async fn answer_to(&mut self, correlation: &Bytes) -> Publish {
        loop {
            let found = self.heard.iter().position(|message| {
                let properties = message.properties.as_ref();
                properties.and_then(|it| it.correlation_data.as_ref()) == Some(correlation)
            });
            if let Some(at) = found {
                return self.heard.remove(at);
            }
            self.message().await;
        }
    }

    /// Asks with these words and gives the answer's payload.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Bytes {
        let request = self.request(words);
        self.answer(request).await.payload
    }

    /// Waits until one more message was heard.
    pub(crate) async fn message(&mut self) {
        loop {
            let event = self.event_loop.poll().await.expect("a connection");
            if let Event::Incoming(Packet::Publish(message)) = event {
                return self.heard.push(message);
            }
        }
    }

    /// What was heard so far, and nothing of it a second time.
    pub(crate) fn payloads(&mut self) -> Vec<Bytes> {
        self.heard.drain(..).map(|message| message.payload).collect()
    }

    /// Waits until the broker ends the connection.
    pub(crate) async fn ended(&mut self) -> ConnectionError {
        loop {
            if let Err(error) = self.packet().await {
                return error;
            }
        }
    }

    /// Says goodbye, and waits until the broker has closed the connection.
    pub(crate) async fn goodbye(mut self) {
        self.client.try_disconnect().expect("room");
        self.ended().await;
    }
}

/// An array of blob strings.
pub(crate) fn resp(words: &[&str]) -> Bytes {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into()
}

/// The value of a user property.
pub(crate) fn property<'a>(message: &'a Publish, name: &str) -> Option<&'a str> {
    let mut all = message.properties.as_ref()?.user_properties.iter();
    all.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}
