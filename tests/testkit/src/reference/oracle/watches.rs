//! Section 9: registrations, and their silence when a notification has no subscriber.

use statestore_proto::message::{Command, Dialect, Refusal, Reply};
use statestore_proto::time::Now;

use super::{Answer, Oracle, Watch};

impl Oracle {
    pub(super) fn register(
        &mut self,
        command: &Command<&[u8]>,
        (client, verified): (&str, bool),
        dialect: Dialect,
        request: u64,
    ) -> Answer {
        self.registrations += 1;
        let (number, key) = (self.registrations, command.key().to_vec());
        let full = self.has_no_room(command, (client, verified));
        let silenced = false;
        let watch =
            Watch { client: client.into(), verified, key, dialect, number, request, silenced };
        match self.watches.iter_mut().find(|old| old.client == client && old.key == watch.key) {
            Some(old) => *old = watch,
            None if full => return Err(Refusal::QuotaExceeded),
            None => {
                self.forget_eviction(client, &watch.key);
                self.watches.push(watch);
            }
        }
        self.is_alive(client);
        Ok((Reply::Done, None))
    }

    /// Protects the claimed registrations of a client that showed a sign of life.
    pub(super) fn is_alive(&mut self, client: &str) {
        let kept = self.limits.unverified_registrations_kept.as_millis();
        let until = self.latest.saturating_add(u64::try_from(kept).unwrap_or(u64::MAX));
        self.evictable.insert(client.into(), until);
    }

    /// Forgets that a registration was evicted; returns whether that was known.
    pub(super) fn forget_eviction(&mut self, client: &str, key: &[u8]) -> bool {
        let before = self.evicted.len();
        self.evicted.retain(|evicted| (evicted.0.as_str(), evicted.1.as_slice()) != (client, key));
        self.evicted.len() < before
    }

    /// Section 9: a disconnected client loses its registrations; its cached replies go first.
    pub fn client_gone(&mut self, client: &str) {
        if self.answers.iter().any(|answer| answer.client == client) {
            self.absent.insert(client.into());
        }
        self.evicted.retain(|(evicted, _)| evicted != client);
        let lost = self.end(|watch| watch.client == client);
        self.count("watches_lost", None, None, lost);
    }

    /// A notification of this registration had no subscriber: it is silenced, and its client may
    /// have gone. Returns whether the notifications that were not sent yet are dropped.
    pub fn undeliverable(&mut self, now: Now, number: u64) -> bool {
        self.latest = now.instant.as_millis();
        let found = self.watches.iter_mut().find(|watch| watch.number == number && !watch.silenced);
        let Some(watch) = found else { return false };
        watch.silenced = true;
        if let (false, Some(until)) = (watch.verified, self.evictable.get_mut(&watch.client)) {
            *until = self.latest.min(*until);
        }
        self.count("watches_silenced", None, None, 1);
        true
    }

    /// A notification of this registration was delivered.
    pub fn delivered(&mut self, now: Now, number: u64) {
        self.latest = now.instant.as_millis();
        let owner = self.watches.iter().find(|watch| watch.number == number && !watch.verified);
        let Some(client) = owner.map(|watch| watch.client.clone()) else { return };
        self.is_alive(&client);
    }

    /// Number of registrations.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// Number of silenced registrations.
    #[must_use]
    pub fn silenced(&self) -> usize {
        self.watches.iter().filter(|watch| watch.silenced).count()
    }
}
