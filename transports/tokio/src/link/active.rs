//! One connection of a [`ManagedLink`](super::ManagedLink), with its queues.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use statestore_proto::transport::{Delivery, Incoming, Qos, ReasonCode};
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::acknowledgements::Acknowledgements;
use super::connector::{
    Connection, ConnectionEvent, Negotiated, Outgoing, ReceivedPublish, Ticket,
};
use super::error::{LinkError, LinkErrorKind};
use super::packet;
use super::takeover::Takeover;
use super::{AsIncoming, LinkEvent};

/// Maximum duration of [`Link::disconnect`](super::Link::disconnect).
pub(super) const SHUTDOWN_MAX: Duration = Duration::from_secs(1);

/// Time limit for the echo of a claim. If access rules withhold the echo, each connection starts
/// that much later.
pub(super) const ECHO_MAX: Duration = Duration::from_millis(500);

/// A connection with its queues.
pub(super) struct Active<C: Connection> {
    pub(super) connection: C,
    pub(super) packet_bytes_max: usize,
    /// Packets of the link itself that did not fit into the queue: at most those of presence and
    /// claim.
    pub(super) pending: VecDeque<Outgoing>,
    /// Events that are ready, without messages: one for each packet that the link refused since the
    /// last event, and those that arrived while the store claimed.
    pub(super) events: VecDeque<LinkEvent<Received<C::Message>>>,
    /// Messages that arrived while the store claimed.
    pub(super) held: VecDeque<ReceivedPublish<C::Message>>,
    /// The error that ended the connection, after the held messages.
    pub(super) lost: Option<LinkError>,
    pub(super) unacknowledged: Acknowledgements,
    /// Topic of the claim that this connection has published.
    pub(super) claimed: Option<Arc<str>>,
}

/// A message of a [`ManagedLink`](super::ManagedLink): the message of the library, with its
/// delivery, its time of arrival, and the maximum packet size of the broker.
#[derive(Clone, Debug)]
pub struct Received<M> {
    pub(super) message: M,
    pub(super) delivery: Option<Delivery>,
    pub(super) at: Instant,
    pub(super) packet_bytes_max: usize,
}

impl<M> Received<M> {
    /// The message of the library.
    #[must_use]
    pub const fn message(&self) -> &M {
        &self.message
    }
}

impl<M: AsIncoming> AsIncoming for Received<M> {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        let mut incoming = self.message.as_incoming()?;
        incoming.delivery = self.delivery;
        // A larger response would not be sent, and the requester would get nothing.
        incoming.packet_bytes_max = Some(self.packet_bytes_max);
        Some(incoming)
    }

    fn received(&self) -> Option<Instant> {
        Some(self.at)
    }
}

impl<C: Connection> Active<C> {
    pub(super) fn new(connection: C, negotiated: &Negotiated) -> Self {
        let limit = negotiated.maximum_packet_size.and_then(|max| usize::try_from(max).ok());
        Self {
            connection,
            packet_bytes_max: limit.unwrap_or(usize::MAX).min(packet::PACKET_BYTES_MAX),
            pending: VecDeque::new(),
            events: VecDeque::new(),
            held: VecDeque::new(),
            lost: None,
            unacknowledged: Acknowledgements::default(),
            claimed: None,
        }
    }

    /// Sends a packet of the link itself, as soon as the queue has capacity.
    pub(super) fn send(&mut self, packet: Outgoing) {
        self.pending.push_back(packet);
        self.flush();
    }

    /// Returns whether no packet of the link itself waits.
    pub(super) fn flush(&mut self) -> bool {
        while let Some(packet) = self.pending.pop_front() {
            if let Err(packet) = self.connection.try_send(packet) {
                self.pending.push_front(packet);
                return false;
            }
        }
        true
    }

    /// Subscribes for the link itself, at QoS 0: such messages do not wait behind unacknowledged
    /// ones.
    pub(super) fn subscribe(&mut self, filter: Arc<str>) {
        self.send(Outgoing::Subscribe { filter, qos: Qos::AtMostOnce, token: None });
    }

    pub(super) fn publish(&mut self, topic: &Arc<str>, qos: Qos, retain: bool, payload: String) {
        let (topic, payload) = (Arc::clone(topic), Bytes::from(payload));
        self.send(Outgoing::Plain { topic, payload, qos, retain });
    }

    #[expect(clippy::result_large_err, reason = "the packet is returned to be offered again")]
    pub(super) fn try_send(&mut self, packet: Outgoing) -> Result<(), Outgoing> {
        if !self.flush() {
            return Err(packet);
        }
        match packet::packet_refusal(&packet, self.packet_bytes_max) {
            Some(reason) => {
                match &packet {
                    Outgoing::Subscribe { filter, .. } => {
                        warn!(%filter, %reason, "not subscribed: filter invalid or too long");
                    }
                    Outgoing::Publish(publish) => {
                        // A topic may contain a long key.
                        let topic: String = publish.topic.chars().take(128).collect();
                        warn!(topic, %reason, "not sent");
                    }
                    _ => {}
                }
                self.settle(packet.ticket(), reason);
                Ok(())
            }
            None => self.connection.try_send(packet),
        }
    }

