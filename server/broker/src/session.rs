//! Session state of one client id: while it is connected, and afterwards for its session expiry
//! interval.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use core::num::NonZeroU16;
use core::time::Duration;

use crate::config::Acl;
use crate::ids::{ConnectionId, LocalId};
use crate::memory::{Memory, MemoryAccount};
use crate::message::{Message, Sender};
use crate::outgoing::{PacketSink, QueuedMessage, Window};
use crate::owner::Owner;
use crate::retained::Replay;
use crate::subscription_index::SubscriptionIndex;

use statestore_mqtt::Qos;
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{Ack, Packet};

/// Connection state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The client is disconnected.
    Detached,
    Connection(ConnectionId),
    /// The client is attached in this process.
    Local(LocalId),
}

/// Bytes of a session in all tables, without its contents.
const SESSION_BYTES: usize = 1_024;

/// Bytes of a QoS 2 message whose PUBREL is outstanding.
const RECEIVED_BYTES: usize = 16;

/// Capacity that an empty queue retains, in entries.
const MIN_CAPACITY: usize = 16;

#[derive(Debug)]
struct InFlight {
    id: NonZeroU16,
    /// Set if it was sent on the current connection.
    is_sent: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Waits for PUBACK or PUBREC.
    Published(QueuedMessage),
    /// Waits for PUBCOMP.
    Released,
}

/// Will message and will delay interval.
#[derive(Debug)]
pub(crate) struct Will {
    pub(crate) message: Arc<Message>,
    pub(crate) delay: Duration,
}

pub(crate) struct Session {
    pub(crate) client_id: Arc<str>,
    /// User that the client belongs to.
    pub(crate) user: Option<Arc<str>>,
    /// Owner that the session counts for.
    owner: Arc<Owner>,
    /// Access control list of the client.
    pub(crate) acl: Arc<dyn Acl>,
    pub(crate) route: Route,
    /// Session expiry interval.
    pub(crate) expiry: Duration,
    /// Time at which the session ends. `None` while the client is connected.
    pub(crate) ends_at: Option<Duration>,
    /// Place in the order of eviction. `None` while the client is connected.
    pub(crate) eviction_place: Option<EvictionPlace>,
    pub(crate) will: Option<Will>,
    /// Time at which the will of a disconnected client is published.
    pub(crate) will_at: Option<Duration>,
    /// Filters, including share names. Their options are in [`SubscriptionIndex`].
    pub(crate) subscriptions: BTreeSet<Box<str>>,
    queue: VecDeque<QueuedMessage>,
    in_flight: VecDeque<InFlight>,
    last_id: u16,
    /// QoS 2 messages from the client whose PUBREL is outstanding.
    pub(crate) received: BTreeSet<NonZeroU16>,
    /// Filters whose retained messages are not all queued.
    pub(crate) replays: BTreeMap<Box<str>, Replay>,
    /// Set while the session is queued for replay.
    pub(crate) is_replaying: bool,
    /// Start of the current second, and messages published in it.
    rate: (Duration, u32),
    /// Messages that are not sent or not acknowledged.
    unread: MemoryAccount,
    /// Everything else.
    pub(crate) account: MemoryAccount,
}

/// Relation of an acknowledgement to the message with its packet identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    Expected,
    /// No message in flight needs it. The acknowledgement may be a duplicate, or belong to an
    /// earlier session.
    Stale,
    /// The message is in flight, but needs another packet, such as a PUBACK instead of a PUBREC.
    WrongKind,
}

/// Place of a session whose client is disconnected in the order of eviction: whether the client
/// loses something if it ends, and the time at which the client disconnected.
pub(crate) type EvictionPlace = (bool, Duration);

/// Result of an attempt to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// No packet is waiting, or the window is full.
    Nothing,
    /// A packet was written.
    Packet,
    /// A message was dropped because it had expired.
    Expired,
    /// A message with this topic was dropped because it exceeded the client's Maximum Packet Size.
    TooLarge(Arc<str>),
}

