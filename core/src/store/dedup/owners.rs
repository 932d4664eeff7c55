//! The owners of cached responses, and the order in which they lose responses.

use alloc::boxed::Box;
use core::cmp::Reverse;

use hashbrown::HashTable;

use super::heap::Heap;
use crate::slab::{Slab, Slot};
use crate::store::Principal;
use crate::store::keyed_hash::KeyedHash;

/// The clients with cached responses, and their owners. Requesters fill it, with at most one client
/// and one owner for each response.
#[derive(Debug)]
pub(super) struct Owners {
    clients: Slab<Client>,
    /// The clients by the hash of their ids. Never iterated.
    by_id: HashTable<Slot>,
    owners: Slab<Owner>,
    /// The owners of any number of clients, by the hash of their names. Never iterated.
    by_name: HashTable<Slot>,
    /// The owners. The first one loses the next response.
    by_cost: Heap<Cost>,
    hash: KeyedHash,
}

/// The cost of responses, and the number of the one to lose first.
type Cost = (u64, Reverse<u64>);

#[derive(Debug)]
struct Client {
    id: Box<str>,
    owner: Slot,
    /// The cost of its responses.
    cost: u64,
    /// The number and slot of its oldest response.
    oldest: Option<(u64, Slot)>,
    newest: Option<Slot>,
    /// The place in [`Owner::by_cost`].
    place: usize,
}

