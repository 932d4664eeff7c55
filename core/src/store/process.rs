//! One message, from its arrival to its response.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::dedup::{First, NewResponse, RequestId, Response, retention};
use super::effects::{Effects, Recording};
use super::outbox::DependsOn;
use super::registrations::Registration;
use super::request::{Address, Request, decode, is_cached};
use super::scan::Scanner;
use super::{
    ClockAdvance, DropReason, EXPIRIES_MAX, Handled, Principal, Record, Refused, RequestOutcome,
    Store,
};
use crate::invariant::invariant;
use crate::message::{Refusal, Reply, RequestKind, RequestPayload, Scan};
use crate::rules::{
    Change, Decision, Exceeded, Limit, ParsedTimestamps, ReplyVersion, RequestTimestamps, decide,
};
use crate::slab::Slot;
use crate::time::{Instant, Now};
use crate::transport::{Incoming, Transmit};

/// The result of a request that gets a response.
struct Executed {
    response: Response,
    outcome: RequestOutcome,
    clock_advance: Option<ClockAdvance>,
}

impl Executed {
    const fn new(response: Response, outcome: RequestOutcome) -> Self {
        Self { response, outcome, clock_advance: None }
    }

    fn refused(address: &Address, refused: Refused) -> Self {
        let payload = Reply::<&[u8]>::Error(refused.refusal().into()).to_bytes(address.dialect);
        let outcome = RequestOutcome::Refused(Box::new(refused));
        Self::new(Response { payload, version: None }, outcome)
    }
}

