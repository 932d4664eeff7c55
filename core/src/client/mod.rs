//! The client as a state machine: requests and watches in, packets and events out.
//!
//! A [`Client`] implements what every client of the protocol needs and an MQTT library lacks:
//! correlation of replies, time limits, the hybrid logical clock, fencing tokens, and watches that
//! survive reconnects. The application passes each [`Input`] of the transport to
//! [`handle`](Machine::handle), sends the packets that [`poll_transmit`](Client::poll_transmit)
//! returns, handles the events that [`poll_event`](Client::poll_event) returns, and passes
//! [`Input::Timeout`] at the time that [`poll_timeout`](Client::poll_timeout) returns.
//!
//! ```
//! use bytes::Bytes;
//! use statestore_proto::client::{Client, ClientConfig, Event, Request};
//! use statestore_proto::machine::{Input, Machine as _};
//! use statestore_proto::time::Now;
//! use statestore_proto::transport::{Incoming, ReasonCode, Transmit};
//!
//! let mut client = Client::new(ClientConfig::new("c1", *b"8 random"))?;
//! let now = Now::default();
//! let id = client.submit(now, Request::get("k"))?;
//!
//! client.handle(now, Input::Connected { session_present: false });
//! let Some(Transmit::Subscribe { token, .. }) = client.poll_transmit() else {
//!     panic!("the response topic is subscribed first")
//! };
//! client.handle(now, Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
//! assert_eq!(client.poll_event(), Some(Event::Ready));
//!
//! let Some(Transmit::Publish(request)) = client.poll_transmit() else {
//!     panic!("then requests are sent")
//! };
//! let (topic, payload) = (request.response_topic.unwrap(), Bytes::from_static(b"$5\r\nvalue\r\n"));
//! let mut reply = Incoming::new(&topic, &payload);
//! reply.correlation_data = request.correlation_data.as_ref().map(|data| data.as_bytes());
//! client.handle(now, Input::Message(&reply));
//! let Some(Event::Completed { id: completed, outcome }) = client.poll_event() else {
//!     panic!("then they complete")
//! };
//! assert_eq!(completed, id);
//! assert_eq!(outcome.into_value()?.unwrap().value, Bytes::from_static(b"value"));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Lifecycle
//!
//! A client is offline, subscribing or ready. It publishes no request before its response topic is
//! subscribed, and no KEYNOTIFY before notifications are. Requests can be submitted at any time;
//! without a connection they wait until their time limit. A request that was sent when its
//! connection was lost completes as [`Outcome::ConnectionLost`], unless the transport [keeps the
//! session](ClientConfig::keeps_session).
//!
//! Each request asks the store for its [incarnation](crate::message::Incarnation), a random id of
//! one run of a store. If a reply or notification carries another one than before, the
//! registrations of this client are lost. Before the message is used, every watch reports a gap,
//! registers and reads its key again, and the client reports [`Event::StoreReplaced`]. A store
//! without an incarnation can be replaced unnoticed; see
//! [`renew_watches`](ClientConfig::renew_watches).
//!
//! Report the SUBACK of each SUBSCRIBE with [`Input::Subscribed`]. The
//! transport may acknowledge received messages at once.

mod config;
mod counters;
mod error;
mod event;
mod event_queue;
mod pending;
mod receive;
mod request;
mod watch;
mod watches;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

pub use config::{ClientConfig, ConfigError};
pub use counters::{Counters, OutcomeCounts};
pub use error::{RequestError, SubmitError};
pub use event::{
    Event, Outcome, Removal, RequestId, Unmatched, VersionedValue, WatchEnd, WatchEvent, WatchId,
    WatchPhase,
};
pub use request::{DelRequest, IntoBytes, ReadRequest, Request, SetRequest, WriteRequest};

