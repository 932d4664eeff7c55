//! What the caller sends: publishes, subscriptions, and acknowledgements of messages.

use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use super::Session;
use super::encode;
use super::error::{SendError, Stale};
use super::message::Delivery;
use super::publish_packet::{Wire, check_server, packet_max};
use super::requests::{IdOwner, Retained};
use super::server::Server;
use crate::alias::Alias;
use crate::error::Malformed;
use crate::hidden::Hidden;
use crate::kind::Kind;
use crate::packet::{Filters, Packet, Subscribe, Subscription, Subscriptions, Unsubscribe};
use crate::property::{Encode, Place, id};
use crate::qos::Qos;
use crate::reason::Reason;
use crate::topic::{self, Filter};

/// A message to publish.
#[derive(Clone)]
pub struct Publish<'a, P = ()> {
    /// Topic name.
    pub topic: &'a str,
    /// Payload. It is not copied, unless it is shorter than a few hundred bytes.
    pub payload: Bytes,
    /// QoS.
    pub qos: Qos,
    /// Retain flag.
    pub retain: bool,
    /// Properties: anything that [`Encode`]s. The session sets topic aliases itself.
    pub properties: P,
    /// A number of the caller, returned in the event that ends the publish at QoS 1 and 2.
    pub token: u64,
}

/// The payload is omitted.
impl<P> fmt::Debug for Publish<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("topic", &self.topic)
            .field("payload", &Hidden(&self.payload))
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

fn parse_filter(filter: &str) -> Result<Filter<'_>, SendError> {
    match Filter::parse(filter) {
        Some(parsed) if !filter.contains('\0') => Ok(parsed),
        _ => Err(SendError::InvalidFilter),
    }
}

impl Session {
    /// Publishes a message.
    ///
    /// At QoS 0 the packet is written to the output at once and no event follows. At QoS 1 and 2
    /// the session retains the message until it is acknowledged, and
    /// [`Published`](super::Event::Published) or [`Lost`](super::Event::Lost) follows. Such a
    /// message may be published without a connection; it waits for one.
    ///
    /// Messages at QoS 1 and 2 are sent in order. One at QoS 0 overtakes those that wait.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then.
    pub fn publish<P: Encode>(&mut self, publish: Publish<'_, P>) -> Result<(), SendError> {
        let Publish { topic, payload, qos, retain, properties, token } = publish;
        if !topic::is_name(topic) || topic.contains('\0') {
            return Err(SendError::InvalidTopic);
        }
        let place = Place::Packet(Kind::Publish);
        let properties = encode(&mut self.scratch, &properties, place)?;
        let of_session = [id::TOPIC_ALIAS, id::SUBSCRIPTION];
        if let Some(id) = of_session.into_iter().find(|id| properties.has(*id)) {
            return Err(SendError::InvalidProperties(Malformed::Misplaced(id)));
        }
        let properties = properties.as_bytes();
        let payload = &payload;
        let wire = Wire { dup: false, qos, retain, topic, id: None, properties, payload };
        let (size, limit) = (wire.len(Alias::None), packet_max());
        if topic.len() > usize::from(u16::MAX) || size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        if let Some(server) = self.server.as_ref() {
            check_server(server, &wire)?;
        }
        if qos == Qos::AtMostOnce {
            let Some(server) = self.server.as_ref() else { return Err(SendError::NotConnected) };
            if self.out.output.len() >= self.options.output_bytes {
                return Err(SendError::Full);
            }
            let written = wire.write(&mut self.out.output, &mut self.requests.aliases, server);
            return written.map_err(SendError::Unwritable);
        }
        let mut head = Vec::with_capacity(topic.len() + properties.len());
        head.extend_from_slice(topic.as_bytes());
        head.extend_from_slice(properties);
        let (head, topic, payload) = (head.into_boxed_slice(), topic.len(), payload.clone());
        let retained = Retained { head, topic, payload, qos, retain, token };
        self.requests.publish(retained, &self.options)?;
        self.fill();
        Ok(())
    }

