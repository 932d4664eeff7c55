//! Checks of the store: requests, responses, clocks and notifications, one after the other.

mod clock;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use statestore_mqtt::Reason;
use statestore_mqtt::property::Property;
use statestore_proto::hlc::HlcRef;
use statestore_proto::message::property::{INCARNATION, STATUS, TIMESTAMP};
use statestore_proto::message::{
    Command, Condition, Expiry, Notification, Refusal, Reply, RequestKind, ServiceError,
};
use statestore_proto::topic::{NotificationFilter, NotificationTopic, REQUEST, ResponseTopic};
use statestore_tokio::diagnostics::nagle;
use tokio::time::Instant;

use super::report::{CHECKS, Findings};
use super::requests::{Exchange, Requests};
use super::wire::{ConnectionEnd, Received};

/// Time to wait for a second response, and for a notification without a subscription.
const WAIT: Duration = Duration::from_secs(1);

/// Expiry of the test key, in case it cannot be deleted.
const KEY_EXPIRY: Duration = Duration::from_secs(60);

/// Number of requests that the latency is measured with.
const MEASURED: usize = 20;

/// Correlation data of the message to this client. No store uses it.
const SELF_TEST: &[u8] = b"statestore-doctor";

/// Maximum number of characters of a store's name in a finding.
const NAME_CHARS_MAX: usize = 64;

/// The checks that need requests.
pub(crate) struct StoreChecks<'a, 'f> {
    requests: Requests<'a>,
    /// The test key.
    key: String,
    report: &'a mut Findings<'f>,
    /// Set if the end of the connection is in the report.
    is_end_reported: bool,
}

impl<'a, 'f> StoreChecks<'a, 'f> {
    pub(crate) fn new(requests: Requests<'a>, key: String, report: &'a mut Findings<'f>) -> Self {
        Self { requests, key, report, is_end_reported: false }
    }

    pub(crate) async fn close(self) {
        let until = self.requests.deadline();
        self.requests.wire.close(until).await;
    }

    /// Runs all checks. A check that depends on a failed one is omitted.
    pub(crate) async fn run(&mut self, read_only: bool, has_wildcards: bool) {
        if !self.subscribe_to_responses().await || !self.check_request().await {
            return self.report_connection_end();
        }
        if read_only {
            for check in ["write", "clock", "notifications"] {
                self.report.skip(check, "--read-only");
            }
        } else {
            if self.check_write().await {
                self.check_notifications(has_wildcards).await;
            }
            // Also without a response: the store may have executed the SET.
            let delete = Command::Del { key: self.key.clone().into_bytes() };
            self.requests.send(&delete).await;
        }
        // A lost connection is reported once, at the check that it failed.
        if self.requests.wire.end.is_none() {
            self.check_latency().await;
        }
        self.report_connection_end();
    }

    async fn subscribe_to_responses(&mut self) -> bool {
        match ResponseTopic::new(self.requests.client_id) {
            Ok(topic) => self.requests.response_topic = topic.to_string(),
            Err(error) => {
                let seen = format!("no response topic for this client id: {error}");
                self.report.fail("responses", seen, "set another --client-id");
                return false;
            }
        }
        let (topic, until) = (self.requests.response_topic.clone(), self.requests.deadline());
        match self.requests.wire.subscribe(&topic, until).await {
            Some(reason) if reason.is_error() => {
                self.report.fail(
                    "responses",
                    format!("the broker rejected the subscription: {reason}"),
                    format!("allow this client to subscribe to {topic}"),
                );
                false
            }
            None => {
                self.no_response(
                    "responses",
                    "the broker does not respond to SUBSCRIBE",
                    "see the log of the broker",
                );
                false
            }
            Some(_) => true,
        }
    }

    /// Checks whether this client receives a message to its own response topic.
    async fn check_subscription(&mut self) {
        let requests = &mut self.requests;
        let until = requests.deadline();
        let properties = [Property::CorrelationData(SELF_TEST)];
        let token = requests.wire.publish(&requests.response_topic, &properties, b"", until).await;
        let puback = requests.wire.ack(token, until).await;
        let is_self_test = |message: &Received| message.has_correlation(SELF_TEST);
        let until = Instant::now() + WAIT.min(requests.timeout);
        let may_publish = puback.is_some_and(|reason| !reason.is_error());
        let has_arrived = may_publish
            && requests.wire.listen(until, |wire| wire.messages.iter().any(is_self_test)).await;
        requests.wire.messages.retain(|message| !is_self_test(message));
        // Brokers with strict access rules allow only the store to publish there, or drop the
        // message. So a missing message is not a problem yet.
        if has_arrived {
            let seen = "subscribed, and a message from this client to itself arrived";
            self.report.pass("responses", seen);
        }
    }

