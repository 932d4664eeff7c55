//! What is kept for one client id: while it is connected, and for as long after that as it asked for.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use core::num::NonZeroU16;
use core::time::Duration;

use bytes::BytesMut;

use super::aliases::{Alias, Aliases};
use super::config::Rules;
use super::memory::{Held, Memory};
use super::message::{Forwarded, Message};
use super::retained::Replay;
use super::tree::Tree;
use super::{ConnectionId, LocalId, SESSION_BYTES};
use crate::packet::{Ack, Packet, Publish};
use crate::qos::Qos;
use crate::reason::Reason;

/// How a session is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Its client is away.
    Away,
    Connection(ConnectionId),
    /// Its client is in this process.
    Local(LocalId),
}

/// A message that waits for one client, or for its acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) message: Arc<Message>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) subscription_ids: Box<[u32]>,
    /// Whether a client that it cannot be sent to is disconnected, so that it knows.
    pub(super) must_arrive: bool,
}

impl Queued {
    fn beside(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.subscription_ids)
    }
}

/// Bytes that a message at QoS 2 takes which its client has not released.
const RECEIVED_BYTES: usize = 16;

/// Places of a queue that it keeps when it is empty.
const KEPT_PLACES: usize = 16;

#[derive(Debug)]
struct InFlight {
    id: NonZeroU16,
    /// Whether it was sent on this connection.
    is_sent: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Waits for PUBACK or PUBREC.
    Published(Queued),
    /// Waits for PUBCOMP.
    Released,
}

/// What to publish for a client that goes without a word.
#[derive(Debug)]
pub(super) struct Will {
    pub(super) message: Arc<Message>,
    pub(super) delay: Duration,
}

pub(super) struct Session {
    pub(super) client_id: Arc<str>,
    /// Whose client it is.
    pub(super) user: Option<Arc<str>>,
    /// What it may do.
    pub(super) rules: Arc<dyn Rules>,
    pub(super) route: Route,
    /// How long it outlives its connection.
    pub(super) expiry: Duration,
    /// When it ends, while its client is away.
    pub(super) ends_at: Option<Duration>,
    pub(super) will: Option<Will>,
    /// When the will of a client that has gone is published.
    pub(super) will_at: Option<Duration>,
    /// Filters with their shares; how is in the tree.
    pub(super) subscriptions: BTreeSet<Box<str>>,
    queue: VecDeque<Queued>,
    in_flight: VecDeque<InFlight>,
    last_id: u16,
    /// Messages at QoS 2 that the client has not released.
    pub(super) received: BTreeSet<NonZeroU16>,
    /// Filters whose retained messages have not all come.
    pub(super) replays: BTreeMap<Box<str>, Replay>,
    /// Whether it has its turn to come with these.
    pub(super) is_replaying: bool,
    /// Messages that it has published in the second that began then.
    rate: (Duration, u32),
    /// What waits for its client, sent or not.
    unread: Held,
    /// Everything else.
    pub(super) held: Held,
}

/// What goes with a window of messages on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Messages without an acknowledgement.
    pub(super) in_flight: usize,
    /// Bytes of the largest packet.
    pub(super) packet_bytes: usize,
}

/// The connection that packets are written to, as far as they depend on it.
pub(super) struct Way<'a> {
    pub(super) window: Window,
    /// Topic aliases that its client was given, and what they take.
    pub(super) given: &'a mut Aliases,
    pub(super) held: &'a mut Held,
    pub(super) out: &'a mut BytesMut,
}

/// What came of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// There is nothing to send, or nothing may be sent.
    Nothing,
    /// A packet was written.
    Packet,
    /// A message was dropped, since it is out of date or larger than the client takes.
    Dropped,
    /// A message was dropped that must not be.
    Missed,
}

impl Session {
    pub(super) fn new(client_id: Arc<str>, rules: Arc<dyn Rules>, memory: &mut Memory) -> Self {
        let mut held = Held::default();
        held.add(memory, SESSION_BYTES + client_id.len());
        Self {
            client_id,
            user: None,
            rules,
            route: Route::Away,
            expiry: Duration::ZERO,
            ends_at: None,
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
            unread: Held::default(),
            held,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.route != Route::Away
    }

    /// Counts a message that it publishes; whether it may.
    pub(super) fn is_within_rate(&mut self, now: Duration, max: Option<u32>) -> bool {
        let Some(max) = max else { return true };
        let (since, count) = &mut self.rate;
        if now.saturating_sub(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= max
    }

    /// Whether its client loses nothing with it.
    pub(super) fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
            && self.will.is_none()
            && self.received.is_empty()
            && self.queue.is_empty()
            && self.in_flight.is_empty()
    }

    /// Since when its client is away, if it is.
    pub(super) fn left_at(&self) -> Option<Duration> {
        self.ends_at.map(|at| at.saturating_sub(self.expiry))
    }

    /// Bytes of everything that is kept for it.
    pub(super) const fn bytes(&self) -> usize {
        self.held.bytes() + self.unread.bytes()
    }

    /// Bytes of messages that its client has not taken.
    pub(super) const fn unread(&self) -> usize {
        self.unread.bytes()
    }

    /// Messages that were not sent yet.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn push(&mut self, memory: &mut Memory, queued: Queued) {
        self.unread.hold(memory, &queued.message, queued.beside());
        self.queue.push_back(queued);
    }

