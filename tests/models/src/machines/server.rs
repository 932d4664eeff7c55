//! The peer of a client: a broker that moves messages step by step, with a store inside.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use statestore_proto::client::Client;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::Command;
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::Now;
use statestore_proto::transport::{
    Correlation, Incoming, Publish, ReasonCode, SubscribeToken, Transmit,
};

use crate::machines::request::StoreRequest;

/// A packet in transit to a client.
#[derive(Debug)]
enum Down {
    /// A SUBACK.
    Subscribed(SubscribeToken),
    /// A PUBLISH.
    Message(Box<Message>),
}

/// A PUBLISH with its sender, and its user properties as text.
struct Message {
    sender: Arc<str>,
    publish: Publish,
    user_properties: Vec<(&'static str, String)>,
}

impl Message {
    fn new(sender: &str, publish: Publish) -> Self {
        let properties = publish.user_properties();
        let user_properties = properties.map(|(name, value)| (name, value.to_string())).collect();
        Self { sender: sender.into(), publish, user_properties }
    }

    fn as_incoming(&self) -> Incoming<'_> {
        let Publish { topic, payload, .. } = &self.publish;
        let mut incoming = Incoming::new(topic, payload);
        incoming.response_topic = self.publish.response_topic.as_deref();
        incoming.correlation_data =
            self.publish.correlation_data.as_ref().map(Correlation::as_bytes);
        incoming.message_expiry = self.publish.message_expiry;
        incoming.verified_sender = Some(&self.sender);
        for (name, value) in &self.user_properties {
            incoming.user_property(name, value);
        }
        incoming
    }
}

/// Omits the payload, which may contain a value.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("sender", &self.sender)
            .field("topic", &self.publish.topic)
            .field("payload", &format_args!("<{} bytes>", self.publish.payload.len()))
            .field("user_properties", &self.user_properties)
            .finish_non_exhaustive()
    }
}

/// One client's connection.
#[derive(Debug, Default)]
struct Link {
    id: String,
    connected: bool,
    filters: BTreeSet<Arc<str>>,
    up: VecDeque<Transmit>,
    down: VecDeque<Down>,
}

/// A broker and a store. Packets move only on request; packets in transit are lost with their
/// connection.
pub struct Server {
    store: Store,
    /// The latest time of any operation.
    now: Now,
    links: Vec<Link>,
    writes: u64,
    history: DefaultHasher,
    /// A deliberate fault: from the second connection on, KEYNOTIFY is acknowledged but not
    /// delivered to the store.
    pub forgets_registrations: bool,
    connections: u64,
}