    /// Subscribes. [`Subscribed`](super::Event::Subscribed) or [`Lost`](super::Event::Lost)
    /// follows: a SUBSCRIBE is not sent again on a later connection.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then.
    pub fn subscribe<P: Encode>(
        &mut self,
        subscriptions: &[Subscription<'_>],
        properties: P,
        token: u64,
    ) -> Result<(), SendError> {
        let limit = self.check_request(subscriptions.len())?.packet_limit();
        let place = Place::Packet(Kind::Subscribe);
        let properties = encode(&mut self.scratch, &properties, place)?;
        let server = self.server.as_ref().ok_or(SendError::NotConnected)?;
        if properties.has(id::SUBSCRIPTION) && !server.subscription_ids_available {
            return Err(SendError::SubscriptionIdsUnsupported);
        }
        for Subscription { filter, options } in subscriptions {
            let parsed = parse_filter(filter)?;
            if options.no_local && parsed.share.is_some() {
                return Err(SendError::InvalidFilter);
            }
            if parsed.share.is_some() && !server.shared_available {
                return Err(SendError::SharedUnsupported);
            }
            if parsed.filter.contains(['+', '#']) && !server.wildcard_available {
                return Err(SendError::WildcardUnsupported);
            }
        }
        let owner = IdOwner::Subscribe { token, filters: subscriptions.len() };
        self.requests.subscribe(owner, limit, &mut self.out.output, |id| {
            let subscriptions = Subscriptions::new(subscriptions);
            Packet::Subscribe(Subscribe { id, properties, subscriptions })
        })
    }

    /// Unsubscribes. [`Unsubscribed`](super::Event::Unsubscribed) or [`Lost`](super::Event::Lost)
    /// follows.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then.
    pub fn unsubscribe<P: Encode>(
        &mut self,
        filters: &[&str],
        properties: P,
        token: u64,
    ) -> Result<(), SendError> {
        let limit = self.check_request(filters.len())?.packet_limit();
        let place = Place::Packet(Kind::Unsubscribe);
        let properties = encode(&mut self.scratch, &properties, place)?;
        filters.iter().try_for_each(|filter| parse_filter(filter).map(drop))?;
        let owner = IdOwner::Unsubscribe { token, filters: filters.len() };
        self.requests.subscribe(owner, limit, &mut self.out.output, |id| {
            let filters = Filters::new(filters);
            Packet::Unsubscribe(Unsubscribe { id, properties, filters })
        })
    }

    fn check_request(&self, filters: usize) -> Result<&Server, SendError> {
        let server = self.server.as_ref().ok_or(SendError::NotConnected)?;
        if filters == 0 {
            return Err(SendError::InvalidFilter);
        }
        let is_full = !self.requests.can_subscribe(&self.options)
            || self.out.output.len() >= self.options.output_bytes;
        if is_full { Err(SendError::Full) } else { Ok(server) }
    }

    /// Acknowledges a message. The session sends acknowledgements in the order in which the
    /// messages arrived, so an earlier message that is not acknowledged holds back later ones.
    ///
    /// A reason that PUBACK and PUBREC cannot have is sent as *unspecified error*.
    ///
    /// # Errors
    /// [`Stale`] when the message was acknowledged already, or when it was received on a former
    /// connection at QoS 1: the server redelivers it.
    pub fn acknowledge(&mut self, delivery: Delivery, reason: Reason) -> Result<(), Stale> {
        let is_valid = Kind::PubAck.has(reason);
        let reason = if is_valid { reason } else { Reason::UNSPECIFIED_ERROR };
        self.deliveries.acknowledge(delivery, reason)?;
        self.deliveries.send_acknowledgements(&mut self.out.output);
        Ok(())
    }

    /// Sends publishes that wait, if there is a connection.
    pub(super) fn fill(&mut self) {
        if let Some(server) = &self.server {
            self.requests.fill(server, &self.options, &mut self.out);
        }
    }
}
