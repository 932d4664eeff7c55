//! The context of a case: two clients, their requests, and the findings.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::time::Instant;

use crate::report::{Finding, Verdict, one_line};
use crate::request::{
    By, Dialect, Part, REQUEST, Request, notification_topic, response_topic, show,
};
use crate::run::Settings;
use crate::version::Stamp;
use crate::wire::{Connection, Connector, Lost, Message};

pub(crate) const OK: &[u8] = b"+OK\r\n";
pub(crate) const ABSENT: &[u8] = b"$-1\r\n";
pub(crate) const ZERO: &[u8] = b":0\r\n";
pub(crate) const ONE: &[u8] = b":1\r\n";

/// Maximum size of the unread messages of a client. A page or a value may have a megabyte.
const INBOX_BYTES_MAX: usize = 8 << 20;

/// Maximum number of separate findings of one case.
const FINDINGS_MAX: usize = 5;

/// Number of consecutive requests without a reply after which the store is given up.
const UNANSWERED_MAX: u32 = 3;

/// After this many malformed responses in a row, the peer is not a store.
const MALFORMED_MAX: u32 = 10;

/// Minimum expiry of a value that is set in order to expire.
const SOON_MIN: Duration = Duration::from_millis(250);

/// Minimum time to wait for an optional reaction of the store.
const PATIENCE_MIN: Duration = Duration::from_millis(500);

/// Maximum number of late messages that are discarded.
const LATE_MAX: usize = 10_000;

/// Maximum number of round trips that are recorded for the median.
const TIMES_MAX: usize = 10_000;

pub(crate) type Done = Result<(), Stop>;

/// The reason why a case ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    Lost(Lost),
    /// Something did not arrive in time, or is unusable.
    Missing(String),
    Skipped(&'static str),
}

impl From<Lost> for Stop {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// State of a key that the run tried to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// No reply yet.
    Asked,
    /// All requests so far were refused.
    Refused,
    /// A request may have been applied.
    Answered,
}

/// A connected client, with its unread messages.
struct Client {
    id: String,
    connection: Box<dyn Connection>,
    inbox: VecDeque<Message>,
    inbox_bytes: usize,
}

impl Client {
    fn buffer(&mut self, message: Message) -> Result<(), Lost> {
        self.inbox_bytes += message.size();
        self.inbox.push_back(message);
        match self.inbox_bytes > INBOX_BYTES_MAX {
            true => Err(Lost::because("the broker sends megabytes of unrequested messages")),
            false => Ok(()),
        }
    }

    fn take(&mut self, is_wanted: impl Fn(&Message) -> bool) -> Option<Message> {
        let at = self.inbox.iter().position(is_wanted)?;
        let message = self.inbox.remove(at)?;
        self.inbox_bytes -= message.size();
        Some(message)
    }

    fn clear(&mut self) {
        self.inbox.clear();
        self.inbox_bytes = 0;
    }
}

/// The reply to a request.
#[derive(Clone, Debug)]
pub(crate) struct Reply(pub(crate) Message);

impl Reply {
    pub(crate) fn timestamp(&self) -> Option<&str> {
        self.0.property("__ts")
    }

    pub(crate) fn version(&self) -> Option<Stamp> {
        self.timestamp().and_then(Stamp::parse)
    }

    /// Returns the text of an error, in any form that deployed clients accept.
    pub(crate) fn error(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.0.payload).ok()?;
        let text = text.strip_prefix("-ERR")?;
        let text = text.strip_suffix("\r\n").unwrap_or(text);
        Some(text.strip_prefix(':').unwrap_or(text).trim_start_matches(' '))
    }
}

/// An unreadable file of vectors, which is a defect of this crate.
impl From<String> for Stop {
    fn from(fault: String) -> Self {
        Self::Missing(fault)
    }
}

