//! One connection: its queue, and the task that polls rumqttc's event loop.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rumqttc::Outgoing as Written;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PubAck, Publish};
use rumqttc::v5::{AsyncClient, Event, EventLoop, Request};
use statestore_proto::transport::{Qos, ReasonCode};
use statestore_tokio::adapter::{
    self, ConnectionEvent, Mailbox, Opening, Outgoing, Outstanding, PacketId, Ticket,
};
use statestore_tokio::{LinkError, LinkErrorKind};
use tokio::task::JoinHandle;

use crate::convert::{self, Message};

/// One connection and the task that polls rumqttc.
pub struct Connection {
    client: AsyncClient,
    shared: Arc<Shared>,
    pump: JoinHandle<()>,
    manual_acks: bool,
}

/// State that a connection shares with its pump.
struct Shared {
    mailbox: Arc<Mailbox<Message>>,
    /// Packets in rumqttc's channel leave it in order. That is how their ids are known.
    outstanding: Mutex<Outstanding>,
}

impl Shared {
    fn outstanding(&self) -> MutexGuard<'_, Outstanding> {
        self.outstanding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request into the channel by `send`, which returns whether it did.
    fn send(&self, ticket: Ticket, send: impl FnOnce() -> bool) {
        // Under the lock, so that the pump does not see the request written before its ticket.
        let mut outstanding = self.outstanding();
        if send() {
            outstanding.push(ticket);
        }
    }
}

impl Connection {
    pub(crate) fn new(client: AsyncClient, event_loop: EventLoop, opening: Opening<'_>) -> Self {
        let shared = Arc::new(Shared {
            mailbox: Mailbox::new(opening.options.receive_maximum.into()),
            outstanding: Mutex::new(Outstanding::new(opening.options.max_queued_packets)),
        });
        let manual_acks = opening.manual_acks;
        let pump = tokio::spawn(Pump { shared: Arc::clone(&shared), manual_acks }.run(event_loop));
        Self { client, shared, pump, manual_acks }
    }
}

impl adapter::Connection for Connection {
    type Message = Message;

    fn try_send(&mut self, packet: Outgoing) -> Result<(), Outgoing> {
        if !self.shared.outstanding().try_admit() {
            return Err(packet);
        }
        let client = &self.client;
        let ticket = packet.ticket();
        self.shared.send(ticket, || match packet {
            Outgoing::Publish(publish) => {
                let properties = convert::properties(&publish);
                let (topic, qos) = (&*publish.topic, QoS::AtLeastOnce);
                let payload = publish.payload;
                client.try_publish_with_properties(topic, qos, false, payload, properties).is_ok()
            }
            Outgoing::Plain { topic, payload, qos, retain } => {
                client.try_publish(&*topic, convert::qos(qos), retain, payload).is_ok()
            }
            Outgoing::Subscribe { filter, qos, .. } => {
                client.try_subscribe(&*filter, convert::qos(qos)).is_ok()
            }
            Outgoing::Unsubscribe { filter } => client.try_unsubscribe(&*filter).is_ok(),
            _ => false,
        });
        Ok(())
    }

    async fn next_event(&mut self, messages: bool) -> Result<ConnectionEvent<Message>, LinkError> {
        let mailbox = &self.shared.mailbox;
        loop {
            if let Some(event) = mailbox.poll(messages)? {
                return Ok(event);
            }
            // The pump has stopped, and what would let the machine continue may wait behind it.
            if !messages && !self.manual_acks && mailbox.is_full() {
                let text = "too many messages are queued; acknowledge them manually";
                return Err(LinkError::new(LinkErrorKind::Overloaded, text));
            }
            mailbox.wait_woken().await;
        }
    }

    fn acknowledge(&mut self, id: PacketId) {
        let packet = Publish { pkid: id.id, qos: convert::qos(id.qos), ..Publish::default() };
        let client = &self.client;
        self.shared.send(Ticket::Other, || client.try_ack(&packet).is_ok());
    }

    async fn close(mut self) {
        self.shared.mailbox.close();
        let client = &self.client;
        self.shared.send(Ticket::Other, || client.try_disconnect().is_ok());
        // The broker closes the connection after it has read everything; closing it first on this
        // side might discard the rest.
        let _ = (&mut self.pump).await;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// The task that polls the event loop, and does nothing else.
struct Pump {
    shared: Arc<Shared>,
    manual_acks: bool,
}

impl Pump {
    /// Runs until the connection is lost. The event loop ends with it: rumqttc's own reconnect
    /// loses requests.
    async fn run(self, mut event_loop: EventLoop) {
        loop {
            match event_loop.poll().await {
                Ok(event) => {
                    release_collision(&mut event_loop, &event);
                    self.handle(event);
                }
                Err(error) => {
                    // Packets of the same read as the end were not returned yet.
                    while let Some(event) = event_loop.state.events.pop_front() {
                        self.handle(event);
                    }
                    self.shared.outstanding().close();
                    self.shared.mailbox.fail(convert::error(error, false));
                    return;
                }
            }
            if !self.manual_acks {
                self.shared.mailbox.wait_capacity().await;
            }
        }
    }

    fn handle(&self, event: Event) {
        match event {
            Event::Outgoing(written) => self.written(&written),
            Event::Incoming(Packet::PubAck(ack)) => {
                self.settle(ack.pkid, Some(convert::publish_reason(ack.reason)));
            }
            Event::Incoming(Packet::SubAck(ack)) => {
                let reason = ack.return_codes.first().copied().map(convert::subscribe_reason);
                self.settle(ack.pkid, reason);
            }
            Event::Incoming(Packet::Publish(packet)) => {
                let qos = convert::proto_qos(packet.qos);
                let is_manual = self.manual_acks && qos != Qos::AtMostOnce;
                let id = is_manual.then_some(PacketId { id: packet.pkid, qos });
                let (bytes, dup) = (packet.size(), packet.dup);
                let _ = self.shared.mailbox.deliver(Message::new(packet), bytes, qos, id, dup);
            }
            Event::Incoming(_) => {}
        }
    }

    /// Returns tickets by packet id, since nothing in rumqttc does.
    fn settle(&self, id: u16, reason: Option<ReasonCode>) {
        let ticket = self.shared.outstanding().settle(id);
        let (Some(ticket), Some(reason)) = (ticket, reason) else { return };
        self.shared.mailbox.settle(ticket, reason);
    }

    fn written(&self, written: &Written) {
        let mut outstanding = self.shared.outstanding();
        match written {
            Written::Publish(id) | Written::Subscribe(id) => outstanding.written(Some(*id)),
            Written::Unsubscribe(_) | Written::Disconnect => outstanding.written(None),
            Written::PubAck(_) | Written::PubRec(_) if self.manual_acks => {
                outstanding.written(None)
            }
            _ => return,
        }
        if outstanding.take_drained() {
            drop(outstanding);
            self.shared.mailbox.report(ConnectionEvent::Writable);
        }
    }
}

/// Works around a defect of rumqttc: it drops a PUBLISH that waits for a packet id if the PUBLISH
/// with that id is refused. Everything behind it would wait forever.
fn release_collision(event_loop: &mut EventLoop, event: &Event) {
    if let Event::Incoming(Packet::PubAck(PubAck { pkid, reason, .. })) = event
        && convert::publish_reason(*reason) != ReasonCode::SUCCESS
        && let Some(waiting) = event_loop.state.collision.take_if(|waiting| waiting.pkid == *pkid)
    {
        event_loop.pending.push_back(Request::Publish(waiting));
    }
}
