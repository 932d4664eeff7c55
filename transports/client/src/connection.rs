//! A connection of the link: a session on a socket, with the state of its requests.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use statestore_mqtt::packet::Subscription;
use statestore_mqtt::session::{self, Event, SendError};
use statestore_mqtt::{Qos, Reason};
use statestore_proto::transport::ReasonCode;
use statestore_tokio::LinkError;
use statestore_tokio::adapter::{
    self, ConnectionEvent, Outgoing, PacketId, PublishProperties, ReceivedPublish, Ticket,
    machine_qos, machine_reason, packet_qos,
};
use tokio::time::Instant;
use tracing::debug;

use crate::convert::{self, Message};
use crate::socket::SessionSocket;

/// An open connection: an MQTT session and its socket.
///
/// Everything happens in [`next_event`](adapter::Connection::next_event): events that the session
/// has already decoded are returned first. Only then is the output of all requests written, and the
/// socket read. So requests that are caused by one read share one write.
pub struct Connection {
    socket: SessionSocket,
    /// Tickets by the token that the session has: one for each PUBLISH and SUBSCRIBE without an
    /// outcome. The send window and the number of requests that the session accepts bound them.
    tickets: BTreeMap<u64, Ticket>,
    last_token: u64,
    /// Messages that wait for the machine, with their time of arrival.
    ///
    /// Without manual acknowledgements there are at most `held_max`. With them there are at most
    /// `held_max` at QoS 0, and those that the session accepts without an acknowledgement. At the
    /// end of the connection, the remaining messages of the session are added.
    held: VecDeque<(Message, Instant)>,
    held_max: usize,
    manual_acks: bool,
    /// Received messages that the machine has not acknowledged, in order of arrival: at most as
    /// many as the session accepts. A packet id can occur twice, since some brokers resend on one
    /// connection.
    deliveries: VecDeque<session::Delivery>,
    /// Outcomes of requests that the session cannot send, at most one for each offered packet.
    refused: VecDeque<(Ticket, ReasonCode)>,
    /// Set after a packet was returned, until the session has made progress.
    is_blocked: bool,
    has_progressed: bool,
}

impl Connection {
    /// Uses a socket after its CONNACK.
    pub(crate) fn new(socket: SessionSocket, held_max: usize, manual_acks: bool) -> Self {
        Self {
            socket,
            tickets: BTreeMap::new(),
            last_token: 0,
            held: VecDeque::new(),
            held_max,
            manual_acks,
            deliveries: VecDeque::new(),
            refused: VecDeque::new(),
            is_blocked: false,
            has_progressed: false,
        }
    }

