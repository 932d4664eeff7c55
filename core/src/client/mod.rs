//! The client as a state machine: requests and watches in, packets and events out.
//!
//! A [`Client`] owns what every client of the protocol needs and no MQTT library has: correlation of replies,
//! time-outs, the hybrid logical clock, fencing tokens, and watches that survive reconnects. Tell it what the transport
//! sees ([`handle_connected`](Client::handle_connected), [`handle_subscribed`](Client::handle_subscribed),
//! [`handle_publish`](Client::handle_publish), [`handle_published`](Client::handle_published),
//! [`handle_disconnected`](Client::handle_disconnected)), send what [`poll_transmit`](Client::poll_transmit) gives, and
//! take what [`poll_event`](Client::poll_event) tells.
//!
//! ```
//! use bytes::Bytes;
//! use statestore_proto::client::{Client, ClientConfig, Event, Request};
//! use statestore_proto::mqtt::{Incoming, ReasonCode, Transmit};
//! use statestore_proto::time::Now;
//!
//! let mut client = Client::new(ClientConfig::new("c1", *b"8 random")?);
//! let now = Now::default();
//! let id = client.submit(now, Request::get("k"))?;
//!
//! client.handle_connected(now, false);
//! let Some(Transmit::Subscribe { token, .. }) = client.poll_transmit() else { panic!("replies are subscribed first") };
//! client.handle_subscribed(now, token, ReasonCode::GRANTED_QOS_1);
//! assert_eq!(client.poll_event(), Some(Event::Ready));
//!
//! let Some(Transmit::Publish(request)) = client.poll_transmit() else { panic!("then requests are sent") };
//! let (topic, payload) = (request.response_topic.unwrap(), Bytes::from_static(b"$5\r\nvalue\r\n"));
//! let mut reply = Incoming::new(&topic, &payload);
//! reply.correlation_data = request.correlation_data.as_ref().map(|data| data.as_bytes());
//! client.handle_publish(now, &reply);
//! let Some(Event::Completed { id: of, outcome }) = client.poll_event() else { panic!("and answered") };
//! assert_eq!((of, outcome.into_value()?.unwrap().value), (id, Bytes::from_static(b"value")));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Lifecycle
//!
//! Offline, subscribing, ready. No request is published before its response topic is subscribed, no KEYNOTIFY before
//! notifications are. Requests may be submitted at any time; they wait, and time out, while there is no connection. A
//! request that was sent when its connection was lost completes as [`Outcome::Unknown`], unless the transport
//! [keeps the session](ClientConfig::keeps_session).
//!
//! Each request asks the store for its [incarnation](crate::message::Incarnation). When another one answers than before,
//! on a reply or a notification, the registrations of this client are gone: before the message is used every watch tells
//! a gap, registers and reads again, and [`Event::StoreReplaced`] is told. A store that does not say which it is can be
//! replaced unnoticed; [`renew_watches`](ClientConfig::renew_watches) says what its watches do about it.
//!
//! Each SUBSCRIBE is to be answered with [`handle_subscribed`](Client::handle_subscribed). Received messages may be
//! acknowledged by the transport at once.

mod config;
mod counters;
mod error;
mod event;
mod inbound;
mod request;
mod watch;
mod watches;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use bytes::Bytes;

pub use config::{ClientConfig, ConfigError};
pub use counters::{Counters, Outcomes};
pub use error::{RequestError, SubmitError};
pub use event::{
    Event, Outcome, Removal, RequestId, Stale, VersionedValue, WatchEnd, WatchEvent, WatchId,
    WatchPhase,
};
pub use request::{IntoBytes, Request};

use crate::deadlines::Deadlines;
use crate::debug::Hidden;
use crate::hlc::{FencingToken, Hlc, HybridClock};
use crate::machine::{Input, Machine};
use crate::message::{Command, CommandKind, Incarnation, property};
use crate::mqtt::{
    Correlation, Publish, PublishToken, Purpose, ReasonCode, SubscribeToken, Transmit,
};
use crate::time::{Instant, Now, whole_millis};
use crate::topic::{self, NotificationTopic};
use watch::Phase;
use watches::Watches;

/// A client of a state store. See the [module documentation](self).
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    clock: HybridClock,
    request_topic: Arc<str>,
    connected: bool,
    responses: Subscription,
    notifications: Subscription,
    subscriptions: VecDeque<Transmit>,
    last_subscribe: u64,
    pending: BTreeMap<u64, Pending>,
    last_request: u64,
    deadlines: Deadlines<Timer>,
    /// Requests of the application and reads of watches, not sent yet.
    unsent: VecDeque<u64>,
    /// KEYNOTIFY requests, not sent yet: they wait for a subscription of their own.
    unsent_watching: VecDeque<u64>,
    watches: Watches,
    /// The store that answered last, by its incarnation if it says so; `None` before the first answer.
    met: Option<Option<Incarnation>>,
    /// The store that took its place, when there was no room to tell it.
    replaced: Option<Option<Incarnation>>,
    /// When all watches were last begun anew for that.
    restarted: Option<Instant>,
    events: VecDeque<Event>,
    counters: Counters,
    /// Requests of the application that are pending or whose completion waits in `events`.
    accepted: usize,
    /// The latest time that was told.
    now: Now,
}