/// The context of a case.
pub(crate) struct Trial {
    connector: Arc<dyn Connector>,
    /// Prefix of all keys of the run.
    run: String,
    /// Prefix of all client ids.
    client_id: String,
    pub(crate) timeout: Duration,
    clients: [Option<Client>; 2],
    last_correlation: u64,
    section: &'static str,
    pub(crate) written: BTreeMap<Vec<u8>, Written>,
    pub(crate) is_thorough: bool,
    pub(crate) requests: u64,
    pub(crate) times: Vec<Duration>,
    pub(crate) dialects: [Option<Dialect>; 2],
    /// Number of consecutive requests without a reply.
    unanswered: u32,
    /// Number of malformed responses since the last well-formed one.
    malformed: u32,
    findings: Vec<Finding>,
    exchange: (Option<String>, Option<String>),
}

impl Trial {
    pub(crate) fn new(connector: Arc<dyn Connector>, settings: Settings) -> Self {
        Self {
            connector,
            client_id: settings.client_id.unwrap_or_else(|| settings.run.clone()),
            run: settings.run,
            timeout: settings.timeout,
            clients: [None, None],
            last_correlation: 0,
            section: "",
            written: BTreeMap::new(),
            is_thorough: settings.is_thorough,
            requests: 0,
            times: Vec::new(),
            dialects: [None; 2],
            unanswered: 0,
            malformed: 0,
            findings: Vec::new(),
            exchange: (None, None),
        }
    }

    /// Returns whether the remaining cases are skipped: the peer does not respond, or its responses
    /// are malformed.
    pub(crate) const fn is_given_up(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX || self.malformed >= MALFORMED_MAX
    }

