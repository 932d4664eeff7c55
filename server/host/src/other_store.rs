//! The check whether another store already serves at an external broker.
//!
//! A store that connects with the client id of another store takes over its session. The other
//! store ends and loses all keys that are not durable. So a store first sends a GET under a
//! different client id.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use statestore_client::mqtt::packet::{Subscription, SubscriptionOptions};
use statestore_client::mqtt::property::Property;
use statestore_client::mqtt::session::{Event as SessionEvent, Message, Publish, SendError};
use statestore_client::mqtt::{Qos, Reason};
use statestore_client::{
    Address, Connection, Connector, LinkError, LinkErrorKind, Options, SessionSocket,
};
use statestore_proto::message::Command;
use statestore_proto::message::property::{CONTENT_TYPE, RequestProperties};
use statestore_proto::topic::{REQUEST, ResponseTopic};
use statestore_tokio::adapter::{self, Negotiated, Opening};
use tokio::time::{Instant, timeout};

use crate::event::{Event, Observer};

/// How long another store may take to respond, after the broker has acknowledged the request.
const RESPONSE_WAIT: Duration = Duration::from_millis(500);

/// How long the broker may take to deliver a message to its sender.
const PROBE_WAIT: Duration = Duration::from_millis(500);

/// Maximum duration of a check. The rest of [`Options::connect_timeout`] is for the connection of
/// the store.
pub(crate) const CHECK_MAX: Duration = Duration::from_millis(2_500);

/// How long a check that has passed is not repeated. With a slow broker, check and connection take
/// longer than one attempt.
const PASSED_FOR: Duration = Duration::from_secs(10);

/// Number of checks that fail after which the store starts without one.
const FAILED_MAX: u8 = 3;

/// How long the broker keeps a session if a check is interrupted.
const SESSION_EXPIRY: Duration = Duration::from_secs(60);

/// A key that no application uses. No store has it, and some refuse to read it: both respond.
const KEY: &[u8] = b"statestore-server/other-store";

/// Another store responds at the broker.
///
/// It is the [cause](LinkError::get_ref) of the error with which a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another store responds at this broker")]
#[non_exhaustive]
pub struct OtherStore;

/// Connects a store to an external broker, once no other store responds there.
pub(crate) struct CheckedConnector {
    connector: Connector,
    /// `None` once the check is done.
    check: Option<Check>,
}

/// A check that is to be made.
struct Check {
    observer: Observer,
    /// Number of checks without a finding.
    failed: u8,
    /// The last check after which the store may connect: its address and its end.
    passed: Option<(Address, Instant)>,
}

/// Outcome of a check.
#[derive(Debug)]
enum Finding {
    NoStore,
    OtherStore,
    /// The broker does not let this client find out.
    Unknown(Cause),
}

/// Cause of an [`Unknown`](Finding::Unknown) finding.
#[derive(Debug)]
enum Cause {
    Connect(LinkError),
    SharedSession,
    ClientId,
    Subscribe(Reason),
    Publish(Reason),
    Send(SendError),
    NotDelivered,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "a second client cannot connect: {error}"),
            Self::SharedSession => {
                f.write_str("it gives a client with another id the same session")
            }
            Self::ClientId => f.write_str("the client id is too long for a second client"),
            Self::Subscribe(reason) => {
                write!(f, "the broker refuses the subscription to responses: {reason}")
            }
            Self::Publish(reason) => write!(f, "the broker refuses the request: {reason}"),
            Self::Send(error) => write!(f, "the request cannot be sent: {error}"),
            Self::NotDelivered => f.write_str("the broker delivers no message to a second client"),
        }
    }
}

impl CheckedConnector {
    /// Checks before the first connection.
    pub(crate) fn with_check(observer: Observer) -> Self {
        let check = Check { observer, failed: 0, passed: None };
        Self { connector: Connector::default(), check: Some(check) }
    }

    /// Does not check.
    pub(crate) fn without_check() -> Self {
        Self { connector: Connector::default(), check: None }
    }
}

impl adapter::Connector for CheckedConnector {
    type Connection = Connection;

    async fn open(&mut self, opening: Opening<'_>) -> Result<(Connection, Negotiated), LinkError> {
        if let Some(check) = &mut self.check
            && !check.has_passed(opening.address)
        {
            match check.run(opening.options, opening.address).await? {
                Passed::NoStore => {
                    check.passed = Some((opening.address.clone(), Instant::now()));
                }
                Passed::Unknown => self.check = None,
            }
        }
        let opened = self.connector.open(opening).await?;
        self.check = None;
        Ok(opened)
    }
}

