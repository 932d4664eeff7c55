//! Kubernetes service accounts, by their tokens.

mod keys;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio_rustls::rustls::pki_types::UnixTime;

pub use keys::{KeysError, ServiceAccountKeys};

use keys::{Algorithm, Key};

/// The method of enhanced authentication that deployed clients name.
pub(crate) const METHOD: &str = "K8S-SAT";

/// Bytes of a token; those of Kubernetes have about one thousand.
pub(crate) const TOKEN_MAX: usize = 16 << 10;

/// Seconds by which the clock of whoever issued a token may differ.
const CLOCKS_DIFFER: u64 = 10;

/// Bytes of the names of a namespace and of an account: what Kubernetes allows.
const NAMESPACE_MAX: usize = 63;
const NAME_MAX: usize = 253;

/// What the names of service accounts begin with.
const PREFIX: &str = "system:serviceaccount:";

/// Takes Kubernetes service accounts for users, by their tokens. Clones are the same. Needs the feature `service-accounts`.
///
/// A client proves itself by enhanced authentication, with the method `K8S-SAT` and its token of 16 KiB at most as data, and
/// may do so again on the same connection (AUTH, section 4.12.1 of MQTT 5) before the token expires; otherwise it is
/// disconnected then. Tokens are signed with RS256 or ES256; their issuer, audience, expiry and beginning are checked, with ten
/// seconds for clocks that differ.
///
/// The user is `system:serviceaccount:NAMESPACE:NAME`, as Kubernetes calls it; with colons in it, it is nobody's in a password
/// file and in a certificate. Its attributes are `namespace` and `serviceAccount`. Its client ids are `NAMESPACE.NAME`, or begin
/// with that and an underscore, which no name of an account has: a client of the state store has no colon in its id.
///
/// ```
/// use statestore_embedded::{Options, ServiceAccountKeys, ServiceAccounts};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // What `kubectl get --raw /openid/v1/jwks` prints.
/// let keys = ServiceAccountKeys::parse(
///     r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig",
///         "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
///         "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}"#,
/// )?;
/// let issuer = "https://kubernetes.default.svc.cluster.local";
/// let options = Options::default().service_accounts(ServiceAccounts::new(keys, issuer, ["aio-internal"]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServiceAccounts(Arc<Inner>);

struct Inner {
    issuer: Box<str>,
    audiences: Vec<String>,
    keys: RwLock<Arc<ServiceAccountKeys>>,
}

/// Whose a token is.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    /// What its signature was made with.
    pub(crate) key: Arc<Key>,
    pub(crate) expires: UnixTime,
}

impl Account {
    pub(crate) fn user(&self) -> String {
        format!("{PREFIX}{}:{}", self.namespace, self.name)
    }
}

/// Why a token is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAccount {
    #[error("it has more than {TOKEN_MAX} bytes")]
    Long,
    #[error("it is no token")]
    Malformed,
    #[error("it is signed neither with RS256 nor with ES256")]
    Algorithm,
    #[error("it names no key that is here")]
    Key,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is from another issuer")]
    Issuer,
    #[error("it is for another audience")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    Early,
    #[error("it is no service account's")]
    Subject,
}

/// What a token begins with. Extensions that have to be understood are not.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audiences,
    exp: u64,
    nbf: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Some(Vec<String>),
}

impl ServiceAccounts {
    /// Accounts whose tokens are signed with one of these keys, from this issuer, and for one of these audiences; deployed
    /// clients have tokens for `aio-internal`.
    #[must_use]
    pub fn new<A: Into<String>>(
        keys: ServiceAccountKeys,
        issuer: &str,
        audiences: impl IntoIterator<Item = A>,
    ) -> Self {
        let audiences = audiences.into_iter().map(Into::into).collect();
        Self(Arc::new(Inner {
            issuer: issuer.into(),
            audiences,
            keys: RwLock::new(Arc::new(keys)),
        }))
    }

    /// From now on these are the keys. [`Broker::recheck`](crate::Broker::recheck) disconnects whoever came in by a token
    /// that was signed with a key that is not among them.
    pub fn replace_keys(&self, keys: ServiceAccountKeys) {
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    fn keys(&self) -> Arc<ServiceAccountKeys> {
        Arc::clone(&self.0.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a key is still one of them.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.keys().keys.iter().any(|own| **own == *key)
    }

    /// Whose token this is, at this time.
    pub(crate) fn verify(&self, token: &[u8], now: UnixTime) -> Result<Account, NoAccount> {
        if token.len() > TOKEN_MAX {
            return Err(NoAccount::Long);
        }
        let token = std::str::from_utf8(token).map_err(|_| NoAccount::Malformed)?;
        let (signed, signature) = token.rsplit_once('.').ok_or(NoAccount::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(NoAccount::Malformed)?;
        let Header { alg, kid, crit } = part(header)?;
        let algorithm =
            Algorithm::of(&alg).filter(|_| crit.is_none()).ok_or(NoAccount::Algorithm)?;
        let key = self.keys().find(kid.as_deref(), algorithm).ok_or(NoAccount::Key)?;
        let signature =
            BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| NoAccount::Malformed)?;
        if !key.has_signed(signed.as_bytes(), &signature) {
            return Err(NoAccount::Signature);
        }
        let Claims { iss, sub, aud, exp, nbf } = part(claims)?;
        let (now, Inner { issuer, audiences, .. }) = (now.as_secs(), &*self.0);
        let is_meant = match &aud {
            Audiences::One(one) => audiences.contains(one),
            Audiences::Some(some) => some.iter().any(|one| audiences.contains(one)),
        };
        let expires = exp.saturating_add(CLOCKS_DIFFER);
        if *iss != **issuer {
            Err(NoAccount::Issuer)
        } else if !is_meant {
            Err(NoAccount::Audience)
        } else if expires <= now {
            Err(NoAccount::Expired)
        } else if nbf.is_some_and(|nbf| nbf > now.saturating_add(CLOCKS_DIFFER)) {
            Err(NoAccount::Early)
        } else {
            let (namespace, name) = account(&sub).ok_or(NoAccount::Subject)?;
            let expires = UnixTime::since_unix_epoch(std::time::Duration::from_secs(expires));
            Ok(Account { namespace: namespace.into(), name: name.into(), key, expires })
        }
    }
}

impl fmt::Debug for ServiceAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccounts").field("issuer", &self.0.issuer).finish_non_exhaustive()
    }
}

/// A part of a token: JSON in Base64.
fn part<T: DeserializeOwned>(text: &str) -> Result<T, NoAccount> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| NoAccount::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| NoAccount::Malformed)
}

/// The namespace and the name of an account: small letters, digits and hyphens, in the name also dots.
fn account(subject: &str) -> Option<(&str, &str)> {
    let (namespace, name) = subject.strip_prefix(PREFIX)?.split_once(':')?;
    let is_letter = |letter: u8| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_namespace = |text: &str| text.bytes().all(is_letter) && text.len() <= NAMESPACE_MAX;
    let is_name = |text: &str| {
        text.bytes().all(|letter| is_letter(letter) || letter == b'.') && text.len() <= NAME_MAX
    };
    let are_names =
        !namespace.is_empty() && !name.is_empty() && is_namespace(namespace) && is_name(name);
    are_names.then_some((namespace, name))
}

#[cfg(test)]
mod tests;
