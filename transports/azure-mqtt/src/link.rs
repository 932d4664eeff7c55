//! The link: packets and events of one session of the SDK.

use std::collections::VecDeque;
use std::fmt;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use azure_iot_operations_mqtt::control_packet::{TopicFilter, TopicName, UnsubscribeProperties};
use azure_iot_operations_mqtt::error::{CompletionError, DetachedError};
use azure_iot_operations_mqtt::session::{Session, SessionManagedClient, SessionMonitor};
use statestore_proto::transport::{Qos, ReasonCode, Transmit};
use statestore_tokio::adapter::{Completions, Outgoing, Ticket, packet_refusal};
use statestore_tokio::{Connected, Link, LinkError, LinkErrorKind, LinkEvent};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::convert::{self, Message};
use crate::receivers::Receivers;
use crate::sending::{self, Queueing, Sent};
use crate::session::{self, Connection};

/// Maximum duration of [`Link::disconnect`].
const SHUTDOWN_MAX: Duration = Duration::from_secs(1);

/// Default of [`SessionLink::max_in_flight`]: half of the default queue of the SDK, which leaves
/// the other half to the application.
const IN_FLIGHT_MAX: usize = 50;

/// Longest packet that MQTT can express, in bytes.
const PACKET_BYTES_MAX: usize = 268_435_460;

/// Messages that are returned after the connection is lost, before the loss is reported. The next
/// connection of the session may already receive, so there could be one message after the other.
const LATE_MESSAGES_MAX: usize = 1_024;

/// A [`Link`] over a session of the SDK.
///
/// ```no_run
/// use azure_iot_operations_mqtt::session::Session;
/// use statestore_azure_mqtt::{SessionLink, StateStore};
///
/// # fn example(session: &Session) -> Result<(), Box<dyn std::error::Error>> {
/// let link = SessionLink::from(session).max_packet_size(256 * 1024).max_in_flight(20);
/// let store = StateStore::builder().spawn(link)?;
/// # Ok(())
/// # }
/// ```
pub struct SessionLink {
    client: SessionManagedClient,
    monitor: SessionMonitor,
    packet_bytes_max: usize,
    /// `None` before the first connection, and after a loss.
    connection: Option<Connection>,
    /// Set if the session has been connected since the link subscribed.
    is_resumed: bool,
    /// Notified when the connection is lost, and by `sent`.
    changed: Arc<Notify>,
    /// The packet for which the queue of the SDK had no capacity. The link accepts no other.
    queueing: Option<(Ticket, Queueing)>,
    /// Whether a packet was refused because of `queueing`.
    is_starved: bool,
    /// Packets that the SDK has accepted, those of previous connections included: the SDK sends
    /// them again.
    sent: Completions<Sent>,
    /// Events that are ready, without messages: one for each packet that the link refused since the
    /// last event, and one for each acknowledged packet.
    events: VecDeque<LinkEvent<Message>>,
    receivers: Receivers,
    late_messages: usize,
    /// The error that ended the session.
    ended: Option<LinkError>,
}

