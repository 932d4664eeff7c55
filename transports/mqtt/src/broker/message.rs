//! A PUBLISH at rest.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::error::Unwritable;
use crate::packet::Publish;
use crate::property::{Encode, Pieces, Properties, Property, bit, id};
use crate::qos::Qos;
use crate::wire::{Length, Sink, put_varint};

/// A PUBLISH at rest: its topic, properties and payload as they came.
pub struct Message {
    // Apart from the rest, since it is a text that is looked at for each subscriber.
    topic: Arc<str>,
    /// Properties and payload, one behind the other.
    bytes: Bytes,
    properties: usize,
    /// Which there are.
    seen: u64,
    qos: Qos,
    retain: bool,
    expiry: Option<Expiry>,
    sender: Option<Arc<str>>,
    arrived: Duration,
    /// In how many places the broker keeps it.
    pub(super) holds: AtomicU32,
}

#[derive(Clone, Copy)]
struct Expiry {
    /// Where the interval stands among the properties.
    at: usize,
    seconds: u32,
    /// From then on the message is delivered no more.
    deadline: Duration,
}

impl Message {
    /// Copies a PUBLISH to `topic`, without what belongs to its connection: topic alias and subscription identifiers.
    pub(super) fn new<P: Encode>(
        now: Duration,
        sender: Option<Arc<str>>,
        topic: &str,
        publish: &Publish<'_, P>,
    ) -> Result<Self, Unwritable> {
        let mut length = Length::default();
        publish.properties.put(&mut length)?;
        let mut properties = BytesMut::with_capacity(length.0);
        publish.properties.put(&mut properties)?;
        let mut bytes = BytesMut::with_capacity(length.0 + publish.payload.len());
        let mut expiry = None;
        // From where on nothing was copied yet, and where the next one is.
        let (mut from, mut at, mut seen) = (0, 0, 0);
        for piece in Pieces::new(&properties) {
            let next = at + piece.bytes.len();
            match piece.id {
                id::TOPIC_ALIAS | id::SUBSCRIPTION => {
                    bytes.extend_from_slice(properties.get(from..at).unwrap_or_default());
                    from = next;
                }
                id::MESSAGE_EXPIRY => {
                    seen |= bit(id::MESSAGE_EXPIRY);
                    if let Some(Property::MessageExpiry(seconds)) = piece.read() {
                        let at = bytes.len() + at - from + 1;
                        let deadline = now.saturating_add(Duration::from_secs(seconds.into()));
                        expiry = Some(Expiry { at, seconds, deadline });
                    }
                }
                other => seen |= bit(other),
            }
            at = next;
        }
        bytes.extend_from_slice(properties.get(from..at).unwrap_or_default());
        let properties = bytes.len();
        bytes.extend_from_slice(publish.payload);
        Ok(Self {
            topic: topic.into(),
            bytes: bytes.freeze(),
            properties,
            seen,
            qos: publish.qos,
            retain: publish.retain,
            expiry,
            sender,
            arrived: now,
            holds: AtomicU32::new(0),
        })
    }

    /// The same, published now.
    pub(super) fn published(&self, now: Duration) -> Self {
        Self {
            topic: Arc::clone(&self.topic),
            bytes: self.bytes.clone(),
            expiry: self.expiry.map(|expiry| {
                let interval = Duration::from_secs(expiry.seconds.into());
                Expiry { deadline: now.saturating_add(interval), ..expiry }
            }),
            sender: self.sender.clone(),
            arrived: now,
            holds: AtomicU32::new(0),
            ..*self
        }
    }

    /// Topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) const fn shared_topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Properties, without topic alias and subscription identifiers. The expiry interval is the one that it came with.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        Properties::trusted(self.bytes.get(..self.properties).unwrap_or_default(), self.seen)
    }

    /// Payload. It keeps the properties in memory, too.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(self.properties..)
    }

    /// The QoS it was published with.
    #[must_use]
    pub const fn qos(&self) -> Qos {
        self.qos
    }

    /// Whether it was published to be retained.
    #[must_use]
    pub const fn retain(&self) -> bool {
        self.retain
    }

    /// Client id of whoever published it; the broker vouches for it. `None` for the host.
    #[must_use]
    pub const fn sender(&self) -> Option<&Arc<str>> {
        self.sender.as_ref()
    }

    /// When it was published.
    #[must_use]
    pub const fn arrived(&self) -> Duration {
        self.arrived
    }

    /// Seconds left of its expiry interval, part of a second counted as one; `None` without one.
    #[must_use]
    pub fn expiry(&self, now: Duration) -> Option<u32> {
        let left = self.expiry?.deadline.saturating_sub(now);
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Some(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// Whether its time is over.
    #[must_use]
    pub fn has_expired(&self, now: Duration) -> bool {
        self.expiry.is_some_and(|expiry| expiry.deadline <= now)
    }

    pub(super) fn payload_bytes(&self) -> &[u8] {
        self.bytes.get(self.properties..).unwrap_or_default()
    }

    /// Bytes that it takes.
    pub(super) fn size(&self) -> usize {
        self.topic.len() + self.bytes.len() + size_of::<Self>() + 4 * size_of::<usize>()
    }

    pub(super) fn hold(&self) -> bool {
        self.holds.fetch_add(1, Ordering::Relaxed) == 0
    }

    pub(super) fn release(&self) -> bool {
        self.holds.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// Without its payload, which may hold a value.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic())
            .field("sender", &self.sender)
            .field("payload", &format_args!("<{} bytes>", self.payload_bytes().len()))
            .finish_non_exhaustive()
    }
}

/// The properties of a message as they go out to one client: as they came, with what is left of the expiry interval, and
/// the identifiers of the subscriptions and the topic alias behind them.
pub(super) struct Forwarded<'a> {
    pub(super) message: &'a Message,
    pub(super) now: Duration,
    pub(super) subscription_ids: &'a [u32],
    pub(super) alias: Option<u16>,
}

impl Encode for Forwarded<'_> {
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
