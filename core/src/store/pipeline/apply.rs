//! Stage 9: the change, its records and its notifications.

use alloc::sync::Arc;
use core::time::Duration;

use super::Address;
use crate::hlc::{FencingToken, Hlc, Version};
use crate::limits::{CLOCK_ADVANCE_REPORTED, VERSION_RESERVATION, VERSION_RESERVATION_MIN};
use crate::message::{Command, Condition, Notification};
use crate::rules::{Change, RequestTimestamps};
use crate::slab::Slot;
use crate::store::keyspace::Meta;
use crate::store::outbox::DependsOn;
use crate::store::registrations::NewRegistration;
use crate::store::unacknowledged::PendingNotification;
use crate::store::{
    ClockAdvance, Durability, Entry, Principal, Record, RecordedExpiry, Refused, StorageSpace,
    Store,
};
use crate::time::{Now, UnixTime};
use crate::transport::Incoming;

/// The context of a command that is applied.
pub(super) struct Context<'r, 'a> {
    pub(super) sender: Principal<'a>,
    pub(super) incoming: &'r Incoming<'a>,
    pub(super) address: &'r Address,
    pub(super) timestamps: RequestTimestamps<'a>,
    pub(super) number: u64,
}

/// The result of a SET that was applied.
pub(super) struct Put {
    pub(super) version: Hlc,
    pub(super) clock_advance: Option<ClockAdvance>,
}

impl Store {
    pub(super) fn apply(
        &mut self,
        now: Now,
        context: &Context<'_, '_>,
        slot: Option<Slot>,
        command: &Command<&[u8]>,
        change: Change,
    ) -> Result<Option<Put>, Refused> {
        let client_id = context.sender.client_id().unwrap_or_default();
        match (change, command) {
            (Change::Put, Command::Set { key, value, condition, expiry }) => {
                let is_lease = expiry.is_some() && *condition != Condition::Always;
                let expiry = match is_lease {
                    true => *expiry,
                    false => self.config.expiry_of(key, *expiry),
                };
                let expires = expiry.map(|after| RecordedExpiry {
                    at: now.unix + after.as_duration(),
                    after,
                    is_lease,
                });
                return self.put(now, context, slot, (*key, *value), expires).map(Some);
            }
            (Change::Remove, _) => {
                if let Some(slot) = slot {
                    self.remove_and_notify(slot);
                }
            }
            (Change::Register, _) => self.register(now, context, command.key()),
            (Change::Unregister, _) => {
                let ended = self.registrations.remove(client_id, command.key());
                self.record_end(ended);
            }
            (Change::None | Change::Put, _) => {}
        }
        Ok(None)
    }

    /// Stores a value under a new version. Refused if the greatest possible version was issued;
    /// then nothing has changed.
    fn put(
        &mut self,
        now: Now,
        context: &Context<'_, '_>,
        slot: Option<Slot>,
        (key, value): (&[u8], &[u8]),
        expires: Option<RecordedExpiry>,
    ) -> Result<Put, Refused> {
        let timestamps = &context.timestamps;
        let latest = timestamps.latest().ok_or(Refused::VersionsExhausted)?;
        let issued = self.clock.last().wall();
        let received = self.clock.receive(now.unix, latest);
        let version = received.map_err(|_| Refused::VersionsExhausted)?;
        let clock_advance = clock_advance(now.unix, issued, version.wall(), timestamps);
        let fence = timestamps.fencing_token;
        let meta = Meta {
            version: Version::new(version.clone()),
            persist: self.config.persists(key, context.incoming.properties.persist),
            expires: expires.map(|expires| now.instant + expires.after.as_duration()),
            is_lease: expires.is_some_and(|expires| expires.is_lease),
            fence: fence.map(|token| FencingToken::new(Hlc::from(*token.hlc()))),
            owner: self.keyspace.owner_of(context.sender),
        };
        let replaced = slot.and_then(|slot| self.keyspace.get(slot));
        let was_persistent = replaced.is_some_and(Entry::is_persistent);
        self.record_put(now.unix, (key, value), &meta, expires, was_persistent);
        self.keyspace.put(slot, key, value, meta);
        self.notify(key, &Notification::Set(value), &version);
        Ok(Put { version, clock_advance })
    }

