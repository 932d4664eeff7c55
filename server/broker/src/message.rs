//! Messages, as the broker stores them.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::owner::Owner;
use statestore_mqtt::Qos;
use statestore_mqtt::Unwritable;
use statestore_mqtt::packet::Publish;
use statestore_mqtt::property::{Encode, IdSet, Pieces, Properties, Property, id};
use statestore_mqtt::wire::{Length, Sink, put_varint};

/// The publisher of a message.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) client_id: Arc<str>,
    pub(crate) owner: Arc<Owner>,
}

/// A payload that several messages share. It counts once for memory.
pub(crate) struct SharedPayload {
    bytes: Bytes,
    holds: Holds,
}

impl SharedPayload {
    pub(crate) fn new(payload: &[u8]) -> Self {
        Self { bytes: Bytes::copy_from_slice(payload), holds: Holds::default() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) const fn holds(&self) -> &Holds {
        &self.holds
    }
}

/// Number of references that count for memory.
#[derive(Default)]
pub(crate) struct Holds(AtomicU32);

impl Holds {
    /// Adds a reference. Returns whether it is the first one.
    pub(crate) fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Removes a reference. Returns whether it was the last one.
    pub(crate) fn remove(&self) -> bool {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a message or a payload is released more often than it was held");
        before == 1
    }
}

/// A published message: topic, properties and payload as they were received.
pub struct Message {
    // Not in `bytes`: routing reads it for each subscriber, as text.
    topic: Arc<str>,
    /// Properties, followed by the payload unless it is `shared`.
    bytes: Bytes,
    properties: usize,
    shared: Option<Arc<SharedPayload>>,
    ids: IdSet,
    qos: Qos,
    retain: bool,
    expiry: Option<Expiry>,
    sender: Option<Sender>,
    arrived: Duration,
    holds: Holds,
}

#[derive(Clone, Copy)]
struct Expiry {
    /// Position of the interval in the properties.
    at: usize,
    seconds: u32,
    /// Time from which the message is not delivered.
    deadline: Duration,
}

/// Properties that belong to a connection.
const OF_CONNECTION: IdSet = IdSet::of(&[id::TOPIC_ALIAS, id::SUBSCRIPTION]);

/// Summary of encoded properties.
struct Summary {
    ids: IdSet,
    /// Position and value of the message expiry interval.
    expiry: Option<(usize, u32)>,
}

impl Summary {
    fn of(properties: &[u8]) -> Self {
        let (mut ids, mut expiry, mut at) = (IdSet::default(), None, 0);
        for piece in Pieces::new(properties) {
            ids.insert(piece.id);
            if let Some(Property::MessageExpiry(seconds)) =
                (piece.id == id::MESSAGE_EXPIRY).then(|| piece.read()).flatten()
            {
                expiry = Some((at + 1, seconds));
            }
            at += piece.bytes.len();
        }
        Self { ids, expiry }
    }
}

impl Message {
    /// Copies a PUBLISH to `topic`, without the properties of its connection: topic alias and
    /// subscription identifiers.
    pub(crate) fn new<P: Encode>(
        now: Duration,
        sender: Option<Sender>,
        topic: &str,
        publish: &Publish<'_, P>,
    ) -> Result<Self, Unwritable> {
        Self::with_payload(now, sender, topic, publish, None)
    }

    /// Copies a PUBLISH of the host. If `payload` is set, it equals the payload of the PUBLISH, and
    /// the message shares it instead of a copy.
    pub(crate) fn of_host<P: Encode>(
        now: Duration,
        publish: &Publish<'_, P>,
        payload: Option<Arc<SharedPayload>>,
    ) -> Result<Self, Unwritable> {
        Self::with_payload(now, None, publish.topic, publish, payload)
    }

    fn with_payload<P: Encode>(
        now: Duration,
        sender: Option<Sender>,
        topic: &str,
        publish: &Publish<'_, P>,
        shared: Option<Arc<SharedPayload>>,
    ) -> Result<Self, Unwritable> {
        // The part of the payload that is copied.
        let payload = if shared.is_some() { &[] } else { publish.payload };
        let mut length = Length::default();
        publish.properties.put(&mut length)?;
        let capacity = length.0 + payload.len();
        let mut bytes = BytesMut::with_capacity(capacity);
        publish.properties.put(&mut bytes)?;
        let mut summary = Summary::of(&bytes);
        if summary.ids.intersects(OF_CONNECTION) {
            let all = core::mem::replace(&mut bytes, BytesMut::with_capacity(capacity));
            let kept = Pieces::new(&all).filter(|piece| !OF_CONNECTION.has(piece.id));
            kept.for_each(|piece| bytes.extend_from_slice(piece.bytes));
            summary = Summary::of(&bytes);
        }
        let Summary { ids, expiry } = summary;
        let expiry = expiry.map(|(at, seconds)| {
            let deadline = now.saturating_add(Duration::from_secs(seconds.into()));
            Expiry { at, seconds, deadline }
        });
        let properties = bytes.len();
        bytes.extend_from_slice(payload);
        Ok(Self {
            topic: topic.into(),
            bytes: bytes.freeze(),
            properties,
            shared,
            ids,
            qos: publish.qos,
            retain: publish.retain,
            expiry,
            sender,
            arrived: now,
            holds: Holds::default(),
        })
    }

