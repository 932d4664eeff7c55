//! A naive store, written from the protocol description alone, whose output must equal that of
//! [`Store`](statestore_proto::store::Store). It shares only the codec and the clock texts with the
//! crate under test.

mod quota;
mod texts;
mod watches;

use std::collections::{BTreeMap, BTreeSet};

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{
    Command, Condition, Dialect, Notification, PageEncoder, Refusal, Reply, Request, RequestKind,
    Scan, WordCase,
};
use statestore_proto::statistics::Statistic;
use statestore_proto::time::Now;
use statestore_proto::topic::{REQUEST, RESERVED};
use statestore_proto::transport::Qos;

pub use texts::{Stamp, text};
use texts::{identity, notification_topic, stamp, wall};

use crate::machines::ask::{Ask, Sent};

/// Sent packets, each with the number of its registration if it is a notification, else zero.
pub type Out = Vec<(Sent, u64)>;

/// Identity of a counter: name, command, refusal.
pub type Counted = (&'static str, Option<RequestKind>, Option<Refusal>);

/// Nonzero counters of a store.
pub fn counted(statistics: impl Iterator<Item = Statistic>) -> BTreeMap<Counted, u64> {
    let counted = statistics.filter(|statistic| statistic.value > 0);
    counted.map(|of| ((of.name, of.verb, of.reason), of.value)).collect()
}

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Value.
    pub value: Vec<u8>,
    /// Version.
    pub version: Stamp,
    /// Fencing token.
    pub fence: Option<Stamp>,
    /// Millisecond from which on the value is expired.
    pub due: Option<u64>,
}

struct Watch {
    client: String,
    verified: bool,
    key: Vec<u8>,
    dialect: Dialect,
    number: u64,
    request: u64,
    /// A notification had no subscriber, so there are no more.
    silenced: bool,
}

struct Answered {
    name: Ask,
    client: String,
    request: u64,
    until: u64,
    /// Its retention in milliseconds.
    kept: u64,
    payload: Vec<u8>,
    version: Option<Stamp>,
}

/// The model; its settings are public.
pub struct Oracle {
    /// Limits.
    pub limits: StoreLimits,
    /// Pinned dialect, if any.
    pub dialect: Option<Dialect>,
    /// Case of verbs.
    pub word_case: WordCase,
    /// Returns whether a write (`true`) or read (`false`) of a key is allowed.
    pub allows: fn(bool, &[u8]) -> bool,
    /// Stored values.
    pub entries: BTreeMap<Vec<u8>, Entry>,
    /// The verified client that last wrote a value.
    owners: BTreeMap<Vec<u8>, String>,
    /// Millisecond from which the claimed registrations of each client may be evicted.
    evictable: BTreeMap<String, u64>,
    /// Client and key of evicted registrations that were not stopped, the oldest first.
    evicted: Vec<(String, Vec<u8>)>,
    latest: u64,
    /// Counters.
    pub counters: BTreeMap<Counted, u64>,
    watches: Vec<Watch>,
    answers: Vec<Answered>,
    /// Clients that have disconnected and sent nothing since.
    absent: BTreeSet<String>,
    clock: (u64, u64),
    registrations: u64,
    requests: u64,
}

impl Answered {
    /// Returns whether this request is a duplicate: same requester, topic, correlation data,
    /// content.
    fn is_about(&self, ask: &Ask, client: &str, response: &str) -> bool {
        let content = |ask: &Ask| {
            let Ask { correlation, payload, timestamp, token, persist, .. } = ask.clone();
            (correlation, payload, timestamp, token, persist)
        };
        self.client == client
            && self.name.response_topic.as_deref() == Some(response)
            && content(&self.name) == content(ask)
    }

    fn size(&self) -> usize {
        let topic = self.name.response_topic.as_ref().map_or(0, String::len);
        let correlation = self.name.correlation.as_ref().map_or(0, Vec::len);
        self.client.len() + topic + correlation + self.payload.len()
    }
}

type Answer = Result<(Reply<Vec<u8>>, Option<Stamp>), Refusal>;

