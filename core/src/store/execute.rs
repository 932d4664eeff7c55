//! One request, from its payload to its answer: the order of checks of [`crate::rules`], in one place.

use alloc::sync::Arc;
use core::time::Duration;

use bytes::Bytes;

use super::counters::{Handled, Verdict};
use super::explain::{Exceeded, Explanation, Limit};
use super::outbox::About;
use super::replies::{Answer, Remembered, RequestKey};
use super::table::{Meta, Slot};
use super::unacknowledged::Notice;
use super::watches::Registration;
use super::{
    Access, Answered, Durability, Principal, REPLY_KEPT, REPLY_KEPT_MIN, Record, RecordedExpiry,
    Store,
};
use crate::hlc::{FencingToken, Hlc, HlcRef, Version};
use crate::limits::CLOCK_RESERVE;
use crate::message::{
    Command, CommandKind, Condition, Dialect, Incarnation, Notification, Refusal, Reply,
};
use crate::mqtt::{Correlation, Incoming, Publish, Purpose, Qos, Transmit, Unsent};
use crate::rules::{Change, Decision, Entry, Stamp, Stamps, State, decide};
use crate::time::{Now, UnixTime};

/// What of a request its execution needs beside the command.
struct Request<'a> {
    from: Principal<'a>,
    dialect: Dialect,
    incarnation: Option<Incarnation>,
    stamps: Stamps<'a>,
    persist: bool,
    number: u64,
}

impl Store {
    /// Answers a request whose response topic can be answered to.
    pub(super) fn answer(
        &mut self,
        now: Now,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
        response_topic: &str,
    ) -> Handled {
        let dialect = self.config.dialect.of_request(incoming.properties.has_protocol_version);
        let topic: Arc<str> = response_topic.into();
        let correlation = incoming.correlation_data.map(Correlation::new);
        let Some(correlation) = correlation.filter(|_| incoming.qos == Qos::AtLeastOnce) else {
            let why = if incoming.correlation_data.is_none() {
                Explanation::NoCorrelationData
            } else {
                Explanation::NotQos1
            };
            let correlation = incoming.correlation_data.map(Correlation::new);
            let (answer, verdict) = self.refused(why, dialect);
            self.send_reply(now, incoming, About::Nothing, topic, correlation, answer);
            return Handled::of(None, verdict);
        };
        // 1. Grammar.
        let command = match Command::decode_with(incoming.payload, self.config.word_case) {
            Ok(command) => command,
            Err(error) => {
                let (answer, handled) = self.answer_other(now, from, incoming, dialect, error);
                // A page tells of any number of keys.
                let about = About::Everything;
                self.send_reply(now, incoming, about, topic, Some(correlation), answer);
                return handled;
            }
        };
        let verb = Some(command.kind());
        let about = About::Key(command.key());
        if command.kind() == CommandKind::Get {
            let (answer, verdict) = self.execute(now, from, incoming, dialect, &command, 0);
            // Our choice: the protocol has no error for a value that its requester cannot take.
            let max = self.payload_max(now, incoming, answer.timestamp.as_ref());
            let (answer, verdict) =
                match Exceeded::of(Limit::PacketBytes, answer.payload.len(), max) {
                    None => (answer, verdict),
                    Some(exceeded) => self.refused(Explanation::Limit(exceeded), dialect),
                };
            self.send_reply(now, incoming, about, topic, Some(correlation), answer);
            return Handled::of(verb, verdict);
        }
        let client_id = from.client_id().unwrap_or_default();
        let content = self.replies.content_of(incoming);
        let key =
            RequestKey { correlation: correlation.as_bytes(), client_id, response_topic, content };
        let hash = self.replies.hash_of(key);
        let first = self.replies.find(now.instant, hash, key);
        let first = first.map(|(answer, number)| (answer.clone(), number));
        let number = first.as_ref().map(|(_, number)| *number);
        let number = number.unwrap_or_else(|| self.replies.next_number());
        let is_first = first.is_none();
        // Whoever is told that it watches must, whatever has ended its registration since.
        if let Some((first, _)) = first.filter(|_| command.kind() != CommandKind::Watch) {
            if command.kind() == CommandKind::Unwatch {
                // The KEYNOTIFY before it may have been delivered again too.
                self.watches.remove_earlier(client_id, command.key(), number);
                self.record_ended();
            }
            self.send_reply(now, incoming, about, topic, Some(correlation), first);
            return Handled::of(verb, Verdict::Repeated);
        }
        let is_recorded = is_first && self.records_answer(incoming, &command);
        let (answer, verdict) = self.execute(now, from, incoming, dialect, &command, number);
        if is_first {
            // A copy arrives before its time is over, and may wait here for as long once more.
            let kept = incoming.message_expiry.map(|s| Duration::from_secs(2 * u64::from(s)));
            let kept = kept.unwrap_or(REPLY_KEPT).max(REPLY_KEPT_MIN);
            if is_recorded {
                let answered = Answered {
                    client_id: client_id.into(),
                    response_topic: Arc::clone(&topic),
                    correlation: correlation.clone(),
                    content,
                    payload: answer.payload.clone(),
                    timestamp: answer.timestamp.clone(),
                    kept,
                    order: number,
                };
                self.outbox.record(command.key(), Record::Answered(answered));
            }
            let remembered = Remembered {
                response_topic: Arc::clone(&topic),
                correlation: correlation.clone(),
                content,
                answer: answer.clone(),
                until: now.instant + kept,
                hash,
                is_recorded,
            };
            self.replies.insert(client_id, remembered);
        }
        self.send_reply(now, incoming, about, topic, Some(correlation), answer);
        Handled::of(verb, verdict)
    }

