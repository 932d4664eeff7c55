//! A policy that is in force: what it lets each client do, and how the store asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use statestore_mqtt::Reason;
use statestore_mqtt::broker::Rules;
use statestore_policy::{Action, Policy, Principal, Rights};
use statestore_proto::store::Authorizer;

use crate::access::{FixedRules, is_private};
use crate::identity::Identity;
use crate::users::{SharedUsers, Users};

/// A policy that can be replaced while a broker and its store ask it. Clones are the same; it is for one broker.
///
/// ```
/// use statestore_embedded::{Broker, Options, SharedPolicy, StoreConfig, StoreService};
/// use statestore_embedded::policy::Policy;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = SharedPolicy::from(Policy::parse(
///     "rules: [{principals: {clientIds: [lamp]}, brokerResources: [{method: Connect}]}]",
/// )?);
/// let options = Options::new(([127, 0, 0, 1], 0)).policy(policy.clone());
/// let broker = Broker::bind(options).await?;
/// let config = StoreConfig::new(1).authorizer(policy.authorizer());
/// let store = StoreService::builder().config(config)?.spawn(broker.store_link());
/// # store.connected().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedPolicy(Arc<Inner>);

struct Inner {
    policy: RwLock<Arc<Policy>>,
    /// What the store may do for whom: for each client that is connected, or was when it sent what the store has not taken.
    known: RwLock<Clients>,
}

/// Those that the store may hear of. They are looked through when they have doubled, since not every end is told: no more than
/// so many while there is no store.
struct Clients {
    by_id: BTreeMap<Arc<str>, Known>,
    /// How many there may be before they are looked through.
    sweep_at: usize,
}

impl Default for Clients {
    fn default() -> Self {
        Self { by_id: BTreeMap::new(), sweep_at: SWEEP_MIN }
    }
}

impl Clients {
    /// Remembers one, and of the others those that are needed, once there are twice as many as there were of these.
    fn insert(&mut self, client_id: &str, known: Known, is_needed: impl Fn(&str) -> bool) {
        self.by_id.insert(client_id.into(), known);
        if self.by_id.len() > self.sweep_at {
            self.by_id.retain(|other, _| **other == *client_id || is_needed(other));
            self.sweep_at = SWEEP_MIN.max(2 * self.by_id.len());
        }
    }
}

/// Clients that are not worth a search for those who have gone.
const SWEEP_MIN: usize = 1_024;

enum Known {
    /// A client in this process.
    Local,
    Rights(Arc<Rights>),
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl SharedPolicy {
    /// From now on this is the policy for whoever connects and whatever is asked.
    /// [`Broker::recheck`](crate::Broker::recheck) sees to those who are connected.
    pub fn replace(&self, policy: Policy) {
        *write(&self.0.policy) = Arc::new(policy);
    }

    fn current(&self) -> Arc<Policy> {
        Arc::clone(&read(&self.0.policy))
    }

    /// For [`StoreConfig::authorizer`](crate::StoreConfig::authorizer) of the store in the broker that has this policy:
    /// decides by who the client has logged in as. Clients in this process may do everything.
    #[must_use]
    pub fn authorizer(&self) -> Authorizer {
        let own = self.clone();
        Box::new(move |principal, access, key| {
            let client_id = principal.client_id().filter(|_| principal.is_verified());
            let known = read(&own.0.known);
            match client_id.and_then(|client_id| known.by_id.get(client_id)) {
                Some(Known::Local) => true,
                Some(Known::Rights(rights)) => rights.allow_key(access, key),
                None => false,
            }
        })
    }

    /// For a store beside a broker that does not say who sends a request: takes each for the client that it claims to be. A
    /// policy is no protection then, unless the broker's access rules keep clients from speaking in another's name.
    #[must_use]
    pub fn authorizer_of_claims(&self) -> Authorizer {
        let own = self.clone();
        Box::new(move |principal, access, key| {
            let Some(client_id) = principal.client_id() else { return false };
            let principal = Principal { client_id, ..Principal::default() };
            own.current().rights(&principal).allow_key(access, key)
        })
    }

    /// What a client may do is known to the store from now on. `is_needed` says whether another one still has to be.
    pub(crate) fn connected(
        &self,
        client_id: &str,
        rights: &Arc<Rights>,
        is_needed: impl Fn(&str) -> bool,
    ) {
        let known = Known::Rights(Arc::clone(rights));
        write(&self.0.known).insert(client_id, known, is_needed);
    }

    pub(crate) fn attached(&self, client_id: &str, is_needed: impl Fn(&str) -> bool) {
        write(&self.0.known).insert(client_id, Known::Local, is_needed);
    }

    /// The store has heard that a client has gone, and the client has not come back.
    pub(crate) fn gone(&self, client_id: &str) {
        write(&self.0.known).by_id.remove(client_id);
    }

    /// How many clients the store may hear of.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        read(&self.0.known).by_id.len()
    }

