//! A request and its echo written directly on rumqttc: what no adapter can beat.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, Publish, PublishProperties};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use tokio::sync::oneshot;

use crate::race::Lap;

const REQUEST: &str = "bare/request";
const RESPONSE: &str = "bare/response";

/// Room for all that can be outstanding, so that nothing ever waits for the channel.
const CAPACITY: usize = 4_096;

fn connect(client_id: &str, port: u16) -> (AsyncClient, EventLoop) {
    let mut options = MqttOptions::new(client_id, "127.0.0.1", port);
    let mut network = options.network_options();
    network.set_tcp_nodelay(true);
    options.set_network_options(network).set_outgoing_inflight_upper_limit(1_024);
    AsyncClient::new(options, CAPACITY)
}

/// Says, once it is subscribed, that requests will be heard, and answers each with its own payload, until its connection
/// ends.
///
/// # Errors
/// Those of rumqttc.
pub async fn echo(
    port: u16,
    ready: oneshot::Sender<()>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (client, mut events) = connect("bare-echo", port);
    client.try_subscribe(REQUEST, QoS::AtLeastOnce)?;
    while !matches!(events.poll().await?, Event::Incoming(Packet::SubAck(_))) {}
    // Nobody waits for it when the race is over already.
    let _ = ready.send(());
    loop {
        if let Event::Incoming(Packet::Publish(request)) = events.poll().await? {
            let asked = request.properties.unwrap_or_default();
            let topic = asked.response_topic.unwrap_or_default();
            let properties = PublishProperties {
                correlation_data: asked.correlation_data,
                user_properties: vec![("__stat".into(), "200".into())],
                ..PublishProperties::default()
            };
            client.try_publish_with_properties(
                topic,
                QoS::AtLeastOnce,
                false,
                request.payload,
                properties,
            )?;
        }
    }
}

/// What a load asks, and where.
#[derive(Clone, Copy)]
struct Question {
    client_id: &'static str,
    topic: &'static str,
    response_topic: &'static str,
    payload: &'static [u8],
}

/// Of the echo.
const ECHO: Question = Question {
    client_id: "bare-load",
    topic: REQUEST,
    response_topic: RESPONSE,
    payload: &[b'x'; 100],
};

/// Of a store: the value of `k`.
const GET: Question = Question {
    client_id: "bare-get",
    topic: statestore_proto::topic::REQUEST,
    response_topic: "clients/bare-get/response",
    payload: b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
};

/// One client in a closed loop.
pub struct Load {
    question: Question,
    client: AsyncClient,
    events: EventLoop,
    sent: u64,
}

impl Load {
    /// Connects and subscribes, to ask the echo.
    ///
    /// # Errors
    /// Those of rumqttc.
    pub async fn new(port: u16) -> Result<Self, Box<dyn Error>> {
        Self::ask(ECHO, port).await
    }

    /// Connects and subscribes, to ask a store for the value of `k`.
    ///
    /// # Errors
    /// Those of rumqttc.
    pub async fn of_store(port: u16) -> Result<Self, Box<dyn Error>> {
        Self::ask(GET, port).await
    }

    async fn ask(question: Question, port: u16) -> Result<Self, Box<dyn Error>> {
        let (client, mut events) = connect(question.client_id, port);
        client.try_subscribe(question.response_topic, QoS::AtLeastOnce)?;
        while !matches!(events.poll().await?, Event::Incoming(Packet::SubAck(_))) {}
        Ok(Self { question, client, events, sent: 0 })
    }

    /// Sends `requests`, `in_flight` at a time, and gives the time that each took.
    ///
    /// # Errors
    /// Those of rumqttc.
    pub async fn run(
        &mut self,
        requests: usize,
        in_flight: usize,
    ) -> Result<Vec<Duration>, Box<dyn Error>> {
        let (mut waiting, mut times) = (BTreeMap::new(), Vec::with_capacity(requests));
        for _ in 0..in_flight.min(requests) {
            self.send(&mut waiting)?;
        }
        while times.len() < requests {
            if let Event::Incoming(Packet::Publish(Publish { properties, .. })) =
                self.events.poll().await?
            {
                let data = properties
                    .and_then(|properties| properties.correlation_data)
                    .unwrap_or_default();
                times.extend(waiting.remove(&data).map(|lap: Lap| lap.time()));
                if times.len() + waiting.len() < requests {
                    self.send(&mut waiting)?;
                }
            }
        }
        Ok(times)
    }

    fn send(&mut self, waiting: &mut BTreeMap<Bytes, Lap>) -> Result<(), Box<dyn Error>> {
        self.sent += 1;
        let correlation = Bytes::copy_from_slice(&[[0; 8], self.sent.to_be_bytes()].concat());
        let properties = PublishProperties {
            response_topic: Some(self.question.response_topic.into()),
            correlation_data: Some(correlation.clone()),
            content_type: Some("application/octet-stream".into()),
            message_expiry_interval: Some(10),
            user_properties: vec![
                ("__ts".into(), "1696374425000:0:bare-load".into()),
                ("__srcId".into(), self.question.client_id.into()),
                ("__protVer".into(), "1.0".into()),
            ],
            ..PublishProperties::default()
        };
        waiting.insert(correlation, Lap::start());
        let payload = Bytes::from_static(self.question.payload);
        self.client.try_publish_with_properties(
            self.question.topic,
            QoS::AtLeastOnce,
            false,
            payload,
            properties,
        )?;
        Ok(())
    }
}
