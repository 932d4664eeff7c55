//! The in-process link to the broker.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use statestore_broker::{LocalEvent, LocalId};
use statestore_mqtt::packet::Subscription;
use statestore_mqtt::{Qos, Reason};
use statestore_proto::transport::{ReasonCode, Transmit};
use statestore_tokio::adapter::{ReasonDetails, machine_reason, publish_packet};
use statestore_tokio::{Connected, Link, LinkError, LinkErrorKind, LinkEvent};
use tokio::sync::Notify;
use tracing::warn;

use crate::access::fixed_rules::STORE_CLIENT_ID;
use crate::broker::convert::Message;
use crate::broker::driver::BrokerDriver;
use crate::broker::incidents::truncated;
use crate::broker::{Broker, Shared};

/// Maximum number of results that the driver of this link has not yet polled.
const RESULTS_MAX: usize = 256;

/// Events returned before other tasks run. Each response may be a megabyte.
const EVENTS_PER_TURN: u32 = 16;

/// A [`Link`] to a [`Broker`](crate::Broker) in this process, without a network in between.
pub struct EmbeddedLink {
    shared: Arc<Shared>,
    client_id: Arc<str>,
    attached: Option<Attachment>,
}

struct Attachment {
    driver: Arc<BrokerDriver>,
    id: LocalId,
    wakeup: Arc<Notify>,
    results: VecDeque<LinkEvent<Message>>,
    /// Set when `try_send` returned a transmit because the link was full.
    was_full: bool,
    /// Events returned since the last yield.
    events_since_yield: u32,
}

impl Broker {
    /// Returns a link for a store. A broker has one store: a second store takes over the first
    /// one's place.
    #[must_use]
    pub fn store_link(&self) -> EmbeddedLink {
        self.link(STORE_CLIENT_ID)
    }

    /// Returns a link for a client in this process.
    #[must_use]
    pub fn link(&self, client_id: &str) -> EmbeddedLink {
        EmbeddedLink {
            shared: Arc::clone(&self.shared),
            client_id: client_id.into(),
            attached: None,
        }
    }
}

impl Attachment {
    fn new(driver: Arc<BrokerDriver>, client_id: &str) -> Result<Self, Reason> {
        let id = driver.with_broker(|broker, now| {
            if client_id == STORE_CLIENT_ID {
                return Ok(broker.attach_host(now, client_id));
            }
            broker.attach(now, client_id)
        })?;
        let wakeup = driver.register_local(id);
        Ok(Self {
            driver,
            id,
            wakeup,
            results: VecDeque::new(),
            was_full: false,
            events_since_yield: 0,
        })
    }

    fn can_send(&self) -> bool {
        self.results.len() < RESULTS_MAX
            && self.driver.with_broker(|broker, _| broker.can_publish_local(self.id))
    }

    /// Executes a transmit. Returns it if the link is full.
    #[expect(clippy::result_large_err, reason = "the packet comes back to be offered again")]
    fn send(&mut self, transmit: Transmit, is_store: bool) -> Result<(), Transmit> {
        if self.results.len() >= RESULTS_MAX {
            return Err(transmit);
        }
        let (driver, id) = (&self.driver, self.id);
        let result = match &transmit {
            Transmit::Publish(publish) => {
                let packet = publish_packet(publish);
                let recipient = publish.recipient().filter(|_| is_store);
                let reason = driver.with_broker_deferred(|broker, now| match recipient {
                    Some(recipient) => Ok(broker.deliver(now, recipient, &packet)),
                    None => broker.publish_local(now, id, &packet),
                });
                let Ok(reason) = reason else { return Err(transmit) };
                publish.token.map(|token| LinkEvent::Published(token, machine_reason(reason)))
            }
            Transmit::Subscribe { filter, token } => {
                let subscription = Subscription::new(filter, Qos::AtLeastOnce);
                let reason =
                    driver.with_broker(|broker, _| broker.subscribe_local(id, &subscription));
                Some(LinkEvent::Subscribed(*token, machine_reason(reason)))
            }
            Transmit::Disconnect { client_id, response_topic, offence } => {
                let (client_id, response_topic) = (&**client_id, truncated(response_topic));
                warn!(client_id, response_topic, "disconnecting client: {offence}");
                let reason = Reason::ADMINISTRATIVE_ACTION;
                driver.with_broker(|broker, now| broker.disconnect(now, client_id, reason));
                None
            }
            // Requests are not stored until they are acknowledged. If the store dies, the broker
            // dies with it.
            Transmit::Acknowledge(_) => None,
            unsupported => {
                warn!("unsupported output of the state machine: {unsupported:?}");
                None
            }
        };
        self.results.extend(result);
        Ok(())
    }