use crate::debug::Hidden;
use crate::hlc::HybridClock;
use crate::machine::{Input, Machine};
use crate::message::{Incarnation, RequestKind, property};
use crate::time::{Instant, Now, whole_millis};
use crate::topic::{self, NotificationTopic};
use crate::transport::{
    Answers, Correlation, Publish, PublishToken, Purpose, ReasonCode, SubscribeToken, Transmit,
};
use config::Settings;
use event_queue::EventQueue;
use pending::{Owner, Pending, PendingRequests, Timer};
use watches::Watches;

/// A client of a state store. See the [module documentation](self).
#[derive(Debug)]
pub struct Client {
    config: Settings,
    clock: HybridClock,
    request_topic: Arc<str>,
    connected: bool,
    responses: Subscription,
    notifications: Subscription,
    subscriptions: VecDeque<Transmit>,
    last_subscribe: u64,
    requests: PendingRequests,
    watches: Watches,
    /// The incarnation of the store that replied last, which is `None` for a store without one;
    /// `None` before the first reply.
    last_incarnation: Option<Option<Incarnation>>,
    /// The incarnation of an [`Event::StoreReplaced`] that did not fit into the queue.
    unreported_incarnation: Option<Option<Incarnation>>,
    /// When all watches last registered with another store.
    watches_restarted_at: Option<Instant>,
    events: EventQueue,
    counters: Counters,
    /// Number of requests of the application whose completion was not polled yet.
    accepted: usize,
    /// The time of the latest call.
    now: Now,
}

/// The state of the subscription to one filter, on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscription {
    None,
    Requested(SubscribeToken),
    Granted,
    Refused,
}

impl Client {
    /// Makes a client that is offline.
    ///
    /// # Errors
    /// [`ConfigError`] if a value of the configuration is invalid.
    pub fn new(config: ClientConfig) -> Result<Self, ConfigError> {
        let config = config.into_settings()?;
        Ok(Self {
            clock: HybridClock::new(config.node_id.clone()),
            request_topic: topic::REQUEST.into(),
            connected: false,
            responses: Subscription::None,
            notifications: Subscription::None,
            subscriptions: VecDeque::new(),
            last_subscribe: 0,
            requests: PendingRequests::new(),
            watches: Watches::default(),
            last_incarnation: None,
            unreported_incarnation: None,
            watches_restarted_at: None,
            events: EventQueue::new(&config.limits),
            counters: Counters::default(),
            accepted: 0,
            now: Now::default(),
            config,
        })
    }

