//! The broker as a link: async clients and services in one process, in real time, with nothing between them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statestore_proto::mqtt::{Incoming, Transmit};
use statestore_proto::time::Instant;
use statestore_tokio::{AsIncoming, Connected, Link, LinkError, LinkEvent};
use tokio::sync::Notify;

use crate::broker::{Broker, Faults, Output};
use crate::message::Message;

/// A broker in this process. Clones are the same broker.
#[derive(Clone)]
pub struct Hub {
    state: Arc<Mutex<State>>,
}

struct State {
    broker: Broker,
    mailboxes: BTreeMap<Arc<str>, Arc<Mailbox>>,
    refusing: bool,
}

/// What waits for one connection.
#[derive(Default)]
struct Mailbox {
    queue: Mutex<VecDeque<Delivery>>,
    arrived: Notify,
    hears_of_others: bool,
}

enum Delivery {
    Output(Output),
    ClientGone(Arc<str>),
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl Hub {
    /// A broker without clients.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Broker::new(0, Faults::default()))
    }

    /// This broker, which may change or keep back messages. In it no time passes, so what it delays does not arrive.
    #[must_use]
    pub fn of(broker: Broker) -> Self {
        let state = State { broker, mailboxes: BTreeMap::new(), refusing: false };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// A link for the client with this id.
    #[must_use]
    pub fn link(&self, client_id: &str) -> HubLink {
        HubLink { hub: self.clone(), client_id: client_id.into(), is_store: false, mailbox: None }
    }

    /// A link for a store: as a broker that hosts it would, it says who sent a request, and which clients have gone.
    #[must_use]
    pub fn store_link(&self, client_id: &str) -> HubLink {
        let mut link = self.link(client_id);
        link.is_store = true;
        link
    }

    /// Connects a client that sends whatever it likes, without a machine or a drive loop: for tests of what a store must
    /// bear. What it is sent waits in memory, without a bound, until it [takes](HubClient::next) it.
    ///
    /// ```
    /// use statestore_loopback::{Hub, Message};
    ///
    /// async fn overhear(hub: &Hub) -> Result<Message, statestore_tokio::LinkError> {
    ///     let client = hub.client("observer")?;
    ///     client.subscribe("statestore/#");
    ///     client.next().await
    /// }
    /// ```
    ///
    /// # Errors
    /// When the broker is [stopped](Self::stop).
    pub fn client(&self, client_id: &str) -> Result<HubClient, LinkError> {
        let client_id = client_id.into();
        let mailbox = self.connect(&client_id, false)?;
        Ok(HubClient { hub: self.clone(), client_id, mailbox })
    }

    fn connect(
        &self,
        client_id: &Arc<str>,
        hears_of_others: bool,
    ) -> Result<Arc<Mailbox>, LinkError> {
        let mut state = self.state();
        if state.refusing {
            return Err(LinkError::transient("the broker is down"));
        }
        state.broker.handle_connect(client_id);
        // Whoever had this client id before is told so.
        state.settle();
        let mailbox = Arc::new(Mailbox { hears_of_others, ..Mailbox::default() });
        state.mailboxes.insert(Arc::clone(client_id), Arc::clone(&mailbox));
        Ok(mailbox)
    }

    /// Ends the connection of a client.
    pub fn disconnect(&self, client_id: &str) {
        let mut state = self.state();
        state.broker.handle_disconnect(client_id);
        state.settle();
    }

    /// Ends every connection and takes no new one until [`restart`](Self::restart): a broker that is down.
    pub fn stop(&self) {
        let mut state = self.state();
        state.refusing = true;
        let clients: Vec<Arc<str>> = state.mailboxes.keys().cloned().collect();
        for client_id in clients {
            state.broker.handle_disconnect(&client_id);
        }
        state.settle();
    }

    /// Accepts connections again. Clients and stores come back when their pauses are over: wait for each of them that is
    /// needed.
    pub fn restart(&self) {
        self.state().refusing = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

impl State {
    /// Delivers everything at once: in this broker no time passes.
    fn settle(&mut self) {
        self.broker.handle_timeout(Instant::default());
        while let Some(output) = self.broker.poll_output() {
            if let Output::Disconnected { client_id } = &output {
                let others = self.mailboxes.values().filter(|mailbox| mailbox.hears_of_others);
                others
                    .for_each(|mailbox| mailbox.push(Delivery::ClientGone(Arc::clone(client_id))));
            }
            let mailbox = match &output {
                Output::Disconnected { client_id } => self.mailboxes.remove(client_id),
                other => self.mailboxes.get(other.client_id()).cloned(),
            };
            if let Some(mailbox) = mailbox {
                mailbox.push(Delivery::Output(output));
            }
        }
    }
}

impl Mailbox {
    fn push(&self, delivery: Delivery) {
        self.queue().push_back(delivery);
        self.arrived.notify_one();
    }

    /// The first thing there is, or the first that is no message.
    fn pop(&self, messages: bool) -> Option<Delivery> {
        let mut queue = self.queue();
        let is_wanted = |delivery: &Delivery| {
            messages || !matches!(delivery, Delivery::Output(Output::Message { .. }))
        };
        let at = queue.iter().position(is_wanted)?;
        queue.remove(at)
    }

    async fn next(&self, messages: bool) -> Delivery {
        loop {
            if let Some(delivery) = self.pop(messages) {
                return delivery;
            }
            self.arrived.notified().await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Delivery>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`Link`] to a [`Hub`].
pub struct HubLink {
    hub: Hub,
    client_id: Arc<str>,
    is_store: bool,
    mailbox: Option<Arc<Mailbox>>,
}

impl fmt::Debug for HubLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubLink").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl Link for HubLink {
    type Message = Message;

    fn client_id(&self) -> &str {
        &self.client_id
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.mailbox = Some(self.hub.connect(&self.client_id, self.is_store)?);
        Ok(Connected { session_present: false })
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        let mut state = self.hub.state();
        state.broker.handle_transmit(Instant::default(), &self.client_id, transmit);
        state.settle();
        Ok(())
    }

    async fn next(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        let Some(mailbox) = &self.mailbox else {
            return Err(LinkError::transient("not connected"));
        };
        match mailbox.next(messages).await {
            Delivery::ClientGone(gone) | Delivery::Output(Output::Gone { gone, .. }) => {
                Ok(LinkEvent::ClientGone(gone))
            }
            Delivery::Output(Output::Subscribed { token, reason, .. }) => {
                Ok(LinkEvent::Subscribed(token, reason))
            }
            Delivery::Output(Output::Published { token, reason, .. }) => {
                Ok(LinkEvent::Published(token, reason))
            }
            Delivery::Output(Output::Message { message, .. }) => Ok(LinkEvent::Message(message)),
            Delivery::Output(Output::Disconnected { .. }) => {
                Err(LinkError::transient("disconnected by the broker"))
            }
        }
    }

    async fn disconnect(&mut self) {
        self.mailbox = None;
        self.hub.disconnect(&self.client_id);
    }
}

impl Drop for HubLink {
    fn drop(&mut self) {
        if self.mailbox.is_some() {
            self.hub.disconnect(&self.client_id);
        }
    }
}

/// A client of a [`Hub`] that is nothing but its connection.
pub struct HubClient {
    hub: Hub,
    client_id: Arc<str>,
    mailbox: Arc<Mailbox>,
}

impl HubClient {
    /// Subscribes at once.
    pub fn subscribe(&self, filter: &str) {
        self.hub.state().broker.handle_subscribe(&self.client_id, filter);
    }

    /// Publishes a message of its own, whatever that says of its sender.
    pub fn publish(&self, mut message: Message) {
        message.sender = Arc::clone(&self.client_id);
        let mut state = self.hub.state();
        state.broker.handle_message(Instant::default(), message);
        state.settle();
    }

    /// The next message. Cancel safe.
    ///
    /// # Errors
    /// When the connection has ended.
    pub async fn next(&self) -> Result<Message, LinkError> {
        loop {
            match self.mailbox.next(true).await {
                Delivery::Output(Output::Message { message, .. }) => return Ok(message),
                Delivery::Output(Output::Disconnected { .. }) => {
                    return Err(LinkError::transient("disconnected by the broker"));
                }
                Delivery::Output(_) | Delivery::ClientGone(_) => {}
            }
        }
    }
}

impl Drop for HubClient {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        // Another may have this client id by now.
        let own = state.mailboxes.get(&self.client_id);
        if own.is_some_and(|mailbox| Arc::ptr_eq(mailbox, &self.mailbox)) {
            state.broker.handle_disconnect(&self.client_id);
            state.settle();
        }
    }
}

impl fmt::Debug for HubClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubClient").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        Some(Self::as_incoming(self))
    }
}