    /// Begins a case. Discards late messages of the previous case.
    pub(crate) async fn begin(&mut self, name: &'static str) {
        self.section = name;
        self.exchange = (None, None);
        for client in self.clients.iter_mut().flatten() {
            let late = async {
                for _ in 0..LATE_MAX {
                    if client.connection.next().await.is_err() {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(Duration::ZERO, late).await;
            client.clear();
        }
    }

    /// Ends a case and returns its findings.
    pub(crate) fn end(&mut self, done: Done) -> Vec<Finding> {
        match done {
            Ok(()) => [By::A, By::B].into_iter().for_each(|by| self.expect_no_reply(by)),
            Err(Stop::Missing(what)) => self.found(Verdict::Fail, what),
            Err(Stop::Skipped(why)) => self.found(Verdict::Skipped, why),
            Err(Stop::Lost(lost)) => {
                self.found(Verdict::Fail, format_args!("the connection was lost: {lost}"));
                self.drop_connections();
            }
        }
        mem::take(&mut self.findings)
    }

    /// Reports a reply that belongs to no request.
    pub(crate) fn expect_no_reply(&mut self, by: By) {
        if let Some(answer) = self.take_reply(by) {
            let payload = show(&answer.payload);
            self.must(
                false,
                format_args!("unexpected reply: {payload}; are there two stores on this broker?"),
            );
        }
    }

    /// Returns a reply that has arrived, and that no request has taken.
    pub(crate) fn take_reply(&mut self, by: By) -> Option<Message> {
        let client = self.clients[by as usize].as_mut()?;
        client.take(|message| !is_notification(message))
    }

    // Findings.

    pub(crate) fn found(&mut self, verdict: Verdict, text: impl fmt::Display) {
        match self.findings.len() {
            ..FINDINGS_MAX => {
                let ((request, response), text) =
                    (self.exchange.clone(), one_line(&text.to_string()));
                self.findings.push(Finding { verdict, text, request, response });
            }
            FINDINGS_MAX => {
                let text = "further findings are omitted".to_owned();
                self.findings.push(Finding { verdict, text, request: None, response: None });
            }
            // The worst verdict counts.
            _ => {
                self.findings[FINDINGS_MAX].verdict =
                    self.findings[FINDINGS_MAX].verdict.max(verdict)
            }
        }
    }

    /// Reports a failure if the rule does not hold.
    pub(crate) fn must(&mut self, holds: bool, rule: impl fmt::Display) {
        if !holds {
            self.found(Verdict::Fail, rule);
        }
    }

    /// Reports a difference if the rule does not hold.
    pub(crate) fn should(&mut self, holds: bool, rule: impl fmt::Display) {
        if !holds {
            self.found(Verdict::Differs, rule);
        }
    }

    /// Selects from similar test cases: all, or every third.
    pub(crate) fn sample<T>(&self, all: Vec<T>) -> Vec<T> {
        let step = if self.is_thorough { 1 } else { 3 };
        all.into_iter().step_by(step).collect()
    }

    // Keys and ids.

    /// A key of this case.
    pub(crate) fn key(&self, name: impl AsRef<[u8]>) -> Vec<u8> {
        let mut key = format!("{}/{}/", self.run, self.section).into_bytes();
        key.extend(name.as_ref());
        key
    }

    pub(crate) fn client_id(&self, by: By) -> String {
        let letter = match by {
            By::A => 'a',
            By::B => 'b',
        };
        format!("{}-{letter}", self.client_id)
    }

    /// Milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> u64 {
        #[expect(
            clippy::disallowed_methods,
            reason = "a client stamps its requests with its clock"
        )]
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// A clock value that is this far ahead, or behind if negative.
    pub(crate) fn stamp(&self, ahead_ms: i64) -> String {
        format!("{}:0:verify", self.unix_ms().saturating_add_signed(ahead_ms))
    }

    // Connections.

    async fn client(&mut self, by: By) -> Result<&mut Client, Stop> {
        let id = self.client_id(by);
        let (connector, timeout) = (Arc::clone(&self.connector), self.timeout);
        let slot = &mut self.clients[by as usize];
        if slot.is_none() {
            let connecting = async {
                let mut connection = connector.connect(&id).await?;
                for filter in [response_topic(&id), notification_topic(&id, None)] {
                    let reason = connection.subscribe(&filter).await?;
                    if reason >= 0x80 {
                        return Err(Lost(format!("cannot subscribe to {filter}: 0x{reason:02x}")));
                    }
                }
                Ok(connection)
            };
            let connection = match tokio::time::timeout(timeout, connecting).await {
                Ok(connected) => connected?,
                Err(_) => return Err(Lost::because("no connection in time").into()),
            };
            *slot = Some(Client { id, connection, inbox: VecDeque::new(), inbox_bytes: 0 });
        }
        match slot {
            Some(client) => Ok(client),
            None => Err(Lost::because("not connected").into()),
        }
    }

    /// Adds a subscription.
    pub(crate) async fn subscribe(&mut self, by: By, filter: &str) -> Done {
        let timeout = self.timeout;
        let client = self.client(by).await?;
        match tokio::time::timeout(timeout, client.connection.subscribe(filter)).await {
            Ok(Ok(reason)) if reason < 0x80 => Ok(()),
            Ok(Ok(_)) => Err(Stop::Skipped("the broker refuses another subscription")),
            Ok(Err(lost)) => Err(lost.into()),
            Err(_) => Err(Stop::Missing("no SUBACK in time".into())),
        }
    }

    /// The address and the client id for an additional connection.
    pub(crate) fn extra_client(&self, name: &str) -> (Arc<dyn Connector>, String) {
        (Arc::clone(&self.connector), format!("{}-{name}", self.client_id))
    }

    /// An expiry of some round trips, so that the value can be read before it expires.
    pub(crate) fn soon(&self) -> Duration {
        SOON_MIN.max(self.longest_of_late() * 4)
    }

    /// A time of many round trips, to wait for an optional reaction of the store.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE_MIN.max(self.longest_of_late() * 20).min(self.timeout)
    }

    fn longest_of_late(&self) -> Duration {
        self.times.iter().rev().take(20).max().copied().unwrap_or_default()
    }

