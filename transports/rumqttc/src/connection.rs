//! One connection: what is sent on it, and what is acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rumqttc::v5::AsyncClient;
use rumqttc::v5::mqttbytes::v5::{Filter, Publish as Packet, Subscribe};
use rumqttc::v5::mqttbytes::{QoS, valid_filter, valid_topic};
use statestore_proto::mqtt::{Delivery, Publish, ReasonCode, SubscribeToken};
use statestore_tokio::{AsIncoming, LinkError, LinkEvent};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::convert::{self, Message};
use crate::mailbox::{Mailbox, Ticket};
use crate::redelivery::Redelivery;
use crate::takeover::Takeover;

/// How long the echo of a claim's marker may take. Where access rules withhold it, each connection starts that much later.
const ECHO_MAX: Duration = Duration::from_millis(500);

/// One connection and its pump.
pub(crate) struct Connection {
    pub(crate) client: AsyncClient,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) pump: JoinHandle<()>,
    pub(crate) generation: u64,
    pub(crate) packet_bytes_max: usize,
    /// Messages to be acknowledged by hand in order of arrival, and whether they may be.
    pub(crate) unacknowledged: VecDeque<(Delivery, bool)>,
    /// Where this connection has left a claim.
    pub(crate) claimed: Option<String>,
}

impl Connection {
    pub(crate) fn publish(&self, publish: &Publish) {
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

    pub(crate) fn subscribe(&self, filter: &str, qos: QoS, token: Option<SubscribeToken>) {
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
    pub(crate) fn acknowledge(&mut self, delivery: Delivery) {
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

    pub(crate) fn take(
        &mut self,
        messages: bool,
        again: &mut Redelivery,
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

    /// Leaves a claim, before anything else is done here; fails when another store has replaced this one. Where the
    /// claims cannot be read, nothing is claimed.
    pub(crate) async fn claim(
        &mut self,
        takeover: &mut Takeover,
        heard: &mut mpsc::Receiver<Packet>,
    ) -> Result<(), LinkError> {
        let topic = takeover.topic().to_owned();
        // At QoS 0 neither waits behind requests that nobody has acknowledged yet.
        self.subscribe(&topic, QoS::AtMostOnce, None);
        self.put(&topic, QoS::AtMostOnce, false, takeover.marker());
        let echo = async {
            while let Some(packet) = heard.recv().await {
                if takeover.hear(packet.retain, &packet.payload) {
                    return true;
                }
            }
            false
        };
        let echo = tokio::time::timeout(ECHO_MAX, echo).await;
        let client = &self.client;
        self.mailbox.send(Ticket::Other, || client.try_unsubscribe(&*topic).is_ok());
        match echo {
            Ok(true) => {}
            // The pump has ended, and says why.
            Ok(false) => return self.mailbox.take(false).map(drop),
            Err(_) => {
                warn!(
                    topic,
                    "no claim, since this client does not hear itself: may it read and write this topic?"
                );
                return Ok(());
            }
        }
        #[expect(clippy::disallowed_methods, reason = "a claim is a message to other machines")]
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        if takeover.is_far(unix_ms) {
            warn!(
                topic,
                "passed over a claim years beyond the clock here, which only a store with a wrong clock, or no store, can have \
                 left; once no store is running, `mosquitto_pub -r -n -t '{topic}'` clears the topic"
            );
        }
        let Some(claim) = takeover.claim(unix_ms) else {
            return Err(LinkError::fatal(format_args!(
                "another store has taken over client id {}; for this one to serve, stop that one and start this again; if \
                 there is none, `mosquitto_pub -r -n -t '{topic}'` clears what somebody has retained there",
                takeover.client_id()
            )));
        };
        self.put(&topic, QoS::AtLeastOnce, true, claim);
        self.claimed = Some(topic);
        Ok(())
    }

    /// Removes the claim of this connection. Were another store there, it would not be open any more.
    pub(crate) fn withdraw(&mut self) {
        if let Some(topic) = self.claimed.take() {
            self.put(&topic, QoS::AtLeastOnce, true, String::new());
        }
    }

    fn put(&self, topic: &str, qos: QoS, retain: bool, payload: String) {
        let client = &self.client;
        self.mailbox.send(Ticket::Publish(None), || {
            client.try_publish(topic, qos, retain, payload).is_ok()
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pump.abort();
    }
}
