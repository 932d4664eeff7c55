//! The policy in force: permissions of each client at the broker and in the store.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use statestore_broker::{Acl, SenderDetails};
use statestore_mqtt::Reason;
use statestore_policy::{Action, Policy, Principal, Rights};
use statestore_proto::store::Authorizer;
use statestore_proto::transport::Rights as _;

use crate::access::fixed_rules::{FixedRules, is_private_topic};
use crate::listen::tls::ClientCertificate;
use crate::login::client_ids::{ClientIds, ConnectRejection, check_connect};
use crate::login::identity::Identity;
use crate::login::users::SharedUsers;

/// A policy that can be replaced while a broker and its store use it. Clones share the same policy.
/// Use one `SharedPolicy` per broker.
///
/// ```
/// use statestore_server::service::StoreConfig;
/// use statestore_server::{Broker, Options, SharedPolicy, StoreService};
/// use statestore_server::policy::Policy;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = SharedPolicy::from(Policy::parse(
///     "rules: [{principals: {clientIds: [lamp]}, brokerResources: [{method: Connect}]}]",
/// )?);
/// let options = Options::new(([127, 0, 0, 1], 0)).policy(policy.clone());
/// let broker = Broker::bind(options).await?;
/// let config = StoreConfig::new(1).authorizer(policy.authorizer());
/// let store = StoreService::builder().config(config)?.spawn(broker.store_link());
/// # store.wait_connected().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedPolicy(Arc<RwLock<Arc<Policy>>>);

impl SharedPolicy {
    /// Replaces the policy for new connections and new requests.
    /// [`Broker::recheck`](crate::Broker::recheck) applies it to existing sessions.
    pub fn replace(&self, policy: Policy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns an authorizer for the [`StoreConfig`](crate::service::StoreConfig::authorizer) of
    /// the store in the broker that has this policy. It decides by the rights with which a request
    /// arrives: those of the identity with which the client has logged in. Clients in this process
    /// may do everything. A request without rights, as every request at an external broker, is
    /// refused.
    #[must_use]
    pub fn authorizer(&self) -> Authorizer {
        Box::new(|principal, access, key| {
            principal.rights().is_some_and(|rights| rights.allow_key(access, key))
        })
    }

    /// Returns an authorizer for a store with an external broker that does not verify the sender of
    /// a request. It trusts the client id in the request. This protects nothing unless the access
    /// rules of the broker prevent clients from claiming another client id.
    #[must_use]
    pub fn authorizer_of_claims(&self) -> Authorizer {
        let own = self.clone();
        Box::new(move |principal, access, key| {
            let Some(client_id) = principal.client_id() else { return false };
            let principal = Principal { client_id, ..Principal::default() };
            own.current().rights(&principal).allow_key(access, key)
        })
    }
}

impl From<Policy> for SharedPolicy {
    fn from(policy: Policy) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(policy))))
    }
}

impl fmt::Debug for SharedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPolicy").field("rules", &self.current().len()).finish_non_exhaustive()
    }
}

/// The settings that decide which clients may connect.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) policy: Option<SharedPolicy>,
    pub(crate) users: Option<SharedUsers>,
    /// Set if users may have any client id.
    pub(crate) any_client_id: bool,
    /// Set if sessions do not belong to users.
    pub(crate) shares_sessions: bool,
    /// Set if service accounts may log in.
    pub(crate) has_accounts: bool,
    /// Prefix of the client ids that this broker assigns.
    pub(crate) assigned_prefix: Arc<str>,
}

impl Access {
    /// Returns the rules for a client that has proved its identity, or the reason why it may not
    /// connect.
    pub(crate) fn admit(
        &self,
        client_id: &str,
        identity: Option<&Arc<Identity>>,
        certificate: Option<&Arc<ClientCertificate>>,
    ) -> Result<ClientRules, Reason> {
        if certificate.is_some_and(|certificate| !certificate.is_trusted()) {
            return Err(Reason::NOT_AUTHORIZED);
        }
        let user = identity.map(|identity| &*identity.user);
        let attributes = identity.map(|identity| identity.attributes()).unwrap_or_default();
        let attributes: Vec<(&str, &str)> =
            attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let users = self.users.as_ref().map(SharedUsers::current);
        let has_client_id = || {
            self.any_client_id
                || client_id.starts_with(&*self.assigned_prefix)
                || user.is_none_or(|user| {
                    let names = users.iter().flat_map(|users| users.names());
                    ClientIds::new(user).contains(client_id, names, self.has_accounts)
                })
        };
        let principal = Principal { client_id, user_name: user, attributes: &attributes };
        let rights = self.policy.as_ref().map(|policy| policy.current().rights(&principal));
        check_connect(client_id, rights.as_ref(), has_client_id).map_err(|rejection| {
            match rejection {
                ConnectRejection::NotAllowed => Reason::NOT_AUTHORIZED,
                ConnectRejection::InvalidClientId | ConnectRejection::ForeignClientId => {
                    Reason::CLIENT_IDENTIFIER_NOT_VALID
                }
            }
        })?;
        Ok(ClientRules {
            hash: user.and_then(|user| users?.hash(user).map(Into::into)),
            identity: identity.cloned(),
            certificate: certificate.cloned(),
            rights: rights.map(Arc::new),
            access: self.clone(),
        })
    }
}