    /// Reads a key that does not exist, and checks the responses.
    async fn check_request(&mut self) -> bool {
        let get = Command::Get { key: self.key.clone().into_bytes() };
        let exchange = self.requests.send_and_wait(&get, WAIT).await;
        // Brokers log a rejected message, so this check runs only if nothing else explains the
        // failure.
        if exchange.responses.is_empty() && exchange.is_accepted() {
            self.check_subscription().await;
        }
        if !self.check_request_is_accepted(&exchange) {
            return false;
        }
        let Some(first) = exchange.responses.first() else {
            self.report_missing_response();
            return false;
        };
        if !self.report.has("responses") {
            self.report.pass("responses", "subscribed, and a response arrived");
        }
        let reply = match Reply::decode(&first.payload, RequestKind::Get) {
            Ok(reply) => reply,
            Err(error) => {
                self.report.fail(
                    "store",
                    format!("invalid response to a GET: {error}"),
                    "find the client that responds to the request topic: it is not a state store",
                );
                return false;
            }
        };
        self.report.pass("store", format!("{} to a GET", counted(exchange.responses.len())));
        if first.user(STATUS).is_some() {
            self.report.pass("dialect", "responses have the properties that deployed clients need");
        } else {
            self.report.warn(
                "dialect",
                "responses lack `__stat`, as in the public specification",
                "deployed clients reject such responses: start the store with --dialect auto",
            );
        }
        let is_allowed = match reply {
            Reply::Error(error) => {
                let remedy = match error.known() {
                    Some(Refusal::NotAuthorized) => format!(
                        "the key is {}: set --key-prefix to keys that this client may read, or \
                         allow them in the policy of the store",
                        self.key
                    ),
                    _ => "see the log of the store".to_owned(),
                };
                self.report.fail("read", refused("GET", &error), remedy);
                false
            }
            _ => {
                self.report.pass("read", "a key that does not exist is absent");
                true
            }
        };
        self.check_store_count(&exchange.responses);
        is_allowed
    }

    /// Reports whether the broker accepted the request and a client is subscribed to its topic.
    fn check_request_is_accepted(&mut self, exchange: &Exchange) -> bool {
        const ACCEPTED: &str = "the broker accepts it";
        match exchange.puback {
            Some(Reason::NO_MATCHING_SUBSCRIBERS) if exchange.responses.is_empty() => {
                self.report.pass("request", ACCEPTED);
                self.no_response(
                    "store",
                    "no client is subscribed to the request topic",
                    "start a store with `statestore serve --broker URL`; if a store runs, allow \
                     it to subscribe to the request topic",
                );
                false
            }
            Some(reason) if reason.is_error() => {
                self.report.fail(
                    "request",
                    format!("the broker rejected the request: {reason}"),
                    format!("allow this client to publish to {REQUEST}"),
                );
                false
            }
            None if exchange.responses.is_empty() => {
                self.no_response(
                    "request",
                    "the broker does not acknowledge the request",
                    "see the log of the broker",
                );
                false
            }
            Some(_) | None => {
                self.report.pass("request", ACCEPTED);
                true
            }
        }
    }

    /// Reports a missing response to a request that the broker accepted.
    fn report_missing_response(&mut self) {
        if self.report.has("responses") {
            self.no_response(
                "store",
                format!("no response within {:?}", self.requests.timeout),
                "start a store with `statestore serve --broker URL`; if a store runs, see its \
                 log, and allow it to subscribe to requests and to publish responses",
            );
        } else {
            let remedy = format!(
                "allow this client to subscribe to {}: some brokers grant a subscription and then \
                 withhold the messages; check that a store runs, and see its log for responses \
                 that the broker rejects",
                self.requests.response_topic
            );
            self.no_response(
                "responses",
                "subscribed, but no message arrived, not even one from this client to itself",
                remedy,
            );
        }
    }

    /// Checks that one store responded. Several stores decide independently of each other.
    fn check_store_count(&mut self, responses: &[Received]) {
        let names: BTreeSet<String> = responses.iter().filter_map(store_name).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let from = if names.is_empty() { String::new() } else { format!(" from {names}") };
        if responses.len() > 1 {
            self.report.fail(
                "one-store",
                format!("{} to one request{from}", counted(responses.len())),
                "all of them respond to each request: stop all stores but one, or use a cluster",
            );
        } else {
            self.report.pass("one-store", format!("1 response{from}"));
        }
    }