    /// Accepts a request, gives it a timestamp, and sends it when the client is ready.
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
        self.check_request(&request)?;
        if !self.can_submit() {
            return Err(SubmitError::Full);
        }
        self.accepted += 1;
        Ok(RequestId(self.enqueue(Owner::Application, request)))
    }

    /// Gives a request its timestamp and its time limit.
    fn enqueue(&mut self, owner: Owner, request: Request) -> u64 {
        self.clock.restart_if_ahead(self.now.unix);
        self.requests.insert(Pending {
            owner,
            kind: request.kind(),
            payload: Hidden(request.payload()),
            // It fails only if the clock is a minute ahead and its counter is exhausted.
            timestamp: self.clock.tick(self.now.unix).ok(),
            fencing_token: request.fencing_token,
            persist: request.persist,
            deadline: self.now.instant + request.timeout.unwrap_or(self.config.timeout),
            sent: false,
            sent_before: false,
        })
    }

    /// Cancels a request, which completes as [`Outcome::Cancelled`]. Returns `false` if it was
    /// already complete.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let pending = self.requests.get(id.0);
        let Some(pending) = pending.filter(|pending| pending.owner == Owner::Application) else {
            return false;
        };
        let sent = pending.sent;
        self.complete(id.0, Outcome::Cancelled { sent });
        true
    }

    fn handle_connected(&mut self, now: Now, session_present: bool) {
        self.now = now;
        self.lose_connection(!session_present);
        self.connected = true;
        self.counters.connections += 1;
        self.responses = self.subscribe(Arc::clone(&self.config.response_topic));
        self.resume_watches(session_present);
    }

    fn handle_subscribed(&mut self, now: Now, token: SubscribeToken, reason: ReasonCode) {
        self.now = now;
        let requested = Subscription::Requested(token);
        let is_responses = self.responses == requested;
        let (subscription, filter) = if is_responses {
            (&mut self.responses, &self.config.response_topic)
        } else if self.notifications == requested {
            (&mut self.notifications, &self.config.notification_filter)
        } else {
            return;
        };
        if reason.is_error() {
            *subscription = Subscription::Refused;
            let filter = Arc::clone(filter);
            self.events.try_push(Event::SubscribeFailed { filter, reason });
            return;
        }
        *subscription = Subscription::Granted;
        if is_responses {
            self.events.try_push(Event::Ready);
        }
    }

    fn handle_disconnected(&mut self, now: Now) {
        self.now = now;
        self.lose_connection(!self.config.keeps_session);
    }

    fn handle_published(&mut self, now: Now, token: PublishToken, reason: ReasonCode) {
        self.now = now;
        if !reason.is_error() && reason != ReasonCode::NO_MATCHING_SUBSCRIBERS {
            return;
        }
        let Some(pending) = self.requests.get_sent(token.0) else { return };
        let outcome = if pending.sent_before {
            Outcome::ConnectionLost
        } else {
            Outcome::Undelivered(reason)
        };
        self.complete(token.0, outcome);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        while let Some(timer) = self.requests.deadlines.pop_due(now.instant) {
            match timer {
                Timer::Request(id) => {
                    let sent = self.requests.get_sent(id).is_some();
                    self.complete(id, Outcome::TimedOut { sent });
                }
                Timer::Register(id) => {
                    self.step_watch(id, watch::Input::RegisterDue);
                }
            }
        }
    }

    /// Returns the next packet to send.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        if let Some(subscribe) = self.subscriptions.pop_front() {
            return Some(subscribe);
        }
        if self.responses != Subscription::Granted {
            return None;
        }
        let can_send_keynotify = self.notifications == Subscription::Granted;
        let (id, pending) = self.requests.pop_unsent(can_send_keynotify)?;
        Some(publish(&self.config, &self.request_topic, self.now, id, pending))
    }

    /// Returns the next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop();
        let event =
            event.or_else(|| self.pop_store_replaced()).or_else(|| self.pop_lagging_event())?;
        if matches!(event, Event::Completed { .. }) {
            self.accepted -= 1;
        }
        self.counters.record_event(&event);
        Some(event)
    }

    /// The time of the next [`Input::Timeout`]; `None` while no deadline is set.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.requests.deadlines.next()
    }

    /// The MQTT client id to connect with.
    #[must_use]
    pub const fn client_id(&self) -> &Arc<str> {
        &self.config.client_id
    }

    /// The filter of notifications, which this client must be allowed to read if it watches keys.
    #[must_use]
    pub const fn notification_filter(&self) -> &Arc<str> {
        &self.config.notification_filter
    }

    /// The topic of replies, which this client must be allowed to read.
    #[must_use]
    pub const fn response_topic(&self) -> &Arc<str> {
        &self.config.response_topic
    }

    /// Returns whether requests can be sent now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.connected && self.responses == Subscription::Granted
    }

    /// The counters. Events are counted when they are polled.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of watches, including those whose end was not polled yet.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// Number of requests without an outcome yet, including those of watches.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether the number of outstanding requests allows another one.
    #[must_use]
    pub const fn can_submit(&self) -> bool {
        self.accepted < self.config.limits.pending_max
    }

    /// Number of accepted requests whose completion was not polled yet.
    #[must_use]
    pub const fn outstanding(&self) -> usize {
        self.accepted
    }

    fn check_request(&self, request: &Request) -> Result<(), SubmitError> {
        match request.kind() {
            RequestKind::Watch | RequestKind::Unwatch => return Err(SubmitError::WatchCommand),
            RequestKind::Scan if request.subject().is_empty() => {
                return Err(SubmitError::EmptyPattern);
            }
            RequestKind::Scan => {}
            _ => self.check_key(request.subject())?,
        }
        if request.zero_expiry {
            return Err(SubmitError::ZeroExpiry);
        }
        if request.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(SubmitError::ZeroTimeout);
        }
        if request.fencing_token.is_some() && !request.kind().is_write() {
            return Err(SubmitError::FencingTokenOnRead);
        }
        if request.persist && request.kind() != RequestKind::Set {
            return Err(SubmitError::PersistWithoutSet);
        }
        Ok(())
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
        Subscription::Requested(token)
    }

    fn subscribe_notifications(&mut self) {
        if self.notifications == Subscription::None {
            self.notifications = self.subscribe(Arc::clone(&self.config.notification_filter));
        }
    }

    fn lose_connection(&mut self, session_lost: bool) {
        self.connected = false;
        self.responses = Subscription::None;
        self.notifications = Subscription::None;
        self.subscriptions.clear();
        let sent = self.requests.lose_connection();
        if session_lost {
            for id in sent {
                self.complete(id, Outcome::ConnectionLost);
            }
        }
        self.step_watches(|| watch::Input::Disconnected);
    }

    /// Completes a request of the application or of a watch.
    fn complete(&mut self, id: u64, outcome: Outcome) {
        let Some(pending) = self.requests.remove(id) else { return };
        self.counters.record_outcome(pending.kind, &outcome);
        match pending.owner {
            Owner::Application => {
                self.events.push(Event::Completed { id: RequestId(id), outcome });
            }
            Owner::Watch(watch) => {
                self.step_watch(watch, watch::Input::Outcome(pending.kind, outcome));
            }
        }
    }

    /// Reports a replaced store. If the event does not fit, only the last of several is reported.
    fn report_store_replaced(&mut self, incarnation: Option<Incarnation>) {
        let event = Event::StoreReplaced { incarnation };
        if self.unreported_incarnation.is_some() || !self.events.try_push(event) {
            self.unreported_incarnation = Some(incarnation);
        }
    }

    fn pop_store_replaced(&mut self) -> Option<Event> {
        let incarnation = self.unreported_incarnation.take()?;
        Some(Event::StoreReplaced { incarnation })
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

    /// Always true: a client stores at most one notification per watch.
    fn can_receive(&self) -> bool {
        true
    }
}

