//! The store itself: a message from its topic to its response.

use std::collections::BTreeMap;

use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{
    Command, Condition, Dialect, Notification, PageEncoder, Refusal, Reply, RequestKind,
    RequestPayload, Scan, WordCase,
};
use statestore_proto::time::Now;
use statestore_proto::topic::{REQUEST, RESERVED};
use statestore_proto::transport::Qos;

use super::clock::{self, Clock};
use super::dedup::{Answered, Content};
use super::glob_text::text_for_glob;
use super::handled::{Delivery, packets};
use super::registrations::Registration;
use super::restart::Restarts;
use super::texts::identity;
use super::timestamps;
use super::{Answer, Change, Counted, Effect, Handled, Notified, Out, Request, Response, Stamp};
use crate::machines::request::{Sent, StoreRequest};

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

/// The reference store; its settings and contents are public.
#[derive(Clone, Debug)]
pub struct ReferenceStore {
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
    /// Source of versions.
    pub clock: Clock,
    /// Counters.
    pub counters: BTreeMap<Counted, u64>,
    /// The verified client that last wrote a value.
    pub(super) owners: BTreeMap<Vec<u8>, String>,
    /// Millisecond from which the unverified registrations of each client may be evicted.
    pub(super) evictable: BTreeMap<String, u64>,
    pub(super) latest: u64,
    pub(super) registrations: Vec<Registration>,
    pub(super) registered: u64,
    pub(super) answers: Vec<Answered>,
    requests: u64,
    /// Changes of the last call, in order.
    changes: Vec<Change>,
    pub(super) restarts: Option<Restarts>,
}

/// A command and everything else that its execution depends on.
pub(super) struct Caller<'a> {
    pub(super) client: &'a str,
    pub(super) is_verified: bool,
    /// The source that the request names is not the verified sender.
    is_spoofed: bool,
    pub(super) command: Command<&'a [u8]>,
    timestamp: Option<&'a str>,
    token: Option<&'a str>,
    pub(super) dialect: Dialect,
    correlation: Option<&'a [u8]>,
    /// Number of the request; a duplicate has that of its first delivery.
    pub(super) request: u64,
    /// True if the command would exceed a limit; computed from the limits if `None`.
    is_full: Option<bool>,
}

type Executed = Result<(Reply<Vec<u8>>, Option<Stamp>), Refusal>;

