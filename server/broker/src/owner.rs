//! Owners: users, addresses and clients, whose shares of a limit sessions and messages count
//! against.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use core::net::IpAddr;

use crate::network::{is_loopback, network};

/// Minimum number of owners for a sweep.
const SWEEP_MIN: usize = 64;

/// The user of a client; without a user the address that it connected from; on this machine the
/// client itself. One user can have many client ids.
pub(crate) struct Owner {
    name: Arc<str>,
    /// Set if the owner is more than one client id.
    is_shared: bool,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl Owner {
    /// The kind of the owner and its name, such as `user:ann`, `address:192.0.2.1` or `client:c`.
    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The name of an owner that may have several client ids.
    pub(crate) fn shared_name(&self) -> Option<&str> {
        self.is_shared.then_some(&*self.name)
    }
}

/// All owners with a session or a message. Clients fill it, in proportion to both.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    by_name: BTreeMap<Arc<str>, Arc<Owner>>,
    /// Number of owners at which those without a reference are removed.
    sweep_at: usize,
}

impl Owners {
    /// Returns the owner of a client.
    pub(crate) fn find(
        &mut self,
        user: Option<&str>,
        peer: Option<IpAddr>,
        client_id: &str,
    ) -> Arc<Owner> {
        let (name, is_shared): (Arc<str>, bool) = match (user, peer) {
            (Some(user), _) => (format!("user:{user}").into(), true),
            (None, Some(peer)) if !is_loopback(peer) => {
                (format!("address:{}", network(peer)).into(), true)
            }
            _ => (format!("client:{client_id}").into(), false),
        };
        if let Some(owner) = self.by_name.get(&name) {
            return Arc::clone(owner);
        }
        if self.by_name.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.by_name.retain(|_, owner| Arc::strong_count(owner) > 1);
            self.sweep_at = 2 * self.by_name.len();
        }
        let owner = Arc::new(Owner { name: Arc::clone(&name), is_shared });
        self.by_name.insert(name, Arc::clone(&owner));
        owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(owners: &mut Owners, user: Option<&str>, peer: &str, client_id: &str) -> Arc<Owner> {
        owners.find(user, peer.parse().ok(), client_id)
    }

    #[test]
    fn owner_is_the_user_or_the_network_or_on_this_machine_the_client() {
        let mut owners = Owners::default();
        for (user, peer, name, is_shared) in [
            (Some("ann"), "192.0.2.1", "user:ann", true),
            (Some("ann"), "127.0.0.1", "user:ann", true),
            (None, "192.0.2.1", "address:192.0.2.1", true),
            (None, "2001:db8::1:2", "address:2001:db8::", true),
            (None, "127.0.0.1", "client:c", false),
            (None, "::ffff:127.0.0.1", "client:c", false),
            (None, "unknown", "client:c", false),
        ] {
            let owner = find(&mut owners, user, peer, "c");
            assert_eq!((&**owner.name(), owner.is_shared), (name, is_shared));
            assert!(Arc::ptr_eq(&owner, &find(&mut owners, user, peer, "c")));
        }
    }

    #[test]
    fn owners_without_a_reference_are_removed() {
        let mut owners = Owners::default();
        let kept = find(&mut owners, Some("kept"), "127.0.0.1", "c");
        for at in 0..10_000 {
            find(&mut owners, None, "127.0.0.1", &format!("{at}"));
        }
        assert!(owners.by_name.len() <= SWEEP_MIN);
        assert!(Arc::ptr_eq(&kept, &find(&mut owners, Some("kept"), "127.0.0.1", "c")));
    }
}