impl Session {
    pub(crate) fn new(
        client_id: Arc<str>,
        owner: Arc<Owner>,
        acl: Arc<dyn Acl>,
        memory: &mut Memory,
    ) -> Self {
        let mut account = MemoryAccount::default();
        account.add(memory, SESSION_BYTES + client_id.len() + owner.name().len());
        Self {
            client_id,
            user: None,
            owner,
            acl,
            route: Route::Detached,
            expiry: Duration::ZERO,
            ends_at: None,
            eviction_place: None,
            will: None,
            will_at: None,
            subscriptions: BTreeSet::new(),
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            last_id: 0,
            received: BTreeSet::new(),
            replays: BTreeMap::new(),
            is_replaying: false,
            rate: (Duration::ZERO, 0),
            unread: MemoryAccount::default(),
            account,
        }
    }

    pub(crate) const fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// Sets who the session counts for. `Sessions` counts it.
    pub(crate) fn set_owner(&mut self, memory: &mut Memory, owner: Arc<Owner>) {
        self.account.change(memory, self.owner.name().len(), owner.name().len());
        self.owner = owner;
    }

    /// The client as the publisher of a message.
    pub(crate) fn sender(&self) -> Sender {
        Sender { client_id: Arc::clone(&self.client_id), owner: Arc::clone(&self.owner) }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.route != Route::Detached
    }

    /// Counts a PUBLISH of the client. Returns false if it exceeds the rate limit.
    pub(crate) fn try_count_publish(&mut self, now: Duration, max: Option<u32>) -> bool {
        let Some(max) = max else { return true };
        let (since, count) = &mut self.rate;
        if now.saturating_sub(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= max
    }

    /// Returns whether the client loses nothing if the session ends.
    pub(crate) fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
            && self.will.is_none()
            && self.received.is_empty()
            && self.queue.is_empty()
            && self.in_flight.is_empty()
    }

    /// Returns the place in the order of eviction that fits the state of the session.
    pub(crate) fn eviction_place_now(&self) -> Option<EvictionPlace> {
        self.ends_at.map(|at| (!self.is_empty(), at.saturating_sub(self.expiry)))
    }

    /// Returns whether the session is empty and its client has been disconnected for this time.
    pub(crate) fn is_empty_for(&self, now: Duration, time: Duration) -> bool {
        self.eviction_place_now()
            .is_some_and(|(has_contents, since)| !has_contents && now >= since.saturating_add(time))
    }

    /// Bytes of the session, including its messages.
    pub(crate) const fn bytes(&self) -> usize {
        self.account.bytes() + self.unread.bytes()
    }

    /// Bytes of messages that are not sent or not acknowledged.
    pub(crate) const fn unread(&self) -> usize {
        self.unread.bytes()
    }

    /// Number of messages that are not sent.
    pub(crate) fn queued_len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn push(&mut self, memory: &mut Memory, queued: QueuedMessage) {
        self.unread.hold(memory, &queued.message, queued.overhead());
        self.queue.push_back(queued);
    }

    /// Removes the next message for a client in this process.
    pub(crate) fn pop(&mut self, memory: &mut Memory) -> Option<QueuedMessage> {
        let queued = self.pop_front_queued()?;
        self.unread.release(memory, &queued.message, queued.overhead());
        Some(queued)
    }

