//! The broker machine, shared by its connections, and the events that wait for each connection.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use statestore_broker::{Broker, Config, Limits, LocalEvent, LocalId, Wake};
use statestore_mqtt::packet::{Publish, Subscription};
use statestore_mqtt::property::Encode;
use statestore_mqtt::{Qos, Reason};
use statestore_proto::transport::{ReasonCode, Transmit};
use statestore_tokio::adapter::{ReasonDetails, machine_reason, publish_packet};
use statestore_tokio::{LinkError, LinkEvent};
use tokio::sync::Notify;

use crate::message::Message;

/// Maximum number of events that wait for one connection.
const QUEUE_MAX: usize = 65_536;

/// The broker's time, which never advances.
const NOW: Duration = Duration::ZERO;

/// The state that all connections share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

pub(crate) struct State {
    broker: Broker,
    mailboxes: BTreeMap<LocalId, Arc<Mailbox>>,
    /// New connections are rejected.
    pub(crate) is_stopped: bool,
}

/// Events that wait for one connection, [`QUEUE_MAX`] at most.
struct Mailbox {
    client_id: Arc<str>,
    /// Disconnected clients are reported.
    is_store: bool,
    /// An error closes the connection.
    queue: Mutex<VecDeque<Event>>,
    arrived: Notify,
}

type Event = Result<LinkEvent<Message>, LinkError>;

/// One connection. It is closed when dropped.
pub(crate) struct Connection {
    shared: Shared,
    id: LocalId,
    mailbox: Arc<Mailbox>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let broker = Broker::new(Config { limits: Limits::unlimited(), ..Config::default() });
        let state = State { broker, mailboxes: BTreeMap::new(), is_stopped: false };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a client. An earlier connection with its client id is closed.
    pub(crate) fn connect(&self, client_id: &str, is_store: bool) -> Result<Connection, LinkError> {
        let mut state = self.state();
        if state.is_stopped {
            return Err(LinkError::transient("the broker is down"));
        }
        // Before the new connection, so that stores receive the events in this order.
        state.disconnect_client(client_id, Reason::SESSION_TAKEN_OVER);
        let id = state.broker.attach(NOW, client_id).map_err(|reason| {
            LinkError::fatal(format_args!("the broker rejects the client: {reason}"))
        })?;
        let mailbox = Arc::new(Mailbox {
            client_id: client_id.into(),
            is_store,
            queue: Mutex::default(),
            arrived: Notify::new(),
        });
        state.mailboxes.insert(id, Arc::clone(&mailbox));
        state.collect();
        Ok(Connection { shared: self.clone(), id, mailbox })
    }
}

impl State {
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        while let Some(id) = self.mailboxes.keys().next().copied() {
            self.disconnect(id, Reason::SERVER_SHUTTING_DOWN);
        }
    }

    pub(crate) fn disconnect_client(&mut self, client_id: &str, reason: Reason) {
        let mut connected = self.mailboxes.iter();
        let found = connected.find(|(_, mailbox)| *mailbox.client_id == *client_id);
        if let Some(id) = found.map(|(id, _)| *id) {
            self.disconnect(id, reason);
        }
    }

    fn disconnect(&mut self, id: LocalId, reason: Reason) {
        self.close(id, reason);
        self.collect();
    }

    fn close(&mut self, id: LocalId, reason: Reason) {
        let Some(mailbox) = self.mailboxes.remove(&id) else { return };
        let error = LinkError::disconnected(machine_reason(reason), ReasonDetails::default());
        mailbox.push(Err(error));
        self.broker.detach(NOW, id);
        let stores = self.mailboxes.iter().filter(|(_, other)| other.is_store);
        let gone = || Ok(LinkEvent::ClientGone(Arc::clone(&mailbox.client_id)));
        let full = stores.filter(|(_, store)| !store.push(gone())).map(|(id, _)| *id);
        for id in full.collect::<Vec<_>>() {
            self.close(id, Reason::QUOTA_EXCEEDED);
        }
    }

    /// Moves the output of the broker to the connections.
    fn collect(&mut self) {
        while let Some(wake) = self.broker.poll_wake() {
            if let Wake::Local(id) = wake {
                self.collect_for(id);
            }
        }
    }

    fn collect_for(&mut self, id: LocalId) {
        let Some(mailbox) = self.mailboxes.get(&id).cloned() else { return };
        while let Some(event) = self.broker.poll_local(NOW, id) {
            let event = match event {
                LocalEvent::Message(message, _) => {
                    // Only a host sends messages without a sender. This broker lacks a host.
                    let Some(message) = Message::from_broker(&message, NOW, None) else { continue };
                    LinkEvent::Message(message)
                }
                // Only the host receives this.
                LocalEvent::Gone(_) => continue,
                LocalEvent::Detached(reason) => return self.close(id, reason),
            };
            if !mailbox.push(Ok(event)) {
                return self.close(id, Reason::QUOTA_EXCEEDED);
            }
        }
    }
}

impl Mailbox {
    /// Adds an event. Returns `false` if the queue exceeds its limit, so that the connection must
    /// be closed.
    fn push(&self, event: Event) -> bool {
        let mut queue = self.queue();
        queue.push_back(event);
        self.arrived.notify_one();
        queue.len() <= QUEUE_MAX
    }

    /// Returns the first event, or the first that is not a message.
    fn pop(&self, messages: bool) -> Option<Event> {
        let mut queue = self.queue();
        let is_message = |event: &Event| matches!(event, Ok(LinkEvent::Message(_)));
        let at = queue.iter().position(|event| messages || !is_message(event))?;
        queue.remove(at)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    pub(crate) fn send(&self, transmit: Transmit) {
        let result = match transmit {
            Transmit::Subscribe { filter, token } => {
                Some(LinkEvent::Subscribed(token, self.subscribe(&filter)))
            }
            Transmit::Publish(publish) => {
                let reason = self.publish(&publish_packet(&publish));
                publish.token.map(|token| LinkEvent::Published(token, reason))
            }
            Transmit::Disconnect { client_id, .. } => {
                self.shared.state().disconnect_client(&client_id, Reason::ADMINISTRATIVE_ACTION);
                None
            }
            // The broker does not redeliver messages.
            _ => None,
        };
        if result.is_some_and(|result| !self.mailbox.push(Ok(result))) {
            self.shared.state().disconnect(self.id, Reason::QUOTA_EXCEEDED);
        }
    }

    /// Subscribes at QoS 1.
    pub(crate) fn subscribe(&self, filter: &str) -> ReasonCode {
        let subscription = Subscription::new(filter, Qos::AtLeastOnce);
        let mut state = self.shared.state();
        let reason = state.broker.subscribe_local(self.id, &subscription);
        state.collect();
        machine_reason(reason)
    }

    pub(crate) fn publish<P: Encode>(&self, packet: &Publish<'_, P>) -> ReasonCode {
        let mut state = self.shared.state();
        let reason = state.broker.publish_local(NOW, self.id, packet);
        state.collect();
        machine_reason(reason.unwrap_or(Reason::QUOTA_EXCEEDED))
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next_event(&self, messages: bool) -> Event {
        loop {
            if let Some(event) = self.mailbox.pop(messages) {
                return event;
            }
            self.mailbox.arrived.notified().await;
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client_id = &self.mailbox.client_id;
        f.debug_struct("Connection").field("client_id", client_id).finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.state().disconnect(self.id, Reason::SUCCESS);
    }
}