/// The rules for one client.
pub(crate) struct ClientRules {
    access: Access,
    identity: Option<Arc<Identity>>,
    certificate: Option<Arc<ClientCertificate>>,
    /// Hash of the password with which the client logged in.
    hash: Option<Box<str>>,
    rights: Option<Arc<Rights>>,
}

impl ClientRules {
    pub(crate) const fn shares_sessions(&self) -> bool {
        self.access.shares_sessions
    }

    fn allow(&self, action: &Action<'_>) -> Result<(), Reason> {
        match &self.rights {
            Some(rights) if !rights.allow(action) => Err(Reason::NOT_AUTHORIZED),
            _ => Ok(()),
        }
    }
}

impl Acl for ClientRules {
    fn may_publish(
        &self,
        client_id: &str,
        topic: &str,
        response_topic: Option<&str>,
    ) -> Result<(), Reason> {
        FixedRules.may_publish(client_id, topic, response_topic)?;
        // The store publishes the response for the client. So the client must be allowed to
        // subscribe to the response topic, and also to publish to it unless only this client
        // receives messages there.
        if let Some(response_topic) = response_topic {
            self.allow(&Action::Subscribe(response_topic))?;
            if !is_private_topic(client_id, response_topic) {
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

    fn details(&self) -> Option<SenderDetails> {
        Some(Arc::clone(self.rights.as_ref()?) as SenderDetails)
    }

    fn is_current(&self, client_id: &str) -> bool {
        self.identity.as_ref().is_none_or(|identity| identity.is_proof_valid())
            && self
                .access
                .admit(client_id, self.identity.as_ref(), self.certificate.as_ref())
                .is_ok_and(|now| now.hash == self.hash && now.rights == self.rights)
    }
}

#[cfg(all(test, feature = "passwords", feature = "service-accounts", feature = "tls"))]
mod tests {
    use super::*;

    /// The broker decides about passwords, certificates and service accounts as `policy explain`
    /// does, which knows only the user name.
    #[test]
    fn admission_depends_on_the_user_name_for_every_kind_of_proof() {
        use statestore_testkit::credentials::tokens::{AUDIENCE, Claims, ISSUER, Issuer, key_set};

        use crate::clock::unix_now;
        use crate::login::identity::Proof;
        use crate::{
            CertificateName, CertificateUsers, ServiceAccountKeys, ServiceAccounts, Users,
        };

        let issuer = Issuer::p256("k");
        let keys = ServiceAccountKeys::parse(&key_set(&[&issuer])).unwrap();
        let accounts = ServiceAccounts::new(keys, ISSUER, [AUDIENCE]);
        let mut identities = Vec::new();
        for user in ["a", "a-b", "a.b", "a-b.a"] {
            let users = CertificateUsers::new(CertificateName::CommonName);
            for proof in [Proof::Password, Proof::Certificate { users, subjects: Vec::new() }] {
                identities.push(Arc::new(Identity { user: user.into(), expires: None, proof }));
            }
        }
        for (namespace, name) in [("a", "b"), ("a", "b-a"), ("a-b", "a"), ("a", "b.a")] {
            let token = issuer.token(&Claims::of(namespace, name));
            let account = accounts.verify(token.as_bytes(), unix_now()).unwrap();
            let user = account.user().into();
            let proof = Proof::Token { accounts: accounts.clone(), account };
            identities.push(Arc::new(Identity { user, expires: None, proof }));
        }
        let hash = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo";
        let ids = ["a", "b", "a-b", "a.b", "a-b.a", "a.b-a", "a.b_a", "a-b_a", "a-b.a_b", "a.b.a"];
        for names in [&[][..], &["a"], &["a", "a-b"], &["a", "a.b", "a-b.a"]] {
            let file: String = names.iter().map(|name| format!("{name}:{hash}\n")).collect();
            let users: Users = file.parse().unwrap();
            let cases = [false, true].into_iter().flat_map(|has| ids.map(|id| (has, id)));
            for (has_accounts, client_id) in cases {
                let access = Access {
                    policy: None,
                    users: Some(users.clone().into()),
                    any_client_id: false,
                    shares_sessions: false,
                    has_accounts,
                    assigned_prefix: "assigned-".into(),
                };
                for identity in &identities {
                    let user = Arc::clone(&identity.user);
                    let by_name =
                        ClientIds::new(&user).contains(client_id, users.names(), has_accounts);
                    let admitted = access.admit(client_id, Some(identity), None).is_ok();
                    assert_eq!(admitted, by_name, "{user} {client_id} {names:?} {has_accounts}");
                }
            }
        }
    }
}