    /// Records a SET. If its value is not durable but replaces a durable one, records the removal
    /// of that one.
    fn record_put(
        &mut self,
        now: UnixTime,
        (key, value): (&[u8], &[u8]),
        meta: &Meta,
        expires: Option<RecordedExpiry>,
        was_persistent: bool,
    ) {
        let is_recorded = match self.config.durability {
            Durability::None => return,
            Durability::Requested => meta.persist,
            Durability::All => true,
        };
        let version = meta.version.clone();
        let record = if is_recorded {
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
            // If the version is ahead of the clock, because of a timestamp or of an earlier
            // reservation, the next one must not cause a record again.
            let from_version = match self.storage_space {
                StorageSpace::Enough => VERSION_RESERVATION_MIN,
                _ => VERSION_RESERVATION,
            };
            let from_clock = now + VERSION_RESERVATION;
            self.reserved = from_clock.max(version.hlc().wall() + from_version);
            let reserved = Version::new(Hlc::new(self.reserved, 0, version.hlc().node().clone()));
            return self.outbox.record_reservation(key, Record::Issued { version: reserved });
        } else {
            return self.outbox.wait_for_reservation(key);
        };
        self.outbox.record(key, record);
    }

    /// Returns whether a KEYNOTIFY renews a registration that has an equal record.
    pub(super) fn is_equal_renewal(&self, context: &Context<'_, '_>, key: &[u8]) -> bool {
        self.registrations.has_equal_record(&self.new_registration(context, key))
    }

    fn new_registration<'a>(
        &self,
        context: &Context<'a, '_>,
        key: &'a [u8],
    ) -> NewRegistration<'a> {
        NewRegistration {
            client_id: context.sender.client_id().unwrap_or_default(),
            owner: self.keyspace.owner_of(context.sender),
            key,
            dialect: context.address.dialect,
            incarnation: context.address.incarnation,
            request: context.number,
        }
    }

    fn register(&mut self, now: Now, context: &Context<'_, '_>, key: &[u8]) {
        let registration = self.new_registration(context, key);
        let evictable_from = now.instant + self.config.limits.unverified_registrations_kept;
        let (registration, needs_record) = self.registrations.insert(evictable_from, &registration);
        if needs_record && self.config.records_registrations() {
            self.outbox.record(key, registration.to_record());
        }
    }

    /// Removes a value that has expired.
    pub(in crate::store) fn expire(&mut self, slot: Slot) {
        self.counters.expired_values += 1;
        self.remove_and_notify(slot);
    }

    fn remove_and_notify(&mut self, slot: Slot) {
        let Some(entry) = self.keyspace.remove(slot) else { return };
        let version = self.keyspace.version_of(&entry);
        let is_recorded = match self.config.durability {
            Durability::None => false,
            Durability::Requested => entry.is_persistent(),
            Durability::All => true,
        };
        if is_recorded {
            let record = Record::Removed { key: entry.key().into(), version: version.clone() };
            self.outbox.record(entry.key(), record);
        }
        self.notify(entry.key(), &Notification::Deleted, version.hlc());
    }

    /// Notifies the clients that are registered for a key, each in the dialect of its registration,
    /// except silenced registrations.
    fn notify(&mut self, key: &[u8], notification: &Notification<&[u8]>, version: &Hlc) {
        let mut registrations = self.registrations.notified(key).peekable();
        if registrations.peek().is_none() {
            return;
        }
        let unit = self.outbox.unit_to_wait_for(DependsOn::Key(key));
        // One fan-out for each dialect.
        let mut fan_outs: [Option<Slot>; 2] = [None, None];
        for registration in registrations {
            let Some(fan_out) = fan_outs.get_mut(registration.dialect as usize) else { continue };
            if fan_out.is_none() {
                let payload = notification.encode(registration.dialect).into();
                *fan_out = self.outbox.add_fan_out(payload, version.clone(), key);
            }
            let Some(fan_out) = *fan_out else { continue };
            self.counters.notifications += 1;
            let registration = Arc::clone(registration);
            self.outbox.notify(unit, PendingNotification { registration, fan_out });
        }
    }
}

/// The lead of the store's clock over the wall clock after a write, if it is worth a report.
/// `issued` is the wall part of the last version before it, `version` that of this one.
fn clock_advance(
    now: UnixTime,
    issued: UnixTime,
    version: UnixTime,
    timestamps: &RequestTimestamps<'_>,
) -> Option<ClockAdvance> {
    if version <= issued || version <= now + CLOCK_ADVANCE_REPORTED {
        return None;
    }
    let by = Duration::from_millis(version.as_millis() - now.as_millis());
    let is_fence = timestamps.fencing_token.is_some_and(|token| token.hlc().wall() >= version);
    Some(ClockAdvance { by, is_fence })
}
