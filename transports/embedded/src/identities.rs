//! Finding out who a client is, in all the ways that there are here.

use std::net::IpAddr;
use std::sync::Arc;

use statestore_mqtt::Reason;
use tokio_rustls::rustls::pki_types::CertificateDer;
#[cfg(feature = "service-accounts")]
use tokio_rustls::rustls::pki_types::UnixTime;
#[cfg(feature = "service-accounts")]
use tracing::warn;

use crate::certificates::{CertificateUsers, Certified, NoUser};
use crate::identity::{Identity, Proof};
use crate::logins::{Login, Logins};
use crate::options::Options;
#[cfg(feature = "service-accounts")]
use crate::service_accounts::{METHOD, ServiceAccounts, TOKEN_MAX};

/// The ways; who comes proves itself by all that are for it.
pub(crate) struct Identities {
    passwords: Option<Logins>,
    certificates: Option<CertificateUsers>,
    #[cfg(feature = "service-accounts")]
    tokens: Option<ServiceAccounts>,
}

/// What a client says to be, and what it proves that by.
pub(crate) struct Claim<'a> {
    pub(crate) address: IpAddr,
    pub(crate) user_name: Option<&'a str>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) certificate: Option<&'a Arc<Identity>>,
    /// What it has by the method of enhanced authentication, if it has chosen that.
    pub(crate) token: Option<Vec<u8>>,
}

impl Identities {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            passwords: options.users.clone().map(Logins::new),
            certificates: options.certificate_users.clone(),
            #[cfg(feature = "service-accounts")]
            tokens: options.service_accounts.clone(),
        }
    }

    /// Whether nobody is asked.
    pub(crate) const fn is_empty(&self) -> bool {
        self.passwords.is_none() && self.certificates.is_none() && self.method().is_none()
    }

    /// The method of enhanced authentication, if there is one, and the bytes that it takes.
    pub(crate) const fn method(&self) -> Option<(&'static str, usize)> {
        #[cfg(feature = "service-accounts")]
        if self.tokens.is_some() {
            return Some((METHOD, TOKEN_MAX));
        }
        None
    }

    /// Whose token this is, from this address.
    #[cfg(feature = "service-accounts")]
    pub(crate) fn token(&self, address: IpAddr, token: &[u8]) -> Result<Arc<Identity>, Reason> {
        let accounts = self.tokens.as_ref().ok_or(Reason::BAD_AUTHENTICATION_METHOD)?;
        match accounts.verify(token, UnixTime::now()) {
            Ok(account) => Ok(Arc::new(Identity {
                user: account.user().into(),
                expires: Some(account.expires),
                proof: Proof::Token { accounts: accounts.clone(), account },
            })),
            Err(error) => {
                warn!(%address, "a token is no service account's: {error}");
                Err(Reason::NOT_AUTHORIZED)
            }
        }
    }

    /// Whose token this is: nobody's, since no method is offered.
    #[cfg(not(feature = "service-accounts"))]
    pub(crate) const fn token(&self, _: IpAddr, _: &[u8]) -> Result<Arc<Identity>, Reason> {
        Err(Reason::BAD_AUTHENTICATION_METHOD)
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
        let Claim { address, user_name, password, certificate, token } = claim;
        if let Some(token) = token {
            let identity = self.token(address, &token)?;
            let is_other = user_name.is_some_and(|name| *name != *identity.user);
            return if is_other { Err(Reason::BAD_USER_NAME_OR_PASSWORD) } else { Ok(identity) };
        }
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
            (None, Some(name)) if self.passwords.is_some() => {
                Ok(Arc::new(Identity { user: name.into(), expires: None, proof: Proof::Password }))
            }
            (None, _) => Err(Reason::BAD_USER_NAME_OR_PASSWORD),
        }
    }
}
