//! The tables of a store: what a request reads, and what a decision changes in them.

use core::time::Duration;

use super::effects::{Effects, Recording};
use super::keyspace::{Entry, Keyspace, Meta};
use super::registrations::{NewRegistration, Registrations};
use super::request::Request;
use super::{ClockAdvance, Durability, Record, RecordedExpiry, Refused, StoreConfig};
use crate::hlc::{FencingToken, Hlc, HybridClock, Version};
use crate::limits::{CLOCK_ADVANCE_REPORTED, VERSION_RESERVATION, VERSION_RESERVATION_MIN};
use crate::message::{Command, Condition, Notification, RequestKind};
use crate::rules::{Change, Exceeded, KeyState, Limit, RequestTimestamps, Stored};
use crate::slab::Slot;
use crate::time::UnixTime;

/// The tables, and the clock that issues versions.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) keyspace: Keyspace,
    pub(super) registrations: Registrations,
    pub(super) clock: HybridClock,
    /// The versions below this time are reserved by a record, if not every write has a record.
    pub(super) reserved: UnixTime,
    /// True if the storage for records has no space for what grows.
    pub(super) is_storage_full: bool,
}

/// What a decision about a command depends on.
pub(super) struct Facts<'t> {
    pub(super) state: KeyState<'t>,
    pub(super) entry: Option<&'t Entry>,
}

impl Tables {
    /// Returns whether the response to a request needs a record: its effect is durable, or it may
    /// be refused because of durable state. Call it before an expired value is removed.
    pub(super) fn records_response(&self, config: &StoreConfig, request: &Request<'_, '_>) -> bool {
        let key = request.key();
        match (config.durability, request.kind()) {
            (Durability::None, _) => false,
            // A redelivered KEYNOTIFY is executed again.
            (_, RequestKind::Watch | RequestKind::Get | RequestKind::Scan) => false,
            _ if self.is_storage_full => false,
            (_, RequestKind::Unwatch) => config.records_registrations(),
            (Durability::All, _) => true,
            (Durability::Requested, _) => {
                config.persists(key, request.incoming.properties.persist)
                    || self.keyspace.entry(key).is_some_and(Entry::is_persistent)
            }
        }
    }

