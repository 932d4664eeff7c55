//! A priority queue whose outdated items are removed later.

use alloc::collections::BinaryHeap;

/// Items, the greatest first. The caller decides whether an item is current: what it is about may
/// have changed since, or be gone.
///
/// Each call takes O(log n), on average over all calls. There are at most about twice as many items
/// as current ones.
#[derive(Debug)]
pub(super) struct Queue<T: Ord>(BinaryHeap<T>);

impl<T: Ord + Copy> Queue<T> {
    pub(super) const fn new() -> Self {
        Self(BinaryHeap::new())
    }

    /// Adds an item. `current` is the number of current ones, or more.
    pub(super) fn push(&mut self, item: T, current: usize, is_current: impl Fn(&T) -> bool) {
        if self.0.len() >= current.saturating_mul(2).saturating_add(16) {
            self.0.retain(is_current);
        }
        self.0.push(item);
    }

    /// The greatest current item.
    pub(super) fn first(&mut self, is_current: impl Fn(&T) -> bool) -> Option<T> {
        while let Some(item) = self.0.peek() {
            if is_current(item) {
                return Some(*item);
            }
            self.0.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_item_is_current_and_outdated_ones_do_not_accumulate() {
        let mut queue = Queue::new();
        for item in 0..10_000_u64 {
            // The last ten odd items are current.
            let is_current = |it: &u64| it % 2 == 1 && it + 20 > item;
            queue.push(item, 10, is_current);
            assert!(queue.0.len() <= 2 * 10 + 16);
            let newest = item.checked_sub(1 - item % 2);
            assert_eq!(queue.first(is_current), newest);
        }
    }
}
