//! The link: one rumqttc event loop after the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rumqttc::v5::mqttbytes::v5::{ConnAck, Filter, Packet, Subscribe};
use rumqttc::v5::mqttbytes::{QoS, valid_filter, valid_topic};
use rumqttc::v5::{AsyncClient, Event, EventLoop};
use statestore_proto::mqtt::{Delivery, Publish, ReasonCode, SubscribeToken, Transmit};
use statestore_tokio::{AsIncoming, Connected, Link, LinkError, LinkEvent, presence};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::again::Again;
use crate::convert::{self, Message};
use crate::mailbox::{Bounds, Mailbox, Ticket};
use crate::offenders::Offenders;
use crate::options::Options;
use crate::pump::Pump;

/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Acknowledgements wait in rumqttc's channel beyond the bound of other requests: one for each packet id, and some room
/// for the subscriptions and the goodbye of the link itself.
const CHANNEL_RESERVE: usize = 65_535 + 8;

/// A [`Link`] over rumqttc.
pub struct RumqttcLink {
    options: Options,
    /// Counts connections; what belongs to an earlier one is nobody's business any more.
    generation: u64,
    connection: Option<Connection>,
    again: Again,
    offenders: Offenders,
}

/// One connection and its pump.
struct Connection {
    client: AsyncClient,
    mailbox: Arc<Mailbox>,
    pump: JoinHandle<()>,
    generation: u64,
    packet_bytes_max: usize,
    /// Messages to be acknowledged by hand in order of arrival, and whether they may be.
    unacknowledged: VecDeque<(Delivery, bool)>,
}

impl RumqttcLink {
    /// A link for an application: a clean session, and messages are acknowledged when they arrive.
    #[must_use]
    pub fn for_client(options: Options) -> Self {
        let (again, offenders) = (Again::default(), Offenders::default());
        Self { options, generation: 0, connection: None, again, offenders }
    }

    /// A link for a store: messages are acknowledged after they are answered, and the broker keeps the session for a
    /// while, so that requests without an answer come again after a lost connection. What `options` say of both counts.
    #[must_use]
    pub fn for_store(options: Options) -> Self {
        Self::for_client(options.or_store_defaults())
    }

    fn connected(&self, client: AsyncClient, event_loop: EventLoop, told: &ConnAck) -> Connection {
        let options = &self.options;
        let mailbox = Mailbox::new(Bounds {
            requests: options.requests_max,
            messages: options.messages_max(),
            by_hand: options.by_hand(),
        });
        let mut pump = Pump::new(Arc::clone(&mailbox), self.generation);
        pump.by_hand = options.by_hand();
        pump.presence = options.presence;
        pump.retry_after_takeover = options.retry_after_takeover;
        let told = told.properties.as_ref().and_then(|properties| properties.max_packet_size);
        let told = told.and_then(|max| usize::try_from(max).ok());
        let connection = Connection {
            client,
            mailbox,
            pump: tokio::spawn(pump.run(event_loop)),
            generation: self.generation,
            packet_bytes_max: told.unwrap_or(usize::MAX).min(convert::PACKET_BYTES_MAX),
            unacknowledged: VecDeque::new(),
        };
        if options.presence {
            for filter in presence::FILTERS {
                connection.subscribe(filter, QoS::AtMostOnce, None);
            }
        }
        connection
    }
}

