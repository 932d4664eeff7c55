//! Checks of the store: requests, replies, clocks and notifications, one after the other.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use statestore_mqtt::Reason;
use statestore_mqtt::property::Property;
use statestore_proto::hlc::{HlcRef, TimestampRef};
use statestore_proto::message::property::{CONTENT_TYPE, RequestProperties};
use statestore_proto::message::property::{INCARNATION, STATUS, TIMESTAMP};
use statestore_proto::message::{
    Command, Condition, Expiry, Notification, Refusal, Reply, RequestKind,
};
use statestore_proto::topic::{NotificationFilter, NotificationTopic, REQUEST, ResponseTopic};
use statestore_tokio::diagnostics::nagle;
use tokio::time::Instant;

use crate::Examination;
use crate::report::{CHECKS, Findings};
use crate::wire::{ConnectionEnd, Received, Wire};

/// Time to wait for a second reply, and for a notification without a subscription.
const WAIT: Duration = Duration::from_secs(1);

/// Expiry of the test key, in case it cannot be deleted.
const KEY_EXPIRY: Duration = Duration::from_secs(60);

/// Requests that latency is measured by.
const MEASURED: usize = 20;

/// Clock skew in milliseconds that causes a warning, and the limit of stores and clients.
const DIFFERENCE_MAX: u64 = 5_000;
const DRIFT_MAX: u64 = 60_000;

/// Smallest limit that a store can be configured to, less the time of a request.
const ALLOWED_MIN: u64 = 900;

/// Outcome of one request.
struct Answer {
    /// Reason code of the PUBACK.
    puback: Option<Reason>,
    /// Messages with the correlation data of the request, in order.
    replies: Vec<Received>,
}

/// A client that sends requests, and checks the responses.
pub(crate) struct StoreChecks<'a, 'f> {
    client_id: &'a str,
    response_topic: String,
    key: String,
    wire: Wire,
    timeout: Duration,
    report: &'a mut Findings<'f>,
    requests: u64,
}

impl<'a, 'f> StoreChecks<'a, 'f> {
    pub(crate) fn new(
        examination: &'a Examination,
        wire: Wire,
        report: &'a mut Findings<'f>,
    ) -> Self {
        Self {
            client_id: &examination.options.client_id,
            response_topic: String::new(),
            key: format!("{}{:016x}", examination.key_prefix, fastrand::u64(..)),
            wire,
            timeout: examination.timeout,
            report,
            requests: 0,
        }
    }

