//! Which limit a command would pass, and what can be cleared away for it.

use super::explain::{Exceeded, Limit};
use super::table::Slot;
use super::{Entry, Principal, Store, watches};
use crate::limits::TOPIC_BYTES_MAX;
use crate::message::Command;
use crate::time::Now;
use crate::topic::NotificationTopic;

impl Store {
    /// Removes what has expired, as far as there is room to tell its watchers: it must not count against a quota.
    pub(super) fn make_room(&mut self, now: Now) {
        let limits = self.config.limits;
        let reserve = limits.burst().saturating_add(limits.watches_per_key_max);
        while self.has_room_for(reserve) {
            let Some(slot) = self.expiries.pop_due(now.instant) else {
                return;
            };
            self.expire(slot);
        }
    }

    /// The limit that the command would pass, if any.
    pub(super) fn exceeded(
        &self,
        from: Principal<'_>,
        slot: Option<Slot>,
        command: &Command<&[u8]>,
    ) -> Option<Exceeded> {
        let limits = &self.config.limits;
        match command {
            Command::Set { key, value, .. } => {
                let entry = slot.and_then(|slot| self.table.get(slot));
                let len = key.len() + value.len();
                let old = entry.map(Entry::len);
                let bytes = self.table.bytes() - old.unwrap_or(0) + len;
                let keys = self.table.len() + 1;
                let is_longer = old.is_none_or(|old| len > old);
                Exceeded::of(Limit::KeyBytes, key.len(), limits.key_bytes_max)
                    .or_else(|| {
                        Exceeded::of(Limit::ValueBytes, value.len(), limits.value_bytes_max)
                    })
                    .or_else(|| {
                        Exceeded::of(Limit::Keys, keys, limits.keys_max).filter(|_| old.is_none())
                    })
                    .or_else(|| {
                        Exceeded::of(Limit::Bytes, bytes, limits.bytes_max).filter(|_| is_longer)
                    })
                    .or_else(|| self.exceeds_share(from, entry, len))
            }
            Command::Watch { key } => self
                .not_for(from, key)
                .or_else(|| self.crowded(from, key))
                .or_else(|| self.crowded_at(key)),
            _ => None,
        }
    }

    /// Whether a verified client would hold more than its share with a value of so many bytes, key included, in the
    /// place of this entry. What counts for nobody it may take over where that takes no more room: it may be its own,
    /// restored.
    fn exceeds_share(
        &self,
        from: Principal<'_>,
        entry: Option<&Entry>,
        len: usize,
    ) -> Option<Exceeded> {
        let limits = &self.config.limits;
        let owner = self.table.owner_of(from)?;
        let held = self.table.held_by(owner);
        let own = entry.filter(|entry| entry.owner() == Some(owner)).map_or(0, Entry::len);
        let free = entry.filter(|entry| entry.owner().is_none_or(|other| other == owner));
        let bytes = held.bytes - own + len;
        let keys = limits.share_of(limits.keys_max);
        let is_longer = free.is_none_or(|entry| len > entry.len());
        Exceeded::of(Limit::ClientKeys, held.keys + 1, keys).filter(|_| free.is_none()).or_else(
            || {
                Exceeded::of(Limit::ClientBytes, bytes, limits.share_of(limits.bytes_max))
                    .filter(|_| is_longer)
            },
        )
    }

    /// Why a registration is refused however much room there is: its key is too long, or the client has its share.
    fn not_for(&self, from: Principal<'_>, key: &[u8]) -> Option<Exceeded> {
        let limits = &self.config.limits;
        let client_id = from.client_id().unwrap_or_default();
        let held = self.watches.held_by(client_id);
        let bytes = held.bytes + watches::bytes_of(client_id, key);
        if NotificationTopic::new(client_id, key).is_err() {
            // Twice the key, and a client id with all that stands around it.
            let needed = 2 * key.len() + client_id.len();
            return Some(Exceeded { limit: Limit::TopicBytes, needed, max: TOPIC_BYTES_MAX });
        }
        Exceeded::of(Limit::KeyBytes, key.len(), limits.key_bytes_max).or_else(|| {
            let share = limits.share_of(limits.watches_max);
            Exceeded::of(Limit::ClientWatches, held.count + 1, share)
                .or_else(|| {
                    let share = limits.share_of(limits.watch_bytes_max);
                    Exceeded::of(Limit::ClientWatchBytes, bytes, share)
                })
                .filter(|_| from.is_verified())
        })
    }

    /// Why there is no room for one more registration of all.
    fn crowded(&self, from: Principal<'_>, key: &[u8]) -> Option<Exceeded> {
        let limits = &self.config.limits;
        let more = watches::bytes_of(from.client_id().unwrap_or_default(), key);
        let bytes = self.watches.bytes() + more;
        Exceeded::of(Limit::Watches, self.watches.len() + 1, limits.watches_max)
            .or_else(|| Exceeded::of(Limit::WatchBytes, bytes, limits.watch_bytes_max))
    }

    /// Why there is no room for one more registration for this key.
    fn crowded_at(&self, key: &[u8]) -> Option<Exceeded> {
        let count = self.watches.of(key).len() + 1;
        Exceeded::of(Limit::WatchesPerKey, count, self.config.limits.watches_per_key_max)
    }

    /// Ends registrations of claimed names that have given no sign of life for long, as far as one for this key needs
    /// their place.
    pub(super) fn make_room_to_watch(&mut self, now: Now, from: Principal<'_>, key: &[u8]) {
        let client_id = from.client_id().unwrap_or_default();
        if self.watches.contains(client_id, key) || self.not_for(from, key).is_some() {
            return;
        }
        self.watches.is_there(now.instant, client_id);
        let kept = self.config.limits.claimed_watches_kept;
        loop {
            let at = if self.crowded_at(key).is_some() {
                Some(key)
            } else if self.crowded(from, key).is_some() {
                None
            } else {
                return;
            };
            let lost = self.watches.remove_oldest(now.instant, kept, at);
            if lost == 0 {
                return;
            }
            self.counters.watches_lost += lost as u64;
        }
    }
}
