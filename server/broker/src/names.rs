//! Tables by client id, or by another text that clients choose.

use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};

use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

/// A table by a text that clients choose.
pub(crate) type NameMap<K, V> = HashMap<K, V, KeyedHash>;

/// A hash function with a secret key. Without the key, a client cannot choose texts that have one
/// hash, so it cannot slow down the lookups of others.
#[derive(Clone, Copy)]
pub(crate) struct KeyedHash(u64);

impl KeyedHash {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns an empty table.
    pub(crate) const fn new_map<K, V>(self) -> NameMap<K, V> {
        HashMap::with_hasher(self)
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, 0)
    }
}

/// Omits the key.
impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedHash").finish_non_exhaustive()
    }
}

/// Removes an entry, and frees capacity if most of it is unused. This takes constant time on
/// average.
pub(crate) fn remove<K, V>(map: &mut NameMap<K, V>, name: &str) -> Option<V>
where
    K: Borrow<str> + Eq + Hash,
{
    let removed = map.remove(name);
    if map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
    removed
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::format;

    use super::*;

    #[test]
    fn table_frees_the_capacity_of_removed_entries() {
        let mut map: NameMap<Box<str>, u32> = KeyedHash::new(7).new_map();
        let name = |number: u32| format!("client-{number}").into_boxed_str();
        (0..10_000).for_each(|number| _ = map.insert(name(number), number));
        for number in 10..10_000 {
            assert_eq!(remove(&mut map, &name(number)), Some(number));
            assert!(map.capacity() <= 8 + 4 * map.len(), "{} of {}", map.len(), map.capacity());
        }
        assert!((0..10).all(|number| map.get(&*name(number)) == Some(&number)));
    }
}
