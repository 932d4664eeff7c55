//! The link: attachments to the broker, one after the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use statestore_mqtt::Reason;
use statestore_mqtt::broker::{LocalEvent, LocalId};
use statestore_proto::mqtt::{ReasonCode, Transmit};
use statestore_tokio::{Connected, Link, LinkError, LinkEvent};
use tokio::sync::Notify;
use tracing::warn;

use crate::access::STORE;
use crate::broker::{Broker, Shared};
use crate::convert::{self, Message};
use crate::incidents::shortened;
use crate::running::Running;

/// Results that may wait to be taken.
const RESULTS_MAX: usize = 256;

/// Events that are taken before others have their turn: answers may be a megabyte each.
const TURN_MAX: u32 = 16;

/// A [`Link`] to a [`Broker`](crate::Broker) in this process, without a network in between.
pub struct EmbeddedLink {
    shared: Arc<Shared>,
    client_id: Arc<str>,
    attached: Option<Attached>,
}

struct Attached {
    running: Arc<Running>,
    id: LocalId,
    told: Arc<Notify>,
    results: VecDeque<LinkEvent<Message>>,
    /// Whether something was given back for lack of room.
    was_full: bool,
    /// Events since others had their turn.
    taken: u32,
}

impl Broker {
    /// A link for a store. There is one store; another one takes its place.
    #[must_use]
    pub fn store_link(&self) -> EmbeddedLink {
        self.link(STORE)
    }

    /// A link for a client in this process.
    #[must_use]
    pub fn link(&self, client_id: &str) -> EmbeddedLink {
        EmbeddedLink {
            shared: Arc::clone(&self.shared),
            client_id: client_id.into(),
            attached: None,
        }
    }
}

impl Attached {
    fn new(running: Arc<Running>, client_id: &str) -> Result<Self, Reason> {
        let id = running.with(|machine, now| {
            if client_id == STORE {
                return Ok(machine.attach_host(now, client_id));
            }
            let id = machine.attach(now, client_id)?;
            if let Some(policy) = running.policy() {
                policy.attached(client_id, |other| machine.concerns_host(other));
            }
            Ok(id)
        })?;
        let told = running.attached(id);
        Ok(Self { running, id, told, results: VecDeque::new(), was_full: false, taken: 0 })
    }

    fn has_room(&self) -> bool {
        self.results.len() < RESULTS_MAX
            && self.running.with(|machine, _| machine.wants_local(self.id))
    }

    /// Does what a machine wants done; gives it back when there is no room.
    #[expect(clippy::result_large_err, reason = "the packet comes back to be offered again")]
    fn send(&mut self, transmit: Transmit, is_store: bool) -> Result<(), Transmit> {
        if self.results.len() >= RESULTS_MAX {
            return Err(transmit);
        }
        let (running, id) = (&self.running, self.id);
        let result = match &transmit {
            Transmit::Publish(publish) => {
                let packet = convert::packet(publish);
                let recipient = publish.recipient().filter(|_| is_store);
                let reason = running.with(|machine, now| match recipient {
                    Some(recipient) => Ok(machine.deliver(now, recipient, &packet)),
                    None => machine.publish_local(now, id, &packet),
                });
                let Ok(reason) = reason else { return Err(transmit) };
                publish.token.map(|token| LinkEvent::Published(token, ReasonCode(reason.0)))
            }
            Transmit::Subscribe { filter, token } => {
                let reason = running
                    .with(|machine, _| machine.subscribe_local(id, &convert::subscription(filter)));
                Some(LinkEvent::Subscribed(*token, ReasonCode(reason.0)))
            }
            Transmit::Disconnect { client_id, response_topic, offence } => {
                let (client_id, response_topic) = (&**client_id, shortened(response_topic));
                warn!(client_id, response_topic, "an offender is disconnected: {offence}");
                let reason = Reason::ADMINISTRATIVE_ACTION;
                running.with(|machine, now| machine.disconnect(now, client_id, reason));
                None
            }
            // Nothing is kept until it is acknowledged: a store that dies takes the broker with it.
            Transmit::Acknowledge(_) => None,
        };
        self.results.extend(result);
        Ok(())
    }

