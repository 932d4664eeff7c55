//! The authenticated identity of a client and its proof.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use statestore_policy::Subject;

#[cfg(feature = "tls")]
use crate::login::certificates::CertificateUsers;
#[cfg(feature = "service-accounts")]
use crate::login::service_accounts::{Account, ServiceAccounts};

/// The authenticated identity of a client.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) user: Arc<str>,
    /// Expiry of the proof, since the Unix epoch.
    pub(crate) expires: Option<Duration>,
    pub(crate) proof: Proof,
}

/// The proof of an identity.
#[derive(Debug)]
pub(crate) enum Proof {
    #[cfg(feature = "passwords")]
    Password,
    /// A client certificate from the TLS handshake.
    #[cfg(feature = "tls")]
    Certificate {
        users: CertificateUsers,
        /// Subjects from the client certificate to the CA.
        subjects: Vec<Subject>,
    },
    /// The token of a service account.
    #[cfg(feature = "service-accounts")]
    Token { accounts: ServiceAccounts, account: Account },
}

impl Identity {
    /// Returns whether the proof is still valid. Does not check passwords and certificates.
    pub(crate) fn is_proof_valid(&self) -> bool {
        match self.proof {
            #[cfg(feature = "passwords")]
            Proof::Password => true,
            #[cfg(feature = "tls")]
            Proof::Certificate { .. } => true,
            #[cfg(feature = "service-accounts")]
            Proof::Token { ref accounts, ref account } => accounts.has_key(&account.key),
        }
    }

    /// Returns the current attributes.
    pub(crate) fn attributes(&self) -> Vec<(String, String)> {
        match self.proof {
            #[cfg(feature = "passwords")]
            Proof::Password => Vec::new(),
            #[cfg(feature = "tls")]
            Proof::Certificate { ref users, ref subjects } => {
                let table = users.attributes();
                let pairs = table.of(subjects).iter();
                pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
            }
            #[cfg(feature = "service-accounts")]
            Proof::Token { ref account, .. } => vec![
                ("namespace".into(), account.namespace.to_string()),
                ("serviceAccount".into(), account.name.to_string()),
            ],
        }
    }
}
