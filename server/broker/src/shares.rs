//! Members by group, in the order of eviction: the group with the greatest weight loses its first
//! member.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

/// Groups by weight, with the order in which they lose members. All operations take logarithmic
/// time, so a full table costs as much as any other.
#[derive(Debug)]
pub(crate) struct Shares<G, M> {
    groups: BTreeMap<G, Group<M>>,
    /// Groups that have members, the one that loses a member next last: its weight, and its first
    /// member.
    ranks: BTreeSet<(usize, Reverse<M>, G)>,
}

#[derive(Debug)]
struct Group<M> {
    weight: usize,
    members: BTreeSet<M>,
}

impl<G, M> Default for Shares<G, M> {
    fn default() -> Self {
        Self { groups: BTreeMap::new(), ranks: BTreeSet::new() }
    }
}

impl<G: Clone + Ord, M: Copy + Ord> Shares<G, M> {
    /// Returns the weight and the first member of the group with the greatest weight. Of groups
    /// with equal weights, it is the one whose first member is the least.
    pub(crate) fn first(&self) -> Option<(usize, M)> {
        self.ranks.last().map(|(weight, Reverse(first), _)| (*weight, *first))
    }

    /// Returns the first member of a group.
    pub(crate) fn first_of(&self, group: &G) -> Option<M> {
        self.groups.get(group).and_then(|group| group.members.first().copied())
    }

    pub(crate) fn weight(&self, group: &G) -> usize {
        self.groups.get(group).map_or(0, |group| group.weight)
    }

    pub(crate) fn insert(&mut self, group: &G, member: M) {
        self.change(group, |group| _ = group.members.insert(member));
    }

    pub(crate) fn remove(&mut self, group: &G, member: M) {
        self.change(group, |group| _ = group.members.remove(&member));
    }

    pub(crate) fn increase(&mut self, group: &G, weight: usize) {
        self.change(group, |group| group.weight += weight);
    }

    pub(crate) fn decrease(&mut self, group: &G, weight: usize) {
        self.change(group, |group| group.weight = group.weight.saturating_sub(weight));
    }

    /// Changes a group and its rank. A group without weight and members is removed.
    fn change(&mut self, name: &G, change: impl FnOnce(&mut Group<M>)) {
        let new = || Group { weight: 0, members: BTreeSet::new() };
        let group = self.groups.entry(name.clone()).or_insert_with(new);
        if let Some(first) = group.members.first() {
            self.ranks.remove(&(group.weight, Reverse(*first), name.clone()));
        }
        change(group);
        match group.members.first() {
            Some(first) => {
                self.ranks.insert((group.weight, Reverse(*first), name.clone()));
            }
            None if group.weight == 0 => _ = self.groups.remove(name),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cmp::Ordering;
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    static COMPARISONS: AtomicUsize = AtomicUsize::new(0);

    /// A member that counts comparisons.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Counted(usize);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.fetch_add(1, Relaxed);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    #[test]
    fn replacing_a_member_of_many_visits_few() {
        const MANY: usize = 10_000;
        for groups in [1, 100, MANY] {
            let mut shares = Shares::default();
            for at in 0..MANY {
                shares.insert(&(at % groups), Counted(at));
                shares.increase(&(at % groups), 1);
            }
            COMPARISONS.store(0, Relaxed);
            for at in MANY..MANY + 100 {
                let (weight, first) = shares.first().expect("a member");
                assert_eq!(weight, MANY / groups);
                assert_eq!(first, Counted(at - MANY), "the oldest of the largest groups");
                let group = first.0 % groups;
                shares.remove(&group, first);
                shares.insert(&group, Counted(at));
            }
            let visited = COMPARISONS.load(Relaxed) / 100;
            assert!(visited < 400, "{visited} comparisons with {groups} groups");
        }
    }

    #[test]
    fn weight_and_then_the_first_member_select_the_group() {
        let mut shares = Shares::default();
        assert_eq!(shares.first(), None);
        for (group, weight, members) in [("a", 2, &[5, 7][..]), ("b", 2, &[4]), ("c", 3, &[])] {
            shares.increase(&group, weight);
            members.iter().for_each(|member| shares.insert(&group, *member));
        }
        assert_eq!(shares.first(), Some((2, 4)), "a group without members is not selected");
        shares.increase(&"a", 1);
        assert_eq!((shares.first(), shares.first_of(&"b")), (Some((3, 5)), Some(4)));
        shares.remove(&"a", 5);
        assert_eq!((shares.first(), shares.weight(&"a")), (Some((3, 7)), 3));
        shares.remove(&"a", 7);
        assert_eq!(shares.first(), Some((2, 4)));
        shares.decrease(&"a", 3);
        shares.decrease(&"c", 3);
        assert_eq!((shares.groups.len(), shares.weight(&"a")), (1, 0));
    }
}
