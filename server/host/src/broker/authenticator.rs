//! Authentication of clients, by all configured methods.

use std::net::IpAddr;
use std::sync::Arc;

use statestore_mqtt::Reason;
#[cfg(feature = "tls")]
use tokio_rustls::rustls::pki_types::CertificateDer;
#[cfg(feature = "service-accounts")]
use tracing::warn;

#[cfg(feature = "service-accounts")]
use crate::clock::unix_now;
use crate::listen::tls::ClientCertificate;
#[cfg(feature = "tls")]
use crate::listen::tls::ClientTrust;
use crate::listener::ListenerLogin;
#[cfg(feature = "tls")]
use crate::login::certificates::{CertificateRejection, CertificateUsers, CertifiedUser};
use crate::login::identity::Identity;
#[cfg(any(feature = "passwords", feature = "service-accounts", feature = "tls"))]
use crate::login::identity::Proof;
#[cfg(feature = "passwords")]
use crate::login::password_checks::{Login, Logins};
#[cfg(feature = "service-accounts")]
use crate::login::service_accounts::{METHOD, ServiceAccounts, TOKEN_MAX};
use crate::options::Options;

/// The configured methods of authentication.
pub(crate) struct Authenticator {
    #[cfg(feature = "passwords")]
    passwords: Option<Logins>,
    #[cfg(feature = "tls")]
    certificates: Option<CertificateUsers>,
    #[cfg(feature = "service-accounts")]
    tokens: Option<ServiceAccounts>,
}

/// The certificate of the client of a connection.
#[derive(Clone)]
pub(crate) struct ConnectionCertificate {
    pub(crate) certificate: Arc<ClientCertificate>,
    /// The user, if certificates identify users and if this one identifies a user.
    pub(crate) identity: Option<Arc<Identity>>,
}

/// The credentials that a client presents.
pub(crate) struct Credentials<'a> {
    pub(crate) address: IpAddr,
    pub(crate) user_name: Option<&'a str>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) certificate: Option<&'a ConnectionCertificate>,
    /// Data of enhanced authentication, if the client uses it.
    pub(crate) token: Option<Vec<u8>>,
}