    /// Nobody is connected any more.
    pub(crate) fn clear(&self) {
        *write(&self.0.known) = Clients::default();
    }
}

impl From<Policy> for SharedPolicy {
    fn from(policy: Policy) -> Self {
        let policy = RwLock::new(Arc::new(policy));
        Self(Arc::new(Inner { policy, known: RwLock::default() }))
    }
}

impl fmt::Debug for SharedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPolicy").field("rules", &self.current().len()).finish_non_exhaustive()
    }
}

/// Who may connect, as whom, and what then.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) policy: Option<SharedPolicy>,
    pub(crate) users: Option<SharedUsers>,
    /// Whether users may have any client id.
    pub(crate) any_client_id: bool,
    /// Whether service accounts come in.
    pub(crate) has_accounts: bool,
    /// Begins the client ids that this broker gives.
    pub(crate) assigned_prefix: Arc<str>,
}

impl Access {
    /// What a client may do that has logged in; the reason if it may not connect.
    pub(crate) fn admit(
        &self,
        client_id: &str,
        identity: Option<&Arc<Identity>>,
    ) -> Result<ClientRules, Reason> {
        let user = identity.map(|identity| &*identity.user);
        let attributes = identity.map(|identity| identity.attributes()).unwrap_or_default();
        let attributes: Vec<(&str, &str)> =
            attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let users = self.users.as_ref().map(SharedUsers::current);
        let is_bound = self.any_client_id
            || client_id.starts_with(&*self.assigned_prefix)
            || identity.is_none_or(|identity| {
                is_of(users.as_deref(), self.has_accounts, client_id, identity)
            });
        let principal = Principal { client_id, user_name: user, attributes: &attributes };
        let rights = self.policy.as_ref().map(|policy| policy.current().rights(&principal));
        let refused = match &rights {
            Some(rights) if !rights.allow(&Action::Connect) => Some(Reason::NOT_AUTHORIZED),
            Some(rights) if rights.names_client_id() => None,
            _ if is_bound => None,
            _ => Some(Reason::CLIENT_IDENTIFIER_NOT_VALID),
        };
        match refused {
            Some(reason) => Err(reason),
            None => Ok(ClientRules {
                hash: user.and_then(|user| users?.hash(user).map(Into::into)),
                identity: identity.cloned(),
                rights: rights.map(Arc::new),
                access: self.clone(),
            }),
        }
    }
}

/// Whether a client id is that of a user: its name, or its name, a hyphen and anything. If several names fit it is the longest
/// one's, and of a user in the password file rather than of an account whose client ids begin alike.
///
/// A service account has an underscore in place of the hyphen: names of accounts have hyphens in them, as often as not one
/// behind the name of another, and nobody lists them. Where there are accounts, no user has what may be the client id of one.
fn is_of(users: Option<&Users>, has_accounts: bool, client_id: &str, identity: &Identity) -> bool {
    let fits = |name: &str, behind: char| {
        let rest = client_id.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(behind))
    };
    let own = identity.client_name();
    let is_own = match identity.is_account() {
        true => fits(&own, '_'),
        false if has_accounts && is_of_accounts(client_id) => *own == *client_id,
        false => fits(&own, '-'),
    };
    let is_another =
        |name: &str| name.len() >= own.len() && *name != *identity.user && fits(name, '-');
    is_own && !users.is_some_and(|users| users.names().any(is_another))
}

/// Whether a service account may have this client id.
fn is_of_accounts(client_id: &str) -> bool {
    let name = client_id.split('_').next().unwrap_or_default();
    let is_named = |part: &str| {
        let may_be =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !part.is_empty() && part.bytes().all(may_be)
    };
    name.split_once('.').is_some_and(|(namespace, name)| is_named(namespace) && is_named(name))
}

/// What one client may do.
pub(crate) struct ClientRules {
    access: Access,
    identity: Option<Arc<Identity>>,
    /// Of the password it came with.
    hash: Option<Box<str>>,
    pub(crate) rights: Option<Arc<Rights>>,
}