    /// What there is already.
    fn poll(&mut self, messages: bool) -> Result<Option<LinkEvent<Message>>, LinkError> {
        if let Some(result) = self.results.pop_front() {
            return Ok(Some(result));
        }
        if self.running.is_stopped() {
            return Err(LinkError::transient("the broker has stopped"));
        }
        if self.was_full && self.has_room() {
            self.was_full = false;
            return Ok(Some(LinkEvent::Writable));
        }
        let id = self.id;
        let (now, next, packet_bytes_max) = self.running.with(|machine, now| {
            let looks = messages || !machine.is_attached(id);
            let next = looks.then(|| machine.poll_local(now, id)).flatten();
            // Here, where nobody comes back meanwhile.
            match (&next, self.running.policy()) {
                (Some(LocalEvent::Gone(client_id)), Some(policy))
                    if !machine.is_connected(client_id) =>
                {
                    policy.gone(client_id);
                }
                _ => {}
            }
            let sender = match &next {
                Some(LocalEvent::Message(message)) => message.sender(),
                _ => None,
            };
            let packet_bytes_max = sender.and_then(|sender| machine.packet_bytes_max(sender));
            (now, next, packet_bytes_max)
        });
        match next {
            None => Ok(None),
            Some(LocalEvent::Message(message)) => {
                Ok(Some(LinkEvent::Message(Message::new(now, message, packet_bytes_max))))
            }
            Some(LocalEvent::Gone(client_id)) => Ok(Some(LinkEvent::ClientGone(client_id))),
            Some(LocalEvent::Detached(Reason::SESSION_TAKEN_OVER)) => {
                Err(LinkError::fatal("another client has connected with this client id"))
            }
            Some(LocalEvent::Detached(reason)) => {
                Err(LinkError::transient(format_args!("disconnected by the broker: {reason}")))
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.running.detach(self.id);
    }
}

impl Link for EmbeddedLink {
    type Message = Message;

    fn client_id(&self) -> &str {
        &self.client_id
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.attached = None;
        let running = self.shared.running()?;
        let attached = Attached::new(running, &self.client_id).map_err(|reason| match reason {
            Reason::QUOTA_EXCEEDED => LinkError::transient("as many sessions as are allowed"),
            reason => LinkError::fatal(format_args!("the broker refuses this client: {reason}")),
        })?;
        let attached = self.attached.insert(attached);
        if &*self.client_id == STORE {
            let gone = self.shared.take_gone();
            attached.results.extend(gone.into_iter().map(LinkEvent::ClientGone));
        }
        Ok(Connected { session_present: false })
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection there is nothing to wait for: `next` says so.
        let Some(attached) = &mut self.attached else { return Ok(()) };
        attached.send(transmit, &*self.client_id == STORE).inspect_err(|_| {
            attached.was_full = true;
        })
    }

    async fn next(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        let Some(attached) = &mut self.attached else {
            return Err(LinkError::transient("not connected"));
        };
        // Before one is taken, which would be lost with this future.
        if attached.taken >= TURN_MAX {
            attached.taken = 0;
            tokio::task::yield_now().await;
        }
        loop {
            if let Some(event) = attached.poll(messages)? {
                attached.taken += 1;
                return Ok(event);
            }
            attached.told.notified().await;
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
    use crate::policy::Policy;
    use crate::shared_policy::SharedPolicy;

    /// While there is no store nobody says who has gone, past so many of them; they are forgotten for all that.
    #[tokio::test(flavor = "current_thread")]
    async fn who_has_gone_is_forgotten_without_a_store_too() {
        let policy = SharedPolicy::from(Policy::default());
        let options = Options::new((Ipv4Addr::LOCALHOST, 0)).policy(policy.clone());
        let broker = Broker::bind(options).await.expect("it listens");
        for at in 0..30_000 {
            let mut client = broker.link(&format!("client-{at}"));
            client.connect().await.expect("it connects");
            client.disconnect().await;
        }
        // Of ten thousand the store is yet to hear, and as many more may not have been looked through.
        assert!(policy.known() <= 20_002, "{}", policy.known());
        let mut store = broker.store_link();
        store.connect().await.expect("it connects");
        let mut heard = 0;
        while let Ok(Ok(LinkEvent::ClientGone(_))) =
            tokio::time::timeout(std::time::Duration::from_millis(100), store.next(true)).await
        {
            heard += 1;
        }
        assert_eq!((heard, policy.known() <= 10_001), (10_000, true));
    }

    /// However much waits for the store, others have their turns.
    #[tokio::test(flavor = "current_thread")]
    async fn a_store_with_much_to_do_leaves_turns_to_others() {
        const REQUESTS: u32 = 400;
        let broker =
            Broker::bind(Options::new((Ipv4Addr::LOCALHOST, 0))).await.expect("it listens");
        let mut store = broker.store_link();
        store.connect().await.expect("it connects");
        let mut client = broker.link("a");
        client.connect().await.expect("it connects");
        let running = broker.shared.running().expect("it runs");
        let id = client.attached.as_ref().expect("it is attached").id;
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
            running.with(|machine, now| machine.publish_local(now, id, &request)).expect("room");
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
            assert!(matches!(store.next(true).await, Ok(LinkEvent::Message(_))));
        }
        let turns = turns.load(Ordering::Relaxed);
        assert!(turns >= REQUESTS / TURN_MAX - 1, "{turns}");
        other.abort();
    }
}