    /// Frees the capacity of an empty queue, since the account counts messages but not capacity.
    fn pop_front_queued(&mut self) -> Option<QueuedMessage> {
        let queued = self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue.shrink_to(MIN_CAPACITY);
        }
        queued
    }

    /// Returns whether a packet can be sent before the client acknowledges another one.
    pub(crate) fn can_send(&self, window: Window) -> bool {
        if let Some((at, again)) =
            self.in_flight.iter().enumerate().find(|(_, packet)| !packet.is_sent)
        {
            return at < window.in_flight || matches!(again.stage, Stage::Released);
        }
        let has_capacity = self.in_flight.len() < window.in_flight;
        self.queue.front().is_some_and(|first| has_capacity || first.qos == Qos::AtMostOnce)
    }

    /// Writes the next packet, if there is one and the window allows it.
    pub(crate) fn send(
        &mut self,
        now: Duration,
        memory: &mut Memory,
        sink: &mut PacketSink<'_>,
    ) -> SendOutcome {
        if let Some(at) = self.in_flight.iter().position(|packet| !packet.is_sent) {
            return self.resend(now, memory, sink, at);
        }
        let Some(first) = self.queue.front() else { return SendOutcome::Nothing };
        let is_expired = first.message.has_expired(now);
        if first.qos > Qos::AtMostOnce
            && !is_expired
            && self.in_flight.len() >= sink.window.in_flight
        {
            return SendOutcome::Nothing;
        }
        let Some(queued) = self.pop_front_queued() else { return SendOutcome::Nothing };
        let id = (queued.qos > Qos::AtMostOnce).then(|| self.next_id());
        if is_expired || !sink.send(now, memory, &queued, id, false) {
            self.unread.release(memory, &queued.message, queued.overhead());
            return match is_expired {
                true => SendOutcome::Expired,
                false => SendOutcome::TooLarge(Arc::clone(queued.message.shared_topic())),
            };
        }
        match id {
            None => self.unread.release(memory, &queued.message, queued.overhead()),
            Some(id) => {
                let stage = Stage::Published(queued);
                self.in_flight.push_back(InFlight { id, is_sent: true, stage });
            }
        }
        SendOutcome::Packet
    }

    /// Sends a packet of an earlier connection again.
    fn resend(
        &mut self,
        now: Duration,
        memory: &mut Memory,
        sink: &mut PacketSink<'_>,
        at: usize,
    ) -> SendOutcome {
        // Packets are resent in order, so `at` is the number of those in flight on this connection.
        let has_capacity = at < sink.window.in_flight;
        let Some(again) = self.in_flight.get_mut(at) else { return SendOutcome::Nothing };
        let topic = match &again.stage {
            Stage::Released => {
                again.is_sent = true;
                let ack = Ack { id: again.id, reason: Reason::SUCCESS, properties: () };
                let _ = Packet::PubRel(ack).encode(sink.out);
                return SendOutcome::Packet;
            }
            Stage::Published(_) if !has_capacity => return SendOutcome::Nothing,
            Stage::Published(queued) => {
                if sink.send(now, memory, queued, Some(again.id), true) {
                    again.is_sent = true;
                    return SendOutcome::Packet;
                }
                Arc::clone(queued.message.shared_topic())
            }
        };
        // The client's Maximum Packet Size is smaller than on the earlier connection.
        let id = again.id;
        self.complete_delivery(memory, id, |_| Acknowledged::Expected);
        SendOutcome::TooLarge(topic)
    }

    fn next_id(&mut self) -> NonZeroU16 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            let Some(id) = NonZeroU16::new(self.last_id) else { continue };
            // This ends, because the window has at most 65,535 messages, the new one included.
            if self.in_flight.iter().all(|packet| packet.id != id) {
                return id;
            }
        }
    }

    /// Handles a PUBACK, a PUBREC with an error, or a PUBCOMP.
    ///
    /// `relate` returns how the packet fits the stage of its message: the QoS, or `None` after the
    /// PUBREC. An expected packet ends the delivery.
    pub(crate) fn complete_delivery(
        &mut self,
        memory: &mut Memory,
        id: NonZeroU16,
        relate: impl Fn(Option<Qos>) -> Acknowledged,
    ) -> Acknowledged {
        let Some(at) = self.in_flight.iter().position(|packet| packet.id == id) else {
            return Acknowledged::Stale;
        };
        let stage = self.in_flight.get(at).map(|packet| match &packet.stage {
            Stage::Published(queued) => Some(queued.qos),
            Stage::Released => None,
        });
        let acknowledged = stage.map_or(Acknowledged::Stale, relate);
        if acknowledged != Acknowledged::Expected {
            return acknowledged;
        }
        match self.in_flight.remove(at).map(|packet| packet.stage) {
            Some(Stage::Published(queued)) => {
                self.unread.release(memory, &queued.message, queued.overhead());
            }
            Some(Stage::Released) => self.account.remove(memory, size_of::<InFlight>()),
            None => {}
        }
        if self.in_flight.is_empty() {
            self.in_flight.shrink_to(MIN_CAPACITY);
        }
        Acknowledged::Expected
    }

    /// Handles a PUBREC without an error. A repeated PUBREC is expected.
    pub(crate) fn mark_released(&mut self, memory: &mut Memory, id: NonZeroU16) -> Acknowledged {
        let Some(packet) = self.in_flight.iter_mut().find(|packet| packet.id == id) else {
            return Acknowledged::Stale;
        };
        if let Stage::Published(queued) = &packet.stage {
            if queued.qos != Qos::ExactlyOnce {
                return Acknowledged::WrongKind;
            }
            self.unread.release(memory, &queued.message, queued.overhead());
            self.account.add(memory, size_of::<InFlight>());
            packet.stage = Stage::Released;
        }
        Acknowledged::Expected
    }

    /// Marks the client as disconnected. Unacknowledged messages are resent on the next connection.
    pub(crate) fn detach(&mut self) {
        self.route = Route::Detached;
        self.in_flight.iter_mut().for_each(|packet| packet.is_sent = false);
    }

    pub(crate) fn subscribe(&mut self, memory: &mut Memory, filter: &str) {
        if self.subscriptions.insert(filter.into()) {
            self.account.add(memory, SubscriptionIndex::cost(filter));
        }
    }

    pub(crate) fn unsubscribe(&mut self, memory: &mut Memory, filter: &str) {
        if self.subscriptions.remove(filter) {
            self.account.remove(memory, SubscriptionIndex::cost(filter));
        }
        if self.replays.remove(filter).is_some() {
            self.account.remove(memory, Replay::bytes(filter));
        }
    }

    /// Starts the replay of the retained messages for a filter, or restarts it.
    pub(crate) fn replay(&mut self, memory: &mut Memory, filter: &str, replay: Replay) {
        if self.replays.insert(filter.into(), replay).is_none() {
            self.account.add(memory, Replay::bytes(filter));
        }
    }

    /// Records a QoS 2 message until its PUBREL.
    pub(crate) fn insert_received(&mut self, memory: &mut Memory, id: NonZeroU16) {
        if self.received.insert(id) {
            self.account.add(memory, RECEIVED_BYTES);
        }
    }

    /// Handles a PUBREL. Returns whether the message was recorded.
    pub(crate) fn remove_received(&mut self, memory: &mut Memory, id: NonZeroU16) -> bool {
        let was_there = self.received.remove(&id);
        if was_there {
            self.account.remove(memory, RECEIVED_BYTES);
        }
        was_there
    }

    pub(crate) fn set_will(&mut self, memory: &mut Memory, will: Option<Will>) {
        self.take_will(memory);
        if let Some(will) = will {
            self.account.hold(memory, &will.message, 0);
            self.will = Some(will);
        }
    }

    pub(crate) fn take_will(&mut self, memory: &mut Memory) -> Option<Will> {
        self.will_at = None;
        let will = self.will.take()?;
        self.account.release(memory, &will.message, 0);
        Some(will)
    }

    /// Frees all memory of the session.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        self.take_will(memory);
        while self.pop(memory).is_some() {}
        for packet in core::mem::take(&mut self.in_flight) {
            match packet.stage {
                Stage::Published(queued) => {
                    self.unread.release(memory, &queued.message, queued.overhead());
                }
                Stage::Released => self.account.remove(memory, size_of::<InFlight>()),
            }
        }
        debug_assert_eq!(self.unread.bytes(), 0, "the account of messages has drifted");
        debug_assert_eq!(self.account.bytes(), self.fixed_bytes(), "the account has drifted");
        let rest = self.account.bytes();
        self.account.remove(memory, rest);
    }

    /// Bytes of the session without messages, as the account must count them.
    fn fixed_bytes(&self) -> usize {
        let subscriptions = self.subscriptions.iter().map(|filter| SubscriptionIndex::cost(filter));
        let replays = self.replays.keys().map(|filter| Replay::bytes(filter));
        SESSION_BYTES
            + self.client_id.len()
            + self.owner.name().len()
            + subscriptions.chain(replays).sum::<usize>()
            + self.received.len() * RECEIVED_BYTES
    }
}
