//! Finding out who a client is, in all the ways that there are here.

use std::net::IpAddr;
use std::sync::Arc;

use statestore_mqtt::Reason;
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::certificates::{CertificateUsers, Certified, NoUser};
use crate::identity::{Identity, Proof};
use crate::logins::{Login, Logins};
use crate::options::Options;

/// The ways; who comes proves itself by all that are for it.
pub(crate) struct Identities {
    passwords: Option<Logins>,
    certificates: Option<CertificateUsers>,
}

/// What a client says to be, and what it proves that by.
pub(crate) struct Claim<'a> {
    pub(crate) address: IpAddr,
    pub(crate) user_name: Option<&'a str>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) certificate: Option<&'a Arc<Identity>>,
}

impl Identities {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            passwords: options.users.clone().map(Logins::new),
            certificates: options.certificate_users.clone(),
        }
    }

    /// Whether nobody is asked.
    pub(crate) const fn is_empty(&self) -> bool {
        self.passwords.is_none() && self.certificates.is_none()
    }

    /// Whose chain this is, if that matters.
    pub(crate) fn certificate(
        &self,
        chain: &[CertificateDer<'_>],
    ) -> Option<Result<Identity, NoUser>> {
        let users = self.certificates.as_ref()?;
        Some(users.identify(chain).map(|Certified { user, expires, subjects }| {
            let proof = Proof::Certificate { users: users.clone(), subjects };
            Identity { user: user.into(), expires: Some(expires), proof }
        }))
    }

    /// Who a client is, unless `is_gone` says meanwhile that nobody waits for the answer.
    pub(crate) async fn identify(
        &self,
        claim: Claim<'_>,
        is_gone: impl Fn() -> bool,
    ) -> Result<Arc<Identity>, Reason> {
        let Claim { address, user_name, password, certificate } = claim;
        if self.certificates.is_some() {
            let certificate = certificate.ok_or(Reason::NOT_AUTHORIZED)?;
            if user_name.is_some_and(|name| *name != *certificate.user) {
                return Err(Reason::BAD_USER_NAME_OR_PASSWORD);
            }
        }
        if let Some(logins) = &self.passwords {
            logins.check(Login { address, name: user_name, password }, is_gone).await?;
        }
        match (certificate, user_name) {
            (Some(certificate), _) => Ok(Arc::clone(certificate)),
            (None, Some(name)) => {
                Ok(Arc::new(Identity { user: name.into(), expires: None, proof: Proof::Password }))
            }
            (None, None) => Err(Reason::BAD_USER_NAME_OR_PASSWORD),
        }
    }
}