    /// Drops the connections. They are opened again on demand.
    pub(crate) fn drop_connections(&mut self) {
        self.clients = [None, None];
    }

    /// Prefix of all keys of this run.
    pub(crate) fn own_prefix(&self) -> String {
        format!("{}/", self.run)
    }

    /// Sends requests again to a store that had stopped responding.
    pub(crate) const fn reset_failures(&mut self) {
        self.unanswered = 0;
        self.malformed = 0;
    }

    pub(crate) async fn disconnect(&mut self, by: By) -> Done {
        if let Some(client) = self.clients[by as usize].take() {
            client.connection.disconnect().await?;
        }
        Ok(())
    }

    // Requests.

    /// Builds the PUBLISH of a request.
    pub(crate) fn message(&mut self, request: &Request) -> Message {
        let client_id = self.client_id(request.by);
        self.message_of(request, &client_id)
    }

    /// Builds the PUBLISH of a request from any client.
    pub(crate) fn message_of(&mut self, request: &Request, client_id: &str) -> Message {
        if let Some(key) = &request.key {
            self.written.entry(key.clone()).or_insert(Written::Asked);
        }
        let mut properties = Vec::new();
        let mut property = |name: &str, value: &str| properties.push((name.into(), value.into()));
        match &request.timestamp {
            Part::Usual => property("__ts", &self.stamp(0)),
            Part::Other(text) => property("__ts", text),
            Part::None => {}
        }
        if let Some(token) = &request.token {
            property("__ft", token);
        }
        if request.dialect == Dialect::Deployed {
            property("__srcId", client_id);
            property("__protVer", "1.0");
        }
        properties.extend(request.properties.iter().cloned());
        self.last_correlation += 1;
        let correlation = match &request.correlation {
            Part::Usual => Some(u128::from(self.last_correlation).to_be_bytes().to_vec()),
            Part::Other(data) => Some(data.clone()),
            Part::None => None,
        };
        Message {
            topic: REQUEST.into(),
            payload: request.payload.clone().into(),
            qos: request.qos,
            retain: false,
            response_topic: match &request.response_topic {
                Part::Usual => Some(response_topic(client_id)),
                Part::Other(topic) => Some(topic.clone()),
                Part::None => None,
            },
            correlation_data: correlation.map(Bytes::from),
            content_type: Some("application/octet-stream".into()),
            message_expiry: request.expiry,
            user_properties: properties,
        }
    }

    /// Sends a request without waiting for its reply.
    pub(crate) async fn send(&mut self, request: &Request) -> Result<Message, Stop> {
        let message = self.message(request);
        self.send_message(request, &message).await?;
        Ok(message)
    }