    /// Writes the test key, and compares the clocks by the version of the key.
    async fn check_write(&mut self) -> bool {
        let (before, set) = (unix_ms(), self.set_command());
        let exchange = self.requests.send(&set).await;
        let Some(first) = exchange.responses.first() else {
            let remedy = "see the log of the store";
            self.no_response("write", "no response to a SET", remedy);
            return false;
        };
        match Reply::decode(&first.payload, RequestKind::Set) {
            Ok(Reply::Done) => self.report.pass("write", "the test key is set"),
            Ok(Reply::Error(error)) => {
                let remedy = match error.known() {
                    Some(Refusal::NotAuthorized) => format!(
                        "the key is {}: set --key-prefix to keys that this client may write, \
                         allow them in the policy of the store, or set --read-only",
                        self.key
                    ),
                    Some(Refusal::QuotaExceeded) => "see the limits of the store".to_owned(),
                    _ => "see the log of the store".to_owned(),
                };
                self.report.fail("write", refused("SET", &error), remedy);
                return false;
            }
            _ => {
                self.report.fail(
                    "write",
                    "invalid response to a SET",
                    "find the client that responds to the request topic",
                );
                return false;
            }
        }
        let here = before + (unix_ms().saturating_sub(before)) / 2;
        let Some(Ok(version)) = first.user(TIMESTAMP).map(HlcRef::parse) else {
            self.report.fail(
                "clock",
                "the response to a SET has no version",
                "find the client that responds to the request topic",
            );
            return true;
        };
        self.check_clock(version.wall().as_millis(), here).await;
        true
    }

    /// Registers for the test key, and checks whether notifications arrive.
    async fn check_notifications(&mut self, has_wildcards: bool) {
        let key = self.key.clone().into_bytes();
        let exchange = self.requests.send(&Command::Watch { key: key.clone() }).await;
        let registered = exchange
            .responses
            .first()
            .map(|response| Reply::decode(&response.payload, RequestKind::Watch));
        match registered {
            Some(Ok(Reply::Done)) => self.check_delivery(has_wildcards).await,
            Some(Ok(Reply::Error(error))) => {
                let seen = refused("KEYNOTIFY", &error);
                return self.report.fail("notifications", seen, "see the log of the store");
            }
            _ => self.no_response(
                "notifications",
                "no response to a KEYNOTIFY",
                "see the log of the store",
            ),
        }
        // Also without a response: the store may have executed the KEYNOTIFY.
        self.requests.send(&Command::Unwatch { key }).await;
    }

    /// Checks whether notifications arrive without a subscription, and otherwise with one.
    async fn check_delivery(&mut self, has_wildcards: bool) {
        if self.receives_notification(WAIT.min(self.requests.timeout)).await {
            self.report.pass("notifications", "they arrive without a subscription");
            return;
        }
        let (client_id, key) = (self.requests.client_id, self.key.clone().into_bytes());
        let filter = if has_wildcards {
            NotificationFilter::new(client_id).map(|filter| filter.to_string())
        } else {
            NotificationTopic::new(client_id, &key).map(|topic| topic.to_string())
        };
        let filter = match filter {
            Ok(filter) => filter,
            Err(error) => {
                let seen = format!("no topic for notifications: {error}");
                self.report.fail("notifications", seen, "set a shorter --client-id");
                return;
            }
        };
        let until = self.requests.deadline();
        match self.requests.wire.subscribe(&filter, until).await {
            Some(reason) if !reason.is_error() => {
                // The notification without a subscriber has silenced the registration; this resumes
                // it.
                self.requests.send(&Command::Watch { key }).await;
                if self.receives_notification(self.requests.timeout).await {
                    self.report.pass("notifications", "they arrive with a subscription");
                } else {
                    self.report.fail(
                        "notifications",
                        "subscribed, but no notification arrived",
                        format!(
                            "allow the store to publish to {filter}, and this client to subscribe \
                             to it: some brokers grant a subscription and then withhold the \
                             messages"
                        ),
                    );
                }
            }
            Some(reason) => self.report.fail(
                "notifications",
                format!("the broker rejected the subscription: {reason}"),
                format!("allow this client to subscribe to {filter}"),
            ),
            None => self.no_response(
                "notifications",
                "the broker does not respond to SUBSCRIBE",
                "see the log of the broker",
            ),
        }
    }

