//! Who a client is, and how that was proved.

use std::sync::Arc;

use statestore_policy::Subject;
use tokio_rustls::rustls::pki_types::UnixTime;

use crate::certificates::CertificateUsers;

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
}

impl Identity {
    /// What is known of it by now, beside the user.
    pub(crate) fn attributes(&self) -> Vec<(String, String)> {
        match &self.proof {
            Proof::Password => Vec::new(),
            Proof::Certificate { users, subjects } => {
                let table = users.attributes();
                let pairs = table.of(subjects).iter();
                pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
            }
        }
    }
}
