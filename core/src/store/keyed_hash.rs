//! The hash function of the tables of a store.

use core::fmt;
use core::hash::{Hash, Hasher as _};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use siphasher::sip::SipHasher13;

/// A hash function all of whose constants depend on the hash seed of the store.
///
/// Clients choose the keys, client ids and correlation data that are hashed. With constants that
/// they know they could choose values that collide under every seed, and each lookup would compare
/// all of them.
#[derive(Clone)]
pub(super) struct KeyedHash {
    seed: u64,
    constants: SharedSeed,
}

impl KeyedHash {
    pub(super) fn new(seed: u64) -> Self {
        // The derivation of the constants has weak seeds, which this mixing hides.
        let mix = |purpose| SipHasher13::new_with_keys(seed, 0).hash(purpose);
        Self { seed: mix(b"seed"), constants: SharedSeed::from_u64(mix(b"constants")) }
    }

    #[inline]
    pub(super) fn hasher(&self) -> FoldHasher<'_> {
        FoldHasher::with_seed(self.seed, &self.constants)
    }

    #[inline]
    pub(super) fn hash_one(&self, value: impl Hash) -> u64 {
        let mut hasher = self.hasher();
        value.hash(&mut hasher);
        hasher.finish()
    }
}

/// Without the seed.
impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedHash").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use core::hash::BuildHasher as _;

    use foldhash::quality::FixedState;

    use super::*;

    /// With the default constants of foldhash, all keys with this suffix have one hash under every
    /// seed.
    #[test]
    fn keys_that_collide_under_the_default_constants_do_not_collide() {
        let keys = (0..10_000_u64).map(|number| {
            let suffix = 0x3f84_d5b5_b547_0917_u64.to_le_bytes();
            [number.to_le_bytes(), suffix].concat()
        });
        let distinct = |hash: &dyn Fn(&[u8]) -> u64| {
            keys.clone().map(|key| hash(&key)).collect::<BTreeSet<_>>().len()
        };
        assert!(distinct(&|key| FixedState::with_seed(7).hash_one(key)) < 100);
        for seed in [0, 1, 7, 1 << 32, u64::MAX >> 1, u64::MAX - 1, u64::MAX] {
            let hash = KeyedHash::new(seed);
            assert_eq!(distinct(&|key| hash.hash_one(key)), 10_000, "seed {seed}");
        }
        assert_ne!(KeyedHash::new(7).hash_one(b"key"), KeyedHash::new(8).hash_one(b"key"));
    }
}
