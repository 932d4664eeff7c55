//! The one task that polls rumqttc's event loop, and does nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use rumqttc::Outgoing;
use rumqttc::v5::mqttbytes::v5::{Packet, PubAck, Publish};
use rumqttc::v5::{Event, EventLoop, Request};
use statestore_proto::mqtt::{PublishToken, ReasonCode, SubscribeToken};
use statestore_tokio::LinkEvent;
use statestore_tokio::diagnostics::mosquitto;
use tokio::sync::mpsc;
use tracing::warn;

use crate::convert::{self, Message};
use crate::mailbox::{Mailbox, Ticket};

/// Reads the events of one connection.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) generation: u64,
    pub(crate) manual_acks: bool,
    pub(crate) presence: bool,
    pub(crate) retry_after_takeover: bool,
    /// Where claims are, and who reads them while one is made.
    pub(crate) claims: Option<(String, mpsc::Sender<Publish>)>,
    publishes: BTreeMap<u16, PublishToken>,
    subscribes: BTreeMap<u16, SubscribeToken>,
}

impl Pump {
    pub(crate) fn new(mailbox: Arc<Mailbox>, generation: u64) -> Self {
        Self {
            mailbox,
            generation,
            manual_acks: false,
            presence: false,
            retry_after_takeover: false,
            claims: None,
            publishes: BTreeMap::new(),
            subscribes: BTreeMap::new(),
        }
    }

    /// Runs until the connection is lost. The event loop ends with it: rumqttc's own reconnect loses requests.
    pub(crate) async fn run(mut self, mut event_loop: EventLoop) {
        loop {
            match event_loop.poll().await {
                Ok(event) => {
                    release_collision(&mut event_loop, &event);
                    self.take(event);
                }
                Err(error) => {
                    // What came in the same read as the end was not handed out yet.
                    while let Some(event) = event_loop.state.events.pop_front() {
                        self.take(event);
                    }
                    self.mailbox.lose(convert::error(&error, self.retry_after_takeover));
                    return;
                }
            }
            self.mailbox.room_for_messages().await;
        }
    }

    /// Pairs packet ids with tokens, which nothing in rumqttc returns.
    fn take(&mut self, event: Event) {
        match event {
            Event::Outgoing(outgoing) => self.sent(&outgoing),
            Event::Incoming(Packet::PubAck(ack)) => {
                let reason = convert::publish_reason(ack.reason);
                match self.publishes.remove(&ack.pkid) {
                    Some(token) => self.mailbox.answer(LinkEvent::Published(token, reason)),
                    // An answer has no token, since nobody but its requester waits for it.
                    None if reason.is_error() => {
                        warn!(%reason, "the broker refuses an answer: let the store write response topics");
                    }
                    None => {}
                }
            }
            Event::Incoming(Packet::SubAck(ack)) => {
                let reason = ack.return_codes.first().copied().map(convert::subscribe_reason);
                if let (Some(token), Some(reason)) = (self.subscribes.remove(&ack.pkid), reason) {
                    self.mailbox.answer(LinkEvent::Subscribed(token, reason));
                }
            }
            Event::Incoming(Packet::Publish(packet)) => {
                if self.presence && packet.topic.starts_with(mosquitto::TOPICS.as_bytes()) {
                    if let Some(client_id) = mosquitto::gone(&packet.payload) {
                        self.mailbox.gone(client_id);
                    }
                    return;
                }
                let claims = self.claims.as_ref();
                if let Some((_, claims)) = claims.filter(|(topic, _)| packet.topic == *topic) {
                    // Nobody reads them any more, or somebody floods them: no machine is to see either.
                    let _ = claims.try_send(packet);
                    return;
                }
                self.mailbox.deliver(Message::new(packet, self.generation, self.manual_acks));
            }
            Event::Incoming(_) => {}
        }
    }

    fn sent(&mut self, outgoing: &Outgoing) {
        match outgoing {
            Outgoing::Publish(id) => {
                if let Some(Ticket::Publish(Some(token))) = self.mailbox.sent() {
                    self.publishes.insert(*id, token);
                }
            }
            Outgoing::Subscribe(id) => {
                if let Some(Ticket::Subscribe(Some(token))) = self.mailbox.sent() {
                    self.subscribes.insert(*id, token);
                }
            }
            Outgoing::Unsubscribe(_) | Outgoing::Disconnect => _ = self.mailbox.sent(),
            Outgoing::PubAck(_) | Outgoing::PubRec(_) if self.manual_acks => {
                _ = self.mailbox.sent()
            }
            _ => {}
        }
    }
}

/// A PUBLISH that waits for a packet id is forgotten by rumqttc when the one that has the id is refused; everything
/// behind it would wait for ever.
fn release_collision(event_loop: &mut EventLoop, event: &Event) {
    if let Event::Incoming(Packet::PubAck(PubAck { pkid, reason, .. })) = event
        && convert::publish_reason(*reason) != ReasonCode::SUCCESS
        && let Some(waiting) = event_loop.state.collision.take_if(|waiting| waiting.pkid == *pkid)
    {
        event_loop.pending.push_back(Request::Publish(waiting));
    }
}
