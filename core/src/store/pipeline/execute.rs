//! Stages 5 to 8: timestamps and decision. The limits of stage 8 are checked first, and the result
//! is an input of the decision, which refuses the request for it only in stage 8.

use super::{Address, Executed, apply};
use crate::hlc::FencingToken;
use crate::message::{Command, RequestKind};
use crate::rules::{
    Change, Decision, Exceeded, KeyState, ParsedTimestamps, Rejected, ReplyVersion,
    RequestTimestamps, Stored, decide,
};
use crate::slab::Slot;
use crate::store::dedup::Response;
use crate::store::{EXPIRIES_MAX, Principal, Refused, RequestOutcome, Store};
use crate::time::Now;
use crate::transport::Incoming;

impl Store {
    /// Timestamps, decision and application of an authorized command.
    pub(super) fn execute(
        &mut self,
        now: Now,
        sender: Principal<'_>,
        incoming: &Incoming<'_>,
        address: &Address,
        command: &Command<&[u8]>,
        number: u64,
    ) -> Result<Executed, Refused> {
        let timestamps = self.verify_timestamps(now, incoming, command.kind())?;
        // Checked before an expired value is removed, since `records_response` depends on it.
        let storage = self.check_storage(sender, incoming, command);
        let slot = self.find_unexpired(now, command.key());
        let exceeded = storage.and_then(|()| self.check_quota(now, sender, slot, command)).err();
        let entry = slot.and_then(|slot| self.keyspace.get(slot));
        let state = KeyState {
            stored: entry.map(|entry| Stored {
                value: entry.value(),
                fence: entry.fence().map(FencingToken::borrowed),
            }),
            is_registered: self.is_registered(sender, command),
            exceeded,
        };
        let decision = decide(state, command, timestamps.fencing_token)?;
        let Decision { change, reply, version } = decision;
        let outcome = RequestOutcome::of_reply(&reply);
        let payload = reply.to_bytes(address.dialect);
        let stored = || entry.map(|entry| self.keyspace.version_of(entry).hlc().clone());
        let version = if version == ReplyVersion::Stored { stored() } else { None };
        let mut executed = Executed::new(Response { payload, version }, outcome);
        let context = apply::Context { sender, incoming, address, timestamps, number };
        // These changes add nothing to the store, but need a record.
        let needs_only_a_record = match change {
            Change::Remove | Change::Unregister => true,
            Change::Register => !self.is_equal_renewal(&context, command.key()),
            Change::None | Change::Put => false,
        };
        if needs_only_a_record {
            storage.map_err(Rejected::Quota)?;
        }
        if let Some(put) = self.apply(now, &context, slot, command, change)? {
            executed.response.version = Some(put.version);
            executed.clock_advance = put.clock_advance;
        }
        Ok(executed)
    }

    fn verify_timestamps<'a>(
        &mut self,
        now: Now,
        incoming: &Incoming<'a>,
        kind: RequestKind,
    ) -> Result<RequestTimestamps<'a>, Refused> {
        let properties = &incoming.properties;
        let parsed = ParsedTimestamps::parse(kind, properties.timestamp, properties.fencing_token);
        if let Some(timestamp) = parsed.timestamp() {
            self.counters.observe_timestamp(now.unix, timestamp.wall(), false);
        }
        if let Some(token) = parsed.fencing_token() {
            self.counters.observe_timestamp(now.unix, token.wall(), true);
        }
        Ok(parsed.verify(self.config.clock_drift_max, now.unix, self.clock.last())?)
    }

    /// The slot of a key whose value has not expired. An expired value is removed here, so that its
    /// delete notification comes before the notification of this command.
    fn find_unexpired(&mut self, now: Now, key: &[u8]) -> Option<Slot> {
        let slot = self.keyspace.find(key)?;
        if self.keyspace.get(slot)?.is_expired(now.instant) {
            self.expire(slot);
            return None;
        }
        Some(slot)
    }

    fn is_registered(&self, sender: Principal<'_>, command: &Command<&[u8]>) -> bool {
        let client_id = sender.client_id().unwrap_or_default();
        match command.kind() {
            RequestKind::Watch => self.registrations.contains(client_id, command.key()),
            RequestKind::Unwatch => {
                self.registrations.contains_or_evicted(client_id, command.key())
            }
            _ => false,
        }
    }

    /// Checks the limits for a command. If one is exceeded, removes what may be removed for it,
    /// expired values and stale registrations, and checks again.
    fn check_quota(
        &mut self,
        now: Now,
        sender: Principal<'_>,
        slot: Option<Slot>,
        command: &Command<&[u8]>,
    ) -> Result<(), Exceeded> {
        let limits = self.config.limits;
        match command {
            Command::Set { key, value, .. } => {
                let check =
                    |store: &Self| store.keyspace.check_quota(&limits, sender, slot, key, value);
                check(self).or_else(|_| {
                    self.remove_expired(now);
                    check(self)
                })
            }
            Command::Watch { key } => {
                let owner = self.keyspace.owner_of(sender);
                let check =
                    |store: &Self| store.registrations.check_quota(&limits, sender, owner, key);
                check(self).or_else(|_| {
                    let evicted =
                        self.registrations.evict_for(now.instant, &limits, sender, owner, key);
                    self.record_loss(evicted);
                    check(self)
                })
            }
            _ => Ok(()),
        }
    }

    /// Removes expired values, which must not count against a quota, as long as the output queue
    /// has capacity for their notifications and for the rest of this request.
    fn remove_expired(&mut self, now: Now) {
        let limits = &self.config.limits;
        let reserve = limits.burst().saturating_add(limits.registrations_per_key_max);
        for _ in 0..EXPIRIES_MAX {
            if !self.has_capacity_for(reserve) {
                return;
            }
            let Some(slot) = self.keyspace.pop_expired(now.instant) else { return };
            self.expire(slot);
            // The records of the request need not be in one transaction with this one.
            self.outbox.close_unit();
        }
    }
}