/// Outcome of a check after which the store may connect.
enum Passed {
    NoStore,
    /// Reported, and not to be repeated.
    Unknown,
}

impl Check {
    fn has_passed(&self, address: &Address) -> bool {
        let passed = self.passed.as_ref();
        passed.is_some_and(|(at, end)| at == address && end.elapsed() < PASSED_FOR)
    }

    /// Looks for another store at this address.
    async fn run(&mut self, options: &Options, address: &Address) -> Result<Passed, LinkError> {
        let options = client_options(options, address);
        let finding = timeout(CHECK_MAX, find_store(&options)).await.unwrap_or_else(|_| {
            let text = "the check for another store takes too long";
            Err(LinkError::new(LinkErrorKind::TimedOut, text).with_address(address))
        });
        let finding = match finding {
            Ok(finding) => finding,
            // The store cannot connect either.
            Err(error) if error.kind() == LinkErrorKind::Unreachable => return Err(error),
            Err(error) => {
                self.failed += 1;
                if error.is_transient() && self.failed < FAILED_MAX {
                    return Err(error);
                }
                // The client id or its rights may be the cause.
                Finding::Unknown(Cause::Connect(error))
            }
        };
        match finding {
            Finding::NoStore => Ok(Passed::NoStore),
            Finding::OtherStore => {
                let error = LinkError::from_source(LinkErrorKind::Other, OtherStore).permanent();
                let advice = "stop that store first, or set take-over to replace one with the same client id";
                Err(error.with_advice(advice).with_address(address))
            }
            Finding::Unknown(cause) => {
                self.observer.report(&Event::OtherStoreUnknown { reason: cause.to_string() });
                Ok(Passed::Unknown)
            }
        }
    }
}

/// The options of the client that checks: those of the store, with another client id.
fn client_options(store: &Options, address: &Address) -> Options {
    let mut options = store.clone().session_expiry(SESSION_EXPIRY);
    options.client_id = format!("{}-check-{:08x}", store.client_id, fastrand::u32(..));
    (options.host, options.port) = (address.host.clone(), address.port);
    options.alternatives.clear();
    options
}

/// Some brokers derive the client id from the user, so that the check resumes the session of a
/// store. It must not discard queued requests then: `clean_start` is false, and no message is
/// acknowledged.
fn connector() -> Connector {
    Connector::default()
        .session_options(|options| options.clean_start(false).manual_acknowledgement(true))
}

/// Tokens of the publishes.
const REQUEST_TOKEN: u64 = 1;
const PROBE_TOKEN: u64 = 2;

/// Connects, and looks for another store.
async fn find_store(options: &Options) -> Result<Finding, LinkError> {
    let Ok(topic) = ResponseTopic::new(&options.client_id) else {
        return Ok(Finding::Unknown(Cause::ClientId));
    };
    let (mut socket, server) = connector().connect(options).await?;
    if server.session_present {
        socket.close().await;
        return Ok(Finding::Unknown(Cause::SharedSession));
    }
    let finding = check(&mut socket, &options.client_id, &topic.to_string()).await;
    // The session of this client ends with its connection.
    socket.session_mut().disconnect(Reason::SUCCESS, Property::SessionExpiry(0));
    let _ = timeout(RESPONSE_WAIT, socket.flush()).await;
    finding
}

/// Sends a GET, and waits for the response.
async fn check(
    socket: &mut SessionSocket,
    client_id: &str,
    topic: &str,
) -> Result<Finding, LinkError> {
    let (request, probe) = (fastrand::u128(..).to_be_bytes(), fastrand::u128(..).to_be_bytes());
    if let Some(finding) = send_request(socket, client_id, topic, &request).await? {
        return Ok(finding);
    }
    let wait = wait_for_message(socket, topic, &request, &probe);
    if let Ok(finding) = timeout(RESPONSE_WAIT, wait).await {
        return finding;
    }
    // A broker may grant the subscription and withhold the messages, so this client sends one to
    // itself. Not before, since some brokers close the connection for it.
    if let Err(error) = publish_probe(socket, topic, &probe) {
        return Ok(Finding::Unknown(Cause::Send(error)));
    }
    match timeout(PROBE_WAIT, wait_for_message(socket, topic, &request, &probe)).await {
        Ok(Ok(finding)) => Ok(finding),
        Ok(Err(_)) | Err(_) => Ok(Finding::Unknown(Cause::NotDelivered)),
    }
}

