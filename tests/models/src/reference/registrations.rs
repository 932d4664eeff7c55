//! Registrations, and their silence after a notification without a subscriber.

use std::collections::BTreeSet;

use statestore_proto::message::{Dialect, Refusal, Reply};
use statestore_proto::time::Now;

use super::store::Caller;
use super::{ReferenceStore, Stamp};

/// A client that is notified of the changes of a key.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    pub(super) client: String,
    pub(super) is_verified: bool,
    pub(super) key: Vec<u8>,
    pub(super) dialect: Dialect,
    pub(super) number: u64,
    pub(super) request: u64,
    /// A notification had no subscriber, so no more are sent.
    pub(super) is_silenced: bool,
}

impl ReferenceStore {
    pub(super) fn register(
        &mut self,
        caller: &Caller<'_>,
    ) -> Result<(Reply<Vec<u8>>, Option<Stamp>), Refusal> {
        self.registered += 1;
        let new = Registration {
            client: caller.client.into(),
            is_verified: caller.is_verified,
            key: caller.command.key().to_vec(),
            dialect: caller.dialect,
            number: self.registered,
            request: caller.request,
            is_silenced: false,
        };
        let is_full = self.is_full(caller);
        let is_it = |old: &&mut Registration| old.client == new.client && old.key == new.key;
        match self.registrations.iter_mut().find(is_it) {
            Some(old) => *old = new,
            None if is_full => return Err(Refusal::QuotaExceeded),
            None => {
                self.registrations.push(new);
            }
        }
        self.is_alive(caller.client);
        Ok((Reply::Done, None))
    }

    /// Adds a registration, as if the client had sent a KEYNOTIFY.
    pub fn add_registration(&mut self, client: &str, key: &[u8]) {
        self.registered += 1;
        self.registrations.push(Registration {
            client: client.into(),
            is_verified: true,
            key: key.into(),
            dialect: Dialect::Deployed,
            number: self.registered,
            request: 0,
            is_silenced: false,
        });
    }

    /// Key and client of every registration.
    #[must_use]
    pub fn registered(&self) -> BTreeSet<(Vec<u8>, String)> {
        self.registrations.iter().map(|it| (it.key.clone(), it.client.clone())).collect()
    }

    /// Ends registrations and returns how many.
    pub(super) fn end(&mut self, which: impl Fn(&Registration) -> bool) -> u64 {
        let before = self.registrations.len();
        self.registrations.retain(|it| !which(it));
        (before - self.registrations.len()) as u64
    }

    /// Protects the unverified registrations of a client that showed a sign of life.
    pub(super) fn is_alive(&mut self, client: &str) {
        let kept = self.limits.unverified_registrations_kept.as_millis();
        let until = self.latest.saturating_add(u64::try_from(kept).unwrap_or(u64::MAX));
        self.evictable.insert(client.into(), until);
    }

    /// Ends the registrations of a disconnected client. Its cached responses stay.
    pub fn client_gone(&mut self, client: &str) {
        let lost = self.end(|watch| watch.client == client);
        self.count("registrations_lost", None, None, lost);
    }

    /// A notification of this registration had no subscriber: it is silenced, and its client may
    /// have gone. Returns whether the notifications that were not sent yet are dropped.
    pub fn undeliverable(&mut self, now: Now, number: u64) -> bool {
        self.latest = now.instant.as_millis();
        let found = self
            .registrations
            .iter_mut()
            .find(|watch| watch.number == number && !watch.is_silenced);
        let Some(watch) = found else { return false };
        watch.is_silenced = true;
        if let (false, Some(until)) = (watch.is_verified, self.evictable.get_mut(&watch.client)) {
            *until = self.latest.min(*until);
        }
        self.count("registrations_silenced", None, None, 1);
        true
    }

    /// A notification of this registration was delivered.
    pub fn delivered(&mut self, now: Now, number: u64) {
        self.latest = now.instant.as_millis();
        let owner =
            self.registrations.iter().find(|watch| watch.number == number && !watch.is_verified);
        let Some(client) = owner.map(|watch| watch.client.clone()) else { return };
        self.is_alive(&client);
    }

    /// Number of registrations.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.registrations.len()
    }

    /// Number of silenced registrations.
    #[must_use]
    pub fn silenced(&self) -> usize {
        self.registrations.iter().filter(|watch| watch.is_silenced).count()
    }
}
