//! The owners of cached responses, and the order in which they lose responses.

use alloc::boxed::Box;
use core::cmp::Reverse;

use hashbrown::HashTable;

use super::queue::Queue;
use crate::invariant::invariant;
use crate::slab::{Slab, Slot};
use crate::store::Principal;
use crate::store::keyed_hash::KeyedHash;

/// The owners of cached responses. Requesters fill it, with at most one owner for each response.
#[derive(Debug)]
pub(super) struct Owners {
    owners: Slab<Owner>,
    /// The owners by the hash of their names. Never iterated.
    by_name: HashTable<Slot>,
    /// The verified owners; the first one has the most.
    verified: Queue<Cost>,
    /// The unverified client ids; the first one has the most.
    unverified: Queue<Cost>,
    /// The cost of the responses of all unverified client ids.
    unverified_cost: u64,
    hash: KeyedHash,
}

/// The cost of the responses of an owner, the number of the oldest one, and the slot of the owner.
type Cost = (u64, Reverse<u64>, Slot);

fn is_current(owners: &Slab<Owner>, (cost, Reverse(number), slot): &Cost) -> bool {
    let owner = owners.get(*slot);
    owner.is_some_and(|it| {
        it.cost == *cost && it.oldest.is_some_and(|(oldest, _)| oldest == *number)
    })
}

#[derive(Debug)]
struct Owner {
    kind: Kind,
    name: Box<str>,
    /// The cost of its responses.
    cost: u64,
    /// The number and slot of its oldest response.
    oldest: Option<(u64, Slot)>,
    newest: Option<Slot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// An unverified client id.
    Unverified,
    /// A verified client that is its own owner.
    Client,
    /// The owner of any number of verified clients.
    Shared,
}

/// The kind and name of the owner of a request.
fn name_of(sender: Principal<'_>) -> (Kind, &str) {
    let client_id = sender.client_id().unwrap_or_default();
    match (sender.is_verified(), sender.owner()) {
        (false, _) => (Kind::Unverified, client_id),
        (true, None) => (Kind::Client, client_id),
        (true, Some(owner)) => (Kind::Shared, owner),
    }
}

impl Owner {
    fn is_named(&self, (kind, name): (Kind, &str)) -> bool {
        self.kind == kind && *self.name == *name
    }
}

impl Owners {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            owners: Slab::new(),
            by_name: HashTable::new(),
            verified: Queue::new(),
            unverified: Queue::new(),
            unverified_cost: 0,
            hash: KeyedHash::new(seed),
        }
    }

    /// The slot of the owner of a request, which is new if none of its responses is cached.
    pub(super) fn owner(&mut self, sender: Principal<'_>) -> Option<Slot> {
        let (owners, hasher) = (&mut self.owners, &self.hash);
        let (kind, name) = name_of(sender);
        let hash = hasher.hash_one(name);
        let is_same =
            |slot: &Slot| owners.get(*slot).is_some_and(|owner| owner.is_named((kind, name)));
        if let Some(slot) = self.by_name.find(hash, is_same) {
            return Some(*slot);
        }
        let slot = owners.insert(Owner {
            kind,
            name: name.into(),
            cost: 0,
            oldest: None,
            newest: None,
        })?;
        let rehash = |slot: &Slot| owners.get(*slot).map_or(0, |it| hasher.hash_one(&*it.name));
        self.by_name.insert_unique(hash, slot, rehash);
        Some(slot)
    }

    /// Returns whether several clients may belong to this owner.
    pub(super) fn is_shared(&self, owner: Slot) -> bool {
        self.owners.get(owner).is_some_and(|owner| owner.kind == Kind::Shared)
    }

    /// The sender of a request; `client_id` is `None` if it is the name of the owner.
    pub(super) fn sender<'a>(
        &'a self,
        owner: Slot,
        client_id: Option<&'a str>,
    ) -> Option<Principal<'a>> {
        let Owner { kind, name, .. } = invariant(self.owners.get(owner))?;
        let shared = (*kind == Kind::Shared).then_some(&**name);
        let client_id = client_id.unwrap_or(name);
        Some(Principal::recorded(client_id, *kind != Kind::Unverified, shared))
    }

    pub(super) fn newest(&self, owner: Slot) -> Option<Slot> {
        self.owners.get(owner)?.newest
    }

    /// The response to remove if the cache is full: the oldest one of the verified owner with the
    /// most. If all unverified client ids together have more, that of the one with the most.
    pub(super) fn first_to_lose(&mut self) -> Option<Slot> {
        let Self { owners, verified, unverified, .. } = self;
        let verified = verified.first(|it| is_current(owners, it));
        let cost = verified.map_or(0, |(cost, ..)| cost);
        let (.., owner) = match self.unverified_cost > cost {
            true => unverified.first(|it| is_current(owners, it)),
            false => verified,
        }?;
        let (_, response) = owners.get(owner)?.oldest?;
        Some(response)
    }

    /// Adds the newest response of an owner.
    pub(super) fn add(&mut self, owner: Slot, response: (u64, Slot), cost: u64) {
        self.change(owner, |owner| {
            owner.cost += cost;
            owner.oldest.get_or_insert(response);
            owner.newest = Some(response.1);
        });
    }

    /// Removes a response of an owner, whose neighbours were `older` and `newer`.
    pub(super) fn remove(
        &mut self,
        owner: Slot,
        (older, newer): (Option<Slot>, Option<(u64, Slot)>),
        cost: u64,
    ) {
        self.change(owner, |owner| {
            owner.cost -= cost;
            if older.is_none() {
                owner.oldest = newer;
            }
            if newer.is_none() {
                owner.newest = older;
            }
        });
    }

    /// Changes an owner. One without responses is removed.
    fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Owner)) {
        let Some(owner) = invariant(self.owners.get_mut(slot)) else { return };
        let before = owner.cost;
        change(owner);
        let (cost, oldest) = (owner.cost, owner.oldest);
        let queue = if owner.kind == Kind::Unverified {
            self.unverified_cost = self.unverified_cost - before + cost;
            &mut self.unverified
        } else {
            &mut self.verified
        };
        match oldest {
            Some((number, _)) => {
                let (owners, count) = (&self.owners, self.by_name.len());
                let item = (cost, Reverse(number), slot);
                queue.push(item, count, |it| is_current(owners, it));
            }
            None => self.remove_owner(slot),
        }
    }

    fn remove_owner(&mut self, slot: Slot) {
        let Some(owner) = invariant(self.owners.remove(slot)) else { return };
        let hash = self.hash.hash_one(&*owner.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
    }
}
