//! The tables of a store: what a request reads, and what a decision changes in them.

use core::time::Duration;

use super::effects::{Effects, Recording};
use super::keyspace::{Entry, Keyspace, Meta};
use super::registrations::Registrations;
use super::request::Request;
use super::{ClockAdvance, Durability, Record, RecordedExpiry, Refused, StoreConfig};
use crate::hlc::{FencingToken, Hlc, HybridClock, Version};
use crate::limits::{CLOCK_ADVANCE_REPORTED, VERSION_RESERVATION, VERSION_RESERVATION_MIN};
use crate::message::{Command, Condition, Notification, RequestKind};
use crate::rules::{Change, Exceeded, KeyState, Limit, RequestTimestamps, Stored};
use crate::time::UnixTime;

/// The tables, and the clock that issues versions.
pub(super) struct Tables {
    pub(super) keyspace: Keyspace,
    pub(super) registrations: Registrations,
    pub(super) clock: HybridClock,
    /// The versions below this time are reserved by a record, if not every write has a record.
    pub(super) reserved: UnixTime,
    /// True if the storage for records has no space for what grows.
    pub(super) is_storage_full: bool,
}

impl Tables {
    /// Returns whether the response to a request needs a record: its effect is durable, or it may
    /// be refused because of durable state. Call it before an expired value is removed.
    #[inline]
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