impl Server {
    /// A store with these clients, all disconnected.
    #[must_use]
    pub fn new(clients: &[&str]) -> Self {
        let link = |id: &&str| Link { id: (*id).into(), ..Link::default() };
        Self {
            store: Store::new(StoreConfig::new(0)),
            now: Now::default(),
            links: clients.iter().map(link).collect(),
            writes: 0,
            history: DefaultHasher::new(),
            forgets_registrations: false,
            connections: 0,
        }
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Returns whether a client is connected.
    #[must_use]
    pub fn is_connected(&self, link: usize) -> bool {
        self.links[link].connected
    }

    /// Replaces the store with an empty one. Packets in transit reach the new store; clients are
    /// not notified.
    pub fn replace_store(&mut self, incarnation: Option<u64>) {
        let config = StoreConfig::new(0);
        self.store = Store::new(match incarnation {
            Some(number) => config.incarnation(number),
            None => config,
        });
        self.note(&("replaced", incarnation));
    }

    /// Opens a connection, with a clean session.
    pub fn connect(&mut self, link: usize) {
        self.disconnect(link);
        self.connections += 1;
        self.links[link].connected = true;
    }

    /// Ends a connection and reports it to the store.
    pub fn disconnect(&mut self, link: usize) {
        let id = std::mem::take(&mut self.links[link].id);
        if self.links[link].connected {
            self.store.handle(self.now, Input::ClientGone(&id));
            self.note(&("gone", &id));
        }
        self.links[link] = Link { id, ..Link::default() };
    }

    /// Takes all packets that a client sends; without a connection they are lost.
    pub fn collect(&mut self, link: usize, client: &mut Client) {
        while let Some(transmit) = client.poll_transmit() {
            self.send(link, transmit);
        }
    }

    /// Puts one packet in transit.
    pub fn send(&mut self, link: usize, transmit: Transmit) {
        if self.links[link].connected {
            self.links[link].up.push_back(transmit);
        }
    }

    /// Number of packets in transit, up and down.
    #[must_use]
    pub fn in_flight(&self, link: usize) -> (usize, usize) {
        (self.links[link].up.len(), self.links[link].down.len())
    }

    /// The SUBACK that reaches a client next, if a SUBACK is next.
    #[must_use]
    pub fn next_suback(&self, link: usize) -> Option<SubscribeToken> {
        match self.links[link].down.front()? {
            Down::Subscribed(token) => Some(*token),
            Down::Message(_) => None,
        }
    }

    /// Delivers the next packet of a client; returns `false` without one.
    pub fn step_up(&mut self, now: Now, link: usize) -> bool {
        let Some(transmit) = self.links[link].up.pop_front() else { return false };
        match transmit {
            Transmit::Subscribe { filter, token } => {
                self.links[link].filters.insert(filter);
                self.links[link].down.push_back(Down::Subscribed(token));
            }
            Transmit::Publish(publish) => {
                let message = Message::new(&self.links[link].id, publish);
                let watches = message.publish.payload.windows(9).any(|part| part == b"KEYNOTIFY");
                if self.forgets_registrations && self.connections > 1 && watches {
                    let mut reply = message;
                    let to = reply.publish.response_topic.take();
                    reply.publish.topic = to.unwrap_or_else(|| "".into());
                    reply.publish.payload = b"+OK\r\n".as_slice().into();
                    reply.user_properties.clear();
                    self.links[link].down.push_back(Down::Message(Box::new(reply)));
                    return true;
                }
                self.submit(now, &StoreRequest::from_incoming(&message.as_incoming()));
            }
            _ => {}
        }
        true
    }

    /// Delivers the next packet to a client; returns `false` without one.
    pub fn step_down(&mut self, now: Now, link: usize, client: &mut Client) -> bool {
        match self.links[link].down.pop_front() {
            None => return false,
            Some(Down::Subscribed(token)) => {
                client.handle(now, Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
            }
            Some(Down::Message(message)) => {
                client.handle(now, Input::Message(&message.as_incoming()))
            }
        }
        true
    }

    /// Another client sends a request.
    pub fn write(&mut self, now: Now, command: &Command<&[u8]>) {
        self.writes += 1;
        let mut request = StoreRequest::new("writer", self.writes, command);
        request.timestamp = Some(format!("{}:0:writer", now.unix.as_millis()));
        self.submit(now, &request);
    }

    /// Fires the timer of the store.
    pub fn timer(&mut self, now: Now) {
        self.now = now;
        self.store.handle(now, Input::Timeout);
        self.note(&("timer", now.instant));
        self.route();
    }

    /// A hash of the store's input so far: equal histories make equal stores.
    #[must_use]
    pub fn history(&self) -> u64 {
        self.history.finish()
    }

    fn note(&mut self, what: &impl Hash) {
        what.hash(&mut self.history);
    }

    fn submit(&mut self, now: Now, request: &StoreRequest) {
        self.now = now;
        self.note(&(now.instant, format!("{request:?} {:?}", request.payload)));
        request.submit_to(now, &mut self.store);
        self.route();
    }

    fn route(&mut self) {
        while let Some(transmit) = self.store.poll_transmit() {
            let Transmit::Publish(publish) = transmit else { continue };
            let mut reached = false;
            let is_for = |link: &&mut Link| {
                link.filters.iter().any(|filter| match filter.strip_suffix('+') {
                    Some(head) => publish.topic.starts_with(head),
                    None => publish.topic == *filter,
                })
            };
            for link in self.links.iter_mut().filter(is_for) {
                reached = true;
                let message = Message::new("store", publish.clone());
                link.down.push_back(Down::Message(Box::new(message)));
            }
            if let Some(token) = publish.token.filter(|_| !reached) {
                self.store
                    .handle(self.now, Input::Published(token, ReasonCode::NO_MATCHING_SUBSCRIBERS));
            }
        }
    }
}

impl fmt::Debug for Server {
    /// The state that decides all later steps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x} {} {:?}", self.history(), self.connections, self.links)
    }
}