    pub(super) fn settle(&mut self, ticket: Ticket, reason: ReasonCode) {
        self.events.extend(match ticket {
            Ticket::Publish(Some(token)) => Some(LinkEvent::Published(token, reason)),
            Ticket::Subscribe(Some(token)) => Some(LinkEvent::Subscribed(token, reason)),
            Ticket::Publish(None) if reason.is_error() => {
                if reason == ReasonCode::PACKET_TOO_LARGE {
                    warn!(%reason, "response not sent: it exceeds the packet size of the broker");
                } else {
                    warn!(
                        %reason,
                        "response rejected by the broker: allow this client to publish to response \
                         topics"
                    );
                }
                None
            }
            Ticket::Publish(None) | Ticket::Subscribe(None) | Ticket::Other => None,
        });
    }

    pub(super) fn acknowledge(&mut self, delivery: Delivery) {
        self.unacknowledged.release(delivery);
        while let Some(id) = self.unacknowledged.pop() {
            self.connection.acknowledge(id);
        }
    }

    /// Publishes a claim, unless claims cannot be read.
    ///
    /// Fails if another store has replaced this one, or the connection is lost.
    pub(super) async fn claim(
        &mut self,
        takeover: &mut Takeover,
        held_max: usize,
        manual_acks: bool,
    ) -> Result<(), LinkError> {
        let topic = Arc::<str>::from(takeover.topic());
        self.subscribe(Arc::clone(&topic));
        self.publish(&topic, Qos::AtMostOnce, false, takeover.marker());
        let echo = timeout(ECHO_MAX, self.echo(takeover, held_max)).await;
        self.send(Outgoing::Unsubscribe { filter: Arc::clone(&topic) });
        let is_echoed = match echo.unwrap_or(Ok(false)) {
            // The library has acknowledged the held messages, so the broker does not redeliver
            // them: the machine must see them before the end.
            Err(error) if !manual_acks && !self.held.is_empty() => {
                self.lost = Some(error);
                return Ok(());
            }
            echo => echo?,
        };
        if !is_echoed {
            warn!(%topic, "no claim published: allow this client to read and write this topic");
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "a claim is a message to other machines")]
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        if takeover.is_far(unix_ms) {
            warn!(
                %topic,
                "ignored a claim more than a year ahead of the clock, from a store with a wrong \
                 clock or from another client; to clear the topic, stop all stores and run \
                 `mosquitto_pub -r -n -t '{topic}'`"
            );
        }
        let Some(claim) = takeover.claim(unix_ms) else {
            let text = format!(
                "another store has taken over client id {}; to serve here, stop the other store \
                 and restart this one; if there is no other store, clear the retained claim with \
                 `mosquitto_pub -r -n -t '{topic}'`",
                takeover.client_id()
            );
            return Err(LinkError::new(LinkErrorKind::TakenOver, text));
        };
        self.publish(&topic, Qos::AtLeastOnce, true, claim);
        self.claimed = Some(topic);
        Ok(())
    }

    /// Receives the retained claim and then the echo. Returns `false` if too many other messages
    /// arrive. Other messages are held.
    pub(super) async fn echo(
        &mut self,
        takeover: &mut Takeover,
        held_max: usize,
    ) -> Result<bool, LinkError> {
        while self.held.len() < held_max {
            match self.connection.next_event(true).await? {
                ConnectionEvent::Message(arrived) => {
                    let incoming = arrived.message.as_incoming();
                    let claim = incoming.filter(|incoming| incoming.topic == takeover.topic());
                    let Some(claim) = claim else {
                        self.held.push_back(arrived);
                        continue;
                    };
                    let is_echo = takeover.handle_message(claim.retain, claim.payload);
                    if arrived.id.is_some() {
                        // It is acknowledged in order of arrival.
                        self.held.push_back(arrived);
                    }
                    if is_echo {
                        return Ok(true);
                    }
                }
                ConnectionEvent::Settled(ticket, reason) => self.settle(ticket, reason),
                ConnectionEvent::Writable => _ = self.flush(),
            }
        }
        Ok(false)
    }

    pub(super) async fn close(mut self) {
        // The broker would have closed this connection if another store had connected, so the
        // claim is still that of this store.
        if let Some(topic) = self.claimed.take() {
            self.publish(&topic, Qos::AtLeastOnce, true, String::new());
        }
        let _ = timeout(SHUTDOWN_MAX, self.connection.close()).await;
    }
}
