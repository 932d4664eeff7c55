//! The limits of registrations, and the registrations that are evicted when one is reached.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{NewRegistration, Registration, Registrations};
use crate::limits::{StoreLimits, TOPIC_BYTES_MAX};
use crate::rules::{Exceeded, Limit};
use crate::time::Instant;
use crate::topic::NotificationTopic;

/// Number of registrations of one client that are evicted at once when the store is full.
const EVICTED_AT_ONCE: usize = 64;

impl Registrations {
    /// Checks the limits for a KEYNOTIFY of a client that is not registered for the key.
    pub(in crate::store) fn check_quota(
        &self,
        limits: &StoreLimits,
        new: &NewRegistration<'_>,
    ) -> Result<(), Exceeded> {
        self.check_share(limits, new)?;
        self.check_total(limits, new)?;
        self.check_per_key(limits, new)
    }

    /// Checks the limits that no eviction can help with: lengths, and the share of an owner.
    fn check_share(&self, limits: &StoreLimits, new: &NewRegistration<'_>) -> Result<(), Exceeded> {
        let (client_id, key) = (new.client_id, new.key);
        if NotificationTopic::new(client_id, key).is_err() {
            // The topic contains the key in hexadecimal digits.
            let needed = 2 * key.len() + client_id.len();
            return Err(Exceeded { limit: Limit::TopicBytes, needed, max: TOPIC_BYTES_MAX });
        }
        Exceeded::check(Limit::KeyBytes, key.len(), limits.key_bytes_max)?;
        let Some(owner) = new.owner else { return Ok(()) };
        let used = self.usage.get(owner);
        let max = limits.share_of(limits.registrations_max);
        Exceeded::check(Limit::ClientRegistrations, used.count + 1, max)?;
        let max = limits.share_of(limits.registration_bytes_max);
        Exceeded::check(Limit::ClientRegistrationBytes, used.bytes + new.len(), max)
    }

    fn check_total(&self, limits: &StoreLimits, new: &NewRegistration<'_>) -> Result<(), Exceeded> {
        Exceeded::check(Limit::Registrations, self.len() + 1, limits.registrations_max)?;
        let needed = self.bytes + new.len();
        Exceeded::check(Limit::RegistrationBytes, needed, limits.registration_bytes_max)
    }

    fn check_per_key(
        &self,
        limits: &StoreLimits,
        new: &NewRegistration<'_>,
    ) -> Result<(), Exceeded> {
        let needed = self.for_key(new.key).len() + 1;
        Exceeded::check(Limit::RegistrationsPerKey, needed, limits.registrations_per_key_max)
    }

    /// Evicts registrations for a KEYNOTIFY: silenced ones first, the oldest first; then those of
    /// unverified client ids that showed no sign of life for
    /// [`unverified_registrations_kept`](StoreLimits::unverified_registrations_kept), or that did
    /// not receive a notification since their last one.
    pub(in crate::store) fn evict_for(
        &mut self,
        now: Instant,
        limits: &StoreLimits,
        new: &NewRegistration<'_>,
    ) -> Vec<Arc<Registration>> {
        let mut ended = Vec::new();
        if self.contains(new.client_id, new.key) || self.check_share(limits, new).is_err() {
            return ended;
        }
        self.touch(now + limits.unverified_registrations_kept, new.client_id);
        loop {
            let only_for = if self.check_per_key(limits, new).is_err() {
                Some(new.key)
            } else if self.check_total(limits, new).is_err() {
                None
            } else {
                return ended;
            };
            let before = ended.len();
            ended.extend(self.remove_silenced(only_for));
            if ended.len() == before {
                ended.extend(self.remove_stalest(now, only_for));
            }
            if ended.len() == before {
                return ended;
            }
        }
    }

    /// Ends the silenced registration whose KEYNOTIFY is the oldest. With a key, only registrations
    /// for it count.
    fn remove_silenced(&mut self, key: Option<&[u8]>) -> Option<Arc<Registration>> {
        let oldest = match key {
            None => self.silenced.first().copied(),
            Some(key) => {
                let silenced = self.for_key(key).iter().filter(|it| it.is_silenced());
                silenced.map(|it| it.id).min()
            }
        };
        self.end(oldest?)
    }

    /// Ends unverified registrations of the client for which eviction was allowed first, if it is
    /// allowed: at most [`EVICTED_AT_ONCE`], so that a KEYNOTIFY does not wait for the end of
    /// thousands. [`evict_for`](Self::evict_for) repeats this while bytes are missing. With a key,
    /// only the registration for it ends.
    fn remove_stalest(&mut self, now: Instant, key: Option<&[u8]>) -> Vec<Arc<Registration>> {
        let stalest = match key {
            None => self.by_evictable_from.first().cloned(),
            Some(key) => {
                let unverified = self.for_key(key).iter().filter(|it| !it.is_verified());
                let evictable_from = |it: &Arc<Registration>| {
                    let client = self.by_client.get(&it.client_id)?;
                    Some((client.evictable_from, Arc::clone(&it.client_id)))
                };
                unverified.filter_map(evictable_from).min()
            }
        };
        let evictable = stalest.filter(|(evictable_from, _)| *evictable_from <= now);
        let Some((_, client_id)) = evictable else { return Vec::new() };
        match key {
            Some(key) => self.remove(&client_id, key).into_iter().collect(),
            None => self.remove_where(&client_id, EVICTED_AT_ONCE, |it| !it.is_verified()),
        }
    }
}
