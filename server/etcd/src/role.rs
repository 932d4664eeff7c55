//! Role of a journal, as the program around it can watch it.

use std::fmt;

use statestore_proto::time::UnixTime;
use tokio::sync::watch;

use crate::limits::is_label;

/// A leader, as it has described itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// [Name](crate::Options::name) of the store.
    pub name: String,
    /// [Address](crate::Options::advertise) for its clients; empty if it has none.
    pub address: String,
    /// Start of its term, by its wall clock.
    pub since: UnixTime,
}

impl Leader {
    /// Stands for a program that is not a store and has written the leader key.
    pub(crate) fn foreign() -> Self {
        let name = "a program that is not a store".to_owned();
        Self { name, address: String::new(), since: UnixTime::default() }
    }
}

/// Role of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// The journal follows the leader, and its store does not serve.
    Standby {
        /// Leader; `None` if no store leads, or if the leader is not known yet.
        leader: Option<Leader>,
        /// Number of the leader's transactions that the journal had not read at its last check.
        lag: u64,
    },
    /// The store serves, or is about to.
    Leading {
        /// Start of the term, by the local wall clock.
        since: UnixTime,
        /// Number of the term, greater than that of each former leader.
        epoch: u64,
    },
    /// Another store leads. This journal writes nothing more. Writes in progress were not
    /// acknowledged. Start the store again, as a standby.
    Deposed {
        /// Name and epoch of the other leader.
        reason: String,
    },
    /// The journal has ended because its lease expired or was resigned, or because etcd failed. The
    /// same applies as to [`Deposed`](Self::Deposed), except that possibly no other store leads.
    Lost {
        /// Reason.
        reason: String,
    },
    /// The journal has ended, and a new one would fail too, until an operator has solved the
    /// problem.
    Failed {
        /// Reason and remedy.
        reason: String,
    },
}

impl Role {
    /// Returns whether the journal has ended.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Deposed { .. } | Self::Lost { .. } | Self::Failed { .. })
    }
}

/// Watches the [role](Role) of a journal.
#[derive(Clone, Debug)]
pub struct RoleWatch(watch::Receiver<Role>);

impl RoleWatch {
    /// Returns the current role.
    #[must_use]
    pub fn current(&mut self) -> Role {
        self.0.borrow_and_update().clone()
    }

    /// Waits for another role than the one that this or [`current`](Self::current) returned last.
    /// Returns `None` once the journal is dropped. Of several changes only the last is returned.
    /// Cancel safe.
    pub async fn changed(&mut self) -> Option<Role> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }

    /// Waits until the journal leads or has ended; returns at once if it already does or has.
    /// Returns `None` if the journal is dropped before that. Cancel safe.
    pub async fn settled(&mut self) -> Option<Role> {
        let is_settled = |role: &Role| !matches!(role, Role::Standby { .. });
        self.0.wait_for(is_settled).await.ok().map(|role| role.clone())
    }
}

/// Sets the role.
#[derive(Clone)]
pub(crate) struct RoleSender(watch::Sender<Role>);

impl RoleSender {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Role::Standby { leader: None, lag: 0 }))
    }

    pub(crate) fn watch(&self) -> RoleWatch {
        RoleWatch(self.0.subscribe())
    }

    /// Reports a lost lease, which only matters to a leader.
    pub(crate) fn lose(&self, reason: String) {
        self.0.send_if_modified(|last| {
            let is_leading = matches!(last, Role::Leading { .. });
            if is_leading {
                *last = Role::Lost { reason };
            }
            is_leading
        });
    }

    /// Sets the role, unless the last one was final or the same.
    pub(crate) fn set(&self, role: Role) {
        self.0.send_if_modified(|last| {
            let is_change = !last.is_final() && *last != role;
            if is_change {
                *last = role;
            }
            is_change
        });
    }
}

impl fmt::Debug for RoleSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.borrow().fmt(f)
    }
}

/// Encodes the value of the leader key: three lines.
pub(crate) fn encode_leader(leader: &Leader) -> Vec<u8> {
    format!("{}\n{}\n{}", leader.since.as_millis(), leader.name, leader.address).into_bytes()
}

/// Decodes exactly the form of [`encode_leader`]; `None` for other bytes.
pub(crate) fn decode_leader(bytes: &[u8]) -> Option<Leader> {
    let mut lines = core::str::from_utf8(bytes).ok()?.splitn(3, '\n');
    let leader = Leader {
        since: UnixTime::from_millis(lines.next()?.parse().ok()?),
        name: lines.next()?.to_owned(),
        address: lines.next()?.to_owned(),
    };
    let is_valid = is_label(&leader.name) && is_label(&leader.address);
    (is_valid && encode_leader(&leader) == bytes).then_some(leader)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn final_role_is_not_replaced() {
        let sender = RoleSender::new();
        let mut watch = sender.watch();
        sender.set(Role::Leading { since: UnixTime::from_millis(1), epoch: 2 });
        sender.set(Role::Lost { reason: "first".into() });
        sender.set(Role::Deposed { reason: "second".into() });
        assert_eq!(watch.current(), Role::Lost { reason: "first".into() });
    }

    proptest! {
        #[test]
        fn decoding_returns_the_encoded_leader(
            millis: u64,
            name in "\\PC{0,60}",
            address in "\\PC{0,60}",
        ) {
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