impl ClientRules {
    fn allow(&self, action: &Action<'_>) -> Result<(), Reason> {
        match &self.rights {
            Some(rights) if !rights.allow(action) => Err(Reason::NOT_AUTHORIZED),
            _ => Ok(()),
        }
    }
}

impl Rules for ClientRules {
    fn may_publish(
        &self,
        client_id: &str,
        topic: &str,
        response_topic: Option<&str>,
    ) -> Result<(), Reason> {
        FixedRules.may_publish(client_id, topic, response_topic)?;
        // The answer is published for the client: where it may hear it, and where nobody else does or it may publish itself.
        if let Some(response_topic) = response_topic {
            self.allow(&Action::Subscribe(response_topic))?;
            if !is_private(client_id, response_topic) {
                self.allow(&Action::Publish(response_topic))?;
            }
        }
        self.allow(&Action::Publish(topic))
    }

    fn may_subscribe(&self, client_id: &str, filter: &str) -> Result<(), Reason> {
        FixedRules.may_subscribe(client_id, filter)?;
        self.allow(&Action::Subscribe(filter))
    }

    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        FixedRules.may_receive(client_id, topic)
    }

    fn still_hold(&self, client_id: &str) -> bool {
        self.identity.as_ref().is_none_or(|identity| identity.still_holds())
            && self
                .access
                .admit(client_id, self.identity.as_ref())
                .is_ok_and(|now| now.hash == self.hash && now.rights == self.rights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Proof;

    /// Whoever comes and goes is forgotten also where nobody says so.
    #[test]
    fn what_is_known_of_clients_is_bounded_by_those_there_are() {
        let policy = SharedPolicy::from(Policy::default());
        let rights = Arc::new(Policy::default().rights(&Principal::default()));
        let is_there = |client_id: &str| client_id.ends_with("00");
        for at in 0..100_000 {
            let client_id = format!("client-{at}");
            match at % 2 {
                0 => policy.connected(&client_id, &rights, is_there),
                _ => policy.attached(&client_id, is_there),
            }
            let known = policy.known();
            assert!(known <= SWEEP_MIN.max(2 * (at / 100 + 2)) + 1, "{at}: {known}");
        }
        let needed = (1..1_000).map(|at| format!("client-{at}00"));
        let all = read(&policy.0.known);
        assert!(needed.into_iter().all(|client_id| all.by_id.contains_key(&*client_id)));
        drop(all);
        policy.gone("client-100");
        assert!(!read(&policy.0.known).by_id.contains_key("client-100"));
        policy.clear();
        assert_eq!(policy.known(), 0);
    }

    #[test]
    fn a_client_id_is_of_the_longest_name_that_fits() {
        let mut users = Users::default();
        users.set("ann", "").unwrap();
        users.set("ann-marie", "").unwrap();
        for (client_id, user, expected) in [
            ("ann", "ann", true),
            ("ann-1", "ann", true),
            ("ann-", "ann", true),
            ("anna", "ann", false),
            ("bob", "ann", false),
            ("an", "ann", false),
            ("ann-marie", "ann", false),
            ("ann-marie-1", "ann", false),
            ("ann-mari", "ann", true),
            ("ann-maries", "ann", true),
            ("ann-marie-1", "ann-marie", true),
            ("ann", "ann-marie", false),
        ] {
            let proof = Proof::Password;
            let identity = Identity { user: user.into(), expires: None, proof };
            let found = is_of(Some(&users), false, client_id, &identity);
            assert_eq!(found, expected, "{client_id} {user}");
        }
    }

    #[test]
    fn what_may_be_an_account_s_is_no_user_s() {
        let users = Users::default();
        let of_user = |user: &str, client_id| {
            let identity = Identity { user: user.into(), expires: None, proof: Proof::Password };
            [false, true].map(|has| is_of(Some(&users), has, client_id, &identity))
        };
        for (user, client_id, expected) in [
            ("kube", "kube-system.ctl", [true, false]),
            ("kube", "kube-system.ctl_1", [true, false]),
            ("kube", "kube-1", [true, true]),
            ("kube", "kube-1.", [true, true]),
            ("kube", "kube-System.ctl", [true, true]),
            ("kube", "kube-a_b.c", [true, true]),
            ("ns.app", "ns.app", [true, true]),
            ("ns.app", "ns.app-1", [true, false]),
        ] {
            assert_eq!(of_user(user, client_id), expected, "{user} {client_id}");
        }
    }
}
