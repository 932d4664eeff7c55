//! Identifies Kubernetes service accounts by their tokens.

mod keys;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

pub use keys::{KeysError, ServiceAccountKeys};

use keys::{Algorithm, Key};

use crate::login::client_ids::ACCOUNT_PREFIX;

/// The method of enhanced authentication that deployed clients use.
pub(crate) const METHOD: &str = "K8S-SAT";

/// Maximum length of a token in bytes. Tokens of Kubernetes have about 1,000 bytes.
pub(crate) const TOKEN_MAX: usize = 16 << 10;

/// Tolerated clock skew to the issuer of a token, in seconds.
const CLOCK_SKEW_MAX: u64 = 10;

/// Maximum length of a namespace and of an account name in bytes, as in Kubernetes.
const NAMESPACE_MAX: usize = 63;
const NAME_MAX: usize = 253;

/// Identifies Kubernetes service accounts by their tokens. Clones share the same keys. Needs the
/// feature `service-accounts`.
///
/// A client uses enhanced authentication: the method is `K8S-SAT`, the data is its token of at most
/// 16 KiB. Before the token expires the client can reauthenticate on the same connection with a new
/// one (AUTH, section 4.12.1 of MQTT 5). Otherwise it is disconnected when the token expires.
/// Tokens are signed with RS256 or ES256. Their issuer, audience, `exp` and `nbf` are checked, with
/// a tolerance of ten seconds for clock skew.
///
/// The user is `system:serviceaccount:NAMESPACE:NAME`, as in Kubernetes. It contains colons, so it
/// cannot collide with a user in a password file or a certificate. The attributes are `namespace`
/// and `serviceAccount`. The client id is `NAMESPACE.NAME`, or that, an underscore and any suffix.
/// It differs from the user name because clients of the state store have no colon in their ids, and
/// the separator is an underscore because account names contain none.
///
/// ```
/// use statestore_server::{Options, ServiceAccountKeys, ServiceAccounts};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // The output of `kubectl get --raw /openid/v1/jwks`.
/// let keys = ServiceAccountKeys::parse(
///     r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig",
///         "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
///         "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}"#,
/// )?;
/// let issuer = "https://kubernetes.default.svc.cluster.local";
/// let accounts = ServiceAccounts::new(keys, issuer, ["aio-internal"]);
/// let options = Options::default().service_accounts(accounts);
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

/// The account that a token identifies.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    /// The key that verified the signature.
    pub(crate) key: Arc<Key>,
    /// Expiry of the token with the tolerated clock skew, since the Unix epoch.
    pub(crate) expires: Duration,
}

impl Account {
    pub(crate) fn user(&self) -> String {
        format!("{ACCOUNT_PREFIX}{}:{}", self.namespace, self.name)
    }
}

/// Reason why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("it has more than {TOKEN_MAX} bytes")]
    Long,
    #[error("it is not a JSON Web Token")]
    Malformed,
    #[error("it is signed neither with RS256 nor with ES256")]
    Algorithm,
    #[error("no configured key has its key id and algorithm")]
    Key,
    #[error("its signature is wrong")]
    Signature,
    #[error("it has another issuer")]
    Issuer,
    #[error("it has another audience")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    Early,
    #[error("its subject is not a service account")]
    Subject,
}

/// Header of a token. A token with critical extensions is rejected.
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
    Single(String),
    Several(Vec<String>),
}

impl ServiceAccounts {
    /// Accepts tokens that are signed with one of the keys, for one of the audiences, by this
    /// issuer. Tokens of deployed clients have the audience `aio-internal`.
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

    /// Replaces the keys. [`Broker::recheck`](crate::Broker::recheck) disconnects clients whose
    /// token was signed with a removed key.
    pub fn replace_keys(&self, keys: ServiceAccountKeys) {
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    fn keys(&self) -> Arc<ServiceAccountKeys> {
        Arc::clone(&self.0.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether a key is one of the current keys.
    pub(crate) fn has_key(&self, key: &Key) -> bool {
        self.keys().keys.iter().any(|own| **own == *key)
    }

    /// Verifies a token and returns its account.
    pub(crate) fn verify(&self, token: &[u8], now: Duration) -> Result<Account, TokenError> {
        if token.len() > TOKEN_MAX {
            return Err(TokenError::Long);
        }
        let token = std::str::from_utf8(token).map_err(|_| TokenError::Malformed)?;
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let Header { alg, kid, crit } = decode_part(header)?;
        let algorithm =
            Algorithm::from_name(&alg).filter(|_| crit.is_none()).ok_or(TokenError::Algorithm)?;
        let key = self.keys().find(kid.as_deref(), algorithm).ok_or(TokenError::Key)?;
        let signature =
            BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        if !key.has_signed(signed.as_bytes(), &signature) {
            return Err(TokenError::Signature);
        }
        let Claims { iss, sub, aud, exp, nbf } = decode_part(claims)?;
        let (now, Inner { issuer, audiences, .. }) = (now.as_secs(), &*self.0);
        let has_audience = match &aud {
            Audiences::Single(audience) => audiences.contains(audience),
            Audiences::Several(all) => all.iter().any(|audience| audiences.contains(audience)),
        };
        let expires = exp.saturating_add(CLOCK_SKEW_MAX);
        if *iss != **issuer {
            Err(TokenError::Issuer)
        } else if !has_audience {
            Err(TokenError::Audience)
        } else if expires <= now {
            Err(TokenError::Expired)
        } else if nbf.is_some_and(|nbf| nbf > now.saturating_add(CLOCK_SKEW_MAX)) {
            Err(TokenError::Early)
        } else {
            let (namespace, name) = parse_subject(&sub).ok_or(TokenError::Subject)?;
            let expires = Duration::from_secs(expires);
            Ok(Account { namespace: namespace.into(), name: name.into(), key, expires })
        }
    }
}

impl fmt::Debug for ServiceAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccounts").field("issuer", &self.0.issuer).finish_non_exhaustive()
    }
}

/// Decodes a part of a token: JSON in Base64.
fn decode_part<T: DeserializeOwned>(text: &str) -> Result<T, TokenError> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

/// Splits a subject into the namespace and the name of an account. Both consist of lowercase
/// letters, digits and hyphens; the name may also contain dots.
fn parse_subject(subject: &str) -> Option<(&str, &str)> {
    let (namespace, name) = subject.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?;
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
