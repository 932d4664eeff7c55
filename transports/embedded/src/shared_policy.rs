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
    known: RwLock<BTreeMap<Arc<str>, Known>>,
}

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
            match client_id.and_then(|client_id| known.get(client_id)) {
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

    /// What a client may do is known to the store from now on.
    pub(crate) fn connected(&self, client_id: &str, rights: &Arc<Rights>) {
        write(&self.0.known).insert(client_id.into(), Known::Rights(Arc::clone(rights)));
    }

    pub(crate) fn attached(&self, client_id: &str) {
        write(&self.0.known).insert(client_id.into(), Known::Local);
    }

    /// The store has heard that a client has gone, and the client has not come back.
    pub(crate) fn gone(&self, client_id: &str) {
        write(&self.0.known).remove(client_id);
    }

    /// Nobody is connected any more.
    pub(crate) fn clear(&self) {
        write(&self.0.known).clear();
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
            || identity.is_none_or(|identity| is_of(users.as_deref(), client_id, identity));
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
fn is_of(users: Option<&Users>, client_id: &str, identity: &Identity) -> bool {
    let fits = |name: &str| {
        let rest = client_id.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let own = identity.client_name();
    let is_another = |name: &str| name.len() >= own.len() && *name != *identity.user && fits(name);
    fits(&own) && !users.is_some_and(|users| users.names().any(is_another))
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
            assert_eq!(is_of(Some(&users), client_id, &identity), expected, "{client_id} {user}");
        }
    }
}