/// The stages are those of [`rules`](crate::rules), in the same order.
impl Store {
    /// Handles a message. The output queue must have capacity for all packets that it can cause.
    pub(super) fn process<'a>(&mut self, now: Now, incoming: &Incoming<'a>) -> Handled<'a> {
        let sender = Principal::of(incoming);
        let address = match Address::new(&self.config, now, incoming, self.messages) {
            Ok(address) => address,
            Err(reason) => return self.reject(sender, incoming, reason),
        };
        let content = match decode(&self.config, incoming) {
            Ok(content) => content,
            Err(refused) => {
                // The key of a malformed request is unknown.
                let depends_on = match &refused {
                    Refused::Malformed(_) => DependsOn::Everything,
                    _ => DependsOn::Nothing,
                };
                let executed = Executed::refused(&address, refused);
                return self.respond(None, depends_on, &address, executed);
            }
        };
        let id = is_cached(content.kind()).then(|| self.dedup.identify(sender, incoming));
        let first = id.as_ref().and_then(|id| self.dedup.look_up(id));
        let next_number = self.dedup.next_number();
        let request_number = first.as_ref().map_or(next_number, |it| it.request_number);
        let mut request = Request {
            now,
            sender,
            incoming,
            address: &address,
            content,
            request_number,
            timestamps: RequestTimestamps::default(),
            slot: None,
            owner: None,
        };
        let new = id.as_ref().filter(|_| first.is_none());
        let is_recorded = new.is_some() && self.tables.records_response(&self.config, &request);
        let result = self.execute(&mut request, first);
        let executed = result.unwrap_or_else(|refused| Executed::refused(&address, refused));
        if let Some(id) = new {
            self.remember(&request, id, &executed, is_recorded);
        }
        self.respond(Some(content), request.depends_on(), &address, executed)
    }

    /// Stages 3 to 9.
    fn execute(
        &mut self,
        request: &mut Request<'_, '_>,
        first: Option<First>,
    ) -> Result<Executed, Refused> {
        request.authorize(&self.config)?;
        // A redelivered KEYNOTIFY is executed again: a client that gets `+OK` must be registered.
        if let Some(first) = first.filter(|_| request.kind() != RequestKind::Watch) {
            return Ok(self.repeat(request, first));
        }
        request.timestamps = self.verify_timestamps(request)?;
        let command = match &request.content {
            RequestPayload::Command(command) => command,
            RequestPayload::Scan(scan) => return self.scan(request, scan),
        };
        request.slot = self.find_or_expire(request);
        if matches!(request.kind(), RequestKind::Set | RequestKind::Watch) {
            request.owner = self.tables.keyspace.owner_of(request.sender);
        }
        let mut state = self.tables.gather(&self.config, request);
        if let Some(exceeded) = state.exceeded {
            self.make_room(request, exceeded);
            state = self.tables.gather(&self.config, request);
        }
        let decision = decide(state, command, request.timestamps.fencing_token)?;
        let Decision { change, reply, version } = decision;
        let keyspace = &self.tables.keyspace;
        let stored = request.slot.filter(|_| version == ReplyVersion::Stored);
        let stored = stored.and_then(|slot| keyspace.get(slot));
        let version = stored.map(|entry| keyspace.version_of(entry));
        let outcome = RequestOutcome::of_reply(&reply);
        let payload = reply.to_bytes(request.address.dialect);
        if matches!(reply, Reply::Value(_)) {
            // Our choice: the protocol defines no error for a value that the requester cannot
            // receive.
            let max = request.address.payload_max(version.as_ref());
            Exceeded::check(Limit::PacketBytes, payload.len(), max)?;
        }
        let mut executed = Executed::new(Response { payload, version }, outcome);
        if change == Change::None {
            return Ok(executed);
        }
        let mut effects = Effects::about(request.key());
        self.tables.apply(&self.config, request, change, &mut effects)?;
        self.commit(&mut effects);
        if change == Change::Put {
            executed.response.version = effects.version;
            executed.clock_advance = effects.clock_advance;
        }
        Ok(executed)
    }

    /// A duplicate gets the first response again.
    fn repeat(&mut self, request: &Request<'_, '_>, first: First) -> Executed {
        if request.kind() == RequestKind::Unwatch {
            // The KEYNOTIFY before this STOP may have been redelivered too.
            let (client_id, key) = (request.client_id(), request.key());
            let registrations = &mut self.tables.registrations;
            if let Some(ended) = registrations.remove_earlier(client_id, key, first.request_number)
            {
                self.commit(&mut Effects::of_end(&self.config, key, &ended));
            }
        }
        Executed::new(first.response, RequestOutcome::Duplicate)
    }

    fn verify_timestamps<'a>(
        &mut self,
        request: &Request<'_, 'a>,
    ) -> Result<RequestTimestamps<'a>, Refused> {
        let (properties, now) = (&request.incoming.properties, request.now.unix);
        let kind = request.kind();
        let parsed = ParsedTimestamps::parse(kind, properties.timestamp, properties.fencing_token);
        if let Some(timestamp) = parsed.timestamp() {
            self.counters.observe_timestamp(now, timestamp.wall(), false);
        }
        if let Some(token) = parsed.fencing_token() {
            self.counters.observe_timestamp(now, token.wall(), true);
        }
        Ok(parsed.verify(self.config.clock_drift_max, now, self.tables.clock.last())?)
    }

    fn scan(&self, request: &Request<'_, '_>, scan: &Scan<&[u8]>) -> Result<Executed, Refused> {
        let Self { config, tables, scan_tokens: tokens, .. } = self;
        let payload = Scanner { config, keyspace: &tables.keyspace, tokens }.page(request, scan)?;
        let response = Response { payload: payload.into(), version: None };
        Ok(Executed::new(response, RequestOutcome::Applied))
    }

    /// The slot of the key, unless its value has expired. Such a value is removed first, so that
    /// its delete notification comes before the notification of this command.
    fn find_or_expire(&mut self, request: &Request<'_, '_>) -> Option<Slot> {
        let slot = self.tables.keyspace.find(request.key())?;
        if self.tables.keyspace.get(slot)?.is_expired(request.now.instant) {
            self.expire(slot);
            return None;
        }
        Some(slot)
    }

    /// Removes what may be removed for a request that exceeds a limit: expired values, which must
    /// not count, and stale registrations.
    fn make_room(&mut self, request: &Request<'_, '_>, exceeded: Exceeded) {
        let (now, limits) = (request.now.instant, &self.config.limits);
        match request.kind() {
            _ if exceeded.limit == Limit::StorageBytes => {}
            RequestKind::Set => {
                // The queue must have capacity for the rest of this request too.
                let reserve = limits.burst().saturating_add(limits.registrations_per_key_max);
                self.remove_expired(now, reserve);
            }
            RequestKind::Watch => {
                let new = request.registration();
                let evicted = self.tables.registrations.evict_for(now, limits, &new);
                self.lose(evicted);
            }
            _ => {}
        }
    }

    /// Removes expired values while the queue has capacity for this many packets. Returns false if
    /// some may be left.
    pub(super) fn remove_expired(&mut self, now: Instant, packets: usize) -> bool {
        for _ in 0..EXPIRIES_MAX {
            if !self.has_capacity_for(packets) {
                return true;
            }
            let Some(slot) = self.tables.keyspace.pop_expired(now) else { return true };
            self.expire(slot);
            // Their records need not be in one batch.
            self.outbox.close_unit();
        }
        false
    }

    /// Removes a value that has expired.
    fn expire(&mut self, slot: Slot) {
        if let Some(entry) = self.tables.keyspace.remove(slot) {
            self.counters.expired_values += 1;
            let mut effects = Effects::about(entry.key());
            self.tables.removed(&self.config, &entry, &mut effects);
            self.commit(&mut effects);
        }
    }

    /// Counts and records registrations that ended without a request of their client.
    pub(super) fn lose(&mut self, ended: Vec<Arc<Registration>>) {
        self.counters.registrations_lost += ended.len() as u64;
        for registration in ended {
            let key = &registration.key;
            self.commit(&mut Effects::of_end(&self.config, key, &registration));
            // Their records need not be in one batch.
            self.outbox.close_unit();
        }
    }

    /// Queues the record and the notifications of a change.
    #[inline]
    fn commit(&mut self, effects: &mut Effects<'_>) {
        if let Some(recording) = effects.recording.take() {
            self.outbox.record(effects.key, recording);
        }
        if let (Some(notification), Some(version)) = (&effects.notification, &effects.version) {
            let registrations = self.tables.registrations.for_key(effects.key);
            self.counters.notifications +=
                self.outbox.notify(effects.key, notification, version, registrations);
        }
    }

    /// Caches the response to a request, whether it was executed or refused.
    fn remember(
        &mut self,
        request: &Request<'_, '_>,
        id: &RequestId<'_>,
        executed: &Executed,
        is_recorded: bool,
    ) {
        let Request { now, address, incoming, .. } = request;
        // A request that is not authorized has no effect, and is refused again after a restart.
        let is_authorized = match &executed.outcome {
            RequestOutcome::Refused(refused) => refused.refusal() != Refusal::NotAuthorized,
            _ => true,
        };
        let Some(correlation) = invariant(address.correlation.clone()) else { return };
        let response = NewResponse {
            response_topic: Arc::clone(&address.topic),
            correlation,
            response: executed.response.clone(),
            retention: retention(incoming),
            is_recorded: is_recorded && is_authorized,
        };
        if let Some(record) = self.dedup.remember(now.instant, id, response) {
            self.outbox.record(request.key(), Recording::Record(Record::Response(record)));
        }
    }

    /// Queues a response. `content` is the request, if it could be decoded.
    fn respond<'a>(
        &mut self,
        content: Option<RequestPayload<&'a [u8]>>,
        depends_on: DependsOn<'_>,
        address: &Address,
        executed: Executed,
    ) -> Handled<'a> {
        let Executed { response, outcome, clock_advance } = executed;
        let refused = match &outcome {
            RequestOutcome::Refused(refused) if self.config.explain => Some(refused),
            _ => None,
        };
        let mut publish = address.publish(response, refused.map(|refused| refused.to_reason()));
        // A response without its reason is better than none.
        let max = address.packet_bytes_max.filter(|_| refused.is_some());
        if max.is_some_and(|max| publish.packet_len_max() > max) {
            publish.remove_reason();
        }
        self.outbox.push(depends_on, Transmit::Publish(publish));
        Handled { request: content, outcome, clock_advance, number: self.messages }
    }

    /// Drops a message. Orders the broker to disconnect a client for a forbidden response topic, if
    /// its client id is verified. An unverified client id may be the id of a victim.
    fn reject<'a>(
        &mut self,
        sender: Principal<'_>,
        incoming: &Incoming<'_>,
        reason: DropReason,
    ) -> Handled<'a> {
        let client_id = sender.client_id().filter(|_| sender.is_verified());
        if let DropReason::ForbiddenResponseTopic(offence) = reason {
            if let Some((client_id, response_topic)) = client_id.zip(incoming.response_topic) {
                let (client_id, response_topic) = (client_id.into(), response_topic.into());
                let disconnect = Transmit::Disconnect { client_id, response_topic, offence };
                self.outbox.push(DependsOn::Nothing, disconnect);
            }
        }
        self.dropped(reason)
    }

    /// The result of a message that gets no response.
    pub(super) const fn dropped<'a>(&self, reason: DropReason) -> Handled<'a> {
        let outcome = RequestOutcome::Dropped(reason);
        Handled { request: None, outcome, clock_advance: None, number: self.messages }
    }
}