impl SessionLink {
    /// A link over the session of this client and this monitor.
    ///
    /// `monitor` must be of the same session as `client`.
    #[must_use]
    pub fn new(client: SessionManagedClient, monitor: SessionMonitor) -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            client,
            monitor,
            packet_bytes_max: PACKET_BYTES_MAX,
            connection: None,
            is_resumed: false,
            sent: completions(IN_FLIGHT_MAX, &changed),
            changed,
            queueing: None,
            is_starved: false,
            events: VecDeque::new(),
            receivers: Receivers::default(),
            late_messages: 0,
            ended: None,
        }
    }

    /// Sets how many packets wait for their acknowledgement at a time; 50 by default, and at least
    /// 1. The machine queues further ones.
    ///
    /// The SDK does not obey the Receive Maximum of the broker. Set a value that is below it, and
    /// leave a part for the application.
    #[must_use]
    pub fn max_in_flight(mut self, packets: u16) -> Self {
        self.sent = completions(usize::from(packets).max(1), &self.changed);
        self
    }

    /// Sets the size of the largest packet that the broker accepts, in bytes; 268,435,460 by
    /// default, the limit of MQTT.
    ///
    /// The SDK neither reports nor obeys the Maximum Packet Size of the broker. The broker closes
    /// the connection for a larger packet, and the SDK sends the packet again on the next one. With
    /// this limit, the request fails instead with
    /// [`PACKET_TOO_LARGE`](ReasonCode::PACKET_TOO_LARGE).
    #[must_use]
    pub fn max_packet_size(mut self, bytes: u32) -> Self {
        self.packet_bytes_max = usize::try_from(bytes).unwrap_or(usize::MAX).min(PACKET_BYTES_MAX);
        self
    }

    /// Discards everything of the previous connection. The packets that the SDK sends again count
    /// as sent until they are acknowledged, and are not reported.
    fn reset(&mut self) {
        self.connection = None;
        self.events.clear();
        self.late_messages = 0;
        (self.queueing, self.is_starved) = (None, false);
        for sent in self.sent.take_pending() {
            self.sent.push(Ticket::Other, sent);
        }
    }

    /// Starts to send a packet whose ticket is `ticket`.
    fn start(&mut self, ticket: Ticket, mut queueing: Queueing) {
        match queueing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => self.handle_queued(ticket, sent),
            Poll::Pending => self.queueing = Some((ticket, queueing)),
        }
    }

    /// Handles a packet that the SDK has accepted or rejected.
    fn handle_queued(&mut self, ticket: Ticket, sent: Result<Sent, DetachedError>) {
        match sent {
            Ok(sent) => {
                if let Some((ticket, outcome)) = self.sent.push(ticket, sent) {
                    self.settle(ticket, outcome);
                }
            }
            Err(error) => self.ended = Some(session::ended(error)),
        }
    }

    fn settle(&mut self, ticket: Ticket, outcome: Result<ReasonCode, CompletionError>) {
        match outcome {
            Ok(reason) => self.report(ticket, reason),
            // The loss of the connection is reported separately.
            Err(CompletionError::Canceled(_)) => {}
            Err(error @ CompletionError::Detached) => self.ended = Some(session::ended(error)),
        }
    }

    fn report(&mut self, ticket: Ticket, reason: ReasonCode) {
        self.events.extend(match ticket {
            Ticket::Publish(Some(token)) => Some(LinkEvent::Published(token, reason)),
            Ticket::Subscribe(Some(token)) => Some(LinkEvent::Subscribed(token, reason)),
            Ticket::Publish(None) | Ticket::Subscribe(None) | Ticket::Other => None,
        });
    }

    /// Converts and sends a packet. Fails with the reason code for a packet that cannot be sent.
    fn send(&mut self, packet: Outgoing) -> Result<(), ReasonCode> {
        if let Some(reason) = packet_refusal(&packet, self.packet_bytes_max) {
            return Err(reason);
        }
        let ticket = packet.ticket();
        let client = self.client.clone();
        let queueing = match packet {
            Outgoing::Publish(publish) => {
                let topic = TopicName::new(&*publish.topic);
                let topic = topic.map_err(|_| ReasonCode::TOPIC_NAME_INVALID)?;
                let properties = convert::properties(&publish);
                let properties = properties.map_err(|_| ReasonCode::UNSPECIFIED_ERROR)?;
                sending::publish(client, topic, publish.payload, properties)
            }
            Outgoing::Subscribe { filter: name, .. } => {
                let filter = TopicFilter::new(&*name);
                let filter = filter.map_err(|_| ReasonCode::TOPIC_FILTER_INVALID)?;
                // Before the SUBSCRIBE, so that no message arrives without a receiver.
                self.receivers.add(&client, &name, filter.clone());
                sending::subscribe(client, filter)
            }
            // The machine of a client sends nothing else.
            _ => return Ok(()),
        };
        self.start(ticket, queueing);
        Ok(())
    }

    /// Returns an event that is ready.
    fn ready(&mut self) -> Result<Option<LinkEvent<Message>>, LinkError> {
        for (ticket, outcome) in self.sent.take() {
            self.settle(ticket, outcome);
        }
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        if let Some(error) = self.ended.take() {
            self.connection = None;
            return Err(error);
        }
        Ok(self.sent.take_drained().then_some(LinkEvent::Writable))
    }

    /// Returns a message that arrived before the loss of the connection, and then the loss.
    async fn next_late_message(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        if messages && self.late_messages < LATE_MESSAGES_MAX {
            self.late_messages += 1;
            let receivers = &mut self.receivers;
            let message = poll_fn(|context| match receivers.poll_next(context) {
                Poll::Ready(message) => Poll::Ready(Some(message)),
                Poll::Pending => Poll::Ready(None),
            });
            if let Some(message) = message.await {
                return Ok(LinkEvent::Message(message));
            }
        }
        self.connection = None;
        Err(session::lost())
    }

    /// Unsubscribes from the responses. The subscription to notifications remains, since the SDK's
    /// own client of the state store has the same one.
    async fn unsubscribe(&mut self) {
        let Some(filter) = self.receivers.clear() else { return };
        let Ok(filter) = TopicFilter::new(&*filter) else { return };
        let properties = UnsubscribeProperties::default();
        if let Ok(sent) = self.client.unsubscribe(filter, properties).await {
            let _ = sent.await;
        }
    }
}

