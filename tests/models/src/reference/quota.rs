//! Quotas, computed by counting everything again.

use std::collections::BTreeSet;

use statestore_proto::message::Command;

use super::ReferenceStore;
use super::store::Caller;
use super::texts::notification_topic;

/// Number of registrations of one client that are evicted at once.
const EVICTED_AT_ONCE: usize = 64;

impl ReferenceStore {
    /// Returns whether the request would exceed a quota of the limits.
    pub(super) fn has_no_room(&self, caller: &Caller<'_>) -> bool {
        self.takes_too_much(caller) || self.is_refused_to_all(&caller.command, caller.client)
    }

    /// Usage of a verified client: keys, their bytes, registrations, their bytes.
    #[must_use]
    pub fn held_by(&self, client: &str) -> [usize; 4] {
        let own = self.owners.iter().filter(|(_, owner)| *owner == client);
        let sizes = own.map(|(key, _)| key.len() + self.entries[key].value.len());
        let (keys, bytes) = sizes.fold((0, 0), |(keys, all), size| (keys + 1, all + size));
        let own =
            self.registrations.iter().filter(|watch| watch.client == client && watch.is_verified);
        let sizes = own.map(|watch| watch.client.len() + watch.key.len());
        let (watches, all) = sizes.fold((0, 0), |(count, all), size| (count + 1, all + size));
        [keys, bytes, watches, all]
    }

    /// Returns whether a verified client would exceed its share.
    fn takes_too_much(&self, caller: &Caller<'_>) -> bool {
        let Caller { client, command, .. } = caller;
        let limits = &self.limits;
        let percent = usize::from(limits.client_percent.min(100));
        let share = |limit: usize| limit.saturating_mul(percent).div_ceil(100);
        let [keys, bytes, watches, watch_bytes] = self.held_by(client);
        let key = *command.key();
        caller.is_verified
            && match command {
                Command::Set { value, .. } => {
                    let size = key.len() + value.len();
                    let old = self.entries.get(key).map(|entry| key.len() + entry.value.len());
                    let owner = self.owners.get(key);
                    let own = old.filter(|_| owner.is_some_and(|owner| owner == *client));
                    // A value without an owner may be the client's own, restored.
                    let old = old.filter(|_| owner.is_none_or(|owner| owner == *client));
                    (old.is_none() && keys >= share(limits.keys_max))
                        || (old.is_none_or(|old| size > old)
                            && bytes - own.unwrap_or(0) + size > share(limits.bytes_max))
                }
                Command::Watch { .. } => {
                    watches >= share(limits.registrations_max)
                        || watch_bytes + client.len() + key.len()
                            > share(limits.registration_bytes_max)
                }
                _ => false,
            }
    }

    /// Evicts registrations until there is room for another: the silenced ones, the first
    /// registered first, then those of unverified clients without a sign of life for too long.
    pub(super) fn make_room_to_watch(&mut self, caller: &Caller<'_>) {
        let Caller { client, command, .. } = caller;
        let (client, key) = (*client, command.key().to_vec());
        let Command::Watch { .. } = command else { return };
        let known =
            self.registrations.iter().any(|watch| watch.client == client && watch.key == key);
        let too_long = key.len() > self.limits.key_bytes_max
            || notification_topic(client, &key).len() > 65_535;
        if known || too_long || self.takes_too_much(caller) {
            return;
        }
        self.is_alive(client);
        while self.is_refused_to_all(command, client) {
            let here = self.registrations.iter().filter(|watch| watch.key == key).count();
            let of_key = here >= self.limits.registrations_per_key_max;
            let candidates =
                || self.registrations.iter().filter(|watch| !of_key || watch.key == key);
            let silenced = candidates().filter(|watch| watch.is_silenced);
            let first = silenced.map(|watch| watch.number).min();
            let claimed = candidates().filter(|watch| !watch.is_verified);
            let oldest =
                claimed.map(|watch| (self.evictable[&watch.client], watch.client.clone())).min();
            let oldest = oldest.filter(|(from, _)| *from <= self.latest).map(|(_, gone)| gone);
            let evicted: BTreeSet<u64> = match (first, oldest) {
                (Some(first), _) => BTreeSet::from([first]),
                (None, Some(gone)) => {
                    let own = candidates();
                    let own = own.filter(|watch| watch.client == gone && !watch.is_verified);
                    let mut own: Vec<_> = own.map(|watch| (&watch.key, watch.number)).collect();
                    own.sort();
                    own.into_iter().map(|(_, number)| number).take(EVICTED_AT_ONCE).collect()
                }
                (None, None) => return,
            };
            let lost = self.end(|watch| evicted.contains(&watch.number));
            self.count("registrations_lost", None, None, lost);
        }
    }

    /// The limits of the whole store.
    fn is_refused_to_all(&self, command: &Command<&[u8]>, client: &str) -> bool {
        let (limits, key) = (&self.limits, *command.key());
        let taken: usize =
            self.entries.iter().map(|(key, entry)| key.len() + entry.value.len()).sum();
        match command {
            Command::Set { value, .. } => {
                let old = self.entries.get(key).map(|entry| entry.value.len());
                let after = taken - old.map_or(0, |old| key.len() + old) + key.len() + value.len();
                key.len() > limits.key_bytes_max
                    || (old.is_none() && self.entries.len() >= limits.keys_max)
                    || (old.is_none_or(|old| value.len() > old) && after > limits.bytes_max)
            }
            Command::Watch { .. } => {
                let bytes = self
                    .registrations
                    .iter()
                    .map(|watch| watch.client.len() + watch.key.len())
                    .sum();
                let here = self.registrations.iter().filter(|watch| watch.key == key).count();
                key.len() > limits.key_bytes_max
                    || notification_topic(client, key).len() > 65_535
                    || self.registrations.len() >= limits.registrations_max
                    || usize::saturating_add(bytes, client.len() + key.len())
                        > limits.registration_bytes_max
                    || here >= limits.registrations_per_key_max
            }
            _ => false,
        }
    }
}
