//! Restoring a store from its records.

use super::Record;
use super::record::ORDER_MAX;
use crate::store::keyspace::Meta;
use crate::store::registrations::NewRegistration;
use crate::store::{Durability, Principal, Store};
use crate::time::Now;
use crate::topic::NotificationTopic;

impl Store {
    /// Restores one record of an earlier store. Call it for all records, in order, before anything
    /// else.
    ///
    /// The clock moves past every version, so no version is issued twice. The limits of keys and
    /// registrations do not apply: what was accepted once stays. Records do not contain the writer
    /// of a value, so a restored value counts for no
    /// [client](crate::limits::StoreLimits::client_percent) until a client writes it again.
    ///
    /// [`RecordedExpiry::rest`](super::RecordedExpiry::rest) is the time that is left to a value
    /// that expires. A value without any time left is absent from now on, and the next
    /// [`Input::Timeout`](crate::machine::Input::Timeout) records its removal, so that a later store with an
    /// earlier wall clock does not restore it again. A response is as old as it was when the last
    /// record was written, and counts for its owner; without an owner in the record, for the
    /// unverified client id. A record that no store can have written is ignored: a registration whose
    /// notification topic would be too long, or a request number above 2^63.
    pub fn restore(&mut self, now: Now, record: &Record) {
        match record {
            Record::Put { key, value, version, fencing_token, expires, persist } => {
                self.tables.clock.advance_past(version.hlc().borrowed());
                let meta = Meta {
                    version: version.hlc(),
                    // A value that has a record needs a record of its end, or the next store would
                    // restore it again.
                    persist: *persist || self.config.durability == Durability::Requested,
                    expires: expires.map(|expires| now.instant + expires.rest(now.unix)),
                    is_lease: expires.is_some_and(|expires| expires.is_lease),
                    fence: fencing_token.clone(),
                    owner: None,
                };
                let slot = self.tables.keyspace.find(key);
                self.tables.keyspace.put(slot, key, value, meta);
            }
            Record::Removed { key, version } => {
                self.tables.clock.advance_past(version.hlc().borrowed());
                if let Some(slot) = self.tables.keyspace.find(key) {
                    self.tables.keyspace.remove(slot);
                }
            }
            Record::Response(response) => self.dedup.restore(now.instant, response),
            Record::Registered { client_id, key, verified, dialect, wants_incarnation, order } => {
                // A store writes no others, and notifications of these could not be published.
                if NotificationTopic::new(client_id, key).is_err() || *order > ORDER_MAX {
                    return;
                }
                // The owner is unknown until the client registers again.
                let principal = Some(Principal::verified(client_id)).filter(|_| *verified);
                let registration = NewRegistration {
                    client_id,
                    owner: principal.and_then(|principal| self.tables.keyspace.owner_of(principal)),
                    key,
                    dialect: *dialect,
                    incarnation: self.config.incarnation.filter(|_| *wants_incarnation),
                    request_number: *order,
                };
                let kept = self.config.limits.unverified_registrations_kept;
                self.tables.registrations.insert(now.instant + kept, &registration);
                self.dedup.reserve_number(*order);
            }
            Record::Unregistered { client_id, key } => {
                self.tables.registrations.remove(client_id, key);
            }
            Record::Issued { version } => {
                self.tables.clock.advance_past(version.hlc().borrowed());
                self.tables.reserved = self.tables.reserved.max(version.hlc().wall());
            }
        }
    }
}
