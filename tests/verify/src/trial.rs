//! What a case works with: two clients, what they ask, and what is found.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::time::Instant;

use crate::ask::{Ask, By, Dialect, Part, REQUEST, notification_topic, response_topic, show};
use crate::report::{Finding, Verdict, one_line};
use crate::run::Settings;
use crate::version::Stamp;
use crate::wire::{Connection, Lost, Message, Place};

pub(crate) const OK: &[u8] = b"+OK\r\n";
pub(crate) const ABSENT: &[u8] = b"$-1\r\n";
pub(crate) const ZERO: &[u8] = b":0\r\n";
pub(crate) const ONE: &[u8] = b":1\r\n";

/// Bytes of messages that wait to be looked at, at most: a page or a value takes a megabyte.
const INBOX_BYTES_MAX: usize = 8 << 20;

/// Findings of one case that are told apart.
const FINDINGS_MAX: usize = 5;

/// After so many requests in a row without an answer there is no store any more.
const UNANSWERED_MAX: u32 = 3;

/// After this many malformed responses in a row, the peer is not a store.
const MALFORMED_MAX: u32 = 10;

/// The shortest time for which a value is set that is to expire.
const SOON_MIN: Duration = Duration::from_millis(250);

/// The shortest wait for what a store may do or not.
const PATIENCE_MIN: Duration = Duration::from_millis(500);

/// Messages that have come late and are read away, at most.
const LATE_MAX: usize = 10_000;

/// Round trips that are remembered for the median.
const TIMES_MAX: usize = 10_000;

pub(crate) type Done = Result<(), Stop>;

/// Why a case does not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    Lost(Lost),
    /// Something did not come in time.
    Missing(String),
    Skipped(&'static str),
}

impl From<Lost> for Stop {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// What is known of a key that was to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing yet.
    Asked,
    /// That it was refused.
    Refused,
    /// That it was not.
    Answered,
}

/// A connected client, and what it has received and nobody has taken.
struct Client {
    id: String,
    connection: Box<dyn Connection>,
    inbox: VecDeque<Message>,
    inbox_bytes: usize,
}

impl Client {
    fn keep(&mut self, message: Message) -> Result<(), Lost> {
        self.inbox_bytes += message.size();
        self.inbox.push_back(message);
        match self.inbox_bytes > INBOX_BYTES_MAX {
            true => Err(Lost::because("it sends megabytes that nobody has asked for")),
            false => Ok(()),
        }
    }

    fn take(&mut self, is_wanted: impl Fn(&Message) -> bool) -> Option<Message> {
        let at = self.inbox.iter().position(is_wanted)?;
        let message = self.inbox.remove(at)?;
        self.inbox_bytes -= message.size();
        Some(message)
    }

    fn forget(&mut self) {
        self.inbox.clear();
        self.inbox_bytes = 0;
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply(pub(crate) Message);

impl Reply {
    pub(crate) fn timestamp(&self) -> Option<&str> {
        self.0.property("__ts")
    }

    pub(crate) fn version(&self) -> Option<Stamp> {
        self.timestamp().and_then(Stamp::parse)
    }

    /// The text of an error, in any form that deployed clients read.
    pub(crate) fn error(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.0.payload).ok()?;
        let text = text.strip_prefix("-ERR")?;
        let text = text.strip_suffix("\r\n").unwrap_or(text);
        Some(text.strip_prefix(':').unwrap_or(text).trim_start_matches(' '))
    }
}

/// A file of vectors that cannot be read, which would be a fault of this crate.
impl From<String> for Stop {
    fn from(fault: String) -> Self {
        Self::Missing(fault)
    }
}

/// What a case works with.
pub(crate) struct Trial {
    place: Arc<dyn Place>,
    /// What all keys of the run begin with.
    run: String,
    /// What all client ids begin with.
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
    /// Requests in a row that had no answer.
    unanswered: u32,
    /// Number of malformed responses since the last well-formed one.
    malformed: u32,
    findings: Vec<Finding>,
    exchange: (Option<String>, Option<String>),
}

impl Trial {
    pub(crate) fn new(place: Arc<dyn Place>, settings: Settings) -> Self {
        Self {
            place,
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

    /// Begins a case; what has come late of the one before is forgotten.
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
            client.forget();
        }
    }

    /// Ends a case: what was found.
    pub(crate) fn end(&mut self, done: Done) -> Vec<Finding> {
        match done {
            Ok(()) => [By::A, By::B].into_iter().for_each(|by| self.nothing_else_answered(by)),
            Err(Stop::Missing(what)) => self.found(Verdict::Fail, what),
            Err(Stop::Skipped(why)) => self.found(Verdict::Skipped, why),
            Err(Stop::Lost(lost)) => {
                self.found(Verdict::Fail, format_args!("the connection was lost: {lost}"));
                self.drop_connections();
            }
        }
        mem::take(&mut self.findings)
    }