    /// Whether the answer to this request must survive, refusal or not: its effect may, or may have been refused for
    /// what does.
    fn records_answer(&self, incoming: &Incoming<'_>, command: &Command<&[u8]>) -> bool {
        let key = command.key();
        match (self.config.durability, command.kind()) {
            // One that comes again is executed again.
            (_, CommandKind::Watch) => false,
            (_, CommandKind::Unwatch) => self.config.keeps_watches(),
            (Durability::None, _) => false,
            (Durability::All, _) => true,
            (Durability::Requested, _) => {
                let entry = self.table.find(key).and_then(|slot| self.table.get(slot));
                self.config.is_kept(key, incoming.properties.persist)
                    || entry.is_some_and(super::Entry::is_persistent)
            }
        }
    }

    /// Which incarnation this is, for a request that asks.
    fn incarnation_for(&self, incoming: &Incoming<'_>) -> Option<Incarnation> {
        self.config.incarnation.filter(|_| incoming.properties.incarnation.is_some())
    }

    fn send_reply(
        &mut self,
        now: Now,
        to: &Incoming<'_>,
        about: About<'_>,
        topic: Arc<str>,
        correlation_data: Option<Correlation>,
        answer: Answer,
    ) {
        let reply = self.reply(now, to, topic, correlation_data, answer);
        self.outbox.push(about, Transmit::Publish(reply));
    }

    /// Bytes of the largest payload with which an answer arrives, as far as that is known.
    pub(super) fn payload_max(
        &self,
        now: Now,
        to: &Incoming<'_>,
        timestamp: Option<&Hlc>,
    ) -> usize {
        let Some(max) = to.packet_bytes_max else { return usize::MAX };
        let empty = Answer { payload: Bytes::new(), timestamp: timestamp.cloned() };
        let topic = to.response_topic.unwrap_or_default().into();
        let correlation_data = to.correlation_data.map(Correlation::new);
        max.saturating_sub(self.reply(now, to, topic, correlation_data, empty).packet_len_max())
    }