    /// Returns a copy with `now` as its time of publication.
    pub(crate) fn published(&self, now: Duration) -> Self {
        Self {
            topic: Arc::clone(&self.topic),
            bytes: self.bytes.clone(),
            shared: self.shared.clone(),
            expiry: self.expiry.map(|expiry| {
                let interval = Duration::from_secs(expiry.seconds.into());
                Expiry { deadline: now.saturating_add(interval), ..expiry }
            }),
            sender: self.sender.clone(),
            arrived: now,
            holds: Holds::default(),
            ..*self
        }
    }

    /// Topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub(crate) const fn shared_topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Properties, without topic alias and subscription identifiers. The message expiry interval
    /// has its original value.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        Properties::from_validated(self.bytes.get(..self.properties).unwrap_or_default(), self.ids)
    }

    /// Payload. Its buffer may also contain the properties, which then stay in memory as long as the
    /// payload.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        match &self.shared {
            Some(shared) => shared.bytes.clone(),
            None => self.bytes.slice(self.properties..),
        }
    }

    /// QoS of the PUBLISH.
    #[must_use]
    pub const fn qos(&self) -> Qos {
        self.qos
    }

    /// RETAIN flag of the PUBLISH.
    #[must_use]
    pub const fn retain(&self) -> bool {
        self.retain
    }

    /// Client id of the publisher, as the broker verified it. `None` for the host.
    #[must_use]
    pub const fn sender(&self) -> Option<&Arc<str>> {
        match &self.sender {
            Some(sender) => Some(&sender.client_id),
            None => None,
        }
    }

    /// The user or the address that the publisher belongs to, as `user:NAME` or `address:ADDRESS`.
    /// One user can publish under many client ids. `None` for the host, and for clients without a
    /// user that connected from a loopback address.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.sender.as_ref()?.owner.shared_name()
    }

    /// The owner that a retained message counts for. `None` for the host.
    pub(crate) fn owner_name(&self) -> Option<&Arc<str>> {
        self.sender.as_ref().map(|sender| sender.owner.name())
    }

    /// Time of publication.
    #[must_use]
    pub const fn arrived(&self) -> Duration {
        self.arrived
    }

    /// Remaining message expiry interval in seconds, rounded up. `None` without an interval.
    #[must_use]
    pub fn expiry(&self, now: Duration) -> Option<u32> {
        let left = self.expiry?.deadline.saturating_sub(now);
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Some(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// Returns whether the message expiry interval has elapsed.
    #[must_use]
    pub fn has_expired(&self, now: Duration) -> bool {
        self.expiry.is_some_and(|expiry| expiry.deadline <= now)
    }

    pub(crate) fn payload_bytes(&self) -> &[u8] {
        match &self.shared {
            Some(shared) => shared.bytes(),
            None => self.bytes.get(self.properties..).unwrap_or_default(),
        }
    }

    pub(crate) fn shared_payload(&self) -> Option<&SharedPayload> {
        self.shared.as_deref()
    }

    /// Bytes of memory, including a shared payload.
    pub(crate) fn size(&self) -> usize {
        self.own_size() + self.shared.as_ref().map_or(0, |shared| shared.bytes.len())
    }

    /// Bytes of memory without a shared payload.
    pub(crate) fn own_size(&self) -> usize {
        let names = |sender: &Sender| sender.client_id.len() + sender.owner.name().len();
        self.topic.len()
            + self.bytes.len()
            + self.sender.as_ref().map_or(0, names)
            + size_of::<Self>()
            + 4 * size_of::<usize>()
    }

    pub(crate) const fn holds(&self) -> &Holds {
        &self.holds
    }
}

/// Omits the payload, which may contain a value.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic())
            .field("sender", &self.sender())
            .field("payload", &format_args!("<{} bytes>", self.payload_bytes().len()))
            .finish_non_exhaustive()
    }
}

/// Properties of a message for one client: as received, with the remaining expiry interval,
/// followed by the subscription identifiers and the topic alias.
pub(crate) struct ForwardedProperties<'a> {
    pub(crate) message: &'a Message,
    pub(crate) now: Duration,
    pub(crate) subscription_ids: &'a [u32],
    pub(crate) alias: Option<u16>,
}

impl Encode for ForwardedProperties<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        let all = self.message.properties().as_bytes();
        match self.message.expiry.zip(self.message.expiry(self.now)) {
            None => sink.put(all),
            Some((Expiry { at, .. }, seconds)) => {
                sink.put(all.get(..at).unwrap_or_default());
                sink.put(&seconds.to_be_bytes());
                sink.put(all.get(at + 4..).unwrap_or_default());
            }
        }
        for id in self.subscription_ids {
            sink.put(&[id::SUBSCRIPTION]);
            put_varint(sink, usize::try_from(*id).unwrap_or(usize::MAX))?;
        }
        if let Some(alias) = self.alias {
            sink.put(&[id::TOPIC_ALIAS]);
            sink.put(&alias.to_be_bytes());
        }
        Ok(())
    }
}
