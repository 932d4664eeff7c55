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

use super::report::Report;
use super::wire::{Heard, Wire};
use crate::args::Doctor;

/// Time to wait for a second reply, and for a notification without a subscription.
const A_WHILE: Duration = Duration::from_secs(1);

/// Expiry of the test key, in case it cannot be deleted.
const LIVES: Duration = Duration::from_secs(60);

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
    acked: Option<Reason>,
    /// Messages with the correlation data of the request, in order.
    replies: Vec<Heard>,
}

/// A client that asks.
pub(super) struct Questions<'a> {
    client_id: &'a str,
    response_topic: String,
    key: String,
    wire: Wire,
    patience: Duration,
    report: &'a mut Report,
    asked: u64,
}

impl<'a> Questions<'a> {
    pub(super) fn new(
        client_id: &'a str,
        wire: Wire,
        args: &Doctor,
        report: &'a mut Report,
    ) -> Self {
        Self {
            client_id,
            response_topic: String::new(),
            key: format!("{}{:016x}", args.key_prefix, fastrand::u64(..)),
            wire,
            patience: args.timeout,
            report,
            asked: 0,
        }
    }

    pub(super) async fn close(self) {
        let until = self.soon();
        self.wire.close(until).await;
    }

    fn soon(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Everything, as far as one thing depends on the other.
    pub(super) async fn ask_all(&mut self, read_only: bool, has_wildcards: bool) {
        if !self.can_be_answered().await || !self.is_answered().await {
            return self.explain_end();
        }
        if read_only {
            for check in ["write", "clock", "notifications"] {
                self.report.skip(check, "--read-only");
            }
        } else if self.may_write().await {
            self.is_told(has_wildcards).await;
            let delete = Command::Del { key: self.key.clone().into_bytes() };
            self.ask(&delete, Duration::ZERO).await;
        }
        self.is_fast().await;
        self.explain_end();
    }

    /// Subscribes to replies.
    async fn can_be_answered(&mut self) -> bool {
        match ResponseTopic::new(self.client_id) {
            Ok(topic) => self.response_topic = topic.to_string(),
            Err(error) => {
                let remedy = "give another --client-id";
                self.report.wrong("responses", format!("no response topic: {error}"), remedy);
                return false;
            }
        }
        let (topic, until) = (self.response_topic.clone(), self.soon());
        match self.wire.subscribe(&topic, until).await {
            Some(reason) if reason.is_error() => {
                self.report.wrong(
                    "responses",
                    format!("the broker refuses the subscription: {reason}"),
                    format!("let this client read {topic}"),
                );
                false
            }
            None => {
                let remedy = "see the log of the broker";
                self.report.lost("responses", "the broker does not answer SUBSCRIBE", remedy);
                false
            }
            Some(_) => true,
        }
    }

    /// Tries whether a subscription that was granted brings anything.
    async fn looks_for_itself(&mut self) {
        let topic = self.response_topic.clone();
        // A mark of its own, which no store reads.
        let mark = [Property::CorrelationData(b"statestore-doctor")];
        let until = self.soon();
        let id = self.wire.publish(&topic, &mark, b"", until).await;
        let acked = self.wire.ack(id, until).await;
        let is_mark =
            |heard: &Heard| heard.correlation.as_deref() == Some(&b"statestore-doctor"[..]);
        let until = Instant::now() + A_WHILE.min(self.patience);
        let may_publish = acked.is_some_and(|reason| !reason.is_error());
        let came =
            may_publish && self.wire.listen(until, |wire| wire.heard.iter().any(is_mark)).await;
        self.wire.heard.retain(|heard| !is_mark(heard));
        // Brokers with good access rules allow only the store to publish there, or drop the message.
        if came {
            self.report.fine("responses", "subscribed, and a message to itself came");
        }
    }

    /// Reads a key that does not exist, and checks the replies.
    async fn is_answered(&mut self) -> bool {
        let get = Command::Get { key: self.key.clone().into_bytes() };
        let answer = self.ask(&get, A_WHILE).await;
        // Brokers log a refused message, so this check runs only if nothing else explains the failure.
        if answer.replies.is_empty() && answer.acked.is_some_and(|reason| !reason.is_error()) {
            self.looks_for_itself().await;
        }
        match answer.acked {
            Some(Reason::NO_MATCHING_SUBSCRIBERS) if answer.replies.is_empty() => {
                self.report.fine("request", "the broker takes it");
                self.report.lost(
                    "answer",
                    "the broker says that nobody listens to requests",
                    "start a store: statestore serve --broker URL; if one runs, see that it may subscribe to the request topic",
                );
                return false;
            }
            Some(reason) if reason.is_error() => {
                self.report.wrong(
                    "request",
                    format!("the broker refuses it: {reason}"),
                    format!("let this client write {REQUEST}"),
                );
                return false;
            }
            None if answer.replies.is_empty() => {
                self.report.lost(
                    "request",
                    "the broker does not acknowledge it",
                    "see the log of the broker",
                );
                return false;
            }
            Some(_) | None => self.report.fine("request", "the broker takes it"),
        }
        let Some(first) = answer.replies.first() else {
            if self.report.has("responses") {
                self.report.lost(
                    "answer",
                    format!("no answer within {:?}", self.patience),
                    "start a store: statestore serve --broker URL; if one runs, see its log, and that the broker lets it read requests and write replies",
                );
            } else {
                self.report.lost(
                    "responses",
                    "subscribed, but nothing comes: neither a message to itself nor an answer",
                    format!("let this client read {}, which brokers may grant and then deny in silence; see that a store runs, and in its log whether the broker refuses its answers", self.response_topic),
                );
            }
            return false;
        };
        if !self.report.has("responses") {
            self.report.fine("responses", "subscribed, and an answer came");
        }
        let reply = match Reply::decode(&first.payload, RequestKind::Get) {
            Ok(reply) => reply,
            Err(error) => {
                self.report.wrong(
                    "answer",
                    format!("it is none to a GET: {error}"),
                    "see what answers on the request topic: it is no state store",
                );
                return false;
            }
        };
        self.report.fine("answer", format!("{} to a GET", counted(answer.replies.len())));
        if first.user(STATUS).is_some() {
            self.report.fine("dialect", "that of deployed clients");
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
                self.report.wrong("read", seen, remedy);
                false
            }
            _ => {
                self.report.fine("read", "a key that nobody has is absent");
                true
            }
        };
        self.judge_count(&answer.replies);
        is_allowed
    }