impl Link for RumqttcLink {
    type Message = Message;

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.connection = None;
        self.generation += 1;
        let mqtt = self.options.mqtt();
        let keep_alive = mqtt.keep_alive();
        let capacity = self.options.requests_max + CHANNEL_RESERVE;
        let (client, mut event_loop) = AsyncClient::new(mqtt, capacity);
        let told = loop {
            match event_loop.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(told))) => break told,
                Ok(_) => {}
                Err(error) => {
                    return Err(convert::error(&error, self.options.retry_after_takeover));
                }
            }
        };
        // A broker that wants no keep-alive says zero, which rumqttc takes for a ping without pause.
        if event_loop.options.keep_alive().is_zero() {
            event_loop.options.set_keep_alive(keep_alive);
        }
        let session_present = told.session_present;
        self.again.connected();
        self.connection = Some(self.connected(client, event_loop, &told));
        Ok(Connected { session_present })
    }

    fn offer(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection there is nothing to wait for: `next` says so.
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match transmit {
            Transmit::Acknowledge(delivery) => connection.acknowledge(delivery),
            Transmit::Disconnect { client_id } => self.offenders.note(&client_id),
            other if !connection.mailbox.has_room() => return Err(other),
            Transmit::Publish(publish) => connection.publish(&publish),
            Transmit::Subscribe { filter, token } => {
                connection.subscribe(&filter, QoS::AtLeastOnce, Some(token));
            }
            Transmit::Unsubscribe { filter } => {
                let client = &connection.client;
                connection.mailbox.send(Ticket::Other, || client.try_unsubscribe(&*filter).is_ok());
            }
        }
        Ok(())
    }

    async fn next(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        let Some(connection) = &mut self.connection else {
            return Err(LinkError::transient("not connected"));
        };
        loop {
            if let Some(event) = connection.take(messages, &mut self.again)? {
                return Ok(event);
            }
            connection.mailbox.arrival().await;
        }
    }

    async fn disconnect(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let Connection { client, mailbox, pump, .. } = &mut connection;
        mailbox.close();
        mailbox.send(Ticket::Other, || client.try_disconnect().is_ok());
        // The broker closes the connection when it has read everything; to close it here first might cut that off.
        let _ = tokio::time::timeout(GOODBYE_MAX, pump).await;
    }
}

impl Connection {
    fn publish(&self, publish: &Publish) {
        let packet = convert::packet(publish);
        let refusal = if packet.size() > self.packet_bytes_max {
            ReasonCode::PACKET_TOO_LARGE
        } else if valid_topic(&publish.topic) {
            let (payload, properties) = (packet.payload, packet.properties.unwrap_or_default());
            let (topic, qos, client) = (&*publish.topic, QoS::AtLeastOnce, &self.client);
            self.mailbox.send(Ticket::Publish(publish.token), || {
                client.try_publish_with_properties(topic, qos, false, payload, properties).is_ok()
            });
            return;
        } else {
            ReasonCode(0x90)
        };
        warn!(topic = &*publish.topic, %refusal, "not sent");
        if let Some(token) = publish.token {
            self.mailbox.answer(LinkEvent::Published(token, refusal));
        }
    }

    fn subscribe(&self, filter: &str, qos: QoS, token: Option<SubscribeToken>) {
        let size = Subscribe::new(Filter::new(filter, qos), None).size();
        if size > self.packet_bytes_max || !valid_filter(filter) {
            warn!(filter, "not subscribed: too long for the broker, or no filter");
            if let Some(token) = token {
                self.mailbox.answer(LinkEvent::Subscribed(token, ReasonCode(0x8f)));
            }
            return;
        }
        let client = &self.client;
        self.mailbox.send(Ticket::Subscribe(token), || client.try_subscribe(filter, qos).is_ok());
    }

    /// Acknowledges a message as soon as all before it are.
    fn acknowledge(&mut self, delivery: Delivery) {
        let mut waiting = self.unacknowledged.iter_mut();
        if let Some(entry) = waiting.find(|entry| **entry == (delivery, false)) {
            entry.1 = true;
        }
        while let Some((delivery, true)) = self.unacknowledged.front().copied() {
            self.unacknowledged.pop_front();
            if let Some(packet) = convert::acknowledged(delivery, self.generation) {
                let client = &self.client;
                self.mailbox.send(Ticket::Other, || client.try_ack(&packet).is_ok());
            }
        }
    }

    fn take(
        &mut self,
        messages: bool,
        again: &mut Again,
    ) -> Result<Option<LinkEvent<Message>>, LinkError> {
        while let Some(event) = self.mailbox.take(messages)? {
            let LinkEvent::Message(message) = &event else { return Ok(Some(event)) };
            let delivery = message.delivery();
            self.unacknowledged.extend(delivery.map(|delivery| (delivery, false)));
            let is_readable = message.as_incoming().is_some();
            let early = delivery.filter(|_| again.is_suspect(message.packet()) || !is_readable);
            early.into_iter().for_each(|delivery| self.acknowledge(delivery));
            if is_readable {
                return Ok(Some(event));
            }
            debug!("a message that cannot be read was dropped");
        }
        Ok(None)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl fmt::Debug for RumqttcLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RumqttcLink").field("options", &self.options).finish_non_exhaustive()
    }
}
