//! Places of the logins that wait for a password check.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;

use statestore_broker::network;

use crate::sync::lock;

/// Maximum number of clients that wait for a password check or run one. Each has its CONNECT in
/// memory, at most 20 KiB.
pub(super) const WAITING_MAX: usize = 64;

/// Number of waiting logins of each network.
#[derive(Default)]
pub(super) struct Waiting(Mutex<BTreeMap<IpAddr, usize>>);

impl Waiting {
    /// Takes a place until the result is dropped. `None` if as many logins of the same network
    /// wait as places are free: one network gets half of them, and a second one finds a place.
    pub(super) fn enter(&self, address: IpAddr) -> Option<Place<'_>> {
        let network = network(address);
        let mut waiting = lock(&self.0);
        let free = WAITING_MAX.saturating_sub(waiting.values().sum());
        if waiting.get(&network).copied().unwrap_or_default() >= free {
            return None;
        }
        *waiting.entry(network).or_default() += 1;
        Some(Place { waiting: self, network })
    }
}

/// The place of one login.
pub(super) struct Place<'a> {
    waiting: &'a Waiting,
    network: IpAddr,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting.0);
        if let Some(count) = waiting.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_leaves_places_for_others() {
        let waiting = Waiting::default();
        let mut places = Vec::new();
        let mut fill = |address: IpAddr| {
            let before = places.len();
            places.extend(std::iter::from_fn(|| waiting.enter(address)));
            places.len() - before
        };
        assert_eq!(fill([10, 0, 0, 1].into()), WAITING_MAX / 2);
        for other in 1..=4 {
            assert!(fill([10, 0, 1, other].into()) > 0, "{other}");
        }
        assert!(places.len() <= WAITING_MAX);
        drop(places);
        assert!(lock(&waiting.0).is_empty());
    }
}