    /// No answer has come that was not asked for.
    pub(crate) fn nothing_else_answered(&mut self, by: By) {
        let Some(client) = self.clients[by as usize].as_mut() else { return };
        if let Some(answer) = client.take(|message| !is_notification(message)) {
            let payload = show(&answer.payload);
            self.must(
                false,
                format_args!("an answer too many: {payload}; are there two stores on this broker?"),
            );
        }
    }

    // What is found.

    pub(crate) fn found(&mut self, verdict: Verdict, text: impl fmt::Display) {
        match self.findings.len() {
            ..FINDINGS_MAX => {
                let ((asked, answered), text) =
                    (self.exchange.clone(), one_line(&text.to_string()));
                self.findings.push(Finding { verdict, text, asked, answered });
            }
            FINDINGS_MAX => {
                let text = "and more of the like".to_owned();
                self.findings.push(Finding { verdict, text, asked: None, answered: None });
            }
            // The worst of them counts.
            _ => {
                self.findings[FINDINGS_MAX].verdict =
                    self.findings[FINDINGS_MAX].verdict.max(verdict)
            }
        }
    }

    /// A rule.
    pub(crate) fn must(&mut self, holds: bool, rule: impl fmt::Display) {
        if !holds {
            self.found(Verdict::Fail, rule);
        }
    }

    /// What is legal otherwise too.
    pub(crate) fn may(&mut self, holds: bool, rule: impl fmt::Display) {
        if !holds {
            self.found(Verdict::Differs, rule);
        }
    }

    /// Of many things that are much alike those to be tried: all, or every third.
    pub(crate) fn sample<T>(&self, all: Vec<T>) -> Vec<T> {
        let step = if self.is_thorough { 1 } else { 3 };
        all.into_iter().step_by(step).collect()
    }

    // Keys and names.

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

    /// A clock value that is so far ahead, or behind.
    pub(crate) fn stamp(&self, ahead_ms: i64) -> String {
        format!("{}:0:verify", self.unix_ms().saturating_add_signed(ahead_ms))
    }

    // Connections.

