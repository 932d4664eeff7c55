//! Public keys of the token issuer, as a JSON Web Key Set.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use crate::json;

/// Maximum number of keys in a set.
const KEYS_MAX: usize = 64;

/// Length of a P-256 coordinate in bytes.
const COORDINATE: usize = 32;

/// Allowed lengths of an RSA modulus in bytes.
const MODULUS: std::ops::RangeInclusive<usize> = 256..=1_024;

/// Maximum length of an RSA exponent in bytes.
const EXPONENT_MAX: usize = 8;

/// Public keys that verify tokens of service accounts: a JSON Web Key Set (RFC 7517) of at most 64
/// keys. Allowed are RSA keys of 2,048 to 8,192 bits and P-256 keys. Needs the feature
/// `service-accounts`.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceAccountKeys {
    pub(super) keys: Vec<Arc<Key>>,
}

/// Error in a key set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The text is not a JSON Web Key Set.
    #[error("not a JSON Web Key Set: {0}; get one with `kubectl get --raw /openid/v1/jwks`")]
    Json(Box<str>),
    /// The set is empty.
    #[error("the key set is empty, so every token would be rejected")]
    Empty,
    /// The set has too many keys.
    #[error("the key set has {0} keys; the limit is {KEYS_MAX}")]
    Many(usize),
    /// A key is not a supported public key for signatures.
    #[error(
        "key {0} is not a public key for RS256 (RSA, 2,048 bits or more) or ES256 (P-256); \
         remove it"
    )]
    Key(usize),
    /// Two keys have the same `kid`.
    #[error("key {0} has the same `kid` as an earlier key")]
    Twice(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
}

impl Algorithm {
    /// Returns a supported algorithm. Only algorithms with public keys are supported: neither
    /// `none` nor HMAC.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }
}

/// A public key. Its algorithm follows from the key, never from the header of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    id: Option<Box<str>>,
    material: Material,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The error of a text that is not a key set, without values: it may be a private key.
fn not_a_set(error: serde_json::Error) -> KeysError {
    KeysError::Json(format!("line {}: {}", error.line(), json::cause(&error)).into())
}

impl ServiceAccountKeys {
    /// Parses a key set in JSON.
    ///
    /// # Errors
    /// [`KeysError`]: the first error found.
    pub fn parse(json: &str) -> Result<Self, KeysError> {
        let KeySet { keys: found } = serde_json::from_str(json).map_err(not_a_set)?;
        match found.len() {
            0 => return Err(KeysError::Empty),
            1..=KEYS_MAX => {}
            many => return Err(KeysError::Many(many)),
        }
        let mut keys: Vec<Arc<Key>> = Vec::new();
        for (number, jwk) in (1..).zip(&found) {
            let key = Key::from_jwk(jwk).ok_or(KeysError::Key(number))?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(KeysError::Twice(number));
            }
            keys.push(Arc::new(key));
        }
        Ok(Self { keys })
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether the set is empty; a parsed set is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key with this id, or the only key if the token has no key id.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<Arc<Key>> {
        let found = match (id, &self.keys[..]) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(_), keys) => keys.iter().find(|key| key.id.as_deref() == id),
        };
        found.filter(|key| key.algorithm() == algorithm).cloned()
    }
}

impl fmt::Debug for ServiceAccountKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys.iter().map(|key| &key.id)).finish()
    }
}

impl Key {
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let bytes = |text: &Option<String>| BASE64_URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
        let material = match (&*jwk.kty, jwk.crv.as_deref()) {
            ("RSA", _) => {
                let (modulus, exponent) = (bytes(&jwk.n)?, bytes(&jwk.e)?);
                let fits = MODULUS.contains(&modulus.len()) && exponent.len() <= EXPONENT_MAX;
                fits.then_some(Material::Rsa { modulus, exponent })?
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
                let fits = x.len() == COORDINATE && y.len() == COORDINATE;
                fits.then(|| Material::P256([&[4][..], &x, &y].concat()))?
            }
            _ => return None,
        };
        let key = Self { id: jwk.kid.as_deref().map(Into::into), material };
        let is_for_signatures = jwk.r#use.as_deref().is_none_or(|purpose| purpose == "sig");
        let has_matching_algorithm = jwk
            .alg
            .as_deref()
            .is_none_or(|name| Algorithm::from_name(name) == Some(key.algorithm()));
        (is_for_signatures && has_matching_algorithm).then_some(key)
    }

    const fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
        }
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
            Material::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature)
                .is_ok(),
        }
    }
}
