//! Clock values are totally ordered by wall clock, counter and bytes of the node id, borrowed or
//! owned.

use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;
use statestore_models::generators::hlc;
use statestore_models::reference::clock::stamp;
use statestore_proto::hlc::{FencingToken, Hlc, Timestamp, Version};

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Values that are often equal, or differ in one part only.
fn close() -> impl Strategy<Value = (Hlc, Hlc, Hlc)> {
    let parts = (hlc(), hlc(), hlc(), proptest::collection::vec(0..3_usize, 9));
    parts.prop_map(|(a, b, c, picks)| {
        let source = [a, b, c];
        let mixed = |at: usize| {
            let (wall, counter) = (source[picks[at]].wall(), source[picks[at + 1]].counter());
            Hlc::new(wall, counter, source[picks[at + 2]].node().clone())
        };
        (mixed(0), mixed(3), mixed(6))
    })
}

proptest! {
    #[test]
    fn order_equals_that_of_tuples((a, b, _) in close()) {
        let expected = stamp(&a).cmp(&stamp(&b));
        prop_assert_eq!(a.cmp(&b), expected);
        prop_assert_eq!(a.borrowed().cmp(&b.borrowed()), expected);
        prop_assert_eq!(a.partial_cmp(&b), Some(expected));
        prop_assert_eq!(a.partial_cmp(&b.borrowed()), Some(expected));
        prop_assert_eq!(a.borrowed().partial_cmp(&b), Some(expected));
        prop_assert_eq!(Version::new(a.clone()).cmp(&Version::new(b.clone())), expected);
        prop_assert_eq!(Timestamp::new(a.clone()).cmp(&Timestamp::new(b.clone())), expected);
        let (owned, borrowed) = (FencingToken::new(a), FencingToken::new(b.borrowed()));
        prop_assert_eq!(owned.partial_cmp(&borrowed), Some(expected));
        prop_assert_eq!(owned == borrowed, expected == Ordering::Equal);
    }

    #[test]
    fn order_is_antisymmetric_and_transitive((a, b, c) in close()) {
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a.cmp(&a), Ordering::Equal);
        let mut sorted = [&a, &b, &c];
        sorted.sort();
        prop_assert!(sorted[0] <= sorted[1] && sorted[1] <= sorted[2] && sorted[0] <= sorted[2]);
        if a < b && b < c {
            prop_assert!(a < c);
        }
    }

    #[test]
    fn equal_values_hash_alike_owned_and_borrowed((a, b, _) in close()) {
        prop_assert_eq!(hash(&a), hash(&a.borrowed()));
        prop_assert_eq!(hash(a.node()), hash(a.borrowed().node()));
        prop_assert_eq!(hash(&Version::new(a.clone())), hash(&Version::new(a.borrowed())));
        prop_assert_eq!(a == b, stamp(&a) == stamp(&b));
        prop_assert_eq!(a == b.borrowed(), a == b);
        if a == b {
            prop_assert_eq!(hash(&a), hash(&b));
        }
    }

    #[test]
    fn borrowing_and_owning_preserve_the_value(a in hlc()) {
        prop_assert_eq!(&a.borrowed().try_into_owned().unwrap(), &a);
        prop_assert_eq!(&<Hlc>::from(a.borrowed()), &a);
        let version = Version::new(a.clone());
        let token = version.to_fencing_token();
        prop_assert_eq!(token.hlc(), &a);
        prop_assert_eq!(version.borrowed().try_into_owned().unwrap(), version);
    }
}