    async fn client(&mut self, by: By) -> Result<&mut Client, Stop> {
        let id = self.client_id(by);
        let (place, timeout) = (Arc::clone(&self.place), self.timeout);
        let slot = &mut self.clients[by as usize];
        if slot.is_none() {
            let connecting = async {
                let mut connection = place.connect(&id).await?;
                for filter in [response_topic(&id), notification_topic(&id, None)] {
                    let reason = connection.subscribe(&filter).await?;
                    if reason >= 0x80 {
                        return Err(Lost(format!("may not subscribe {filter}: 0x{reason:02x}")));
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

    /// Subscribes to one filter more.
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

    /// For a connection beside those of the two clients: where to, and with which id.
    pub(crate) fn stranger(&self, name: &str) -> (Arc<dyn Place>, String) {
        (Arc::clone(&self.place), format!("{}-{name}", self.client_id))
    }

    /// How long a value is set that is to expire: some round trips, so that it can be read before.
    pub(crate) fn soon(&self) -> Duration {
        SOON_MIN.max(self.longest_of_late() * 4)
    }

    /// How long to wait for what a store may do or not: many round trips.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE_MIN.max(self.longest_of_late() * 20).min(self.timeout)
    }

    fn longest_of_late(&self) -> Duration {
        self.times.iter().rev().take(20).max().copied().unwrap_or_default()
    }

    /// Connections are made anew when they are needed.
    pub(crate) fn drop_connections(&mut self) {
        self.clients = [None, None];
    }

    /// What all keys of this run begin with.
    pub(crate) fn own_prefix(&self) -> String {
        format!("{}/", self.run)
    }

    /// A store that has stopped answering may be asked again.
    pub(crate) const fn hope(&mut self) {
        self.unanswered = 0;
        self.malformed = 0;
    }

    pub(crate) async fn disconnect(&mut self, by: By) -> Done {
        if let Some(client) = self.clients[by as usize].take() {
            client.connection.disconnect().await?;
        }
        Ok(())
    }

    // Asking.

    /// The PUBLISH of a request.
    pub(crate) fn message(&mut self, ask: &Ask) -> Message {
        let client_id = self.client_id(ask.by);
        self.message_of(ask, &client_id)
    }

    /// The same by whoever has this client id.
    pub(crate) fn message_of(&mut self, ask: &Ask, client_id: &str) -> Message {
        if let Some(key) = &ask.key {
            self.written.entry(key.clone()).or_insert(Written::Asked);
        }
        let mut properties = Vec::new();
        let mut property = |name: &str, value: &str| properties.push((name.into(), value.into()));
        match &ask.timestamp {
            Part::Usual => property("__ts", &self.stamp(0)),
            Part::Other(text) => property("__ts", text),
            Part::None => {}
        }
        if let Some(token) = &ask.token {
            property("__ft", token);
        }
        if ask.dialect == Dialect::Deployed {
            property("__srcId", client_id);
            property("__protVer", "1.0");
        }
        properties.extend(ask.properties.iter().cloned());
        self.last_correlation += 1;
        let correlation = match &ask.correlation {
            Part::Usual => Some(u128::from(self.last_correlation).to_be_bytes().to_vec()),
            Part::Other(data) => Some(data.clone()),
            Part::None => None,
        };
        Message {
            topic: REQUEST.into(),
            payload: ask.payload.clone().into(),
            qos: ask.qos,
            retain: false,
            response_topic: match &ask.response_topic {
                Part::Usual => Some(response_topic(client_id)),
                Part::Other(topic) => Some(topic.clone()),
                Part::None => None,
            },
            correlation_data: correlation.map(Bytes::from),
            content_type: Some("application/octet-stream".into()),
            message_expiry: ask.expiry,
            user_properties: properties,
        }
    }

    /// Sends a request and does not wait for an answer.
    pub(crate) async fn send(&mut self, ask: &Ask) -> Result<Message, Stop> {
        let message = self.message(ask);
        self.send_message(ask, &message).await?;
        Ok(message)
    }

    async fn send_message(&mut self, ask: &Ask, message: &Message) -> Done {
        self.requests += 1;
        let mut asked = show(&message.payload);
        for name in ["__ts", "__ft"] {
            if let Some(value) = message.property(name) {
                let _ = write!(asked, " {name} {}", show(value.as_bytes()));
            }
        }
        self.exchange = (Some(asked), None);
        let timeout = self.timeout;
        let client = self.client(ask.by).await?;
        match tokio::time::timeout(timeout, client.connection.publish(message)).await {
            Ok(Ok(reason)) if reason < 0x80 => Ok(()),
            Ok(Ok(reason)) => {
                Err(Stop::Missing(format!("the broker refuses the request: 0x{reason:02x}")))
            }
            Ok(Err(lost)) => Err(lost.into()),
            Err(_) => Err(Stop::Missing("the broker does not acknowledge the request".into())),
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<Reply, Stop> {
        let message = self.message(ask);
        self.ask_message(ask, &message).await
    }

    /// The same with this very PUBLISH, which may have been sent before.
    pub(crate) async fn ask_message(
        &mut self,
        ask: &Ask,
        message: &Message,
    ) -> Result<Reply, Stop> {
        let since = Instant::now();
        self.unanswered += 1;
        self.send_message(ask, message).await?;
        let reply = self.reply_to(ask.by, message).await?;
        self.unanswered = 0;
        self.note(ask, &reply);
        if self.times.len() < TIMES_MAX {
            self.times.push(since.elapsed());
        }
        reply.allowed()
    }

    /// Keeps account of the keys that there may be.
    fn note(&mut self, ask: &Ask, reply: &Reply) {
        let Some(state) = ask.key.as_ref().and_then(|key| self.written.get_mut(key)) else {
            return;
        };
        let is_refused = reply.error().is_some();
        *state = match state {
            Written::Asked | Written::Refused if is_refused => Written::Refused,
            _ => Written::Answered,
        };
    }

    /// Waits for the answer to a request that was sent.
    pub(crate) async fn reply_to(&mut self, by: By, asked: &Message) -> Result<Reply, Stop> {
        let topic = asked.response_topic.as_deref().unwrap_or_default();
        let is_reply = |message: &Message| {
            message.topic == topic && message.correlation_data == asked.correlation_data
        };
        let Some(message) = self.receive(by, is_reply).await? else {
            let client = self.client(by).await?;
            let stray = client.inbox.iter().find(|message| message.topic == topic);
            return Err(Stop::Missing(match stray {
                Some(_) => "an answer with other correlation data than the request's".into(),
                None => "no answer in time".to_owned(),
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

    /// Waits for a message of a kind; `None` when there is none in time.
    pub(crate) async fn receive(
        &mut self,
        by: By,
        is_wanted: impl Fn(&Message) -> bool,
    ) -> Result<Option<Message>, Stop> {
        self.receive_within(self.timeout, by, is_wanted).await
    }

    /// Takes in what comes within this time.
    pub(crate) async fn listen(&mut self, by: By, time: Duration) -> Done {
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
                Ok(message) => client.keep(message?)?,
                Err(_) => return Ok(None),
            }
        }
    }

    /// A notification that has come already.
    pub(crate) fn heard(&mut self, by: By) -> Option<Message> {
        self.clients[by as usize].as_mut()?.take(is_notification)
    }
}

/// What is done on a connection beside those of the two clients, within the time that an answer may take.
pub(crate) async fn in_time<T>(
    timeout: Duration,
    what: impl Future<Output = Result<T, Lost>>,
) -> Result<T, Stop> {
    match tokio::time::timeout(timeout, what).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Stop::Missing("the broker does not go on with a connection".into())),
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