    /// The facts for the decision about a command. `slot` is that of its key.
    pub(super) fn gather(
        &self,
        config: &StoreConfig,
        request: &Request<'_, '_>,
        slot: Option<Slot>,
    ) -> Facts<'_> {
        let entry = slot.and_then(|slot| self.keyspace.get(slot));
        let stored = entry.map(|entry| Stored {
            value: entry.value(),
            fence: entry.fence().map(FencingToken::borrowed),
        });
        let exceeded = self.check_limits(config, request, slot).err();
        let lacks_space = exceeded.is_some_and(|it| it.limit == Limit::StorageBytes);
        let is_registered = match request.kind() {
            // A renewal with another record needs space like a new registration.
            RequestKind::Watch if lacks_space => {
                self.registrations.has_equal_record(&self.new_registration(request))
            }
            RequestKind::Watch | RequestKind::Unwatch => {
                self.registrations.contains(request.client_id(), request.key())
            }
            _ => false,
        };
        Facts { state: KeyState { stored, is_registered, exceeded }, entry }
    }

    /// Checks whether a value or a registration exceeds a limit, or the space of the storage if it
    /// needs a record.
    fn check_limits(
        &self,
        config: &StoreConfig,
        request: &Request<'_, '_>,
        slot: Option<Slot>,
    ) -> Result<(), Exceeded> {
        let persist = request.incoming.properties.persist;
        match request.content.command() {
            Some(&Command::Set { key, value, .. }) => {
                if self.is_storage_full && config.records_put(key, persist) {
                    return Err(Exceeded::new(Limit::StorageBytes, key.len() + value.len(), 0));
                }
                self.keyspace.check_quota(&config.limits, request.sender, slot, (key, value))
            }
            Some(&Command::Watch { key }) => {
                if self.is_storage_full && config.records_registrations() {
                    return Err(Exceeded::new(Limit::StorageBytes, key.len(), 0));
                }
                self.registrations.check_quota(&config.limits, &self.new_registration(request))
            }
            _ => Ok(()),
        }
    }

    /// Makes the change that was decided.
    ///
    /// # Errors
    /// [`Refused::VersionsExhausted`]; then nothing has changed.
    pub(super) fn apply<'a>(
        &mut self,
        config: &StoreConfig,
        request: &Request<'_, 'a>,
        slot: Option<Slot>,
        change: Change,
    ) -> Result<Effects<'a>, Refused> {
        let key = request.key();
        let none = Effects { key, ..Effects::default() };
        Ok(match (change, request.content.command()) {
            (Change::Put, Some(&Command::Set { value, condition, expiry, .. })) => {
                let is_lease = expiry.is_some() && condition != Condition::Always;
                let expiry = if is_lease { expiry } else { config.expiry_of(key, expiry) };
                let expires = expiry.map(|after| RecordedExpiry {
                    at: request.now.unix + after.as_duration(),
                    after,
                    is_lease,
                });
                self.put(config, request, slot, (value, expires))?
            }
            (Change::Remove, _) => match slot.and_then(|slot| self.keyspace.remove(slot)) {
                Some(entry) => self.removal(config, key, &entry),
                None => none,
            },
            (Change::Register, _) => {
                let new = self.new_registration(request);
                let evictable_from =
                    request.now.instant + config.limits.unverified_registrations_kept;
                let (registration, needs_record) = self.registrations.insert(evictable_from, &new);
                let is_recorded = needs_record && config.records_registrations();
                let recording = Recording::of(is_recorded, || registration.to_record());
                Effects { recording, ..none }
            }
            (Change::Unregister, _) => match self.registrations.remove(request.client_id(), key) {
                Some(ended) => Effects::of_end(config, key, &ended),
                None => none,
            },
            (Change::None | Change::Put, _) => none,
        })
    }

    /// Stores a value under a new version.
    fn put<'a>(
        &mut self,
        config: &StoreConfig,
        request: &Request<'_, 'a>,
        slot: Option<Slot>,
        (value, expires): (&'a [u8], Option<RecordedExpiry>),
    ) -> Result<Effects<'a>, Refused> {
        let (key, now, timestamps) = (request.key(), request.now, &request.timestamps);
        let latest = timestamps.latest().ok_or(Refused::VersionsExhausted)?;
        let issued = self.clock.last().wall();
        let received = self.clock.receive(now.unix, latest);
        let version = received.map_err(|_| Refused::VersionsExhausted)?;
        let clock_advance = clock_advance(now.unix, issued, version.wall(), timestamps);
        let fence = timestamps.fencing_token;
        let meta = Meta {
            version: Version::new(version.clone()),
            persist: config.persists(key, request.incoming.properties.persist),
            expires: expires.map(|expires| now.instant + expires.after.as_duration()),
            is_lease: expires.is_some_and(|expires| expires.is_lease),
            fence: fence.map(|token| FencingToken::new(Hlc::from(*token.hlc()))),
            owner: self.keyspace.owner_of(request.sender),
        };
        let replaced = slot.and_then(|slot| self.keyspace.get(slot));
        let was_persistent = replaced.is_some_and(Entry::is_persistent);
        let recording = match config.durability {
            Durability::None => Recording::Nothing,
            Durability::Requested if !meta.persist => {
                self.record_volatile(now.unix, key, &meta.version, was_persistent)
            }
            Durability::Requested | Durability::All => Recording::Record(Record::Put {
                key: key.into(),
                value: value.into(),
                version: meta.version.clone(),
                fencing_token: meta.fence.clone(),
                expires,
                persist: meta.persist,
            }),
        };
        self.keyspace.put(slot, key, value, meta);
        let notification = Some(Notification::Set(value));
        Ok(Effects { key, recording, notification, version: Some(version), clock_advance })
    }

    /// The record of a SET whose value is not durable: the removal of a durable one that it
    /// replaces, or a reservation of versions.
    fn record_volatile(
        &mut self,
        now: UnixTime,
        key: &[u8],
        version: &Version,
        was_persistent: bool,
    ) -> Recording {
        if was_persistent {
            return Recording::Record(Record::Removed {
                key: key.into(),
                version: version.clone(),
            });
        }
        if version.hlc().wall() < self.reserved {
            return Recording::LastReservation;
        }
        // If the version is ahead of the clock, because of a timestamp or of an earlier
        // reservation, the next one must not cause a record again.
        let from_version =
            if self.is_storage_full { VERSION_RESERVATION } else { VERSION_RESERVATION_MIN };
        let from_clock = now + VERSION_RESERVATION;
        self.reserved = from_clock.max(version.hlc().wall() + from_version);
        let reserved = Version::new(Hlc::new(self.reserved, 0, version.hlc().node().clone()));
        Recording::Reservation(Record::Issued { version: reserved })
    }

    /// The effects of the removal of a value, by a request or because it has expired.
    pub(super) fn removal<'k>(
        &self,
        config: &StoreConfig,
        key: &'k [u8],
        removed: &Entry,
    ) -> Effects<'k> {
        let version = self.keyspace.version_of(removed);
        let is_recorded = match config.durability {
            Durability::None => false,
            Durability::Requested => removed.is_persistent(),
            Durability::All => true,
        };
        let hlc = version.hlc().clone();
        let recording = Recording::of(is_recorded, || Record::Removed { key: key.into(), version });
        let notification = Some(Notification::Deleted);
        Effects { key, recording, notification, version: Some(hlc), clock_advance: None }
    }

    pub(super) fn new_registration<'a>(&self, request: &Request<'_, 'a>) -> NewRegistration<'a> {
        NewRegistration {
            client_id: request.client_id(),
            owner: self.keyspace.owner_of(request.sender),
            key: request.key(),
            dialect: request.address.dialect,
            incarnation: request.address.incarnation,
            request_number: request.request_number,
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
