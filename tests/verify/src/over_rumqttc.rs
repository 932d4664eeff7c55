//! Any MQTT 5 broker, over rumqttc.

use std::collections::VecDeque;
use std::time::Duration;

pub use statestore_rumqttc::Options;
use statestore_rumqttc::rumqttc::Outgoing;
use statestore_rumqttc::rumqttc::v5::mqttbytes::QoS;
use statestore_rumqttc::rumqttc::v5::mqttbytes::v5::{Packet, Publish, PublishProperties};
use statestore_rumqttc::rumqttc::v5::{AsyncClient, Event, EventLoop};
use statestore_rumqttc::{mqtt_options, publish_reason, subscribe_reason};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::wire::{Connection, Lost, Message, Pending, Place};

/// Events that wait to be read; beyond that nothing is read from the network.
const EVENTS_MAX: usize = 16;

/// Bytes of messages that arrive while something else is waited for, at most.
const ARRIVED_BYTES_MAX: usize = 8 << 20;

/// How long the broker may take to close the connection after a goodbye.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// A broker, and how to connect to it; the client id of the options is replaced by those of the kit.
#[derive(Clone, Debug)]
pub struct Rumqttc(pub Options);

impl Place for Rumqttc {
    fn connect<'a>(&'a self, client_id: &'a str) -> Pending<'a, Box<dyn Connection>> {
        Box::pin(async move {
            let mut options = self.0.clone();
            options.client_id = client_id.to_owned();
            options.session_expiry = None;
            let mut mqtt = mqtt_options(&options).map_err(Lost::because)?;
            // What is read is acknowledged at once, by rumqttc itself.
            mqtt.set_manual_acks(false);
            let keep_alive = mqtt.keep_alive();
            let (client, mut event_loop) = AsyncClient::new(mqtt, 16);
            let mut connected = false;
            while !connected {
                let event = event_loop.poll().await.map_err(Lost::because)?;
                connected = matches!(event, Event::Incoming(Packet::ConnAck(_)));
            }
            // A broker that wants no keep-alive says zero, which rumqttc takes for a ping without pause.
            if event_loop.options.keep_alive().is_zero() {
                event_loop.options.set_keep_alive(keep_alive);
            }
            let (told, events) = mpsc::channel(EVENTS_MAX);
            let pump = tokio::spawn(pump(event_loop, told));
            let open = Open { client, pump, events, arrived: VecDeque::new(), arrived_bytes: 0 };
            Ok(Box::new(open) as Box<dyn Connection>)
        })
    }
}

/// What happens on a connection.
enum Told {
    Message(Message),
    Subscribed(u8),
    /// This went out with this packet id.
    Sent(u16),
    /// Packet id and reason.
    Published(u16, u8),
    Lost(Lost),
}

/// Polls rumqttc's event loop, whose future may not be dropped halfway, until the connection ends or nobody listens.
async fn pump(mut event_loop: EventLoop, events: mpsc::Sender<Told>) {
    loop {
        let polled = event_loop.poll().await;
        let is_over = polled.is_err();
        let told = match polled {
            Ok(Event::Incoming(Packet::Publish(publish))) => Told::Message(received(publish)),
            Ok(Event::Incoming(Packet::SubAck(ack))) => {
                let reason = ack.return_codes.first().copied();
                Told::Subscribed(reason.map_or(0x80, |reason| subscribe_reason(reason).0))
            }
            Ok(Event::Incoming(Packet::PubAck(ack))) => {
                Told::Published(ack.pkid, publish_reason(ack.reason).0)
            }
            Ok(Event::Incoming(Packet::PubComp(done))) => Told::Published(done.pkid, 0),
            Ok(Event::Outgoing(Outgoing::Publish(id))) => Told::Sent(id),
            Ok(_) => continue,
            Err(error) => Told::Lost(Lost::because(error)),
        };
        if events.send(told).await.is_err() || is_over {
            return;
        }
    }
}

struct Open {
    client: AsyncClient,
    pump: JoinHandle<()>,
    events: mpsc::Receiver<Told>,
    /// What was received while something else was waited for.
    arrived: VecDeque<Message>,
    arrived_bytes: usize,
}

impl Open {
    /// The next event that is no message.
    async fn step(&mut self) -> Result<Told, Lost> {
        loop {
            match self.event().await? {
                Told::Message(message) => {
                    self.arrived_bytes += message.size();
                    self.arrived.push_back(message);
                    if self.arrived_bytes > ARRIVED_BYTES_MAX {
                        return Err(Lost::because("it sends megabytes that nobody has asked for"));
                    }
                }
                other => return Ok(other),
            }
        }
    }

    async fn event(&mut self) -> Result<Told, Lost> {
        match self.events.recv().await {
            Some(Told::Lost(lost)) => Err(lost),
            Some(told) => Ok(told),
            None => Err(Lost::because("the connection has ended")),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl Connection for Open {
    fn subscribe<'a>(&'a mut self, filter: &'a str) -> Pending<'a, u8> {
        Box::pin(async move {
            self.client.try_subscribe(filter, QoS::AtLeastOnce).map_err(Lost::because)?;
            loop {
                if let Told::Subscribed(reason) = self.step().await? {
                    return Ok(reason);
                }
            }
        })
    }

    fn publish<'a>(&'a mut self, message: &'a Message) -> Pending<'a, u8> {
        Box::pin(async move {
            let qos = match message.qos {
                0 => QoS::AtMostOnce,
                1 => QoS::AtLeastOnce,
                _ => QoS::ExactlyOnce,
            };
            let properties = PublishProperties {
                response_topic: message.response_topic.clone(),
                correlation_data: message.correlation_data.clone(),
                content_type: message.content_type.clone(),
                message_expiry_interval: message.message_expiry,
                user_properties: message.user_properties.clone(),
                ..PublishProperties::default()
            };
            let (topic, payload) = (message.topic.clone(), message.payload.clone());
            let sent = self.client.try_publish_with_properties(
                topic,
                qos,
                message.retain,
                payload,
                properties,
            );
            sent.map_err(Lost::because)?;
            let mut sent = None;
            loop {
                match self.step().await? {
                    Told::Sent(_) if message.qos == 0 => return Ok(0),
                    Told::Sent(id) => sent = Some(id),
                    Told::Published(id, reason) if sent == Some(id) => return Ok(reason),
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
                if let Told::Message(message) = self.event().await? {
                    return Ok(message);
                }
            }
        })
    }

    fn disconnect(mut self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.client.try_disconnect().map_err(Lost::because)?;
            // The end is what is waited for.
            let closed = async { while self.event().await.is_ok() {} };
            let _ = tokio::time::timeout(GOODBYE_MAX, closed).await;
            Ok(())
        })
    }
}

fn received(packet: Publish) -> Message {
    let properties = packet.properties.unwrap_or_default();
    Message {
        topic: String::from_utf8_lossy(&packet.topic).into_owned(),
        payload: packet.payload,
        qos: packet.qos as u8,
        retain: packet.retain,
        response_topic: properties.response_topic,
        correlation_data: properties.correlation_data,
        content_type: properties.content_type,
        message_expiry: properties.message_expiry_interval,
        user_properties: properties.user_properties,
    }
}