    /// Sets the test key. Returns whether the notification of this SET arrives.
    async fn receives_notification(&mut self, within: Duration) -> bool {
        let requests = &mut self.requests;
        let Ok(topic) = NotificationTopic::new(requests.client_id, self.key.as_bytes()) else {
            return false;
        };
        let topic = topic.to_string();
        let set = set_command(&self.key, requests.count);
        let Command::Set { value, .. } = &set else { return false };
        requests.send(&set).await;
        let until = Instant::now() + within;
        // The value distinguishes it from a late notification of an earlier SET.
        let is_notification = |message: &Received| {
            let notification = Notification::decode(&message.payload);
            message.topic == topic && notification == Ok(Notification::Set(&value[..]))
        };
        requests.wire.listen(until, |wire| wire.messages.iter().any(is_notification)).await
    }

    /// Measures the latency of GETs, one after the other.
    async fn check_latency(&mut self) {
        let get = Command::Get { key: self.key.clone().into_bytes() };
        let mut times = Vec::new();
        let until = Instant::now() + self.requests.timeout * 2;
        while times.len() < MEASURED && Instant::now() < until {
            let sent = Instant::now();
            if self.requests.send(&get).await.responses.is_empty() {
                let remedy = "see the log of the store";
                self.no_response("latency", "no response to a GET", remedy);
                return;
            }
            times.push(sent.elapsed());
        }
        times.sort_unstable();
        let [median, maximum] = [times.len() / 2, times.len().saturating_sub(1)]
            .map(|at| times.get(at).copied().unwrap_or_default());
        let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let seen = format!(
            "median {} of {} requests, maximum {}",
            millis(median),
            times.len(),
            millis(maximum)
        );
        if nagle::is_delay(median) {
            let seen = format!(
                "{seen}: Nagle's algorithm and delayed acknowledgements (40 ms) may cause it"
            );
            self.report.warn("latency", seen, nagle::REMEDY);
        } else {
            self.report.pass("latency", seen);
        }
    }

    /// Reports a missing response, or the end of the connection, which explains it.
    fn no_response(
        &mut self,
        check: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        match self.connection_end() {
            Some((detail, remedy)) => {
                self.is_end_reported = true;
                self.report.no_response(check, detail, remedy);
            }
            None => self.report.no_response(check, detail, remedy),
        }
    }

    /// Returns how the connection ended, and the remedy.
    fn connection_end(&self) -> Option<(String, &'static str)> {
        let end = self.requests.wire.end.as_ref()?;
        let remedy = match end {
            ConnectionEnd::Disconnected(_) | ConnectionEnd::Io(_) => "see the log of the broker",
            ConnectionEnd::Options(_) => "check the options of this command",
            _ => "check --broker: the peer does not speak MQTT 5",
        };
        Some((end.to_string(), remedy))
    }

    /// Reports the end of the connection at the first check without a finding, unless a missing
    /// response was explained by it.
    fn report_connection_end(&mut self) {
        let Some((detail, remedy)) = self.connection_end().filter(|_| !self.is_end_reported) else {
            return;
        };
        let last = CHECKS.iter().rposition(|(check, _)| self.report.has(check));
        let next = last.and_then(|last| CHECKS.get(last + 1));
        self.report.no_response(next.map_or("latency", |(check, _)| check), detail, remedy);
    }

    fn set_command(&self) -> Command<Vec<u8>> {
        set_command(&self.key, self.requests.count)
    }
}

/// A SET of the test key. Its value contains the number of requests before it, so that values
/// differ.
fn set_command(key: &str, count: u64) -> Command<Vec<u8>> {
    Command::Set {
        key: key.as_bytes().to_vec(),
        value: format!("written by statestore doctor: {count}").into_bytes(),
        condition: Condition::Always,
        expiry: Expiry::after(KEY_EXPIRY),
    }
}

/// Describes a refused request.
fn refused(verb: &str, error: &ServiceError<&[u8]>) -> String {
    format!("the store refused a {verb}: {}", String::from_utf8_lossy(error.text()))
}

/// The incarnation of the store in a response, or its node id; cut to [`NAME_CHARS_MAX`].
fn store_name(response: &Received) -> Option<String> {
    let node_id = response.user(TIMESTAMP).and_then(|version| version.splitn(3, ':').nth(2));
    let name = response.user(INCARNATION).filter(|text| !text.is_empty()).or(node_id)?;
    Some(name.chars().take(NAME_CHARS_MAX).collect())
}

fn counted(responses: usize) -> String {
    if responses == 1 { "1 response".to_owned() } else { format!("{responses} responses") }
}

#[expect(clippy::disallowed_methods, reason = "the clock of this machine is compared")]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