    /// Takes the next message for a client in this process.
    pub(super) fn pop(&mut self, memory: &mut Memory) -> Option<Queued> {
        let queued = self.take_first()?;
        self.unread.release(memory, &queued.message, queued.beside());
        Some(queued)
    }

    /// A queue that is empty gives its room back: what waits is counted, and not the places.
    fn take_first(&mut self) -> Option<Queued> {
        let queued = self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT_PLACES);
        }
        queued
    }

    /// Whether there is a packet for the client that it may be sent before it acknowledges others.
    pub(super) fn may_send(&self, window: Window) -> bool {
        if let Some((at, again)) = self.in_flight.iter().enumerate().find(|(_, one)| !one.is_sent) {
            return at < window.in_flight || matches!(again.stage, Stage::Released);
        }
        let has_room = self.in_flight.len() < window.in_flight;
        self.queue.front().is_some_and(|first| has_room || first.qos == Qos::AtMostOnce)
    }

    /// Writes the next packet for the client, if there is one and it may be sent.
    pub(super) fn send(&mut self, now: Duration, memory: &mut Memory, way: &mut Way<'_>) -> Sent {
        if let Some(at) = self.in_flight.iter().position(|one| !one.is_sent) {
            return self.send_again(now, memory, way, at);
        }
        let Some(first) = self.queue.front() else { return Sent::Nothing };
        let is_late = first.message.has_expired(now);
        if first.qos > Qos::AtMostOnce && !is_late && self.in_flight.len() >= way.window.in_flight {
            return Sent::Nothing;
        }
        let Some(queued) = self.take_first() else { return Sent::Nothing };
        let id = (queued.qos > Qos::AtMostOnce).then(|| self.next_id());
        if is_late || !encode(now, memory, &queued, id, false, way) {
            self.unread.release(memory, &queued.message, queued.beside());
            return if queued.must_arrive { Sent::Missed } else { Sent::Dropped };
        }
        match id {
            None => self.unread.release(memory, &queued.message, queued.beside()),
            Some(id) => {
                let stage = Stage::Published(queued);
                self.in_flight.push_back(InFlight { id, is_sent: true, stage });
            }
        }
        Sent::Packet
    }

    /// Sends what was sent on an earlier connection.
    fn send_again(
        &mut self,
        now: Duration,
        memory: &mut Memory,
        way: &mut Way<'_>,
        at: usize,
    ) -> Sent {
        // They are sent in order, so this many are on their way on this connection.
        let has_room = at < way.window.in_flight;
        let Some(again) = self.in_flight.get_mut(at) else { return Sent::Nothing };
        let must_arrive = match &again.stage {
            Stage::Released => {
                again.is_sent = true;
                let ack = Ack { id: again.id, reason: Reason::SUCCESS, properties: () };
                let _ = Packet::PubRel(ack).encode(way.out);
                return Sent::Packet;
            }
            Stage::Published(_) if !has_room => return Sent::Nothing,
            Stage::Published(queued) => {
                if encode(now, memory, queued, Some(again.id), true, way) {
                    again.is_sent = true;
                    return Sent::Packet;
                }
                queued.must_arrive
            }
        };
        // Its client takes less than it did.
        let id = again.id;
        self.finish(memory, id, |_| true);
        if must_arrive { Sent::Missed } else { Sent::Dropped }
    }

    fn next_id(&mut self) -> NonZeroU16 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            let Some(id) = NonZeroU16::new(self.last_id) else { continue };
            // There are more of them than may be on their way.
            if self.in_flight.iter().all(|one| one.id != id) {
                return id;
            }
        }
    }

    /// A PUBACK, a PUBREC with an error, or a PUBCOMP: whether it was waited for.
    pub(super) fn finish(
        &mut self,
        memory: &mut Memory,
        id: NonZeroU16,
        is_final: impl Fn(Option<Qos>) -> bool,
    ) -> bool {
        let Some(at) = self.in_flight.iter().position(|one| one.id == id) else { return false };
        let stage = self.in_flight.get(at).map(|one| match &one.stage {
            Stage::Published(queued) => Some(queued.qos),
            Stage::Released => None,
        });
        if !stage.is_some_and(is_final) {
            return false;
        }
        match self.in_flight.remove(at).map(|one| one.stage) {
            Some(Stage::Published(queued)) => {
                self.unread.release(memory, &queued.message, queued.beside());
            }
            Some(Stage::Released) => self.held.remove(memory, size_of::<InFlight>()),
            None => {}
        }
        if self.in_flight.is_empty() {
            self.in_flight.shrink_to(KEPT_PLACES);
        }
        true
    }

    /// A PUBREC without an error: whether it was waited for.
    pub(super) fn release(&mut self, memory: &mut Memory, id: NonZeroU16) -> bool {
        let Some(one) = self.in_flight.iter_mut().find(|one| one.id == id) else { return false };
        if let Stage::Published(queued) = &one.stage {
            if queued.qos != Qos::ExactlyOnce {
                return false;
            }
            self.unread.release(memory, &queued.message, queued.beside());
            self.held.add(memory, size_of::<InFlight>());
            one.stage = Stage::Released;
        }
        true
    }

    /// The connection is gone: what it had not acknowledged is sent again on the next one, and the rest as it would be.
    pub(super) fn go_away(&mut self) {
        self.route = Route::Away;
        self.in_flight.iter_mut().for_each(|one| one.is_sent = false);
    }

    pub(super) fn subscribe(&mut self, memory: &mut Memory, filter: &str) {
        if self.subscriptions.insert(filter.into()) {
            self.held.add(memory, Tree::cost(filter));
        }
    }

    pub(super) fn unsubscribe(&mut self, memory: &mut Memory, filter: &str) {
        if self.subscriptions.remove(filter) {
            self.held.remove(memory, Tree::cost(filter));
        }
        if self.replays.remove(filter).is_some() {
            self.held.remove(memory, Replay::bytes(filter));
        }
    }

    /// Begins with the retained messages for a filter, anew if it was on its way through them.
    pub(super) fn replay(&mut self, memory: &mut Memory, filter: &str, replay: Replay) {
        if self.replays.insert(filter.into(), replay).is_none() {
            self.held.add(memory, Replay::bytes(filter));
        }
    }

    /// Notes a message at QoS 2 until it is released.
    pub(super) fn receive(&mut self, memory: &mut Memory, id: NonZeroU16) {
        if self.received.insert(id) {
            self.held.add(memory, RECEIVED_BYTES);
        }
    }

    /// A PUBREL: whether there was such a message.
    pub(super) fn forget(&mut self, memory: &mut Memory, id: NonZeroU16) -> bool {
        let was_there = self.received.remove(&id);
        if was_there {
            self.held.remove(memory, RECEIVED_BYTES);
        }
        was_there
    }

    pub(super) fn set_will(&mut self, memory: &mut Memory, will: Option<Will>) {
        self.take_will(memory);
        if let Some(will) = will {
            self.held.hold(memory, &will.message, 0);
            self.will = Some(will);
        }
    }

    pub(super) fn take_will(&mut self, memory: &mut Memory) -> Option<Will> {
        self.will_at = None;
        let will = self.will.take()?;
        self.held.release(memory, &will.message, 0);
        Some(will)
    }

    /// Gives back all the memory that it has.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        self.take_will(memory);
        while self.pop(memory).is_some() {}
        for one in core::mem::take(&mut self.in_flight) {
            if let Stage::Published(queued) = one.stage {
                self.unread.release(memory, &queued.message, queued.beside());
            }
        }
        let rest = self.held.bytes();
        self.held.remove(memory, rest);
    }
}

/// Writes a PUBLISH; not if that makes a larger packet than the client takes.
fn encode(
    now: Duration,
    memory: &mut Memory,
    queued: &Queued,
    id: Option<NonZeroU16>,
    dup: bool,
    way: &mut Way<'_>,
) -> bool {
    let message = &*queued.message;
    let packet_bytes = way.window.packet_bytes;
    let mut write = |alias: Alias| {
        let known = matches!(alias, Alias::Known(_));
        let subscription_ids = &queued.subscription_ids;
        let packet = Packet::Publish(Publish {
            dup,
            qos: queued.qos,
            retain: queued.retain,
            topic: if known { "" } else { message.topic() },
            id,
            properties: Forwarded { message, now, subscription_ids, alias: alias.number() },
            payload: message.payload_bytes(),
        });
        packet.encoded_len().is_ok_and(|len| len <= packet_bytes) && packet.encode(way.out).is_ok()
    };
    let alias = way.given.of(message.topic());
    if write(alias) {
        if let Alias::New(number) = alias {
            way.given.set(memory, way.held, message.shared_topic(), number);
        }
        return true;
    }
    // It may fit without another alias.
    matches!(alias, Alias::New(_)) && write(Alias::None)
}