    fn reply(
        &self,
        now: Now,
        to: &Incoming<'_>,
        topic: Arc<str>,
        correlation_data: Option<Correlation>,
        answer: Answer,
    ) -> Publish {
        let explained = self.explained.as_ref().filter(|_| self.config.explain);
        let purpose = |reason| Purpose::Reply {
            incarnation: self.incarnation_for(to),
            reason,
            answers: Unsent(self.handed),
        };
        let mut publish = Publish {
            topic,
            payload: answer.payload,
            response_topic: None,
            correlation_data,
            content_type: None,
            // Whoever asked has given up by then, and a broker need not keep it for them.
            message_expiry: to.expiry_left(now.instant),
            token: None,
            purpose: purpose(explained.map(Explanation::to_reason)),
            timestamp: answer.timestamp,
        };
        let max = to.packet_bytes_max.filter(|_| explained.is_some());
        // Better an answer without its reason than none.
        if max.is_some_and(|max| publish.packet_len_max() > max) {
            publish.purpose = purpose(None);
        }
        publish
    }

    /// The answer to a request that is refused, and what that says.
    pub(super) fn refused(&mut self, why: Explanation, dialect: Dialect) -> (Answer, Verdict) {
        let refusal = why.refusal().unwrap_or(Refusal::Syntax);
        self.explained = Some(why);
        let payload = Reply::<&[u8]>::Error(refusal.into()).to_bytes(dialect);
        (Answer { payload, timestamp: None }, Verdict::Refused(refusal))
    }

    /// Steps 2 to 7: the answer, and what it says.
    fn execute(
        &mut self,
        now: Now,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
        dialect: Dialect,
        command: &Command<&[u8]>,
        number: u64,
    ) -> (Answer, Verdict) {
        // 2. Authorization.
        if let Some(why) = self.unauthorized(from, incoming, command) {
            return self.refused(why, dialect);
        }
        // 3. Timestamps.
        let properties = &incoming.properties;
        let stamps = Stamps::verify_within(
            self.config.clock_drift_max,
            command.kind(),
            properties.timestamp,
            properties.fencing_token,
            now.unix,
            self.clock.last(),
        );
        if command.kind().is_write() {
            self.clocks_seen(now.unix, command.kind(), incoming, stamps.as_ref().ok());
        }
        let stamps = match stamps {
            Ok(stamps) => stamps,
            Err(refusal) => {
                let (kind, max) = (command.kind(), self.config.clock_drift_max);
                let why = Explanation::of_stamps(refusal, kind, incoming, now.unix, max);
                return self.refused(why, dialect);
            }
        };
        // 4. to 6. Fence, condition, quota.
        let slot = self.live_slot(now, command.key());
        let mut exceeded = self.exceeded(from, slot, command);
        if exceeded.is_some() {
            match command.kind() {
                CommandKind::Set => self.make_room(now),
                _ => self.make_room_to_watch(now, from, command.key()),
            }
            exceeded = self.exceeded(from, slot, command);
        }
        let client_id = from.client_id().unwrap_or_default();
        let watching = matches!(command.kind(), CommandKind::Watch | CommandKind::Unwatch);
        let watched = watching && self.watches.contains(client_id, command.key());
        let entry = slot.and_then(|slot| self.table.get(slot));
        let state = State {
            entry: entry.map(|entry| Entry {
                value: entry.value(),
                fence: entry.fence().map(FencingToken::as_deref),
            }),
            watched,
            full: exceeded.is_some(),
        };
        let Decision { change, reply, stamp } = decide(state, command, stamps.fencing_token);
        let verdict = Verdict::of_reply(&reply);
        if let Verdict::Refused(_) = verdict {
            let fence = entry.and_then(|entry| entry.fence());
            let token = stamps.fencing_token.map(|token| *token.hlc());
            self.explained = match (fence, exceeded) {
                (_, Some(exceeded)) if verdict == Verdict::Refused(Refusal::QuotaExceeded) => {
                    Some(Explanation::Limit(exceeded))
                }
                (Some(fence), _) => Some(Explanation::of_fence(fence, token)),
                (None, exceeded) => exceeded.map(Explanation::Limit),
            };
        }
        let payload = reply.to_bytes(dialect);
        let stored = || entry.map(|entry| self.table.version_of(entry).hlc().clone());
        let mut timestamp = if stamp == Stamp::Stored { stored() } else { None };
        // 7. Apply.
        let incarnation = self.incarnation_for(incoming);
        let persist = self.config.is_kept(command.key(), properties.persist);
        let request = Request { from, dialect, incarnation, stamps, persist, number };
        match change {
            Change::Put => match self.apply_put(now, &request, slot, command) {
                Some(version) => timestamp = Some(version),
                None => return self.refused(Explanation::NoVersionLeft, dialect),
            },
            _ => self.apply(&request, slot, command, change),
        }
        (Answer { payload, timestamp }, verdict)
    }

