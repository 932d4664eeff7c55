//! One connection: what Paho has to send, and what became of it.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use paho_mqtt::{DisconnectOptionsBuilder, Error, PropertyCode, QoS, ServerResponse, Token};
use statestore_proto::mqtt::{Publish, PublishToken, SubscribeToken};
use statestore_tokio::diagnostics::mosquitto;
use statestore_tokio::{Address, LinkError, LinkEvent, Options};
use tracing::warn;

use crate::client::Client;
use crate::convert::{self, Message};
use crate::mailbox::{Arrival, Mailbox};
use crate::options;

/// How long a goodbye waits for what is in flight.
const FLUSH_MAX: Duration = Duration::from_millis(500);

/// Who wants to know what became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    Publish(PublishToken),
    Subscribe(SubscribeToken),
    /// Nobody.
    Other,
}

/// One connection.
pub(crate) struct Connection {
    client: Client,
    mailbox: Arc<Mailbox>,
    packet_bytes_max: usize,
    requests_max: usize,
    presence: bool,
    pub(crate) session_present: bool,
    /// Packets that Paho has, by number.
    outstanding: BTreeMap<u64, (Ticket, Token)>,
    last: u64,
    /// Whether a packet was refused whose sender waits to hear that there is room again.
    starved: bool,
    /// Never holds a message.
    events: VecDeque<LinkEvent<Message>>,
}

impl Connection {
    /// Connects to this address. May be dropped at any time.
    pub(crate) async fn open(
        options: &Options,
        at: &Address,
        inbox: usize,
    ) -> Result<Self, LinkError> {
        let mailbox = Mailbox::new(inbox);
        let mut client = Client::new(options, at, &mailbox)?;
        let told = client.connected().await.map_err(|error| convert::refused(&error))?;
        let limit = told.properties().get(PropertyCode::MaximumPacketSize);
        let limit = limit.and_then(|limit| limit.get_u32());
        let mut connection = Self {
            client,
            mailbox,
            packet_bytes_max: limit
                .and_then(|max| usize::try_from(max).ok())
                .unwrap_or(convert::PACKET_BYTES_MAX),
            requests_max: options::requests_max(options),
            presence: options.presence,
            session_present: told.connect_response().is_some_and(|it| it.session_present),
            outstanding: BTreeMap::new(),
            last: 0,
            starved: false,
            events: VecDeque::new(),
        };
        if options.presence {
            for filter in mosquitto::FILTERS {
                connection.subscribe(filter, QoS::AtMostOnce, Ticket::Other);
            }
        }
        Ok(connection)
    }

    /// Whether Paho may have another packet. If not, [`LinkEvent::Writable`] follows when it may.
    pub(crate) fn has_room(&mut self) -> bool {
        self.starved |= self.outstanding.len() >= self.requests_max;
        self.watch_for_room();
        !self.starved
    }

    pub(crate) fn publish(&mut self, publish: Publish) {
        let ticket = publish.token.map_or(Ticket::Other, Ticket::Publish);
        let topic = Arc::clone(&publish.topic);
        match convert::packet(publish, self.packet_bytes_max) {
            // The token alone, so that the payload is kept in one place only.
            Ok(packet) => self.sent(ticket, self.client.paho.publish(packet).into()),
            Err(refusal) => {
                warn!(topic = &*topic, %refusal, "not sent");
                if let Ticket::Publish(token) = ticket {
                    self.events.push_back(LinkEvent::Published(token, refusal));
                }
            }
        }
    }

    pub(crate) fn subscribe(&mut self, filter: &str, qos: QoS, ticket: Ticket) {
        if let Some(refusal) = convert::refused_filter(filter, self.packet_bytes_max) {
            warn!(filter, "not subscribed: too long for the broker, or no filter");
            if let Ticket::Subscribe(token) = ticket {
                self.events.push_back(LinkEvent::Subscribed(token, refusal));
            }
            return;
        }
        self.sent(ticket, self.client.paho.subscribe(filter, qos));
    }

    fn sent(&mut self, ticket: Ticket, mut token: Token) {
        self.last += 1;
        let waker = self.mailbox.waker(self.last, ticket != Ticket::Other);
        match Pin::new(&mut token).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => self.settled(ticket, &result),
            Poll::Pending => _ = self.outstanding.insert(self.last, (ticket, token)),
        }
    }

    fn settled(&mut self, ticket: Ticket, result: &Result<ServerResponse, Error>) {
        if convert::is_poison(result) {
            self.client.spoil();
        }
        let Some(reason) = convert::outcome(result) else { return };
        match ticket {
            Ticket::Publish(token) => self.events.push_back(LinkEvent::Published(token, reason)),
            Ticket::Subscribe(token) => self.events.push_back(LinkEvent::Subscribed(token, reason)),
            Ticket::Other => {}
        }
    }

    /// The next event, without waiting.
    pub(crate) fn take(&mut self, messages: bool) -> Result<Option<LinkEvent<Message>>, LinkError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            match self.mailbox.take(messages)? {
                None => return Ok(None),
                Some(Arrival::Settled(numbers)) => self.settle(numbers),
                Some(Arrival::Message(packet)) => {
                    if let Some(event) = self.received(Message::new(packet)) {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    fn settle(&mut self, numbers: Vec<u64>) {
        for number in numbers {
            let Some((ticket, mut token)) = self.outstanding.remove(&number) else { continue };
            match Pin::new(&mut token).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => self.settled(ticket, &result),
                Poll::Pending => {}
            }
        }
        self.watch_for_room();
    }

    /// Half empty rather than one less than full: the link is woken once for many.
    fn watch_for_room(&mut self) {
        if !self.starved {
            return;
        }
        let too_many = self.outstanding.len().saturating_sub(self.requests_max / 2);
        self.mailbox.settled_worth(Some(too_many).filter(|many| *many > 0));
        if too_many == 0 {
            self.starved = false;
            self.events.push_back(LinkEvent::Writable);
        }
    }

    fn received(&self, message: Message) -> Option<LinkEvent<Message>> {
        if self.presence && message.topic().starts_with(mosquitto::TOPICS) {
            return mosquitto::gone(message.payload()).map(|id| LinkEvent::ClientGone(id.into()));
        }
        Some(LinkEvent::Message(message))
    }

    /// Waits for [`take`](Self::take) to give something else.
    pub(crate) async fn arrival(&self) {
        self.mailbox.arrival().await;
    }

    /// Says goodbye after everything that was offered.
    pub(crate) fn goodbye(&self) -> Token {
        self.mailbox.close();
        let how = DisconnectOptionsBuilder::new().timeout(FLUSH_MAX).finalize();
        self.client.paho.disconnect(how)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.mailbox.close();
        let outstanding = std::mem::take(&mut self.outstanding);
        self.client.check(outstanding.into_values().map(|(_, token)| token).collect());
    }
}