    pub(crate) async fn close(self) {
        let until = self.deadline();
        self.wire.close(until).await;
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Runs all checks. A check that depends on a failed one is omitted.
    pub(crate) async fn run(&mut self, read_only: bool, has_wildcards: bool) {
        if !self.subscribe_to_responses().await || !self.check_request().await {
            return self.report_end();
        }
        if read_only {
            for check in ["write", "clock", "notifications"] {
                self.report.skip(check, "--read-only");
            }
        } else if self.check_write().await {
            self.check_notifications(has_wildcards).await;
            let delete = Command::Del { key: self.key.clone().into_bytes() };
            self.send(&delete, Duration::ZERO).await;
        }
        // A lost connection is reported at the next check.
        if self.wire.end.is_none() {
            self.check_latency().await;
        }
        self.report_end();
    }

    /// Subscribes to replies.
    async fn subscribe_to_responses(&mut self) -> bool {
        match ResponseTopic::new(self.client_id) {
            Ok(topic) => self.response_topic = topic.to_string(),
            Err(error) => {
                let remedy = "give another --client-id";
                self.report.fail("responses", format!("no response topic: {error}"), remedy);
                return false;
            }
        }
        let (topic, until) = (self.response_topic.clone(), self.deadline());
        match self.wire.subscribe(&topic, until).await {
            Some(reason) if reason.is_error() => {
                self.report.fail(
                    "responses",
                    format!("the broker refuses the subscription: {reason}"),
                    format!("let this client read {topic}"),
                );
                false
            }
            None => {
                let remedy = "see the log of the broker";
                self.report.no_response("responses", "the broker does not answer SUBSCRIBE", remedy);
                false
            }
            Some(_) => true,
        }
    }

    /// Tries whether a subscription that was granted brings anything.
    async fn check_subscription(&mut self) {
        let topic = self.response_topic.clone();
        // A mark of its own, which no store reads.
        let mark = [Property::CorrelationData(b"statestore-doctor")];
        let until = self.deadline();
        let id = self.wire.publish(&topic, &mark, b"", until).await;
        let puback = self.wire.ack(id, until).await;
        let is_mark =
            |heard: &Received| heard.correlation.as_deref() == Some(&b"statestore-doctor"[..]);
        let until = Instant::now() + WAIT.min(self.timeout);
        let may_publish = puback.is_some_and(|reason| !reason.is_error());
        let came =
            may_publish && self.wire.listen(until, |wire| wire.messages.iter().any(is_mark)).await;
        self.wire.messages.retain(|heard| !is_mark(heard));
        // Brokers with good access rules allow only the store to publish there, or drop the message.
        if came {
            self.report.pass("responses", "subscribed, and a message to itself came");
        }
    }

    /// Reads a key that does not exist, and checks the replies.
    async fn check_request(&mut self) -> bool {
        let get = Command::Get { key: self.key.clone().into_bytes() };
        let answer = self.send(&get, WAIT).await;
        // Brokers log a refused message, so this check runs only if nothing else explains the failure.
        if answer.replies.is_empty() && answer.puback.is_some_and(|reason| !reason.is_error()) {
            self.check_subscription().await;
        }
        match answer.puback {
            Some(Reason::NO_MATCHING_SUBSCRIBERS) if answer.replies.is_empty() => {
                self.report.pass("request", "the broker takes it");
                self.report.no_response(
                    "answer",
                    "the broker says that nobody listens to requests",
                    "start a store: statestore serve --broker URL; if one runs, see that it may subscribe to the request topic",
                );
                return false;
            }
            Some(reason) if reason.is_error() => {
                self.report.fail(
                    "request",
                    format!("the broker refuses it: {reason}"),
                    format!("let this client write {REQUEST}"),
                );
                return false;
            }
            None if answer.replies.is_empty() => {
                self.report.no_response(
                    "request",
                    "the broker does not acknowledge it",
                    "see the log of the broker",
                );
                return false;
            }
            Some(_) | None => self.report.pass("request", "the broker takes it"),
        }
        let Some(first) = answer.replies.first() else {
            if self.report.has("responses") {
                self.report.no_response(
                    "answer",
                    format!("no answer within {:?}", self.timeout),
                    "start a store: statestore serve --broker URL; if one runs, see its log, and that the broker lets it read requests and write replies",
                );
            } else {
                self.report.no_response(
                    "responses",
                    "subscribed, but nothing comes: neither a message to itself nor an answer",
                    format!("let this client read {}, which brokers may grant and then deny in silence; see that a store runs, and in its log whether the broker refuses its answers", self.response_topic),
                );
            }
            return false;
        };
        if !self.report.has("responses") {
            self.report.pass("responses", "subscribed, and an answer came");
        }
        let reply = match Reply::decode(&first.payload, RequestKind::Get) {
            Ok(reply) => reply,
            Err(error) => {
                self.report.fail(
                    "answer",
                    format!("it is none to a GET: {error}"),
                    "see what answers on the request topic: it is no state store",
                );
                return false;
            }
        };
        self.report.pass("answer", format!("{} to a GET", counted(answer.replies.len())));
        if first.user(STATUS).is_some() {
            self.report.pass("dialect", "that of deployed clients");
        } else {
            self.report.warn(
                "dialect",
                "that of the public page: without __stat",
                "deployed clients refuse such replies: let the store answer each in its own form",
            );
        }
        let is_allowed = match reply {
            Reply::Error(error) => {
                let seen = String::from_utf8_lossy(error.text()).into_owned();
                let remedy = match error.known() {
                    Some(Refusal::NotAuthorized) => format!(
                        "this was asked of {}: name what this client may read with --key-prefix, or allow it more in the policy of the store",
                        self.key
                    ),
                    _ => "see the log of the store".to_owned(),
                };
                self.report.fail("read", seen, remedy);
                false
            }
            _ => {
                self.report.pass("read", "a key that nobody has is absent");
                true
            }
        };
        self.check_store_count(&answer.replies);
        is_allowed
    }

    /// Two that answer at once decide without each other.
    fn check_store_count(&mut self, replies: &[Received]) {
        let names: BTreeSet<&str> = replies.iter().filter_map(named).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let by = if names.is_empty() { String::new() } else { format!(": {names}") };
        if replies.len() > 1 {
            self.report.fail(
                "one-store",
                format!("{} to one request{by}", counted(replies.len())),
                "stop all stores but one, or let them stand by for each other (--etcd): each has values of its own, and both answer",
            );
        } else {
            self.report.pass("one-store", format!("one answer{by}"));
        }
    }

    /// Writes a key of its own, and reads the clock of the store from its version.
    async fn check_write(&mut self) -> bool {
        let (before, set) = (wall(), self.set());
        let answer = self.send(&set, Duration::ZERO).await;
        let Some(first) = answer.replies.first() else {
            self.report.no_response("write", "no answer to a SET", "see the log of the store");
            return false;
        };
        match Reply::decode(&first.payload, RequestKind::Set) {
            Ok(Reply::Done) => self.report.pass("write", "a key of its own"),
            Ok(Reply::Error(error)) => {
                let seen = String::from_utf8_lossy(error.text()).into_owned();
                let remedy = match error.known() {
                    Some(Refusal::NotAuthorized) => format!(
                        "this was asked of {}: name what this client may write with --key-prefix, allow it more, or look with --read-only",
                        self.key
                    ),
                    Some(Refusal::QuotaExceeded) => "see the limits of the store".to_owned(),
                    _ => "see the log of the store".to_owned(),
                };
                self.report.fail("write", seen, remedy);
                return false;
            }
            _ => {
                self.report.fail("write", "this is no answer to a SET", "see what answers there");
                return false;
            }
        }
        let here = before + (wall().saturating_sub(before)) / 2;
        match first.user(TIMESTAMP).map(HlcRef::parse) {
            Some(Ok(version)) => {
                let store = version.wall().as_millis();
                // Stores may allow less than a minute.
                let ahead = here.saturating_sub(store);
                if (ALLOWED_MIN..=DRIFT_MAX).contains(&ahead)
                    && let Some(error) = self.clock_refusal(&set).await
                {
                    let seen = format!(
                        "the store's is {} behind the one here, and it allows less: {error}",
                        seconds(ahead)
                    );
                    self.report.fail("clock", seen, "set both clocks, as with NTP; serve --max-clock-drift is how far a client may be ahead");
                    return true;
                }
                self.check_clock(store, here);
            }
            _ => self.report.fail(
                "clock",
                "the answer to a SET has no version",
                "see what answers on the request topic",
            ),
        }
        true
    }

    /// Checks a refused SET with the time of this machine.
    async fn clock_refusal(&mut self, set: &Command<Vec<u8>>) -> Option<String> {
        let stamp = format!("{}:0:doctor", wall());
        let answer = self.send_at(&stamp, set, Duration::ZERO).await;
        match Reply::decode(&answer.replies.first()?.payload, RequestKind::Set) {
            Ok(Reply::Error(error)) if error.known() == Some(Refusal::TimestampSkew) => {
                Some(String::from_utf8_lossy(error.text()).into_owned())
            }
            _ => None,
        }
    }

    fn check_clock(&mut self, store: u64, here: u64) {
        let difference = store.abs_diff(here);
        let side = if store > here { "ahead of" } else { "behind" };
        let seen = format!("the store's is {} {side} the one here", seconds(difference));
        if difference > DRIFT_MAX {
            self.report.fail(
                "clock",
                format!("{seen}: {} beyond the limit of a minute", seconds(difference - DRIFT_MAX)),
                "set both clocks, as with NTP: what is more than a minute ahead of the other side is refused",
            );
        } else if difference > DIFFERENCE_MAX {
            self.report.warn(
                "clock",
                format!("{seen}: {} from the limit of a minute", seconds(DRIFT_MAX - difference)),
                "set both clocks, as with NTP; a client whose clock is ahead moves the store's versions too",
            );
        } else {
            self.report.pass("clock", seen);
        }
    }

    /// Registers for the test key, and checks whether notifications arrive.
    async fn check_notifications(&mut self, has_wildcards: bool) {
        let key = self.key.clone().into_bytes();
        let answer = self.send(&Command::Watch { key: key.clone() }, Duration::ZERO).await;
        let registered = answer.replies.first().map(|reply| {
            Reply::decode(&reply.payload, RequestKind::Watch).map(|reply| reply.map(<[u8]>::to_vec))
        });
        match registered {
            Some(Ok(Reply::Done)) => self.check_delivery(has_wildcards).await,
            Some(Ok(Reply::Error(error))) => {
                let seen = String::from_utf8_lossy(error.text()).into_owned();
                return self.report.fail("notifications", seen, "see the log of the store");
            }
            _ => {
                let remedy = "see the log of the store";
                self.report.no_response("notifications", "no response to a KEYNOTIFY", remedy);
            }
        }
        // Also without a response: the store may have executed the KEYNOTIFY.
        self.send(&Command::Unwatch { key }, Duration::ZERO).await;
    }

    /// Checks whether notifications arrive directly or by subscription.
    async fn check_delivery(&mut self, has_wildcards: bool) {
        let key = self.key.clone().into_bytes();
        let set = self.set();
        if self.receives_notification(&set, WAIT.min(self.timeout)).await {
            self.report.pass("notifications", "they come directly, without a subscription");
            return;
        }
        let filter = if has_wildcards {
            NotificationFilter::new(self.client_id).map(|filter| filter.to_string())
        } else {
            NotificationTopic::new(self.client_id, &key).map(|topic| topic.to_string())
        };
        let Ok(filter) = filter else {
            let remedy = "give a shorter --client-id";
            self.report.fail("notifications", "no topic for them", remedy);
            return;
        };
        let until = self.deadline();
        match self.wire.subscribe(&filter, until).await {
            Some(reason) if !reason.is_error() => {
                // The notification without a subscriber has silenced the registration; this resumes it.
                self.send(&Command::Watch { key }, Duration::ZERO).await;
                if self.receives_notification(&set, self.timeout).await {
                    self.report.pass("notifications", "they come by subscription");
                } else {
                    self.report.fail(
                        "notifications",
                        "subscribed, and none comes",
                        format!("let the store write {filter} and this client read it, which brokers may grant and then deny in silence"),
                    );
                }
            }
            Some(reason) => self.report.fail(
                "notifications",
                format!("the broker refuses the subscription: {reason}"),
                format!("let this client read {filter}"),
            ),
            None => self.report.no_response(
                "notifications",
                "the broker does not answer SUBSCRIBE",
                "see the log of the broker",
            ),
        }
    }

    /// Returns whether a change of the test key causes a notification.
    async fn receives_notification(&mut self, set: &Command<Vec<u8>>, within: Duration) -> bool {
        let Ok(topic) = NotificationTopic::new(self.client_id, self.key.as_bytes()) else {
            return false;
        };
        let topic = topic.to_string();
        self.send(set, Duration::ZERO).await;
        let until = Instant::now() + within;
        let is_it =
            |heard: &Received| heard.topic == topic && Notification::decode(&heard.payload).is_ok();
        self.wire.listen(until, |wire| wire.messages.iter().any(is_it)).await
    }

    /// One request after the other.
    async fn check_latency(&mut self) {
        let get = Command::Get { key: self.key.clone().into_bytes() };
        let mut times = Vec::new();
        let until = Instant::now() + self.timeout * 2;
        while times.len() < MEASURED && Instant::now() < until {
            let asked = Instant::now();
            if self.send(&get, Duration::ZERO).await.replies.is_empty() {
                self.report.no_response("latency", "a GET was not answered", "see the log of the store");
                return;
            }
            times.push(asked.elapsed());
        }
        times.sort_unstable();
        let [median, slowest] = [times.len() / 2, times.len().saturating_sub(1)]
            .map(|at| times.get(at).copied().unwrap_or_default());
        let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let seen = format!(
            "{} in the middle of {}, {} at most",
            millis(median),
            times.len(),
            millis(slowest)
        );
        if nagle::is_delay(median) {
            self.report.warn(
                "latency",
                format!(
                    "{seen}: as Nagle's algorithm makes it, with acknowledgements that wait 40 ms"
                ),
                nagle::REMEDY,
            );
        } else {
            self.report.pass("latency", seen);
        }
    }

    /// Reports the end of the connection, which explains a missing response.
    fn report_end(&mut self) {
        let (seen, remedy) = match &self.wire.end {
            None => return,
            Some(end @ (ConnectionEnd::Disconnected(_) | ConnectionEnd::Io(_))) => {
                (end.to_string(), "see the log of the broker")
            }
            Some(end @ ConnectionEnd::Options(_)) => (end.to_string(), "check the options of this command"),
            Some(end) => (end.to_string(), "the peer does not speak MQTT 5: check --broker"),
        };
        // At the first check without a finding.
        let last = CHECKS.iter().rposition(|(check, _)| self.report.has(check));
        let next = last.and_then(|last| CHECKS.get(last + 1));
        self.report.no_response(next.map_or("latency", |(check, _)| check), seen, remedy);
    }

    fn set(&self) -> Command<Vec<u8>> {
        Command::Set {
            key: self.key.clone().into_bytes(),
            value: b"written by statestore doctor".to_vec(),
            condition: Condition::Always,
            expiry: Expiry::after(KEY_EXPIRY),
        }
    }

    /// Asks, and waits for the answer, and that much longer for another one.
    async fn send(&mut self, command: &Command<Vec<u8>>, longer: Duration) -> Answer {
        // Of long ago, which no store refuses: then the version of a SET is the store's own time.
        self.send_at("1696374425000:0:doctor", command, longer).await
    }

    async fn send_at(
        &mut self,
        stamp: &str,
        command: &Command<Vec<u8>>,
        longer: Duration,
    ) -> Answer {
        let Ok(stamp) = TimestampRef::parse(stamp) else {
            return Answer { puback: None, replies: Vec::new() };
        };
        self.requests += 1;
        let correlation = u128::from(self.requests).to_be_bytes();
        let user = RequestProperties::new(self.client_id).timestamp(stamp);
        let user: Vec<(&str, String)> =
            user.into_iter().map(|(name, value)| (name, value.to_string())).collect();
        let topic = self.response_topic.clone();
        let mut properties = vec![
            Property::ResponseTopic(&topic),
            Property::CorrelationData(&correlation),
            Property::ContentType(CONTENT_TYPE),
            Property::MessageExpiry(10),
        ];
        properties.extend(user.iter().map(|(name, value)| Property::User(name, value)));
        let until = self.deadline();
        let id = self.wire.publish(REQUEST, &properties, &command.encode(), until).await;
        let is_reply = |heard: &Received| heard.correlation.as_deref() == Some(&correlation[..]);
        let puback = self.wire.ack(id, until).await;
        if puback
            .is_none_or(|reason| !reason.is_error() && reason != Reason::NO_MATCHING_SUBSCRIBERS)
        {
            self.wire.listen(until, |wire| wire.messages.iter().any(is_reply)).await;
        }
        if !longer.is_zero() {
            let until = Instant::now() + longer.min(self.timeout);
            let replies =
                |wire: &Wire| wire.messages.iter().filter(|heard| is_reply(heard)).count();
            self.wire.listen(until, |wire| replies(wire) > 1).await;
        }
        // The remaining messages belong to finished requests.
        let (replies, rest) =
            std::mem::take(&mut self.wire.messages).into_iter().partition(|heard| is_reply(heard));
        self.wire.messages = rest;
        self.wire.messages.retain(|heard| heard.topic != topic);
        Answer { puback, replies }
    }
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03} s", millis / 1_000, millis % 1_000)
}

/// Name of the store in a reply.
fn named(heard: &Received) -> Option<&str> {
    let node = heard.user(TIMESTAMP).and_then(|stamp| stamp.splitn(3, ':').nth(2));
    heard.user(INCARNATION).filter(|text| !text.is_empty()).or(node)
}

fn counted(answers: usize) -> String {
    if answers == 1 { "one answer".to_owned() } else { format!("{answers} answers") }
}

#[expect(clippy::disallowed_methods, reason = "the clock here is what is compared")]
fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