    /// Records how far the clocks in a write's stamps are from the one here, for refused writes too.
    #[inline]
    fn clocks_seen(
        &mut self,
        now: UnixTime,
        kind: CommandKind,
        incoming: &Incoming<'_>,
        stamps: Option<&Stamps<'_>>,
    ) {
        let (timestamp, token) = match stamps {
            Some(stamps) => (
                stamps.timestamp.map(|timestamp| *timestamp.hlc()),
                stamps.fencing_token.map(|token| *token.hlc()),
            ),
            None => {
                let parse = |text: Option<_>| text.and_then(|text| HlcRef::parse(text).ok());
                let properties = &incoming.properties;
                (
                    parse(properties.timestamp.filter(|_| kind == CommandKind::Set)),
                    parse(properties.fencing_token),
                )
            }
        };
        if let Some(timestamp) = timestamp {
            self.counters.clock_seen(now, timestamp.wall(), false);
        }
        if let Some(token) = token {
            self.counters.clock_seen(now, token.wall(), true);
        }
    }

    /// Why this requester may not do that, if it may not.
    fn unauthorized(
        &self,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
        command: &Command<&[u8]>,
    ) -> Option<Explanation> {
        let is_write = command.kind().is_write();
        let access = if is_write { Access::Write } else { Access::Read };
        let is_fenced = is_write && incoming.properties.fencing_token.is_some();
        let nameless = from.client_id().is_none_or(str::is_empty);
        let watching = matches!(command.kind(), CommandKind::Watch | CommandKind::Unwatch);
        if let Some(allows) = &self.config.authorizer {
            if !allows(&from, access, command.key()) {
                return Some(Explanation::NotAllowed(access));
            }
            if is_fenced && !allows(&from, Access::Fence, command.key()) {
                return Some(Explanation::NotAllowed(Access::Fence));
            }
        }
        // Nobody knows where to send the notifications of a client without a name.
        if watching && nameless {
            return Some(Explanation::Nameless);
        }
        from.is_contradicted_by(incoming).then_some(Explanation::OtherSource)
    }

    /// The slot of a key that has not expired. One that has is removed here, so that its watchers hear of the expiry
    /// before they hear of what comes next.
    fn live_slot(&mut self, now: Now, key: &[u8]) -> Option<Slot> {
        let slot = self.table.find(key)?;
        if self.table.get(slot)?.is_expired(now.instant) {
            self.expire(slot);
            return None;
        }
        Some(slot)
    }

    /// Applies a SET; `None` when the last version of 64 bits is issued, and then nothing has changed.
    fn apply_put(
        &mut self,
        now: Now,
        request: &Request<'_>,
        slot: Option<Slot>,
        command: &Command<&[u8]>,
    ) -> Option<Hlc> {
        let Command::Set { key, value, condition, expiry } = command else {
            return None;
        };
        let version = self.clock.receive(now.unix, request.stamps.latest()?).ok()?;
        let fence =
            request.stamps.fencing_token.map(|token| FencingToken::new(Hlc::from(*token.hlc())));
        let is_lease = expiry.is_some() && *condition != Condition::Always;
        let meta = Meta {
            version: Version::new(version.clone()),
            persist: request.persist,
            expires: expiry.map(|expiry| now.instant + expiry.as_duration()),
            is_lease,
            fence,
            owner: self.table.owner_of(request.from),
        };
        let was_persistent =
            slot.and_then(|slot| self.table.get(slot)).is_some_and(super::Entry::is_persistent);
        let expires = expiry.map(|after| RecordedExpiry {
            at: now.unix + after.as_duration(),
            after,
            is_lease,
        });
        self.record_put(now.unix, (key, value), &meta, expires, was_persistent);
        self.put(slot, key, value, meta);
        self.notify(key, &Notification::Set(*value), &version);
        Some(version)
    }