/// The packets of a link with this limit.
fn completions(capacity: usize, changed: &Arc<Notify>) -> Completions<Sent> {
    let changed = Arc::clone(changed);
    Completions::new(capacity, move || changed.notify_one())
}

/// A link over a session that does not run yet.
impl From<&Session> for SessionLink {
    fn from(session: &Session) -> Self {
        Self::new(session.create_managed_client(), session.create_session_monitor())
    }
}

impl Link for SessionLink {
    type Message = Message;

    fn client_id(&self) -> &str {
        self.client.client_id()
    }

    /// Waits until the session is connected. Fails if the session has ended.
    ///
    /// The SDK does not return the CONNACK. It ends a session that the broker has lost, so each
    /// connection after the first one has resumed it.
    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.reset();
        let connection = Connection::open(&self.client, &self.monitor, &self.changed).await?;
        self.connection = Some(connection);
        let mut connected = Connected::default();
        connected.session_present = std::mem::replace(&mut self.is_resumed, true);
        Ok(connected)
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection, `next_event` reports the loss.
        if self.connection.is_none() {
            return Ok(());
        }
        if self.queueing.is_some() {
            self.is_starved = true;
            return Err(transmit);
        }
        if !self.sent.try_admit() {
            return Err(transmit);
        }
        let packet = match transmit {
            Transmit::Publish(publish) => Outgoing::Publish(publish),
            Transmit::Subscribe { filter, token } => {
                Outgoing::Subscribe { filter, qos: Qos::AtLeastOnce, token: Some(token) }
            }
            unsupported => {
                warn!("output of the machine not supported: {unsupported:?}");
                return Ok(());
            }
        };
        let ticket = packet.ticket();
        if let Err(reason) = self.send(packet) {
            warn!(%reason, "not sent: the packet is invalid or too large");
            self.report(ticket, reason);
        }
        Ok(())
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        loop {
            let Some(connection) = &self.connection else {
                return Err(LinkError::new(LinkErrorKind::NotConnected, "not connected"));
            };
            let is_lost = connection.is_lost();
            if let Some(event) = self.ready()? {
                return Ok(event);
            }
            if is_lost {
                return self.next_late_message(messages).await;
            }
            let check = self.sent.schedule_check();
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                sent = queued(&mut self.queueing) => {
                    if let Some((ticket, _)) = self.queueing.take() {
                        self.handle_queued(ticket, sent);
                    }
                    if std::mem::take(&mut self.is_starved) {
                        return Ok(LinkEvent::Writable);
                    }
                }
                message = self.receivers.next(), if messages => {
                    return Ok(LinkEvent::Message(message));
                }
                () = sleep(check.unwrap_or_default()), if check.is_some() => {}
            }
        }
    }

    /// Unsubscribes from the responses and stops to receive. The session continues.
    async fn disconnect(&mut self) {
        self.connection = None;
        self.is_resumed = false;
        let _ = timeout(SHUTDOWN_MAX, async {
            if self.queueing.is_some() {
                let _ = queued(&mut self.queueing).await;
            }
            self.unsubscribe().await;
        })
        .await;
        self.queueing = None;
        // If the time limit was exceeded before.
        self.receivers.clear();
    }
}

/// Waits until the SDK has accepted the packet that waits for its queue.
async fn queued(queueing: &mut Option<(Ticket, Queueing)>) -> Result<Sent, DetachedError> {
    match queueing {
        Some((_, queueing)) => queueing.as_mut().await,
        None => pending().await,
    }
}

impl fmt::Debug for SessionLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionLink")
            .field("client_id", &self.client.client_id())
            .finish_non_exhaustive()
    }
}
