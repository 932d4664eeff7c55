//! The public keys of whoever issues tokens: a JSON Web Key Set.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// Keys of a set.
const KEYS_MAX: usize = 64;

/// Bytes of a coordinate of P-256.
const COORDINATE: usize = 32;

/// Bytes of the modulus of an RSA key.
const MODULUS: std::ops::RangeInclusive<usize> = 256..=1_024;

/// Bytes of its exponent.
const EXPONENT_MAX: usize = 8;

/// The public keys that tokens of service accounts are signed with: a JSON Web Key Set (RFC 7517) of RSA keys of 2,048 to
/// 8,192 bits and keys of P-256, 64 at most. Needs the feature `service-accounts`.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceAccountKeys {
    pub(super) keys: Vec<Arc<Key>>,
}

/// What is wrong with a key set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// It is no JSON Web Key Set.
    #[error("no JSON Web Key Set: {0}; get one with `kubectl get --raw /openid/v1/jwks`")]
    Json(#[source] serde_json::Error),
    /// There is none.
    #[error("there are no keys in it, so no token would be taken")]
    Empty,
    /// There are too many.
    #[error("there are {0} keys in it; {KEYS_MAX} are allowed")]
    Many(usize),
    /// A key is of no use here.
    #[error(
        "key {0} is no public key for signatures of RS256 (RSA, 2,048 bits or more) or ES256 (P-256); leave it out"
    )]
    Key(usize),
    /// Two keys have the same `kid`.
    #[error("key {0} has the `kid` of one before it")]
    Twice(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
}

impl Algorithm {
    /// Those that a public key is enough for, and no others: neither `none` nor HMAC.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }
}

/// A public key. Its algorithm is its own, whatever a token says.
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

impl ServiceAccountKeys {
    /// Reads a set, as JSON.
    ///
    /// # Errors
    /// [`KeysError`]: the first thing that is wrong with it.
    pub fn parse(json: &str) -> Result<Self, KeysError> {
        let KeySet { keys: found } = serde_json::from_str(json).map_err(KeysError::Json)?;
        match found.len() {
            0 => return Err(KeysError::Empty),
            1..=KEYS_MAX => {}
            many => return Err(KeysError::Many(many)),
        }
        let mut keys: Vec<Arc<Key>> = Vec::new();
        for (number, jwk) in (1..).zip(&found) {
            let key = Key::of(jwk).ok_or(KeysError::Key(number))?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(KeysError::Twice(number));
            }
            keys.push(Arc::new(key));
        }
        Ok(Self { keys })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none; never so for what was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key that a token names; the only one if it names none.
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
    fn of(jwk: &Jwk) -> Option<Self> {
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
        let is_its_own =
            jwk.alg.as_deref().is_none_or(|name| Algorithm::of(name) == Some(key.algorithm()));
        (is_for_signatures && is_its_own).then_some(key)
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