    /// Returns the next available event without waiting.
    fn poll(&mut self, messages: bool) -> Result<Option<LinkEvent<Message>>, LinkError> {
        if let Some(result) = self.results.pop_front() {
            return Ok(Some(result));
        }
        if self.driver.is_stopped() {
            return Err(LinkError::transient("the broker is stopped"));
        }
        if self.was_full && self.can_send() {
            self.was_full = false;
            return Ok(Some(LinkEvent::Writable));
        }
        let id = self.id;
        let (now, next, packet_bytes_max) = self.driver.with_broker_deferred(|broker, now| {
            let polls = messages || !broker.is_attached(id);
            let next = if polls {
                broker.poll_local(now, id)
            } else {
                broker.pause_host();
                None
            };
            let sender = match &next {
                Some(LocalEvent::Message(message, _)) => message.sender(),
                _ => None,
            };
            let packet_bytes_max = sender.and_then(|sender| broker.packet_bytes_max(sender));
            (now, next, packet_bytes_max)
        });
        match next {
            None => Ok(None),
            Some(LocalEvent::Message(message, details)) => {
                let message = Message::new(now, message, details, packet_bytes_max);
                Ok(Some(LinkEvent::Message(message)))
            }
            Some(LocalEvent::Gone(client_id)) => Ok(Some(LinkEvent::ClientGone(client_id))),
            Some(LocalEvent::Detached(Reason::SESSION_TAKEN_OVER)) => {
                let reason = ReasonCode::SESSION_TAKEN_OVER;
                Err(LinkError::disconnected(reason, ReasonDetails::default()))
            }
            Some(LocalEvent::Detached(reason)) => {
                Err(LinkError::transient(format_args!("disconnected by the broker: {reason}")))
            }
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.driver.detach(self.id);
    }
}

impl Link for EmbeddedLink {
    type Message = Message;

    fn client_id(&self) -> &str {
        &self.client_id
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.attached = None;
        let driver = self.shared.driver()?;
        let attached = Attachment::new(driver, &self.client_id).map_err(|reason| match reason {
            Reason::QUOTA_EXCEEDED => LinkError::transient("session limit of the broker reached"),
            reason => LinkError::fatal(format_args!("rejected by the broker: {reason}")),
        })?;
        let attached = self.attached.insert(attached);
        if &*self.client_id == STORE_CLIENT_ID {
            let gone = self.shared.drain_unreported();
            attached.results.extend(gone.into_iter().map(LinkEvent::ClientGone));
        }
        Ok(Connected::default())
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection the transmit is dropped; `next_event` reports the error.
        let Some(attached) = &mut self.attached else { return Ok(()) };
        attached.send(transmit, &*self.client_id == STORE_CLIENT_ID).inspect_err(|_| {
            attached.was_full = true;
        })
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        let Some(attached) = &mut self.attached else {
            return Err(LinkError::new(LinkErrorKind::NotConnected, "not connected"));
        };
        // Yield before an event is removed from the queue: it would be lost if this future is
        // dropped.
        if attached.events_since_yield >= EVENTS_PER_TURN {
            attached.driver.wake();
            tokio::task::yield_now().await;
            // Reset after the yield: if this future is dropped before, the yield did not happen.
            attached.events_since_yield = 0;
        }
        loop {
            if let Some(event) = attached.poll(messages)? {
                attached.events_since_yield += 1;
                return Ok(event);
            }
            // Responses to all messages of this turn are written together.
            attached.driver.wake();
            attached.wakeup.notified().await;
        }
    }

    async fn disconnect(&mut self) {
        self.attached = None;
    }
}

impl fmt::Debug for EmbeddedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLink").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicU32, Ordering};

    use statestore_mqtt::Qos;
    use statestore_mqtt::packet::Publish;
    use statestore_proto::topic::REQUEST;

    use super::*;
    use crate::options::Options;

    /// The store would keep the registrations of a client that it believes to be connected.
    #[tokio::test(flavor = "current_thread")]
    async fn clients_of_every_stop_are_reported_to_the_next_store_link() {
        let broker = Broker::bind(Options::new((Ipv4Addr::LOCALHOST, 0))).await.expect("bind");
        for client_id in ["a", "b"] {
            let mut client = broker.link(client_id);
            client.connect().await.expect("connect");
            broker.stop().await;
            broker.start().await.expect("bind");
        }
        let mut store = broker.store_link();
        store.connect().await.expect("connect");
        for expected in ["a", "b"] {
            let event = store.next_event(true).await.expect("an event");
            assert!(matches!(event, LinkEvent::ClientGone(id) if &*id == expected), "{expected}");
        }
    }

    /// The store yields to other tasks even while many requests are waiting.
    #[tokio::test(flavor = "current_thread")]
    async fn busy_store_yields_to_other_tasks() {
        const REQUESTS: u32 = 400;
        let broker = Broker::bind(Options::new((Ipv4Addr::LOCALHOST, 0))).await.expect("bind");
        let mut store = broker.store_link();
        store.connect().await.expect("connect");
        let mut client = broker.link("a");
        client.connect().await.expect("connect");
        let driver = broker.shared.driver().expect("running broker");
        let id = client.attached.as_ref().expect("attached").id;
        let request = Publish {
            dup: false,
            qos: Qos::AtLeastOnce,
            retain: false,
            topic: REQUEST,
            id: None,
            properties: (),
            payload: b"x",
        };
        for _ in 0..REQUESTS {
            driver
                .with_broker(|broker, now| broker.publish_local(now, id, &request))
                .expect("queue has capacity");
        }
        let turns = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        for _ in 0..REQUESTS {
            assert!(matches!(store.next_event(true).await, Ok(LinkEvent::Message(_))));
        }
        let turns = turns.load(Ordering::Relaxed);
        assert!(turns >= REQUESTS / EVENTS_PER_TURN - 1, "{turns}");
        other.abort();
    }
}