    /// Two that answer at once decide without each other.
    fn judge_count(&mut self, replies: &[Heard]) {
        let names: BTreeSet<&str> = replies.iter().filter_map(named).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let by = if names.is_empty() { String::new() } else { format!(": {names}") };
        if replies.len() > 1 {
            self.report.wrong(
                "one-store",
                format!("{} to one request{by}", counted(replies.len())),
                "stop all stores but one, or let them stand by for each other (--etcd): each has values of its own, and both answer",
            );
        } else {
            self.report.fine("one-store", format!("one answer{by}"));
        }
    }

    /// Writes a key of its own, and reads the clock of the store from its version.
    async fn may_write(&mut self) -> bool {
        let (before, set) = (wall(), self.set());
        let answer = self.ask(&set, Duration::ZERO).await;
        let Some(first) = answer.replies.first() else {
            self.report.lost("write", "no answer to a SET", "see the log of the store");
            return false;
        };
        match Reply::decode(&first.payload, RequestKind::Set) {
            Ok(Reply::Done) => self.report.fine("write", "a key of its own"),
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
                self.report.wrong("write", seen, remedy);
                return false;
            }
            _ => {
                self.report.wrong("write", "this is no answer to a SET", "see what answers there");
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
                    && let Some(error) = self.is_too_far_ahead(&set).await
                {
                    let seen = format!(
                        "the store's is {} behind the one here, and it allows less: {error}",
                        seconds(ahead)
                    );
                    self.report.wrong("clock", seen, "set both clocks, as with NTP; serve --max-clock-drift is how far a client may be ahead");
                    return true;
                }
                self.judge_clock(store, here);
            }
            _ => self.report.wrong(
                "clock",
                "the answer to a SET has no version",
                "see what answers on the request topic",
            ),
        }
        true
    }

    /// Checks a refused SET with the time of this machine.
    async fn is_too_far_ahead(&mut self, set: &Command<Vec<u8>>) -> Option<String> {
        let stamp = format!("{}:0:doctor", wall());
        let answer = self.ask_at(&stamp, set, Duration::ZERO).await;
        match Reply::decode(&answer.replies.first()?.payload, RequestKind::Set) {
            Ok(Reply::Error(error)) if error.known() == Some(Refusal::TimestampSkew) => {
                Some(String::from_utf8_lossy(error.text()).into_owned())
            }
            _ => None,
        }
    }

    fn judge_clock(&mut self, store: u64, here: u64) {
        let difference = store.abs_diff(here);
        let side = if store > here { "ahead of" } else { "behind" };
        let seen = format!("the store's is {} {side} the one here", seconds(difference));
        if difference > DRIFT_MAX {
            self.report.wrong(
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
            self.report.fine("clock", seen);
        }
    }

    /// Watches the test key, and checks whether notifications arrive directly or by subscription.
    async fn is_told(&mut self, has_wildcards: bool) {
        let key = self.key.clone().into_bytes();
        let answer = self.ask(&Command::Watch { key: key.clone() }, Duration::ZERO).await;
        let registered = answer.replies.first().map(|reply| {
            Reply::decode(&reply.payload, RequestKind::Watch).map(|reply| reply.map(<[u8]>::to_vec))
        });
        match registered {
            Some(Ok(Reply::Done)) => {}
            Some(Ok(Reply::Error(error))) => {
                let seen = String::from_utf8_lossy(error.text()).into_owned();
                self.report.wrong("notifications", seen, "see the log of the store");
                return;
            }
            _ => {
                let remedy = "see the log of the store";
                self.report.lost("notifications", "no answer to a KEYNOTIFY", remedy);
                return;
            }
        }
        let set = self.set();
        if self.hears_of(&set, A_WHILE.min(self.patience)).await {
            self.report.fine("notifications", "they come directly, without a subscription");
            return;
        }
        let filter = if has_wildcards {
            NotificationFilter::new(self.client_id).map(|filter| filter.to_string())
        } else {
            NotificationTopic::new(self.client_id, &key).map(|topic| topic.to_string())
        };
        let Ok(filter) = filter else {
            let remedy = "give a shorter --client-id";
            self.report.wrong("notifications", "no topic for them", remedy);
            return;
        };
        let until = self.soon();
        match self.wire.subscribe(&filter, until).await {
            Some(reason) if !reason.is_error() => {
                // The notification without a subscriber has silenced the registration; this resumes it.
                self.ask(&Command::Watch { key: key.clone() }, Duration::ZERO).await;
                if self.hears_of(&set, self.patience).await {
                    self.report.fine("notifications", "they come by subscription");
                } else {
                    self.report.wrong(
                        "notifications",
                        "subscribed, and none comes",
                        format!("let the store write {filter} and this client read it, which brokers may grant and then deny in silence"),
                    );
                }
            }
            Some(reason) => self.report.wrong(
                "notifications",
                format!("the broker refuses the subscription: {reason}"),
                format!("let this client read {filter}"),
            ),
            None => self.report.lost(
                "notifications",
                "the broker does not answer SUBSCRIBE",
                "see the log of the broker",
            ),
        }
        self.ask(&Command::Unwatch { key }, Duration::ZERO).await;
    }

    /// Returns whether a change of the test key causes a notification.
    async fn hears_of(&mut self, set: &Command<Vec<u8>>, within: Duration) -> bool {
        let Ok(topic) = NotificationTopic::new(self.client_id, self.key.as_bytes()) else {
            return false;
        };
        let topic = topic.to_string();
        self.ask(set, Duration::ZERO).await;
        let until = Instant::now() + within;
        let is_it =
            |heard: &Heard| heard.topic == topic && Notification::decode(&heard.payload).is_ok();
        self.wire.listen(until, |wire| wire.heard.iter().any(is_it)).await
    }

    /// One request after the other.
    async fn is_fast(&mut self) {
        let get = Command::Get { key: self.key.clone().into_bytes() };
        let mut times = Vec::new();
        let until = Instant::now() + self.patience * 2;
        while times.len() < MEASURED && Instant::now() < until {
            let asked = Instant::now();
            if self.ask(&get, Duration::ZERO).await.replies.is_empty() {
                self.report.lost("latency", "a GET was not answered", "see the log of the store");
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
            self.report.fine("latency", seen);
        }
    }

    /// Reports the end of the connection, which explains a missing response.
    fn explain_end(&mut self) {
        use super::wire::End;
        let (seen, remedy) = match &self.wire.end {
            None => return,
            Some(end @ (End::Disconnected(_) | End::Io(_))) => {
                (end.to_string(), "see the log of the broker")
            }
            Some(end @ (End::NotMqtt(_) | End::TlsAlert)) => {
                (end.to_string(), "the peer does not speak MQTT 5: check --broker")
            }
        };
        // At the first check without a finding.
        let checks = super::report::CHECKS;
        let last = checks.iter().rposition(|(check, _)| self.report.has(check));
        let next = last.and_then(|last| checks.get(last + 1));
        self.report.lost(next.map_or("latency", |(check, _)| check), seen, remedy);
    }

    fn set(&self) -> Command<Vec<u8>> {
        Command::Set {
            key: self.key.clone().into_bytes(),
            value: b"written by statestore doctor".to_vec(),
            condition: Condition::Always,
            expiry: Expiry::after(LIVES),
        }
    }

    /// Asks, and waits for the answer, and that much longer for another one.
    async fn ask(&mut self, command: &Command<Vec<u8>>, longer: Duration) -> Answer {
        // Of long ago, which no store refuses: then the version of a SET is the store's own time.
        self.ask_at("1696374425000:0:doctor", command, longer).await
    }

    async fn ask_at(
        &mut self,
        stamp: &str,
        command: &Command<Vec<u8>>,
        longer: Duration,
    ) -> Answer {
        let Ok(stamp) = TimestampRef::parse(stamp) else {
            return Answer { acked: None, replies: Vec::new() };
        };
        self.asked += 1;
        let correlation = u128::from(self.asked).to_be_bytes();
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
        let until = self.soon();
        let id = self.wire.publish(REQUEST, &properties, &command.encode(), until).await;
        let is_reply = |heard: &Heard| heard.correlation.as_deref() == Some(&correlation[..]);
        let acked = self.wire.ack(id, until).await;
        if acked
            .is_none_or(|reason| !reason.is_error() && reason != Reason::NO_MATCHING_SUBSCRIBERS)
        {
            self.wire.listen(until, |wire| wire.heard.iter().any(is_reply)).await;
        }
        if !longer.is_zero() {
            let until = Instant::now() + longer.min(self.patience);
            let replies = |wire: &Wire| wire.heard.iter().filter(|heard| is_reply(heard)).count();
            self.wire.listen(until, |wire| replies(wire) > 1).await;
        }
        // The remaining messages belong to finished requests.
        let (replies, rest) =
            std::mem::take(&mut self.wire.heard).into_iter().partition(|heard| is_reply(heard));
        self.wire.heard = rest;
        self.wire.heard.retain(|heard| heard.topic != topic);
        Answer { acked, replies }
    }
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03} s", millis / 1_000, millis % 1_000)
}

/// Name of the store in a reply.
fn named(heard: &Heard) -> Option<&str> {
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