    async fn send_message(&mut self, request: &Request, message: &Message) -> Done {
        self.requests += 1;
        let mut asked = show(&message.payload);
        for name in ["__ts", "__ft"] {
            if let Some(value) = message.property(name) {
                let _ = write!(asked, " {name} {}", show(value.as_bytes()));
            }
        }
        self.exchange = (Some(asked), None);
        let timeout = self.timeout;
        let client = self.client(request.by).await?;
        match tokio::time::timeout(timeout, client.connection.publish(message)).await {
            Ok(Ok(reason)) if reason < 0x80 => Ok(()),
            Ok(Ok(reason)) => {
                Err(Stop::Missing(format!("the broker refuses the request: 0x{reason:02x}")))
            }
            Ok(Err(lost)) => Err(lost.into()),
            Err(_) => Err(Stop::Missing("the broker does not acknowledge the request".into())),
        }
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn request(&mut self, request: &Request) -> Result<Reply, Stop> {
        let message = self.message(request);
        self.send_and_wait(request, &message).await
    }

    /// Sends exactly this PUBLISH, which may be a redelivery, and waits for its reply.
    pub(crate) async fn send_and_wait(
        &mut self,
        request: &Request,
        message: &Message,
    ) -> Result<Reply, Stop> {
        let since = Instant::now();
        self.unanswered += 1;
        self.send_message(request, message).await?;
        let reply = self.reply_to(request.by, message).await?;
        self.unanswered = 0;
        self.update_written(request, &reply);
        if self.times.len() < TIMES_MAX {
            self.times.push(since.elapsed());
        }
        reply.allowed()
    }

    /// Updates the state of the key that the request writes.
    fn update_written(&mut self, request: &Request, reply: &Reply) {
        let Some(state) = request.key.as_ref().and_then(|key| self.written.get_mut(key)) else {
            return;
        };
        let is_refused = reply.error().is_some();
        *state = match state {
            Written::Asked | Written::Refused if is_refused => Written::Refused,
            _ => Written::Answered,
        };
    }

    /// Waits for the reply to a request that was sent.
    pub(crate) async fn reply_to(&mut self, by: By, asked: &Message) -> Result<Reply, Stop> {
        let topic = asked.response_topic.as_deref().unwrap_or_default();
        let is_reply = |message: &Message| {
            message.topic == topic && message.correlation_data == asked.correlation_data
        };
        let Some(message) = self.receive(by, is_reply).await? else {
            let client = self.client(by).await?;
            let stray = client.inbox.iter().find(|message| message.topic == topic);
            return Err(Stop::Missing(match stray {
                Some(_) => "the reply has other correlation data than the request".into(),
                None => "no reply in time".to_owned(),
            }));
        };
        let is_well_formed =
            matches!(message.payload.first(), Some(b'+' | b':' | b'$' | b'-' | b'*'))
                && message.payload.ends_with(b"\r\n");
        self.malformed = if is_well_formed { 0 } else { self.malformed + 1 };
        let mut answered = show(&message.payload);
        if let Some(version) = message.property("__ts") {
            let _ = write!(answered, " __ts {}", show(version.as_bytes()));
        }
        self.exchange.1 = Some(answered);
        self.must(is_well_formed, "malformed response");
        Ok(Reply(message))
    }

    /// Waits for a matching message; returns `None` after the timeout.
    pub(crate) async fn receive(
        &mut self,
        by: By,
        is_wanted: impl Fn(&Message) -> bool,
    ) -> Result<Option<Message>, Stop> {
        self.receive_within(self.timeout, by, is_wanted).await
    }

    /// Receives messages for this long.
    pub(crate) async fn receive_for(&mut self, by: By, time: Duration) -> Done {
        self.receive_within(time, by, |_| false).await.map(drop)
    }

    async fn receive_within(
        &mut self,
        time: Duration,
        by: By,
        is_wanted: impl Fn(&Message) -> bool,
    ) -> Result<Option<Message>, Stop> {
        let deadline = Instant::now() + time;
        let client = self.client(by).await?;
        if let Some(message) = client.take(&is_wanted) {
            return Ok(Some(message));
        }
        loop {
            match tokio::time::timeout_at(deadline, client.connection.next()).await {
                Ok(Ok(message)) if is_wanted(&message) => return Ok(Some(message)),
                Ok(message) => client.buffer(message?)?,
                Err(_) => return Ok(None),
            }
        }
    }

    /// Returns a notification that has already arrived.
    pub(crate) fn take_notification(&mut self, by: By) -> Option<Message> {
        self.clients[by as usize].as_mut()?.take(is_notification)
    }
}

/// Limits an operation on an additional connection to the timeout of a reply.
pub(crate) async fn in_time<T>(
    timeout: Duration,
    what: impl Future<Output = Result<T, Lost>>,
) -> Result<T, Stop> {
    match tokio::time::timeout(timeout, what).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Stop::Missing("the broker did not complete an operation in time".into())),
    }
}

pub(crate) fn is_notification(message: &Message) -> bool {
    message.topic.starts_with("clients/statestore/")
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("run", &self.run).finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}
