//! One request, from its payload to its answer: the order of checks of [`crate::rules`], in one place.

use alloc::sync::Arc;
use core::time::Duration;

use bytes::Bytes;

use super::counters::{Handled, Verdict};
use super::outbox::About;
use super::replies::{Answer, Remembered, RequestKey};
use super::table::{Meta, Slot};
use super::watches::{self, Registration};
use super::{
    Access, Answered, Durability, Principal, REPLY_KEPT, REPLY_KEPT_MIN, Record, RecordedExpiry,
    Store,
};
use crate::hlc::{FencingToken, Hlc, HlcRef, Version};
use crate::limits::CLOCK_RESERVE;
use crate::message::{
    Command, CommandKind, Condition, Dialect, Incarnation, Notification, Refusal, Reply,
};
use crate::mqtt::{Correlation, Incoming, Publish, Purpose, Qos, Transmit};
use crate::rules::{Change, Decision, Entry, Stamp, Stamps, State, decide};
use crate::time::{Now, UnixTime};
use crate::topic::NotificationTopic;

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
            let refusal = if incoming.correlation_data.is_none() {
                Refusal::MissingCorrelationData
            } else {
                Refusal::NotQos1
            };
            let correlation = incoming.correlation_data.map(Correlation::new);
            let answer = refuse(refusal, dialect);
            self.send_reply(now, incoming, About::Nothing, topic, correlation, answer);
            return Handled::of(None, Verdict::Refused(refusal));
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
            let refusal = Refusal::QuotaExceeded;
            let (answer, verdict) = match answer.payload.len() <= max {
                true => (answer, verdict),
                false => (refuse(refusal, dialect), Verdict::Refused(refusal)),
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
        Publish {
            topic,
            payload: answer.payload,
            response_topic: None,
            correlation_data,
            content_type: None,
            // Whoever asked has given up by then, and a broker need not keep it for them.
            message_expiry: to.expiry_left(now.instant),
            token: None,
            purpose: Purpose::Reply { incarnation: self.incarnation_for(to) },
            timestamp: answer.timestamp,
        }
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
        let refused = |refusal| (refuse(refusal, dialect), Verdict::Refused(refusal));
        // 2. Authorization.
        if !self.is_authorized(from, incoming, command) {
            return refused(Refusal::NotAuthorized);
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
            Err(refusal) => return refused(refusal),
        };
        // 4. to 6. Fence, condition, quota.
        let slot = self.live_slot(now, command.key());
        let mut full = self.is_full(from, slot, command);
        if full {
            match command.kind() {
                CommandKind::Set => self.make_room(now),
                _ => self.make_room_to_watch(now, from, command.key()),
            }
            full = self.is_full(from, slot, command);
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
            full,
        };
        let Decision { change, reply, stamp } = decide(state, command, stamps.fencing_token);
        let verdict = Verdict::of_reply(&reply);
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
                None => return refused(Refusal::TimestampSkew),
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

    fn is_authorized(
        &self,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
        command: &Command<&[u8]>,
    ) -> bool {
        let is_write = command.kind().is_write();
        let access = if is_write { Access::Write } else { Access::Read };
        let is_fenced = is_write && incoming.properties.fencing_token.is_some();
        let nameless = from.client_id().is_none_or(str::is_empty);
        let watching = matches!(command.kind(), CommandKind::Watch | CommandKind::Unwatch);
        let allowed = self.config.authorizer.as_ref().is_none_or(|allows| {
            allows(&from, access, command.key())
                && (!is_fenced || allows(&from, Access::Fence, command.key()))
        });
        // Nobody knows where to send the notifications of a client without a name.
        allowed && !(watching && nameless) && !from.is_contradicted_by(incoming)
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

    /// Removes what has expired, as far as there is room to tell its watchers: it must not count against a quota.
    fn make_room(&mut self, now: Now) {
        let limits = self.config.limits;
        let reserve = limits.burst().saturating_add(limits.watches_per_key_max);
        while self.has_room_for(reserve) {
            let Some(slot) = self.expiries.pop_due(now.instant) else {
                return;
            };
            self.expire(slot);
        }
    }

    /// Whether there is no room for what the command would add.
    fn is_full(&self, from: Principal<'_>, slot: Option<Slot>, command: &Command<&[u8]>) -> bool {
        let limits = &self.config.limits;
        match command {
            Command::Set { key, value, .. } => {
                let entry = slot.and_then(|slot| self.table.get(slot));
                let len = key.len() + value.len();
                let old = entry.map(super::Entry::len);
                let bytes = self.table.bytes() - old.unwrap_or(0) + len;
                key.len() > limits.key_bytes_max
                    || value.len() > limits.value_bytes_max
                    || (old.is_none() && self.table.len() >= limits.keys_max)
                    || (old.is_none_or(|old| len > old) && bytes > limits.bytes_max)
                    || self.has_its_keys(from, entry, len)
            }
            Command::Watch { key } => {
                self.is_not_for(from, key) || self.is_crowded(from, key) || self.is_crowded_at(key)
            }
            _ => false,
        }
    }

    /// Whether a verified client would hold more than its share with a value of so many bytes, key included, in the
    /// place of this entry. What counts for nobody it may take over where that takes no more room: it may be its own,
    /// restored.
    fn has_its_keys(&self, from: Principal<'_>, entry: Option<&super::Entry>, len: usize) -> bool {
        let limits = &self.config.limits;
        let Some(owner) = self.table.owner_of(from) else { return false };
        let held = self.table.held_by(owner);
        let own = entry.filter(|entry| entry.owner() == Some(owner)).map_or(0, super::Entry::len);
        let free = entry.filter(|entry| entry.owner().is_none_or(|other| other == owner));
        let bytes = held.bytes - own + len;
        (free.is_none() && held.keys >= limits.share_of(limits.keys_max))
            || (free.is_none_or(|entry| len > entry.len())
                && bytes > limits.share_of(limits.bytes_max))
    }

    /// Whether a registration is refused however much room there is: its key is too long, or the client has its share.
    fn is_not_for(&self, from: Principal<'_>, key: &[u8]) -> bool {
        let limits = &self.config.limits;
        let client_id = from.client_id().unwrap_or_default();
        let held = self.watches.held_by(client_id);
        let bytes = held.bytes + watches::bytes_of(client_id, key);
        NotificationTopic::new(client_id, key).is_err()
            || key.len() > limits.key_bytes_max
            || (from.is_verified()
                && (held.count >= limits.share_of(limits.watches_max)
                    || bytes > limits.share_of(limits.watch_bytes_max)))
    }

    /// Whether there is no room for one more registration of all.
    fn is_crowded(&self, from: Principal<'_>, key: &[u8]) -> bool {
        let limits = &self.config.limits;
        let more = watches::bytes_of(from.client_id().unwrap_or_default(), key);
        self.watches.len() >= limits.watches_max
            || self.watches.bytes() + more > limits.watch_bytes_max
    }

    /// Whether there is no room for one more registration for this key.
    fn is_crowded_at(&self, key: &[u8]) -> bool {
        self.watches.of(key).len() >= self.config.limits.watches_per_key_max
    }

    /// Ends registrations of claimed names that have given no sign of life for long, as far as one for this key needs
    /// their place.
    fn make_room_to_watch(&mut self, now: Now, from: Principal<'_>, key: &[u8]) {
        let client_id = from.client_id().unwrap_or_default();
        if self.watches.contains(client_id, key) || self.is_not_for(from, key) {
            return;
        }
        self.watches.is_there(now.instant, client_id);
        let kept = self.config.limits.claimed_watches_kept;
        loop {
            let at = if self.is_crowded_at(key) {
                Some(key)
            } else if self.is_crowded(from, key) {
                None
            } else {
                return;
            };
            let lost = self.watches.remove_oldest(now.instant, kept, at);
            if lost == 0 {
                return;
            }
            self.counters.watches_lost += lost as u64;
        }
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
            self.outbox.notify(key, Arc::clone(watch), payload, version.clone(), bytes);
        }
    }
}

pub(super) fn refuse(refusal: Refusal, dialect: Dialect) -> Answer {
    Answer { payload: Reply::<&[u8]>::Error(refusal.into()).to_bytes(dialect), timestamp: None }
}