/// Subscribes, and sends the request. Returns `None` once the broker has accepted it and there was
/// no response yet.
async fn send_request(
    socket: &mut SessionSocket,
    client_id: &str,
    topic: &str,
    request: &[u8],
) -> Result<Option<Finding>, LinkError> {
    if let Err(error) = subscribe(socket, topic) {
        return Ok(Some(Finding::Unknown(Cause::Send(error))));
    }
    loop {
        match socket.next_event().await? {
            SessionEvent::Subscribed { reasons, .. } => {
                if let Some(refused) = reasons.into_iter().find(|reason| reason.is_error()) {
                    return Ok(Some(Finding::Unknown(Cause::Subscribe(refused))));
                }
                if let Err(error) = publish_request(socket, client_id, topic, request) {
                    return Ok(Some(Finding::Unknown(Cause::Send(error))));
                }
            }
            SessionEvent::Message(message) if is_for(&message, topic, request) => {
                return Ok(Some(Finding::OtherStore));
            }
            SessionEvent::Published { token: REQUEST_TOKEN, reason, .. } => {
                return Ok(match reason {
                    Reason::NO_MATCHING_SUBSCRIBERS => Some(Finding::NoStore),
                    reason if reason.is_error() => Some(Finding::Unknown(Cause::Publish(reason))),
                    _ => None,
                });
            }
            _ => {}
        }
    }
}

/// Waits for the response, or for the probe.
async fn wait_for_message(
    socket: &mut SessionSocket,
    topic: &str,
    request: &[u8],
    probe: &[u8],
) -> Result<Finding, LinkError> {
    loop {
        match socket.next_event().await? {
            SessionEvent::Message(message) if is_for(&message, topic, request) => {
                return Ok(Finding::OtherStore);
            }
            SessionEvent::Message(message) if is_for(&message, topic, probe) => {
                return Ok(Finding::NoStore);
            }
            SessionEvent::Published { token: PROBE_TOKEN, reason, .. } if reason.is_error() => {
                return Ok(Finding::Unknown(Cause::NotDelivered));
            }
            _ => {}
        }
    }
}

/// Returns whether a message on this topic has this correlation data.
fn is_for(message: &Message, topic: &str, id: &[u8]) -> bool {
    let has_id = |property| property == Property::CorrelationData(id);
    message.topic() == topic && message.properties().into_iter().any(has_id)
}

/// Subscribes to responses.
fn subscribe(socket: &mut SessionSocket, filter: &str) -> Result<(), SendError> {
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    let token = 0;
    socket.session_mut().subscribe(&[Subscription { filter, options }], (), token)
}

/// No store should execute the request after the check.
const EXPIRY: Property<'_> = Property::MessageExpiry(2);

/// Sends the GET.
fn publish_request(
    socket: &mut SessionSocket,
    client_id: &str,
    response_topic: &str,
    id: &[u8],
) -> Result<(), SendError> {
    let user: Vec<_> = RequestProperties::new(client_id)
        .into_iter()
        .map(|(name, value)| (name, value.to_string()))
        .collect();
    let mut properties = vec![
        Property::ResponseTopic(response_topic),
        Property::CorrelationData(id),
        Property::ContentType(CONTENT_TYPE),
        EXPIRY,
    ];
    properties.extend(user.iter().map(|(name, value)| Property::User(name, value)));
    let payload = Command::Get { key: KEY }.encode().into();
    publish(socket, REQUEST, payload, &properties, REQUEST_TOKEN)
}

/// Sends a message to the response topic.
fn publish_probe(socket: &mut SessionSocket, topic: &str, id: &[u8]) -> Result<(), SendError> {
    let properties = [Property::CorrelationData(id), EXPIRY];
    publish(socket, topic, Bytes::new(), &properties, PROBE_TOKEN)
}

fn publish(
    socket: &mut SessionSocket,
    topic: &str,
    payload: Bytes,
    properties: &[Property<'_>],
    token: u64,
) -> Result<(), SendError> {
    let (qos, retain) = (Qos::AtLeastOnce, false);
    socket.session_mut().publish(Publish { topic, payload, qos, retain, properties, token })
}