/// The PUBLISH of a request.
fn publish(config: &Settings, topic: &Arc<str>, now: Now, id: u64, pending: &Pending) -> Transmit {
    let remaining = whole_millis(pending.deadline.duration_since(now.instant));
    // At least a second: with zero the broker would not deliver the message.
    let expiry = remaining.div_ceil(1_000).max(1);
    Transmit::Publish(Publish {
        topic: Arc::clone(topic),
        payload: pending.payload.0.clone(),
        response_topic: Some(Arc::clone(&config.response_topic)),
        correlation_data: Some(encode_correlation(config.nonce, id)),
        content_type: Some(property::CONTENT_TYPE),
        message_expiry: Some(u32::try_from(expiry).unwrap_or(u32::MAX)),
        token: Some(PublishToken(id)),
        answers: Answers(None),
        purpose: Purpose::Request {
            source: Arc::clone(&config.client_id),
            fencing_token: pending.fencing_token.clone(),
            persist: pending.persist,
        },
        timestamp: pending.timestamp.clone(),
    })
}

/// Encodes nonce and request id: unique per run of a client and per request.
fn encode_correlation(nonce: [u8; 8], id: u64) -> Correlation {
    let mut data = [0; 16];
    let (head, tail) = data.split_at_mut(8);
    head.copy_from_slice(&nonce);
    tail.copy_from_slice(&id.to_be_bytes());
    Correlation::new(&data)
}

/// The request id in correlation data; `None` if another client or run has issued it.
fn parse_correlation(nonce: [u8; 8], data: &[u8]) -> Option<u64> {
    let (head, tail) = data.split_first_chunk::<8>()?;
    (*head == nonce).then_some(u64::from_be_bytes(tail.try_into().ok()?))
}
