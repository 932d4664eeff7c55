//! What a journal is just now, for the program around it.

use std::fmt;

use statestore_proto::time::UnixTime;
use tokio::sync::watch;

use crate::limits::is_label;

/// Who leads, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Its [name](crate::Options::name).
    pub name: String,
    /// Where its clients are to go, if it [says so](crate::Options::advertise); else empty.
    pub address: String,
    /// Since when, by its wall clock.
    pub since: UnixTime,
}

impl Leader {
    /// Whoever has put something at the key of the leader that no store puts there.
    pub(crate) fn foreign() -> Self {
        let name = "something that is no store".to_owned();
        Self { name, address: String::new(), since: UnixTime::default() }
    }
}

/// What a journal is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// It follows, and the store does not serve.
    Standby {
        /// Who leads; `None` while nobody does, or while that is not known.
        leader: Option<Leader>,
        /// How many transactions of the leader were known to be there and not read yet, when that was looked at last.
        lag: u64,
    },
    /// Its store serves, or is about to.
    Leading {
        /// Since when, by the wall clock here.
        since: UnixTime,
        /// Greater than that of each leader before.
        epoch: u64,
    },
    /// Another leads. Nothing more is written, and nothing that waited for it was acknowledged. Start the store again, as a
    /// standby.
    Deposed {
        /// By whom.
        reason: String,
    },
    /// It has given up: the lease ran out or was given back, or etcd failed. As [`Deposed`](Self::Deposed), except that nobody
    /// else need lead.
    Lost {
        /// What for.
        reason: String,
    },
    /// It has given up, and so would the next: somebody has to do something first.
    Failed {
        /// What is the matter, and what is to be done.
        reason: String,
    },
}

impl Role {
    /// Whether it has ended for good.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Deposed { .. } | Self::Lost { .. } | Self::Failed { .. })
    }
}

/// Follows the [role](Role) of a journal, which the store around it has taken.
#[derive(Clone, Debug)]
pub struct RoleWatch(watch::Receiver<Role>);

impl RoleWatch {
    /// The role now.
    #[must_use]
    pub fn current(&mut self) -> Role {
        self.0.borrow_and_update().clone()
    }

    /// Waits for another role than the one that this or [`current`](Self::current) gave last; `None` once the journal is
    /// gone. Of several changes only the last is told. Cancel safe.
    pub async fn changed(&mut self) -> Option<Role> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }

    /// Waits until the journal leads or has ended for good; at once where it is so already. `None` when it is gone before
    /// that. Cancel safe.
    pub async fn settled(&mut self) -> Option<Role> {
        let is_settled = |role: &Role| !matches!(role, Role::Standby { .. });
        self.0.wait_for(is_settled).await.ok().map(|role| role.clone())
    }
}

/// The end that says it.
#[derive(Clone)]
pub(crate) struct RoleSender(watch::Sender<Role>);

impl RoleSender {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Role::Standby { leader: None, lag: 0 }))
    }

    pub(crate) fn watch(&self) -> RoleWatch {
        RoleWatch(self.0.subscribe())
    }

    /// A lease is lost: of consequence for who leads with it.
    pub(crate) fn lose(&self, reason: String) {
        self.0.send_if_modified(|last| {
            let is_leading = matches!(last, Role::Leading { .. });
            if is_leading {
                *last = Role::Lost { reason };
            }
            is_leading
        });
    }

    /// Says it, unless the last role was final or the same.
    pub(crate) fn tell(&self, role: Role) {
        self.0.send_if_modified(|last| {
            let is_news = !last.is_final() && *last != role;
            if is_news {
                *last = role;
            }
            is_news
        });
    }
}

impl fmt::Debug for RoleSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.borrow().fmt(f)
    }
}

/// What is in the key of the leader: three lines.
pub(crate) fn encode_leader(leader: &Leader) -> Vec<u8> {
    format!("{}\n{}\n{}", leader.since.as_millis(), leader.name, leader.address).into_bytes()
}

/// `None` for what [`encode_leader`] has not made.
pub(crate) fn decode_leader(bytes: &[u8]) -> Option<Leader> {
    let mut lines = core::str::from_utf8(bytes).ok()?.splitn(3, '\n');
    let leader = Leader {
        since: UnixTime::from_millis(lines.next()?.parse().ok()?),
        name: lines.next()?.to_owned(),
        address: lines.next()?.to_owned(),
    };
    let is_told = is_label(&leader.name) && is_label(&leader.address);
    (is_told && encode_leader(&leader) == bytes).then_some(leader)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_role_stays() {
        let sender = RoleSender::new();
        let mut watch = sender.watch();
        sender.tell(Role::Leading { since: UnixTime::from_millis(1), epoch: 2 });
        sender.tell(Role::Lost { reason: "first".into() });
        sender.tell(Role::Deposed { reason: "second".into() });
        assert_eq!(watch.current(), Role::Lost { reason: "first".into() });
    }

    proptest! {
        #[test]
        fn a_leader_is_read_as_it_was_written(millis: u64, name in "\\PC{0,60}", address in "\\PC{0,60}") {
            let leader = Leader { name, address, since: UnixTime::from_millis(millis) };
            prop_assert_eq!(decode_leader(&encode_leader(&leader)), Some(leader));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            if let Some(leader) = decode_leader(&bytes) {
                prop_assert_eq!(encode_leader(&leader), bytes);
            }
        }
    }
}