impl Oracle {
    /// An empty store.
    #[must_use]
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            dialect: None,
            word_case: WordCase::Any,
            allows: |_, _| true,
            entries: BTreeMap::new(),
            owners: BTreeMap::new(),
            evictable: BTreeMap::new(),
            evicted: Vec::new(),
            latest: 0,
            counters: BTreeMap::new(),
            watches: Vec::new(),
            answers: Vec::new(),
            absent: BTreeSet::new(),
            clock: (0, 0),
            registrations: 0,
            requests: 0,
        }
    }

    /// Section 1: handles any message, then acknowledges it.
    pub fn ask(&mut self, now: Now, ask: &Ask) -> Out {
        let mut out = Vec::new();
        self.latest = now.instant.as_millis();
        self.read(now, ask, &mut out);
        out.extend(ask.delivery.map(|delivery| (Sent::Acknowledge(delivery), 0)));
        out
    }

    fn read(&mut self, now: Now, ask: &Ask, out: &mut Out) {
        let ms = now.instant.as_millis();
        // A reply waits for the older ones whose retention has as many binary digits of seconds.
        let mut waiting = BTreeSet::new();
        self.answers.retain(|answer| {
            let digits = (answer.kept / 1_000).checked_ilog2().map_or(0, |log| log + 1);
            if answer.until > ms {
                waiting.insert(digits);
            }
            waiting.contains(&digits)
        });
        let client = identity(ask);
        let Some(response) = ask.response_topic.clone().filter(|_| ask.topic == REQUEST) else {
            let other = ask.topic != REQUEST;
            self.count(if other { "not_requests" } else { "unanswerable" }, None, None, 1);
            return;
        };
        let reserved = response == REQUEST || response.starts_with(RESERVED);
        if reserved
            || response.split('/').count() > 200
            || response.is_empty()
            || response.contains(['+', '#', '\0'])
        {
            self.count("forbidden", None, None, 1);
            let verified = client.filter(|_| ask.verified.is_some());
            out.extend(verified.map(|client| (Sent::Disconnect(client), 0)));
            return;
        }
        let waited = ask.arrived.map_or(0, |arrived| ms.saturating_sub(arrived.as_millis()));
        if waited > 0 && ask.expiry.is_some_and(|seconds| waited >= u64::from(seconds) * 1_000) {
            self.count("expired_requests", None, None, 1);
            return;
        }
        let page = if ask.deployed { Dialect::Deployed } else { Dialect::Spec };
        let dialect = self.dialect.unwrap_or(page);
        let client = client.unwrap_or_default();
        let (payload, version) = self.answer(now, ask, &client, &response, dialect, out);
        out.push((
            Sent::Reply {
                topic: response,
                correlation: ask.correlation.clone(),
                payload: payload.escape_ascii().to_string(),
                version: version.map(text),
                expiry: ask.expiry.map(|seconds| {
                    let left = (u64::from(seconds) * 1_000).saturating_sub(waited);
                    u32::try_from(left.div_ceil(1_000).max(1)).unwrap_or(u32::MAX)
                }),
            },
            0,
        ));
    }

    /// Section 11: a duplicate gets the first reply.
    fn answer(
        &mut self,
        now: Now,
        ask: &Ask,
        client: &str,
        response: &str,
        dialect: Dialect,
        out: &mut Out,
    ) -> (Vec<u8>, Option<Stamp>) {
        let ms = now.instant.as_millis();
        let error =
            |refusal: Refusal| (Reply::<Vec<u8>>::Error(refusal.into()).encode(dialect), None);
        let command = match &ask.correlation {
            None => Err(Refusal::MissingCorrelationData),
            Some(_) if ask.qos != Qos::AtLeastOnce => Err(Refusal::NotQos1),
            Some(_) => match Request::decode_with(&ask.payload, self.word_case) {
                Ok(Request::Scan(scan)) => return self.list(ms, ask, scan, error),
                Ok(Request::Command(command)) => Ok(command),
                Ok(request) => panic!("not a request that the oracle knows: {request:?}"),
                Err(error) => Err(error.kind.refusal()),
            },
        };
        let Ok(command) = &command else {
            let refusal = command.err().unwrap_or(Refusal::Syntax);
            self.count("refused", None, Some(refusal), 1);
            return error(refusal);
        };
        let name = Ask { delivery: None, arrived: None, ..ask.clone() };
        let (is_get, is_watch, is_stop) = (
            matches!(command, Command::Get { .. }),
            matches!(command, Command::Watch { .. }),
            matches!(command, Command::Unwatch { .. }),
        );
        let first = self.answers.iter().rev().find(|answer| {
            answer.is_about(&name, client, response) && ms < answer.until && !is_get
        });
        let is_first = first.is_none();
        if !is_get {
            self.absent.remove(client);
        }
        self.requests += u64::from(is_first && !is_get);
        let request = first.map_or(self.requests, |first| first.request);
        let authorized = self.authorize(ask, client, command).is_ok();
        if let Some(first) = first.filter(|_| !is_watch && authorized) {
            let (payload, version) = (first.payload.clone(), first.version.clone());
            if is_stop {
                let key = command.key().to_vec();
                self.end(|watch| {
                    watch.client == client && watch.key == key && watch.request < request
                });
            }
            self.count("repeated", Some(command.kind()), None, 1);
            return (payload, version);
        }
        let answer = self.execute(now, ask, client, dialect, (command, request), out);
        let (counter, reason) = match &answer {
            Ok((Reply::NotApplied, _)) => ("not_applied", None),
            Ok((Reply::Absent | Reply::NothingRemoved | Reply::NotWatched, _)) => ("absent", None),
            Ok(_) => ("applied", None),
            Err(refusal) => ("refused", Some(*refusal)),
        };
        self.count(counter, Some(command.kind()), reason, 1);
        let (payload, version) = match answer {
            Ok((reply, version)) => (reply.encode(dialect), version),
            Err(refusal) => error(refusal),
        };
        if !is_get && is_first {
            let kept = ask
                .expiry
                .map_or(60_000, |seconds| (u64::from(seconds) * 2_000).clamp(1_000, 3_600_000));
            self.answers.push(Answered {
                name: Ask { response_topic: Some(response.into()), ..name },
                client: client.into(),
                request,
                until: ms + kept,
                kept,
                payload: payload.clone(),
                version: version.clone(),
            });
            while self.answers.len() > self.limits.dedup_entries_max
                || self.answers.iter().map(Answered::size).sum::<usize>()
                    > self.limits.dedup_bytes_max
            {
                self.evict_one();
            }
        }
        (payload, version)
    }

    /// Section 13, for a scan of one page. Tokens of longer scans are private to the store.
    fn list(
        &mut self,
        ms: u64,
        ask: &Ask,
        scan: Scan<&[u8]>,
        error: impl Fn(Refusal) -> (Vec<u8>, Option<Stamp>),
    ) -> (Vec<u8>, Option<Stamp>) {
        let spoofed = ask.verified.is_some() && ask.source.is_some() && ask.source != ask.verified;
        let text = std::str::from_utf8(scan.pattern);
        let pattern = text.map(glob::Pattern::new);
        let refusal = match (&pattern, scan.token) {
            _ if spoofed => Some(Refusal::NotAuthorized),
            _ if scan.pattern.len() > self.limits.key_bytes_max => Some(Refusal::QuotaExceeded),
            (Ok(Err(_)), _) | (_, Some(_)) => Some(Refusal::Syntax),
            _ => None,
        };
        let counter = if refusal.is_some() { "refused" } else { "applied" };
        self.count(counter, Some(RequestKind::Scan), refusal, 1);
        if let Some(refusal) = refusal {
            return error(refusal);
        }
        let fits = |key: &&[u8]| match (&pattern, std::str::from_utf8(key)) {
            (Ok(Ok(pattern)), Ok(key)) => pattern.matches(key),
            _ => false,
        };
        let alive = self.entries.iter().filter(|(_, entry)| entry.due.is_none_or(|due| due > ms));
        let readable = alive.filter(|(key, _)| (self.allows)(false, key));
        let keys: Vec<&[u8]> = readable.map(|(key, _)| key.as_slice()).filter(fits).collect();
        (PageEncoder { keys: &keys, token: None }.encode(), None)
    }

    /// Section 7: authorization, before a duplicate gets its first reply.
    fn authorize(&self, ask: &Ask, client: &str, command: &Command<&[u8]>) -> Result<(), Refusal> {
        let watches = matches!(command, Command::Watch { .. } | Command::Unwatch { .. });
        let spoofed = ask.verified.is_some() && ask.source.is_some() && ask.source != ask.verified;
        let is_allowed = (self.allows)(command.kind().is_write(), command.key());
        if !is_allowed || spoofed || (watches && client.is_empty()) {
            return Err(Refusal::NotAuthorized);
        }
        Ok(())
    }

    /// Evicts the oldest reply of a client that uses more than its share of the cache, if there is
    /// one; otherwise of an absent client; otherwise of the client that uses most bytes. Each reply
    /// counts its bytes and slot.
    fn evict_one(&mut self) {
        let place =
            (self.limits.dedup_bytes_max / self.limits.dedup_entries_max.max(1)).min(1 << 20);
        let takes = |client: &str| {
            let own = self.answers.iter().filter(|answer| answer.client == client);
            own.map(|answer| answer.size() + place).sum::<usize>()
        };
        let total = place.saturating_mul(self.limits.dedup_entries_max);
        let percent = u128::from(self.limits.client_percent.min(100));
        let share = (total as u128 * percent).div_ceil(100);
        let rank = |client: &str| match (takes(client), self.absent.contains(client)) {
            (takes, _) if takes as u128 > share => (2, takes),
            (_, true) => (1, 0),
            (takes, false) => (0, takes),
        };
        let most = self.answers.iter().map(|answer| rank(&answer.client)).max();
        let oldest = self.answers.iter().position(|answer| Some(rank(&answer.client)) == most);
        self.answers.remove(oldest.unwrap_or_default());
    }

    /// Sections 3 to 9, in the order of section 7.
    fn execute(
        &mut self,
        now: Now,
        ask: &Ask,
        client: &str,
        dialect: Dialect,
        (command, request): (&Command<&[u8]>, u64),
        out: &mut Out,
    ) -> Answer {
        let (key, unix) = (command.key().to_vec(), now.unix.as_millis());
        let (is_set, writes) = (matches!(command, Command::Set { .. }), command.kind().is_write());
        self.authorize(ask, client, command)?;
        for (text, is_token) in [(&ask.timestamp, false), (&ask.token, true)] {
            let looked_at = if is_token { writes } else { is_set };
            self.clock_seen(text.as_deref().filter(|_| looked_at), unix, is_token);
        }
        let mut timestamp = None;
        if is_set {
            let text = ask.timestamp.as_ref().ok_or(Refusal::MissingTimestamp)?;
            timestamp = Some(stamp(text, unix, self.clock, Refusal::TimestampSkew)?);
        }
        let token = ask.token.as_ref().filter(|_| writes);
        let token = token.map(|text| stamp(text, unix, self.clock, Refusal::FencingTokenSkew));
        let token = token.transpose()?;
        self.expire_if(now, out, |other| *other == key);
        let asker = (client, ask.verified.is_some());
        if self.has_no_room(command, asker) {
            if is_set {
                self.expire_if(now, out, |_| true);
            }
            self.make_room_to_watch(command, asker);
        }
        let entry = self.entries.get(&key).cloned();
        if let Some(fence) =
            entry.as_ref().filter(|_| writes).and_then(|entry| entry.fence.as_ref())
        {
            let token = token.as_ref().ok_or(Refusal::FencingTokenRequired)?;
            if token < fence {
                return Err(Refusal::FencingTokenLower);
            }
        }
        let stored = entry.as_ref().map(|entry| entry.version.clone());
        Ok(match (command, entry) {
            (Command::Get { .. }, None) => (Reply::Absent, None),
            (Command::Get { .. }, Some(entry)) => (Reply::Value(entry.value), stored),
            (Command::Set { value, condition, expiry, .. }, entry) => {
                let applies = entry.is_none_or(|entry| match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => false,
                    Condition::IfAbsentOrEqual => entry.value == *value,
                    Condition::IfAbsentOrEqualTo(operand) => entry.value == operand.as_bytes(),
                });
                if !applies {
                    return Ok((Reply::NotApplied, stored));
                }
                if self.has_no_room(command, asker) {
                    return Err(Refusal::QuotaExceeded);
                }
                let before = self.clock.0;
                let version = self.issue(unix, timestamp.max(token.clone()).unwrap_or_default());
                self.set_ahead(unix, before, version.0, token.as_ref().map(|token| token.0));
                let due = expiry.map(|px| now.instant.as_millis().saturating_add(px.as_millis()));
                let entry =
                    Entry { value: value.to_vec(), version: version.clone(), fence: token, due };
                self.entries.insert(key.clone(), entry);
                self.owners.remove(&key);
                self.owners.extend(ask.verified.as_ref().map(|owner| (key.clone(), owner.clone())));
                self.notify(&key, &Notification::Set(*value), &version, out);
                (Reply::Done, Some(version))
            }
            (Command::Del { .. } | Command::VDel { .. }, None) => (Reply::NothingRemoved, None),
            (Command::VDel { value, .. }, Some(entry)) if entry.value != *value => {
                (Reply::NotApplied, stored)
            }
            (Command::Del { .. } | Command::VDel { .. }, Some(entry)) => {
                self.entries.remove(&key);
                self.owners.remove(&key);
                self.notify(&key, &Notification::Deleted, &entry.version, out);
                (Reply::Removed, stored)
            }
            (Command::Watch { .. }, _) => {
                return self.register(command, asker, dialect, request);
            }
            (Command::Unwatch { .. }, _) => {
                let gone = self.end(|watch| watch.client == client && watch.key == key) > 0;
                let gone = self.forget_eviction(client, &key) || gone;
                (if gone { Reply::Done } else { Reply::NotWatched }, None)
            }
        })
    }

    /// Records the clock skew of a request in milliseconds. Tokens may be old.
    fn clock_seen(&mut self, text: Option<&str>, unix: u64, is_token: bool) {
        let Some(wall) = text.and_then(wall) else { return };
        let ahead = wall > unix;
        let name = if ahead { "ahead_max_ms" } else { "behind_max_ms" };
        if wall != unix && (ahead || !is_token) {
            let most = self.counters.entry((name, None, None)).or_default();
            *most = wall.abs_diff(unix).max(*most);
        }
    }

    /// Counts a version more than five seconds ahead and beyond the versions before.
    fn set_ahead(&mut self, unix: u64, before: u64, wall: u64, token: Option<u64>) {
        if wall > before && wall > unix.saturating_add(5_000) {
            self.count("set_ahead", None, None, 1);
            if token >= Some(wall) {
                self.count("fenced_ahead", None, None, 1);
            }
        }
    }

    /// Section 6: one receive step; the result is at most one count beyond the drift limit.
    fn issue(&mut self, unix: u64, (wall, counter, _): Stamp) -> Stamp {
        let next = match self.clock.max((wall, counter)) {
            (ahead, _) if unix > ahead => (unix, 0),
            (ahead, 0x7fff_ffff..) => (ahead + 1, 0),
            (ahead, counter) => (ahead, counter + 1),
        };
        self.clock = next;
        (next.0, next.1, "StateStore".into())
    }

    /// Section 8, on a timer: removes all expired values, the earliest first.
    pub fn expire(&mut self, now: Now) -> Out {
        let mut out = Vec::new();
        self.latest = now.instant.as_millis();
        self.expire_if(now, &mut out, |_| true);
        out
    }

    fn expire_if(&mut self, now: Now, out: &mut Out, which: impl Fn(&Vec<u8>) -> bool) {
        let due = |entry: &Entry| entry.due.filter(|due| *due <= now.instant.as_millis());
        let gone = self.entries.iter().filter(|(key, _)| which(key));
        let mut gone: Vec<_> =
            gone.filter_map(|(key, entry)| Some((due(entry)?, key.clone()))).collect();
        gone.sort();
        for (_, key) in gone {
            let Some(entry) = self.entries.remove(&key) else { continue };
            self.owners.remove(&key);
            self.count("expired_values", None, None, 1);
            self.notify(&key, &Notification::Deleted, &entry.version, out);
        }
    }

    fn notify(&mut self, key: &[u8], what: &Notification<&[u8]>, version: &Stamp, out: &mut Out) {
        let mut recipients = 0;
        for watch in self.watches.iter().filter(|watch| watch.key == key && !watch.silenced) {
            recipients += 1;
            let sent = Sent::Notification {
                client: watch.client.clone(),
                topic: notification_topic(&watch.client, key),
                payload: what.encode(watch.dialect).escape_ascii().to_string(),
                version: Some(text(version.clone())),
            };
            out.push((sent, watch.number));
        }
        self.count("notifications", None, None, recipients);
    }

    /// Increments a counter that the store must have too.
    pub fn count(
        &mut self,
        name: &'static str,
        verb: Option<RequestKind>,
        reason: Option<Refusal>,
        by: u64,
    ) {
        if by > 0 {
            *self.counters.entry((name, verb, reason)).or_default() += by;
        }
    }

    fn end(&mut self, which: impl Fn(&Watch) -> bool) -> u64 {
        let before = self.watches.len();
        self.watches.retain(|watch| !which(watch));
        (before - self.watches.len()) as u64
    }
}