    /// The next event that needs no I/O.
    fn poll_event(
        &mut self,
        messages: bool,
    ) -> Option<Result<ConnectionEvent<Message>, LinkError>> {
        if let Some((ticket, reason)) = self.refused.pop_front() {
            return Some(Ok(ConnectionEvent::Settled(ticket, reason)));
        }
        if self.is_blocked && self.has_progressed {
            self.is_blocked = false;
            return Some(Ok(ConnectionEvent::Writable));
        }
        if messages && let Some((message, at)) = self.held.pop_front() {
            return Some(Ok(self.arrived(message, at)));
        }
        // The end of the connection follows the messages in the event queue.
        while messages
            || self.manual_acks
            || self.held.len() < self.held_max
            || self.socket.has_ended()
        {
            let event = match self.socket.poll_event()? {
                Ok(event) => event,
                Err(error) => return Some(Err(error)),
            };
            match event {
                Event::Message(message) if messages => {
                    let at = self.socket.last_read();
                    return Some(Ok(self.arrived(Message::new(message), at)));
                }
                // With manual acknowledgements, the Receive Maximum bounds the others.
                Event::Message(message)
                    if message.qos() == Qos::AtMostOnce && self.held.len() >= self.held_max =>
                {
                    debug!("message dropped: QoS 0, and the queue is full");
                }
                Event::Message(message) => {
                    self.held.push_back((Message::new(message), self.socket.last_read()));
                }
                Event::Published { token, reason, .. } => {
                    self.has_progressed = true;
                    if let Some(ticket) = self.tickets.remove(&token)
                        && (ticket != Ticket::Publish(None) || reason.is_error())
                    {
                        let reason = machine_reason(reason);
                        return Some(Ok(ConnectionEvent::Settled(ticket, reason)));
                    }
                }
                Event::Subscribed { token, reasons, .. } => {
                    self.has_progressed = true;
                    if let (Some(ticket), Some(reason)) =
                        (self.tickets.remove(&token), reasons.first())
                    {
                        let reason = machine_reason(*reason);
                        return Some(Ok(ConnectionEvent::Settled(ticket, reason)));
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn arrived(&mut self, message: Message, at: Instant) -> ConnectionEvent<Message> {
        let received = message.message();
        let id = received.packet_id().filter(|_| self.manual_acks).map(|id| {
            self.deliveries.extend(received.delivery());
            PacketId { id: id.get(), qos: machine_qos(received.qos()) }
        });
        let dup = received.dup();
        ConnectionEvent::Message(ReceivedPublish { message, id, dup, at })
    }

    /// Passes a packet to the session.
    ///
    /// A packet that the session would only queue is not accepted. Otherwise a later
    /// acknowledgement would overtake it, and the broker would not redeliver the request of a lost
    /// response.
    fn send(&mut self, packet: &Outgoing, token: u64) -> Result<(), SendError> {
        let session = self.socket.session_mut();
        let is_publish = matches!(packet, Outgoing::Publish(_) | Outgoing::Plain { .. });
        if is_publish && session.is_connected() && !session.can_publish(0) {
            return Err(SendError::Full);
        }
        match packet {
            Outgoing::Publish(publish) => session.publish(session::Publish {
                topic: &publish.topic,
                payload: publish.payload.clone(),
                qos: Qos::AtLeastOnce,
                retain: false,
                properties: PublishProperties(publish),
                token,
            }),
            Outgoing::Plain { topic, payload, qos, retain } => session.publish(session::Publish {
                topic,
                payload: payload.clone(),
                qos: packet_qos(*qos),
                retain: *retain,
                properties: (),
                token,
            }),
            Outgoing::Subscribe { filter, qos, .. } => {
                let subscription = Subscription::new(filter, packet_qos(*qos));
                session.subscribe(&[subscription], (), token)
            }
            Outgoing::Unsubscribe { filter } => session.unsubscribe(&[filter], (), token),
            _ => Ok(()),
        }
    }
}

impl adapter::Connection for Connection {
    type Message = Message;

    fn try_send(&mut self, packet: Outgoing) -> Result<(), Outgoing> {
        let ticket = packet.ticket();
        self.last_token += 1;
        let error = match self.send(&packet, self.last_token) {
            Ok(()) if ticket == Ticket::Other => return Ok(()),
            Ok(()) => {
                self.tickets.insert(self.last_token, ticket);
                return Ok(());
            }
            Err(error) => error,
        };
        match error {
            SendError::Full => {
                self.is_blocked = true;
                self.has_progressed = false;
                Err(packet)
            }
            // `next_event` reports the end of the connection.
            SendError::NotConnected => Err(packet),
            error => {
                debug!(%error, "packet refused by the session");
                self.refused.push_back((ticket, convert::unsendable(&error)));
                Ok(())
            }
        }
    }

    fn last_read(&self) -> Option<Instant> {
        Some(self.socket.last_read())
    }

    async fn next_event(&mut self, messages: bool) -> Result<ConnectionEvent<Message>, LinkError> {
        loop {
            if let Some(event) = self.poll_event(messages) {
                return event;
            }
            self.socket.io().await;
            self.has_progressed = true;
        }
    }

    fn acknowledge(&mut self, id: PacketId) {
        // The caller acknowledges in order of arrival, so this is the first delivery.
        if let Some(delivery) = self.deliveries.pop_front()
            && self.socket.session_mut().acknowledge(delivery, Reason::SUCCESS).is_err()
        {
            debug!(id = id.id, "acknowledgement dropped: the message is of an earlier connection");
        }
    }

    async fn close(self) {
        self.socket.close().await;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("socket", &self.socket).finish_non_exhaustive()
    }
}