impl ReferenceStore {
    /// An empty store.
    #[must_use]
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            dialect: None,
            word_case: WordCase::Any,
            allows: |_, _| true,
            entries: BTreeMap::new(),
            clock: Clock::new("StateStore", u64::MAX),
            counters: BTreeMap::new(),
            owners: BTreeMap::new(),
            evictable: BTreeMap::new(),
            latest: 0,
            registrations: Vec::new(),
            registered: 0,
            answers: Vec::new(),
            requests: 0,
            changes: Vec::new(),
            restarts: None,
        }
    }

    /// Handles a message and acknowledges it; returns the packets that the store sends, in order.
    pub fn ask(&mut self, now: Now, request: &StoreRequest) -> Out {
        let mut out = self.handle(now, request).into_packets();
        out.extend(request.delivery.map(|delivery| (Sent::Acknowledge(delivery), 0)));
        out
    }

    /// Handles any message, including invalid ones.
    pub fn handle(&mut self, now: Now, request: &StoreRequest) -> Handled {
        let ms = now.instant.as_millis();
        self.latest = ms;
        self.changes.clear();
        self.forget_answers(ms);
        let mut handled = Handled::default();
        let client = identity(request);
        let Some(topic) = request.response_topic.clone().filter(|_| request.topic == REQUEST)
        else {
            let other = request.topic != REQUEST;
            self.count(if other { "not_requests" } else { "unanswerable" }, None, None, 1);
            return handled;
        };
        let reserved = topic == REQUEST || topic.starts_with(RESERVED);
        if reserved
            || topic.split('/').count() > 200
            || topic.is_empty()
            || topic.contains(['+', '#', '\0'])
        {
            self.count("forbidden", None, None, 1);
            handled.disconnects = client.filter(|_| request.verified.is_some());
            return handled;
        }
        let waited = request.arrived.map_or(0, |arrived| ms.saturating_sub(arrived.as_millis()));
        if waited > 0 && request.expiry.is_some_and(|seconds| waited >= u64::from(seconds) * 1_000)
        {
            self.count("expired_requests", None, None, 1);
            return handled;
        }
        let client = client.unwrap_or_default();
        let (payload, version) =
            self.answer(now, request, (&client, &topic), &mut handled.deliveries);
        handled.response = Some(Response {
            topic,
            correlation: request.correlation.clone(),
            payload,
            version,
            expiry: request.expiry.map(|seconds| {
                let left = (u64::from(seconds) * 1_000).saturating_sub(waited);
                u32::try_from(left.div_ceil(1_000).max(1)).unwrap_or(u32::MAX)
            }),
        });
        handled
    }

    /// Executes a decoded command of a client whose id is verified, without a cache of responses.
    pub fn request(&mut self, request: &Request) -> Answer {
        self.latest = request.now.instant.as_millis();
        self.changes.clear();
        let mut deliveries = Vec::new();
        self.requests += 1;
        let caller = Caller {
            client: &request.client,
            is_verified: true,
            is_spoofed: false,
            command: request.command.borrowed(),
            timestamp: request.timestamp.as_deref(),
            token: request.token.as_deref(),
            dialect: Dialect::Deployed,
            correlation: None,
            request: self.requests,
            is_full: Some(request.full),
        };
        let executed = self.execute(request.now, &caller, &mut deliveries);
        let (reply, version) =
            executed.unwrap_or_else(|refusal| (Reply::Error(refusal.into()), None));
        let notified = deliveries.into_iter().map(|delivery| delivery.notified).collect();
        Answer { reply, version, notified }
    }

    /// Changes of the last call of `ask`, `handle`, `request` or `expire`, in order.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Executes a request, or returns the first response to a duplicate.
    fn answer(
        &mut self,
        now: Now,
        request: &StoreRequest,
        (client, topic): (&str, &str),
        out: &mut Vec<Delivery>,
    ) -> (Vec<u8>, Option<Stamp>) {
        let ms = now.instant.as_millis();
        let page = if request.deployed { Dialect::Deployed } else { Dialect::Spec };
        let dialect = self.dialect.unwrap_or(page);
        let error =
            |refusal: Refusal| (Reply::<Vec<u8>>::Error(refusal.into()).encode(dialect), None);
        let command = match &request.correlation {
            None => Err(Refusal::MissingCorrelationData),
            Some(_) if request.qos != Qos::AtLeastOnce => Err(Refusal::NotQos1),
            Some(_) if request.chunk.is_some() => Err(Refusal::Chunked),
            Some(_) => match RequestPayload::decode_with(&request.payload, self.word_case) {
                Ok(RequestPayload::Scan(scan)) => return self.list(ms, request, scan, error),
                Ok(RequestPayload::Command(command)) => Ok(command),
                Ok(request) => panic!("not a request that is known here: {request:?}"),
                Err(error) => Err(error.kind.refusal()),
            },
        };
        let command = match command {
            Ok(command) => command,
            Err(refusal) => {
                self.count("refused", None, Some(refusal), 1);
                return error(refusal);
            }
        };
        let kind = command.kind();
        let is_get = kind == RequestKind::Get;
        let first =
            self.answers.iter().rev().find(|answer| {
                ms < answer.until && !is_get && answer.is_about(request, client, topic)
            });
        let first = first.cloned();
        let is_first = first.is_none();
        self.requests += u64::from(is_first && !is_get);
        let caller = Caller {
            client,
            is_verified: request.verified.is_some(),
            is_spoofed: is_spoofed(request),
            command,
            timestamp: request.timestamp.as_deref(),
            token: request.token.as_deref(),
            dialect,
            correlation: request.correlation.as_deref(),
            request: first.as_ref().map_or(self.requests, |first| first.request),
            is_full: None,
        };
        let repeats = kind != RequestKind::Watch && self.authorize(&caller).is_ok();
        if let Some(first) = first.filter(|_| repeats) {
            if kind == RequestKind::Unwatch {
                let key = *caller.command.key();
                self.end(|it| it.client == client && it.key == key && it.request < caller.request);
            }
            self.count("duplicates", Some(kind), None, 1);
            return (first.payload, first.version);
        }
        let executed = self.execute(now, &caller, out);
        let (counter, reason) = match &executed {
            Ok((Reply::NotApplied, _)) => ("not_applied", None),
            Ok((Reply::Absent | Reply::NothingRemoved | Reply::NotWatched, _)) => ("absent", None),
            Ok(_) => ("applied", None),
            Err(refusal) => ("refused", Some(*refusal)),
        };
        self.count(counter, Some(kind), reason, 1);
        let (payload, version) = match executed {
            Ok((reply, version)) => (reply.encode(dialect), version),
            Err(refusal) => error(refusal),
        };
        if !is_get && is_first {
            let kept = request
                .expiry
                .map_or(60_000, |seconds| (u64::from(seconds) * 2_000).clamp(1_000, 3_600_000));
            self.remember(Answered {
                client: client.into(),
                owner: request.verified.as_ref().map(|_| request.owner.clone()),
                topic: topic.into(),
                correlation: request.correlation.clone().unwrap_or_default(),
                content: Some(Content::of(request)),
                request: caller.request,
                until: ms + kept,
                kept,
                payload: payload.clone(),
                version: version.clone(),
            });
        }
        (payload, version)
    }

    /// Lists keys on one page. Tokens of longer listings are private to the store.
    fn list(
        &mut self,
        ms: u64,
        request: &StoreRequest,
        scan: Scan<&[u8]>,
        error: impl Fn(Refusal) -> (Vec<u8>, Option<Stamp>),
    ) -> (Vec<u8>, Option<Stamp>) {
        let pattern = glob::Pattern::new(&text_for_glob(scan.pattern));
        let refusal = match (&pattern, scan.token) {
            _ if is_spoofed(request) => Some(Refusal::NotAuthorized),
            _ if scan.pattern.len() > self.limits.key_bytes_max => Some(Refusal::QuotaExceeded),
            (Err(_), _) | (_, Some(_)) => Some(Refusal::Syntax),
            _ => None,
        };
        let counter = if refusal.is_some() { "refused" } else { "applied" };
        self.count(counter, Some(RequestKind::Scan), refusal, 1);
        if let Some(refusal) = refusal {
            return error(refusal);
        }
        let fits = |key: &&[u8]| {
            pattern.as_ref().is_ok_and(|pattern| pattern.matches(&text_for_glob(key)))
        };
        let alive = self.entries.iter().filter(|(_, entry)| entry.due.is_none_or(|due| due > ms));
        let readable = alive.filter(|(key, _)| (self.allows)(false, key));
        let keys: Vec<&[u8]> = readable.map(|(key, _)| key.as_slice()).filter(fits).collect();
        (PageEncoder { keys: &keys, token: None }.encode(), None)
    }

    /// Checks the authorization, which precedes the check for duplicates.
    fn authorize(&self, caller: &Caller<'_>) -> Result<(), Refusal> {
        let kind = caller.command.kind();
        let watches = matches!(kind, RequestKind::Watch | RequestKind::Unwatch);
        let is_allowed = (self.allows)(kind.is_write(), caller.command.key());
        if !is_allowed || caller.is_spoofed || (watches && caller.client.is_empty()) {
            return Err(Refusal::NotAuthorized);
        }
        Ok(())
    }

    /// Executes a command. The checks have the order of *Order of checks* in
    /// `docs/reference/protocol.md`.
    fn execute(&mut self, now: Now, caller: &Caller<'_>, out: &mut Vec<Delivery>) -> Executed {
        let command = &caller.command;
        let (key, unix) = (command.key().to_vec(), now.unix.as_millis());
        let kind = command.kind();
        let (is_set, writes) = (kind == RequestKind::Set, kind.is_write());
        self.authorize(caller)?;
        self.see_clock(caller.timestamp.filter(|_| is_set), unix, false);
        self.see_clock(caller.token.filter(|_| writes), unix, true);
        let texts = (caller.timestamp, caller.token);
        let (timestamp, token) = timestamps::verify(kind, texts, unix, self.clock.own)?;
        self.expire_if(now, out, |other| *other == key);
        if self.is_full(caller) {
            if is_set {
                self.expire_if(now, out, |_| true);
            }
            self.make_room_to_watch(caller);
        }
        let entry = self.entries.get(&key).cloned();
        let fence = entry.as_ref().filter(|_| writes).and_then(|entry| entry.fence.as_ref());
        match (fence, &token) {
            (Some(_), None) => return Err(Refusal::FencingTokenRequired),
            (Some(fence), Some(token)) if token < fence => return Err(Refusal::FencingTokenLower),
            _ => {}
        }
        let stored = entry.as_ref().map(|entry| entry.version.clone());
        match (command, entry) {
            (Command::Get { .. }, None) => Ok((Reply::Absent, None)),
            (Command::Get { .. }, Some(entry)) => Ok((Reply::Value(entry.value), stored)),
            (Command::Set { value, condition, .. }, Some(entry))
                if !applies(condition, value, &entry.value) =>
            {
                Ok((Reply::NotApplied, stored))
            }
            (Command::Set { .. }, _) => self.set(now, caller, (timestamp, token), out),
            (Command::Del { .. } | Command::VDel { .. }, None) => Ok((Reply::NothingRemoved, None)),
            (Command::VDel { value, .. }, Some(entry)) if entry.value != *value => {
                Ok((Reply::NotApplied, stored))
            }
            (Command::Del { .. } | Command::VDel { .. }, Some(_)) => {
                self.remove(&key, Effect::Deleted, caller.correlation, out);
                Ok((Reply::Removed, stored))
            }
            (Command::Watch { .. }, _) => self.register(caller),
            (Command::Unwatch { .. }, _) => {
                let gone = self.end(|it| it.client == caller.client && it.key == key) > 0;
                Ok((if gone { Reply::Done } else { Reply::NotWatched }, None))
            }
        }
    }

    /// A SET whose condition holds.
    fn set(
        &mut self,
        now: Now,
        caller: &Caller<'_>,
        (timestamp, token): (Option<Stamp>, Option<Stamp>),
        out: &mut Vec<Delivery>,
    ) -> Executed {
        let Command::Set { key, value, expiry, .. } = caller.command else {
            return Err(Refusal::Syntax);
        };
        if self.is_full(caller) {
            return Err(Refusal::QuotaExceeded);
        }
        let unix = now.unix.as_millis();
        let seen = timestamp.max(token.clone()).ok_or(Refusal::MissingTimestamp)?;
        let before = self.clock.own.0;
        let version = self.clock.receive(unix, &seen).map_err(|_| Refusal::TimestampSkew)?;
        self.count_ahead(unix, before, version.0, token.as_ref().map(|token| token.0));
        let due = expiry.map(|px| now.instant.as_millis().saturating_add(px.as_millis()));
        let entry = Entry { value: value.to_vec(), version: version.clone(), fence: token, due };
        if let Some(restarts) = &mut self.restarts {
            restarts.written.insert(version.clone(), entry.clone());
        }
        self.entries.insert(key.to_vec(), entry);
        self.owners.remove(key);
        if caller.is_verified {
            self.owners.insert(key.to_vec(), caller.client.to_owned());
        }
        self.changes.push(Change {
            key: key.to_vec(),
            effect: Effect::Set(value.to_vec()),
            version: version.clone(),
            by: caller.correlation.map(Into::into),
        });
        self.notify(key, &Notification::Set(value.to_vec()), &version, out);
        Ok((Reply::Done, Some(version)))
    }

    /// Removes a value, if there is one.
    pub(super) fn remove(
        &mut self,
        key: &[u8],
        effect: Effect,
        by: Option<&[u8]>,
        out: &mut Vec<Delivery>,
    ) {
        let Some(Entry { version, .. }) = self.entries.remove(key) else { return };
        self.owners.remove(key);
        self.notify(key, &Notification::Deleted, &version, out);
        self.changes.push(Change { key: key.to_vec(), effect, version, by: by.map(Into::into) });
    }

    pub(super) fn is_full(&self, caller: &Caller<'_>) -> bool {
        caller.is_full.unwrap_or_else(|| self.has_no_room(caller))
    }

    /// Records the clock skew of a request in milliseconds. Tokens may be old.
    fn see_clock(&mut self, text: Option<&str>, unix: u64, is_token: bool) {
        let Some((wall, ..)) = text.and_then(clock::parse) else { return };
        let ahead = wall > unix;
        let name = if ahead { "ahead_max_ms" } else { "behind_max_ms" };
        if wall != unix && (ahead || !is_token) {
            let most = self.counters.entry((name, None, None)).or_default();
            *most = wall.abs_diff(unix).max(*most);
        }
    }

    /// Counts a version more than five seconds ahead and beyond the versions before.
    fn count_ahead(&mut self, unix: u64, before: u64, wall: u64, token: Option<u64>) {
        if wall > before && wall > unix.saturating_add(5_000) {
            self.count("clock_advances", None, None, 1);
            if token >= Some(wall) {
                self.count("fence_advances", None, None, 1);
            }
        }
    }

    /// Removes all expired values, the earliest first, like the timer of a store.
    pub fn expire(&mut self, now: Now) -> Out {
        packets(self.expire_all(now))
    }

    /// The same, with notifications as values.
    pub fn expire_notifying(&mut self, now: Now) -> Vec<Notified> {
        self.expire_all(now).into_iter().map(|delivery| delivery.notified).collect()
    }

    fn expire_all(&mut self, now: Now) -> Vec<Delivery> {
        let mut out = Vec::new();
        self.latest = now.instant.as_millis();
        self.changes.clear();
        self.expire_if(now, &mut out, |_| true);
        out
    }

    fn expire_if(&mut self, now: Now, out: &mut Vec<Delivery>, which: impl Fn(&Vec<u8>) -> bool) {
        let due = |entry: &Entry| entry.due.filter(|due| *due <= now.instant.as_millis());
        let gone = self.entries.iter().filter(|(key, _)| which(key));
        let mut gone: Vec<_> =
            gone.filter_map(|(key, entry)| Some((due(entry)?, key.clone()))).collect();
        gone.sort();
        for (_, key) in gone {
            self.count("expired_values", None, None, 1);
            self.remove(&key, Effect::Expired, None, out);
        }
    }

    fn notify(
        &mut self,
        key: &[u8],
        notification: &Notification<Vec<u8>>,
        version: &Stamp,
        out: &mut Vec<Delivery>,
    ) {
        let recipients = self.registrations.iter().filter(|it| it.key == key && !it.is_silenced);
        let before = out.len();
        out.extend(recipients.map(|it| Delivery {
            notified: Notified {
                client: it.client.clone(),
                key: key.to_vec(),
                notification: notification.clone(),
                version: version.clone(),
            },
            dialect: it.dialect,
            number: it.number,
        }));
        self.count("notifications", None, None, (out.len() - before) as u64);
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
}

fn applies(condition: &Condition<&[u8]>, value: &[u8], stored: &[u8]) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => false,
        Condition::IfAbsentOrEqual => stored == value,
        Condition::IfAbsentOrEqualTo(operand) => stored == operand.as_bytes(),
    }
}

fn is_spoofed(request: &StoreRequest) -> bool {
    request.verified.is_some() && request.source.is_some() && request.source != request.verified
}
