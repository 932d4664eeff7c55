//! Connections whose client is not accepted yet, and their order of displacement.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::ids::ConnectionId;
use crate::shares::Shares;

/// Stage of an open connection. A connection without a CONNECT ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// No CONNECT was received.
    New,
    /// The embedder decides the login.
    Authenticating,
}

#[derive(Debug)]
struct Member {
    network: Option<IpAddr>,
    /// `None` while it is closing.
    stage: Option<Stage>,
}

/// All operations take logarithmic time, since each accepted connection needs some of them.
#[derive(Debug, Default)]
pub(crate) struct PendingConnections {
    members: BTreeMap<ConnectionId, Member>,
    /// Open connections by network, in the order in which they end. The weight is their number.
    open: Shares<Option<IpAddr>, (Stage, ConnectionId)>,
    open_len: usize,
}

impl PendingConnections {
    /// Number of open and closing connections.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn closing_len(&self) -> usize {
        self.members.len() - self.open_len
    }

    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.members.contains_key(&id)
    }

    /// The open connection that ends next: the oldest of the network with most of them, preferably
    /// one without a CONNECT. Of networks with equally many, the one with the oldest connection
    /// loses it.
    pub(crate) fn next_displaced(&self) -> Option<ConnectionId> {
        self.open.first().map(|(_, (_, id))| id)
    }

    /// Adds a connection without a CONNECT.
    pub(crate) fn insert(&mut self, id: ConnectionId, network: Option<IpAddr>) {
        self.members.insert(id, Member { network, stage: None });
        self.set_stage(id, Some(Stage::New));
    }

    /// Sets the stage of a connection, if it is pending: `None` while it is closing.
    pub(crate) fn set_stage(&mut self, id: ConnectionId, stage: Option<Stage>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let network = member.network;
        let before = core::mem::replace(&mut member.stage, stage);
        if let Some(before) = before {
            self.open.remove(&network, (before, id));
            self.open.decrease(&network, 1);
            self.open_len -= 1;
        }
        if let Some(stage) = stage {
            self.open.increase(&network, 1);
            self.open.insert(&network, (stage, id));
            self.open_len += 1;
        }
    }

    /// Removes a connection. Returns whether it was pending.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> bool {
        self.set_stage(id, None);
        self.members.remove(&id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use core::cmp::Reverse;

    use super::*;
    use crate::table::TableKey;

    /// The order by its definition, computed from all connections.
    fn expected(all: &BTreeMap<u64, (u8, Option<Stage>)>) -> Option<ConnectionId> {
        let of = |network: u8| {
            let open = all.iter().filter(move |(_, (own, _))| *own == network);
            open.filter_map(|(id, (_, stage))| {
                Some(((*stage)?, ConnectionId::from(TableKey::numbered(*id))))
            })
        };
        let by_network =
            (0..4).filter_map(|network| Some((of(network).count(), Reverse(of(network).min()?))));
        by_network.max().map(|(_, Reverse((_, id)))| id)
    }

    #[test]
    fn next_displaced_is_that_of_a_search_of_all_connections() {
        let mut pending = PendingConnections::default();
        let mut all: BTreeMap<u64, (u8, Option<Stage>)> = BTreeMap::new();
        let address = |network: u8| Some(IpAddr::from([192, 0, 2, network]));
        // A linear congruential generator with the constants of Knuth's MMIX.
        let mut random: u64 = 1;
        for at in 0..20_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let choice = random >> 33;
            let id = all.keys().nth(usize::try_from(choice / 8).unwrap() % all.len().max(1));
            match (choice % 8, id.copied()) {
                (0..3, _) | (_, None) => {
                    let network = u8::try_from(choice / 64 % 4).unwrap();
                    all.insert(at, (network, Some(Stage::New)));
                    pending.insert(ConnectionId::from(TableKey::numbered(at)), address(network));
                }
                (3, Some(id)) => {
                    all.remove(&id);
                    assert!(pending.remove(ConnectionId::from(TableKey::numbered(id))));
                }
                (number, Some(id)) => {
                    let stage = match number {
                        4 => Some(Stage::New),
                        5 | 6 => Some(Stage::Authenticating),
                        _ => None,
                    };
                    all.get_mut(&id).unwrap().1 = stage;
                    pending.set_stage(ConnectionId::from(TableKey::numbered(id)), stage);
                }
            }
            if all.len() > 60 {
                let (id, _) = all.pop_first().unwrap();
                pending.remove(ConnectionId::from(TableKey::numbered(id)));
            }
            assert_eq!(pending.next_displaced(), expected(&all));
            assert_eq!(pending.len(), all.len());
            let closing = all.values().filter(|(_, stage)| stage.is_none()).count();
            assert_eq!(pending.closing_len(), closing);
        }
        assert!(!pending.remove(ConnectionId::from(TableKey::numbered(u64::MAX))));
        pending.set_stage(ConnectionId::from(TableKey::numbered(u64::MAX)), Some(Stage::New));
        assert!(!pending.contains(ConnectionId::from(TableKey::numbered(u64::MAX))));
    }
}