#[derive(Debug)]
struct Owner {
    name: Name<Box<str>>,
    /// The cost of the responses of all its clients.
    cost: u64,
    /// Its clients. The first one loses the next response.
    by_cost: Heap<Cost>,
    /// The place in [`Owners::by_cost`].
    place: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Name<T> {
    /// All unverified client ids together, since one client can use any number of them.
    Unverified,
    /// A verified client itself.
    Client,
    /// An owner with this name.
    Owner(T),
}

impl<'a> Name<&'a str> {
    const fn of(sender: Principal<'a>) -> Self {
        match (sender.is_verified(), sender.owner()) {
            (false, _) => Self::Unverified,
            (true, None) => Self::Client,
            (true, Some(name)) => Self::Owner(name),
        }
    }
}

impl Name<Box<str>> {
    fn borrowed(&self) -> Name<&str> {
        match self {
            Self::Unverified => Name::Unverified,
            Self::Client => Name::Client,
            Self::Owner(name) => Name::Owner(name),
        }
    }
}

impl Owners {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            clients: Slab::new(),
            by_id: HashTable::new(),
            owners: Slab::new(),
            by_name: HashTable::new(),
            by_cost: Heap::new(),
            hash: KeyedHash::new(seed),
        }
    }

    /// The slot of a client, which is new if none of its responses is cached.
    pub(super) fn client(&mut self, sender: Principal<'_>) -> Option<Slot> {
        let (id, name) = (sender.client_id().unwrap_or_default(), Name::of(sender));
        let hash = self.hash.hash_one(id);
        let is_same = |slot: &Slot| self.key(*slot) == Some((id, name));
        if let Some(slot) = self.by_id.find(hash, is_same) {
            return Some(*slot);
        }
        let owner = self.owner(name)?;
        let slot = self.clients.insert(Client {
            id: id.into(),
            owner,
            cost: 0,
            oldest: None,
            newest: None,
            place: usize::MAX,
        })?;
        let (clients, hash_fn) = (&self.clients, &self.hash);
        let rehash = |slot: &Slot| clients.get(*slot).map_or(0, |it| hash_fn.hash_one(&*it.id));
        self.by_id.insert_unique(hash, slot, rehash);
        Some(slot)
    }

    /// The slot of the owner of a new client.
    fn owner(&mut self, name: Name<&str>) -> Option<Slot> {
        let owners = &mut self.owners;
        let hash = self.hash.hash_one(name);
        let is_same = |slot: &Slot| owners.get(*slot).is_some_and(|it| it.name.borrowed() == name);
        if let Some(slot) = self.by_name.find(hash, is_same) {
            return Some(*slot);
        }
        let owned = match name {
            Name::Unverified => Name::Unverified,
            Name::Client => Name::Client,
            Name::Owner(name) => Name::Owner(name.into()),
        };
        let slot = owners.insert(Owner {
            name: owned,
            cost: 0,
            by_cost: Heap::new(),
            place: usize::MAX,
        })?;
        if name != Name::Client {
            let rehash = |slot: &Slot| {
                owners.get(*slot).map_or(0, |it| self.hash.hash_one(it.name.borrowed()))
            };
            self.by_name.insert_unique(hash, slot, rehash);
        }
        Some(slot)
    }

    fn key(&self, client: Slot) -> Option<(&str, Name<&str>)> {
        let client = self.clients.get(client)?;
        Some((&client.id, self.owners.get(client.owner)?.name.borrowed()))
    }

    /// The sender of the requests of a client.
    pub(super) fn sender(&self, client: Slot) -> Option<Principal<'_>> {
        let (id, name) = self.key(client)?;
        let owner = if let Name::Owner(name) = name { Some(name) } else { None };
        Some(Principal::recorded(id, name != Name::Unverified, owner))
    }

    pub(super) fn client_id(&self, client: Slot) -> Option<&str> {
        self.clients.get(client).map(|client| &*client.id)
    }

    /// Bytes of the client id and of the name of the owner.
    pub(super) fn name_bytes(&self, client: Slot) -> usize {
        match self.key(client) {
            Some((id, Name::Owner(name))) => id.len() + name.len(),
            Some((id, _)) => id.len(),
            None => 0,
        }
    }

    pub(super) fn newest(&self, client: Slot) -> Option<Slot> {
        self.clients.get(client)?.newest
    }

    /// The response to remove if the cache is full.
    pub(super) fn first_to_lose(&self) -> Option<Slot> {
        let (_, owner) = self.by_cost.first()?;
        let (_, client) = self.owners.get(owner)?.by_cost.first()?;
        let (_, response) = self.clients.get(client)?.oldest?;
        Some(response)
    }

    /// Adds the newest response of a client.
    pub(super) fn add(&mut self, client: Slot, response: (u64, Slot), cost: u64) {
        self.change(client, |client| {
            client.cost += cost;
            client.oldest.get_or_insert(response);
            client.newest = Some(response.1);
        });
    }

    /// Removes a response of a client, whose neighbours were `older` and `newer`.
    pub(super) fn remove(
        &mut self,
        client: Slot,
        (older, newer): (Option<Slot>, Option<(u64, Slot)>),
        cost: u64,
    ) {
        self.change(client, |client| {
            client.cost -= cost;
            if older.is_none() {
                client.oldest = newer;
            }
            if newer.is_none() {
                client.newest = older;
            }
        });
    }

    /// Changes a client, and its place and that of its owner in the order. A client without
    /// responses is removed, and an owner without clients.
    fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Client)) {
        let Self { clients, owners, by_cost, .. } = self;
        let Some(client) = clients.get_mut(slot) else { return };
        let before = client.cost;
        change(client);
        let (owner_slot, place) = (client.owner, client.place);
        let cost = client.oldest.map(|(number, _)| (client.cost, Reverse(number)));
        let Some(owner) = owners.get_mut(owner_slot) else { return };
        owner.cost = owner.cost - before + client.cost;
        place_in(&mut owner.by_cost, place, slot, cost, |slot, place| {
            if let Some(client) = clients.get_mut(slot) {
                client.place = place;
            }
        });
        let first = owner.by_cost.first();
        let owner_cost = first.map(|((_, number), _)| (owner.cost, number));
        let place = owner.place;
        place_in(by_cost, place, owner_slot, owner_cost, |slot, place| {
            if let Some(owner) = owners.get_mut(slot) {
                owner.place = place;
            }
        });
        if cost.is_none() {
            self.remove_client(slot);
        }
    }

    fn remove_client(&mut self, slot: Slot) {
        let Some((id, name)) = self.key(slot) else { return };
        let (hash, name_hash) = (self.hash.hash_one(id), self.hash.hash_one(name));
        if let Ok(entry) = self.by_id.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        let Some(Client { owner, .. }) = self.clients.remove(slot) else { return };
        if self.owners.get(owner).is_some_and(|owner| owner.by_cost.first().is_none()) {
            self.owners.clear(owner);
            if let Ok(entry) = self.by_name.find_entry(name_hash, |other| *other == owner) {
                entry.remove();
            }
        }
    }
}

/// Inserts a slot into an order, changes its key, or removes it.
fn place_in(
    order: &mut Heap<Cost>,
    place: usize,
    slot: Slot,
    cost: Option<Cost>,
    moved: impl FnMut(Slot, usize),
) {
    match cost {
        Some(cost) if place == usize::MAX => order.insert(cost, slot, moved),
        Some(cost) => order.change(place, cost, moved),
        None => order.remove(place, moved),
    }
}