    fn apply(
        &mut self,
        request: &Request<'_>,
        slot: Option<Slot>,
        command: &Command<&[u8]>,
        change: Change,
    ) {
        let key = command.key();
        let client_id = request.from.client_id().unwrap_or_default();
        match change {
            Change::Remove => {
                if let Some(slot) = slot {
                    self.remove_and_tell(slot);
                }
            }
            Change::Watch => {
                let Request { dialect, incarnation, number, .. } = *request;
                let verified = request.from.is_verified();
                let registration = Registration {
                    client_id,
                    verified,
                    key,
                    dialect,
                    incarnation,
                    request: number,
                };
                if let Some(record) = self.watches.insert(self.latest, &registration) {
                    self.outbox.record(key, record);
                }
            }
            Change::Unwatch => self.watches.remove(client_id, key),
            Change::None | Change::Put => {}
        }
    }

    /// Removes a value whose time has come.
    pub(super) fn expire(&mut self, slot: Slot) {
        self.counters.expired_values += 1;
        self.remove_and_tell(slot);
    }

    fn remove_and_tell(&mut self, slot: Slot) {
        let Some(entry) = self.remove(slot) else {
            return;
        };
        let version = self.table.version_of(&entry);
        let durability = self.config.durability;
        if durability == Durability::All
            || (durability == Durability::Requested && entry.is_persistent())
        {
            let record = Record::Removed { key: entry.key().into(), version: version.clone() };
            self.outbox.record(entry.key(), record);
        }
        self.notify(entry.key(), &Notification::Deleted, version.hlc());
    }

    /// Records a SET. A value that is not to be kept still ends one that was.
    fn record_put(
        &mut self,
        now: UnixTime,
        (key, value): (&[u8], &[u8]),
        meta: &Meta,
        expires: Option<RecordedExpiry>,
        was_persistent: bool,
    ) {
        let is_chosen = match self.config.durability {
            Durability::None => return,
            Durability::Requested => meta.persist,
            Durability::All => true,
        };
        let version = meta.version.clone();
        let record = if is_chosen {
            Record::Put {
                key: key.into(),
                value: value.into(),
                version,
                fencing_token: meta.fence.clone(),
                expires,
                persist: meta.persist,
            }
        } else if was_persistent {
            Record::Removed { key: key.into(), version }
        } else if version.hlc().wall() >= self.reserved {
            // The versions of some seconds in one record.
            let ahead = version.hlc().wall() + Duration::from_millis(1);
            self.reserved = ahead.max(now + CLOCK_RESERVE);
            let reserved = Hlc::new(self.reserved, 0, version.hlc().node().clone());
            Record::Issued { version: Version::new(reserved) }
        } else {
            return;
        };
        self.outbox.record(key, record);
    }

    /// Notifies the watchers of a key, each in the dialect that it registered in. They share one payload.
    fn notify(&mut self, key: &[u8], notification: &Notification<&[u8]>, version: &Hlc) {
        let mut payloads: [Option<Bytes>; 2] = [None, None];
        let watches = self.watches.of(key);
        for (number, watch) in watches.iter().enumerate() {
            let Some(slot) = payloads.get_mut(watch.dialect as usize) else {
                continue;
            };
            let payload =
                slot.get_or_insert_with(|| notification.encode(watch.dialect).into()).clone();
            self.counters.notifications += 1;
            // What they share is freed with the last of them.
            let shared = payloads.iter().flatten().map(Bytes::len).sum::<usize>() + key.len();
            let bytes = if number + 1 == watches.len() { shared } else { 0 };
            let (watch, version) = (Arc::clone(watch), version.clone());
            self.outbox.notify(key, Notice { watch, payload, version }, bytes);
        }
    }
}
