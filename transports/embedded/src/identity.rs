//! Who a client is, and how that was proved.

use std::borrow::Cow;
use std::sync::Arc;

use statestore_policy::Subject;
use tokio_rustls::rustls::pki_types::UnixTime;

use crate::certificates::CertificateUsers;
#[cfg(feature = "service-accounts")]
use crate::service_accounts::{Account, ServiceAccounts};

/// Who a client is.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) user: Arc<str>,
    /// When what proves it is of no use any more.
    pub(crate) expires: Option<UnixTime>,
    pub(crate) proof: Proof,
}

/// How it was proved.
#[derive(Debug)]
pub(crate) enum Proof {
    Password,
    /// By a certificate that the connection began with.
    Certificate {
        users: CertificateUsers,
        /// From the client's own to that of the authority.
        subjects: Vec<Subject>,
    },
    /// By the token of a service account.
    #[cfg(feature = "service-accounts")]
    Token {
        accounts: ServiceAccounts,
        account: Account,
    },
}

impl Identity {
    /// Whether what has proved it would do so now, but for passwords.
    pub(crate) fn still_holds(&self) -> bool {
        match &self.proof {
            Proof::Password | Proof::Certificate { .. } => true,
            #[cfg(feature = "service-accounts")]
            Proof::Token { accounts, account } => accounts.has(&account.key),
        }
    }

    /// Whether it is a service account's.
    pub(crate) const fn is_account(&self) -> bool {
        match &self.proof {
            Proof::Password | Proof::Certificate { .. } => false,
            #[cfg(feature = "service-accounts")]
            Proof::Token { .. } => true,
        }
    }

    /// What its client ids are, or begin with. Those of the state store have no colons, so a service account
    /// has its namespace, which has no dot, a dot and its name.
    pub(crate) fn client_name(&self) -> Cow<'_, str> {
        match &self.proof {
            Proof::Password | Proof::Certificate { .. } => Cow::Borrowed(&self.user),
            #[cfg(feature = "service-accounts")]
            Proof::Token { account, .. } => {
                format!("{}.{}", account.namespace, account.name).into()
            }
        }
    }

    /// What is known of it by now, beside the user.
    pub(crate) fn attributes(&self) -> Vec<(String, String)> {
        match &self.proof {
            Proof::Password => Vec::new(),
            Proof::Certificate { users, subjects } => {
                let table = users.attributes();
                let pairs = table.of(subjects).iter();
                pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
            }
            #[cfg(feature = "service-accounts")]
            Proof::Token { account, .. } => vec![
                ("namespace".into(), account.namespace.to_string()),
                ("serviceAccount".into(), account.name.to_string()),
            ],
        }
    }
}