impl Authenticator {
    #[cfg_attr(
        not(any(feature = "passwords", feature = "service-accounts", feature = "tls")),
        expect(unused_variables, reason = "no method of authentication")
    )]
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            #[cfg(feature = "passwords")]
            passwords: options.users.clone().map(Logins::new),
            #[cfg(feature = "tls")]
            certificates: options.certificate_users.clone(),
            #[cfg(feature = "service-accounts")]
            tokens: options.service_accounts.clone(),
        }
    }

    /// The methods of one listener.
    #[cfg_attr(
        not(any(feature = "service-accounts", feature = "tls")),
        expect(unused_variables, reason = "a listener has no method of authentication")
    )]
    fn of_listener(login: &ListenerLogin) -> Self {
        Self {
            #[cfg(feature = "passwords")]
            passwords: None,
            #[cfg(feature = "tls")]
            certificates: login.certificate_users.clone(),
            #[cfg(feature = "service-accounts")]
            tokens: login.service_accounts.clone(),
        }
    }

    /// The methods of each listener, in the order of the options.
    pub(crate) fn for_listeners(options: &Options) -> Vec<Arc<Self>> {
        // Shared, because password checks are counted for the whole broker.
        let default = Arc::new(Self::new(options));
        let listeners = options.listeners.iter();
        let of = |login: &ListenerLogin| Arc::new(Self::of_listener(login));
        listeners.map(|one| one.login.as_ref().map_or_else(|| Arc::clone(&default), of)).collect()
    }

    /// Returns whether no method is configured.
    pub(crate) const fn is_empty(&self) -> bool {
        !self.has_passwords() && !self.has_certificates() && self.method().is_none()
    }

    const fn has_passwords(&self) -> bool {
        #[cfg(feature = "passwords")]
        return self.passwords.is_some();
        #[cfg(not(feature = "passwords"))]
        false
    }

    const fn has_certificates(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.certificates.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Returns the name of the method of enhanced authentication and its maximum data length.
    pub(crate) const fn method(&self) -> Option<(&'static str, usize)> {
        #[cfg(feature = "service-accounts")]
        if self.tokens.is_some() {
            return Some((METHOD, TOKEN_MAX));
        }
        None
    }

    /// Identifies a service account by its token.
    #[cfg(feature = "service-accounts")]
    pub(crate) fn identify_token(
        &self,
        address: IpAddr,
        token: &[u8],
    ) -> Result<Arc<Identity>, Reason> {
        let accounts = self.tokens.as_ref().ok_or(Reason::BAD_AUTHENTICATION_METHOD)?;
        match accounts.verify(token, unix_now()) {
            Ok(account) => Ok(Arc::new(Identity {
                user: account.user().into(),
                expires: Some(account.expires),
                proof: Proof::Token { accounts: accounts.clone(), account },
            })),
            Err(error) => {
                warn!(%address, "service account token rejected: {error}");
                Err(Reason::NOT_AUTHORIZED)
            }
        }
    }

    /// Rejects a token, because no method of enhanced authentication is configured.
    #[cfg(not(feature = "service-accounts"))]
    pub(crate) const fn identify_token(
        &self,
        _: IpAddr,
        _: &[u8],
    ) -> Result<Arc<Identity>, Reason> {
        Err(Reason::BAD_AUTHENTICATION_METHOD)
    }

    /// Identifies the user of a certificate chain, if certificates are configured.
    #[cfg(feature = "tls")]
    pub(crate) fn identify_certificate(
        &self,
        trust: &ClientTrust,
        chain: &[CertificateDer<'_>],
    ) -> Option<Result<Identity, CertificateRejection>> {
        let users = self.certificates.as_ref()?;
        Some(users.identify(trust, chain).map(|CertifiedUser { user, expires, subjects }| {
            let proof = Proof::Certificate { users: users.clone(), subjects };
            Identity { user: user.into(), expires: Some(expires), proof }
        }))
    }

    /// Authenticates a client. Skips the password check if `is_disconnected` returns true, because
    /// no client waits for the result.
    #[cfg_attr(
        not(feature = "passwords"),
        expect(unused_variables, reason = "no password is checked")
    )]
    pub(crate) async fn identify(
        &self,
        credentials: Credentials<'_>,
        is_disconnected: impl Fn() -> bool,
    ) -> Result<Arc<Identity>, Reason> {
        let Credentials { address, user_name, password, certificate, token } = credentials;
        if let Some(token) = token {
            let identity = self.identify_token(address, &token)?;
            let is_other = user_name.is_some_and(|name| *name != *identity.user);
            return if is_other { Err(Reason::BAD_USER_NAME_OR_PASSWORD) } else { Ok(identity) };
        }
        // Listeners without client CAs have no certificates.
        let certificate = match certificate.filter(|_| self.has_certificates()) {
            None => None,
            Some(certificate) => Some(certificate.identity.as_ref().ok_or(Reason::NOT_AUTHORIZED)?),
        };
        if let (Some(certificate), Some(name)) = (certificate, user_name)
            && *name != *certificate.user
        {
            return Err(Reason::BAD_USER_NAME_OR_PASSWORD);
        }
        #[cfg(feature = "passwords")]
        if let Some(logins) = &self.passwords {
            logins.check(Login { address, name: user_name, password }, is_disconnected).await?;
        }
        match (certificate, user_name) {
            (Some(certificate), _) => Ok(Arc::clone(certificate)),
            #[cfg(feature = "passwords")]
            (None, Some(name)) if self.has_passwords() => {
                Ok(Arc::new(Identity { user: name.into(), expires: None, proof: Proof::Password }))
            }
            (None, _) if self.has_certificates() => Err(Reason::NOT_AUTHORIZED),
            (None, _) => Err(Reason::BAD_USER_NAME_OR_PASSWORD),
        }
    }
}