    /// The state that the decision about a command depends on, whose key was looked up.
    #[inline]
    pub(super) fn gather(&self, config: &StoreConfig, request: &Request<'_, '_>) -> KeyState<'_> {
        let entry = request.slot.and_then(|slot| self.keyspace.get(slot));
        let stored = entry.map(|entry| Stored {
            value: entry.value(),
            fence: entry.fence().map(FencingToken::borrowed),
        });
        let exceeded = self.check_limits(config, request).err();
        let lacks_space = exceeded.is_some_and(|it| it.limit == Limit::StorageBytes);
        let is_registered = match request.kind() {
            // A renewal with another record needs space like a new registration.
            RequestKind::Watch if lacks_space => {
                self.registrations.has_equal_record(&request.registration())
            }
            RequestKind::Watch | RequestKind::Unwatch => {
                self.registrations.contains(request.client_id(), request.key())
            }
            _ => false,
        };
        KeyState { stored, is_registered, exceeded }
    }

    /// Checks whether a value or a registration exceeds a limit, or the space of the storage if it
    /// needs a record.
    #[inline]
    fn check_limits(
        &self,
        config: &StoreConfig,
        request: &Request<'_, '_>,
    ) -> Result<(), Exceeded> {
        let (persist, slot) = (request.incoming.properties.persist, request.slot);
        match request.content.command() {
            Some(&Command::Set { key, value, .. }) => {
                if self.is_storage_full && config.records_put(key, persist) {
                    return Err(Exceeded::new(Limit::StorageBytes, key.len() + value.len(), 0));
                }
                self.keyspace.check_quota(&config.limits, request.owner, slot, (key, value))
            }
            Some(&Command::Watch { key }) => {
                if self.is_storage_full && config.records_registrations() {
                    return Err(Exceeded::new(Limit::StorageBytes, key.len(), 0));
                }
                self.registrations.check_quota(&config.limits, &request.registration())
            }
            _ => Ok(()),
        }
    }

    /// Makes the change that was decided, and adds its effects.
    ///
    /// # Errors
    /// [`Refused::VersionsExhausted`]; then nothing has changed.
    #[inline]
    pub(super) fn apply<'a>(
        &mut self,
        config: &StoreConfig,
        request: &Request<'_, 'a>,
        change: Change,
        effects: &mut Effects<'a>,
    ) -> Result<(), Refused> {
        match (change, request.content.command()) {
            (Change::Put, Some(&Command::Set { value, condition, expiry, .. })) => {
                let is_lease = expiry.is_some() && condition != Condition::Always;
                let expiry =
                    if is_lease { expiry } else { config.expiry_of(request.key(), expiry) };
                let expires = expiry.map(|after| RecordedExpiry {
                    at: request.now.unix + after.as_duration(),
                    after,
                    is_lease,
                });
                return self.put(config, request, (value, expires), effects);
            }
            (Change::Remove, _) => {
                if let Some(entry) = request.slot.and_then(|slot| self.keyspace.remove(slot)) {
                    self.removed(config, &entry, effects);
                }
            }
            (Change::Register, _) => {
                let new = request.registration();
                let kept = config.limits.unverified_registrations_kept;
                let evictable_from = request.now.instant + kept;
                let (registration, needs_record) = self.registrations.insert(evictable_from, &new);
                if needs_record && config.records_registrations() {
                    effects.recording = Some(Recording::Record(registration.to_record()));
                }
            }
            (Change::Unregister, _) => {
                let ended = self.registrations.remove(request.client_id(), request.key());
                if let Some(ended) = ended {
                    *effects = Effects::of_end(config, request.key(), &ended);
                }
            }
            (Change::None | Change::Put, _) => {}
        }
        Ok(())
    }

    /// Stores a value under a new version.
    #[inline]
    fn put<'a>(
        &mut self,
        config: &StoreConfig,
        request: &Request<'_, 'a>,
        (value, expires): (&'a [u8], Option<RecordedExpiry>),
        effects: &mut Effects<'a>,
    ) -> Result<(), Refused> {
        let (key, now, timestamps) = (request.key(), request.now, &request.timestamps);
        let latest = timestamps.latest().ok_or(Refused::VersionsExhausted)?;
        let issued = self.clock.last().wall();
        let received = self.clock.receive(now.unix, latest);
        let version = received.map_err(|_| Refused::VersionsExhausted)?;
        effects.clock_advance = clock_advance(now.unix, issued, version.wall(), timestamps);
        let fence = timestamps.fencing_token;
        let meta = Meta {
            version: &version,
            persist: config.persists(key, request.incoming.properties.persist),
            expires: expires.map(|expires| now.instant + expires.after.as_duration()),
            is_lease: expires.is_some_and(|expires| expires.is_lease),
            fence: fence.map(|token| FencingToken::new(Hlc::from(*token.hlc()))),
            owner: request.owner,
        };
        if config.durability == Durability::All || meta.persist && config.is_durable() {
            effects.recording = Some(Recording::Record(Record::Put {
                key: key.into(),
                value: value.into(),
                version: Version::new(version.clone()),
                fencing_token: meta.fence.clone(),
                expires,
                persist: meta.persist,
            }));
        } else if config.is_durable() {
            effects.recording = Some(self.record_volatile(request, &version));
        }
        self.keyspace.put(request.slot, key, value, meta);
        effects.notification = Some(Notification::Set(value));
        effects.version = Some(version);
        Ok(())
    }

    /// The record of a SET whose value is not durable: the removal of a durable one that it
    /// replaces, or a reservation of versions.
    fn record_volatile(&mut self, request: &Request<'_, '_>, version: &Hlc) -> Recording {
        let replaced = request.slot.and_then(|slot| self.keyspace.get(slot));
        if replaced.is_some_and(Entry::is_persistent) {
            let (key, version) = (request.key().into(), Version::new(version.clone()));
            return Recording::Record(Record::Removed { key, version });
        }
        if version.wall() < self.reserved {
            return Recording::LastReservation;
        }
        // If the version is ahead of the clock, because of a timestamp or of an earlier
        // reservation, the next one must not cause a record again.
        let from_version =
            if self.is_storage_full { VERSION_RESERVATION } else { VERSION_RESERVATION_MIN };
        let from_clock = request.now.unix + VERSION_RESERVATION;
        self.reserved = from_clock.max(version.wall() + from_version);
        let reserved = Version::new(Hlc::new(self.reserved, 0, version.node().clone()));
        Recording::Reservation(Record::Issued { version: reserved })
    }

    /// Adds the effects of the removal of a value, by a request or because it has expired.
    pub(super) fn removed(&self, config: &StoreConfig, entry: &Entry, effects: &mut Effects<'_>) {
        let version = self.keyspace.version_of(entry);
        effects.notification = Some(Notification::Deleted);
        effects.version = Some(version.clone());
        let is_recorded = match config.durability {
            Durability::None => false,
            Durability::Requested => entry.is_persistent(),
            Durability::All => true,
        };
        if is_recorded {
            let record =
                Record::Removed { key: entry.key().into(), version: Version::new(version) };
            effects.recording = Some(Recording::Record(record));
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