/// How far the subscription to one filter is, on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscription {
    None,
    Asked(SubscribeToken),
    Granted,
    Refused,
}

/// A request that has no outcome yet.
#[derive(Debug)]
struct Pending {
    owner: Owner,
    kind: CommandKind,
    payload: Hidden,
    timestamp: Option<Hlc>,
    fencing_token: Option<FencingToken>,
    persist: bool,
    deadline: Instant,
    sent: bool,
    /// Whether it was sent on an earlier connection of the session too, so that the broker may have passed it on.
    sent_before: bool,
}

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Application,
    Watch(WatchId),
}

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Request(u64),
    Register(WatchId),
}

impl Client {
    /// A client that is offline.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self {
            clock: HybridClock::new(config.node_id.clone()),
            request_topic: topic::REQUEST.into(),
            connected: false,
            responses: Subscription::None,
            notifications: Subscription::None,
            subscriptions: VecDeque::new(),
            last_subscribe: 0,
            pending: BTreeMap::new(),
            last_request: 0,
            deadlines: Deadlines::new(),
            unsent: VecDeque::new(),
            unsent_watching: VecDeque::new(),
            watches: Watches::default(),
            met: None,
            replaced: None,
            restarted: None,
            events: VecDeque::new(),
            counters: Counters::default(),
            accepted: 0,
            now: Now::default(),
            config,
        }
    }

    /// Accepts a request. It is stamped now and sent as soon as the client is ready.
    ///
    /// # Errors
    /// [`SubmitError`]; then nothing was accepted.
    pub fn submit(
        &mut self,
        now: Now,
        request: impl Into<Request>,
    ) -> Result<RequestId, SubmitError> {
        let request = request.into();
        self.now = now;
        let kind = request.kind();
        if matches!(kind, CommandKind::Watch | CommandKind::Unwatch) {
            return Err(SubmitError::NotARequest);
        }
        match kind {
            CommandKind::Scan if request.subject().is_empty() => {
                return Err(SubmitError::EmptyPattern);
            }
            CommandKind::Scan => {}
            _ => self.check_key(request.subject())?,
        }
        if request.zero_expiry {
            return Err(SubmitError::ZeroExpiry);
        }
        if !self.has_room() {
            return Err(SubmitError::Full);
        }
        let timestamp = match self.clock.tick(now.unix) {
            Ok(timestamp) => Some(timestamp),
            Err(error) if kind == CommandKind::Set => return Err(SubmitError::Clock(error)),
            Err(_) => None,
        };
        self.accepted += 1;
        let deadline = now.instant + request.timeout.unwrap_or(self.config.timeout);
        let id = self.enqueue(Pending {
            owner: Owner::Application,
            kind,
            payload: Hidden(request.payload()),
            timestamp,
            fencing_token: request.fencing_token,
            persist: request.persist && kind == CommandKind::Set,
            deadline,
            sent: false,
            sent_before: false,
        });
        Ok(RequestId(id))
    }

    /// Gives a request up. It completes as [`Outcome::Cancelled`]; `false` when it is complete already.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let Some(pending) =
            self.pending.get(&id.0).filter(|pending| pending.owner == Owner::Application)
        else {
            return false;
        };
        let sent = pending.sent;
        self.finish(id.0, Outcome::Cancelled { sent });
        true
    }

    /// Handles a new connection. `session_present` is the flag of the CONNACK.
    pub fn handle_connected(&mut self, now: Now, session_present: bool) {
        self.now = now;
        self.lose_connection(!session_present);
        self.connected = true;
        self.counters.connections += 1;
        self.responses = self.subscribe(Arc::clone(&self.config.response_topic));
        self.resume_watches(session_present);
    }

    /// Handles a SUBACK. One that belongs to an earlier connection is ignored.
    pub fn handle_subscribed(&mut self, now: Now, token: SubscribeToken, reason: ReasonCode) {
        self.now = now;
        let outcome = if reason.is_error() { Subscription::Refused } else { Subscription::Granted };
        let asked = Subscription::Asked(token);
        let filter = if self.responses == asked {
            self.responses = outcome;
            if outcome == Subscription::Granted {
                self.tell_if_room(Event::Ready);
            }
            &self.config.response_topic
        } else if self.notifications == asked {
            self.notifications = outcome;
            &self.config.notification_filter
        } else {
            return;
        };
        if outcome == Subscription::Refused {
            let filter = Arc::clone(filter);
            self.tell_if_room(Event::SubscribeFailed { filter, reason });
        }
    }

    /// Handles the loss of the connection.
    pub fn handle_disconnected(&mut self, now: Now) {
        self.now = now;
        self.lose_connection(!self.config.keeps_session);
    }

    /// Handles the PUBACK of a PUBLISH, or the transport's own reason code when it could not send the packet.
    ///
    /// A request that was refused, or that reached no store, completes as [`Outcome::Rejected`]; one that was sent on an
    /// earlier connection too as [`Outcome::Unknown`], since nothing tells what became of it there.
    pub fn handle_published(&mut self, now: Now, token: PublishToken, reason: ReasonCode) {
        self.now = now;
        let failed = reason.is_error() || reason == ReasonCode::NO_MATCHING_SUBSCRIBERS;
        let Some(pending) = self.pending.get(&token.0).filter(|pending| failed && pending.sent)
        else {
            return;
        };
        let unknown = pending.sent_before;
        let outcome = if unknown { Outcome::Unknown } else { Outcome::Rejected(reason) };
        self.finish(token.0, outcome);
    }

    /// Completes what has timed out. Early or repeated calls change nothing.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        while let Some(timer) = self.deadlines.pop_due(now.instant) {
            match timer {
                Timer::Request(id) => {
                    let sent = self.pending.get(&id).is_some_and(|pending| pending.sent);
                    self.finish(id, Outcome::TimedOut { sent });
                }
                Timer::Register(id) => self.register_due(id),
            }
        }
    }

    /// The next packet to send, in order.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        if let Some(subscribe) = self.subscriptions.pop_front() {
            return Some(subscribe);
        }
        if self.responses != Subscription::Granted {
            return None;
        }
        if self.notifications == Subscription::Granted {
            while let Some(id) = self.unsent_watching.pop_front() {
                if let Some(publish) = self.send(id) {
                    return Some(publish);
                }
            }
        }
        while let Some(id) = self.unsent.pop_front() {
            if let Some(publish) = self.send(id) {
                return Some(publish);
            }
        }
        None
    }

    /// The next event, in order.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        let event =
            event.or_else(|| self.next_replacement()).or_else(|| self.next_lagging_event())?;
        if matches!(event, Event::Completed { .. }) {
            self.accepted -= 1;
        }
        self.counters.told(&event);
        Some(event)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` when nothing is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Where answers are to be published: what this client must be able to read.
    #[must_use]
    pub const fn response_topic(&self) -> &Arc<str> {
        &self.config.response_topic
    }

    /// Whether requests go out now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.connected && self.responses == Subscription::Granted
    }

    /// What the client has seen and done. Events are counted when they are polled.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Keys watched, those included whose end was not polled yet.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// Requests that have no outcome yet, those of watches included.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether another request would be accepted now, as far as their number goes.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.accepted < self.config.limits.pending_max
    }

    /// Requests accepted whose completion was not polled yet.
    #[must_use]
    pub const fn outstanding(&self) -> usize {
        self.accepted
    }

    fn check_key(&self, key: &[u8]) -> Result<(), SubmitError> {
        match key.len() {
            0 => Err(SubmitError::EmptyKey),
            len if len > NotificationTopic::key_len_max(&self.config.client_id) => {
                Err(SubmitError::KeyTooLong)
            }
            _ => Ok(()),
        }
    }

    fn subscribe(&mut self, filter: Arc<str>) -> Subscription {
        self.last_subscribe += 1;
        let token = SubscribeToken(self.last_subscribe);
        self.subscriptions.push_back(Transmit::Subscribe { filter, token });
        Subscription::Asked(token)
    }

    fn subscribe_notifications(&mut self) {
        if self.notifications == Subscription::None {
            self.notifications = self.subscribe(Arc::clone(&self.config.notification_filter));
        }
    }

    /// Everything that dies with a connection.
    fn lose_connection(&mut self, session_lost: bool) {
        self.connected = false;
        self.responses = Subscription::None;
        self.notifications = Subscription::None;
        self.subscriptions.clear();
        let lost = |(id, pending): (&u64, &Pending)| {
            let unknown = session_lost && pending.sent && pending.owner == Owner::Application;
            unknown.then_some(*id)
        };
        let unknown: alloc::vec::Vec<u64> = self.pending.iter().filter_map(lost).collect();
        for id in unknown {
            self.finish(id, Outcome::Unknown);
        }
        for pending in self.pending.values_mut() {
            pending.sent_before = pending.sent;
        }
        self.interrupt_watches();
    }

    fn enqueue(&mut self, pending: Pending) -> u64 {
        self.last_request += 1;
        let id = self.last_request;
        let watching = matches!(pending.kind, CommandKind::Watch | CommandKind::Unwatch);
        if watching { &mut self.unsent_watching } else { &mut self.unsent }.push_back(id);
        self.deadlines.insert(pending.deadline, Timer::Request(id));
        self.pending.insert(id, pending);
        id
    }

    /// The PUBLISH of a request that still waits to be sent.
    fn send(&mut self, id: u64) -> Option<Transmit> {
        let pending = self.pending.get_mut(&id)?;
        pending.sent = true;
        let remaining = whole_millis(pending.deadline.duration_since(self.now.instant));
        Some(Transmit::Publish(Publish {
            topic: Arc::clone(&self.request_topic),
            payload: pending.payload.0.clone(),
            response_topic: Some(Arc::clone(&self.config.response_topic)),
            correlation_data: Some(correlation(self.config.nonce, id)),
            content_type: Some(property::CONTENT_TYPE),
            // At least a second: zero would mean that the message is never to be delivered.
            message_expiry: Some(
                u32::try_from(remaining.div_ceil(1_000).max(1)).unwrap_or(u32::MAX),
            ),
            token: Some(PublishToken(id)),
            purpose: Purpose::Request {
                source: Arc::clone(&self.config.client_id),
                fencing_token: pending.fencing_token.clone(),
                persist: pending.persist,
            },
            timestamp: pending.timestamp.clone(),
        }))
    }

    /// Ends a request, whoever asked.
    fn finish(&mut self, id: u64, outcome: Outcome) {
        let Some(pending) = self.take_pending(id) else { return };
        self.counters.ended(pending.kind, &outcome);
        match pending.owner {
            Owner::Application => {
                self.events.push_back(Event::Completed { id: RequestId(id), outcome });
            }
            Owner::Watch(watch) => self.finish_for_watch(watch, pending.kind, outcome),
        }
    }

    /// Removes a request from every table.
    fn take_pending(&mut self, id: u64) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        self.deadlines.remove(pending.deadline, Timer::Request(id));
        if !pending.sent {
            // Otherwise cancelled requests could fill the queue of a client that is offline.
            self.unsent.retain(|other| *other != id);
            self.unsent_watching.retain(|other| *other != id);
        }
        Some(pending)
    }

    /// Reports a replaced store. Without room for the event, the last of several is reported as soon as there is room.
    fn tell_replacement(&mut self, incarnation: Option<Incarnation>) {
        let event = Event::StoreReplaced { incarnation };
        if self.replaced.is_some() || !self.tell_if_room(event) {
            self.replaced = Some(incarnation);
        }
    }

    fn next_replacement(&mut self) -> Option<Event> {
        self.replaced.take().map(|incarnation| Event::StoreReplaced { incarnation })
    }

    /// Queues an event that may be dropped when there is no room.
    fn tell_if_room(&mut self, event: Event) -> bool {
        let limits = &self.config.limits;
        let room = self.events.len() < limits.events_max.saturating_add(limits.pending_max);
        if room {
            self.events.push_back(event);
        }
        room
    }
}

impl Machine for Client {
    fn handle(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Connected { session_present } => self.handle_connected(now, session_present),
            Input::Disconnected => self.handle_disconnected(now),
            Input::Subscribed(token, reason) => self.handle_subscribed(now, token, reason),
            Input::Published(token, reason) => self.handle_published(now, token, reason),
            Input::Message(incoming) => self.handle_publish(now, incoming),
            Input::ClientGone(_) => {}
            Input::Timeout => self.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        Self::poll_transmit(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn is_ready(&self) -> bool {
        Self::is_ready(self)
    }

    /// Always: what it keeps of a message replaces what waited for it.
    fn wants_messages(&self) -> bool {
        true
    }
}

/// Nonce, then counter: unique per run of a client and per request.
fn correlation(nonce: [u8; 8], id: u64) -> Correlation {
    let mut data = [0; 16];
    let (head, tail) = data.split_at_mut(8);
    head.copy_from_slice(&nonce);
    tail.copy_from_slice(&id.to_be_bytes());
    Correlation::new(&data)
}

/// The request that correlation data names; `None` when it is a stranger's.
fn correlated(nonce: [u8; 8], data: &[u8]) -> Option<u64> {
    let (head, tail) = data.split_first_chunk::<8>()?;
    (*head == nonce).then_some(u64::from_be_bytes(tail.try_into().ok()?))
}

/// What a watch's command is about.
fn watch_command(phase: &Phase, key: &Bytes) -> Option<Command<Bytes>> {
    let key = key.clone();
    match phase {
        Phase::Registering => Some(Command::Watch { key }),
        Phase::Reading => Some(Command::Get { key }),
        Phase::Stopping => Some(Command::Unwatch { key }),
        Phase::Waiting | Phase::Live | Phase::Ended(_) => None,
    }
}
