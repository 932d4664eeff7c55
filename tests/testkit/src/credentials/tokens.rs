//! Tokens of service accounts and their issuer, with keys made for one test.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};

/// Issuer of the tokens in most tests.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Audience of the tokens in most tests.
pub const AUDIENCE: &str = "aio-internal";

/// A key with its id.
#[derive(Debug)]
pub struct Issuer {
    id: String,
    key: Key,
}

#[derive(Debug)]
enum Key {
    P256(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

/// The claims of a token.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Subject.
    pub subject: String,
    /// Issuer.
    pub issuer: String,
    /// Audience, as JSON.
    pub audience: String,
    /// Expiry in seconds since 1970.
    pub expires: u64,
    /// Beginning in seconds since 1970.
    pub begins: u64,
}

impl Claims {
    /// Claims of an account, valid for an hour.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "tokens are about the time that it is")]
    pub fn of(namespace: &str, name: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        Self {
            subject: format!("system:serviceaccount:{namespace}:{name}"),
            issuer: ISSUER.into(),
            audience: format!("[\"other\", \"{AUDIENCE}\"]"),
            expires: now + 3_600,
            begins: now,
        }
    }

    fn json(&self) -> String {
        let Self { subject, issuer, audience, expires, begins } = self;
        format!(
            r#"{{"iss":"{issuer}","sub":"{subject}","aud":{audience},"exp":{expires},"nbf":{begins},"iat":{begins},"kubernetes.io":{{"namespace":"x"}}}}"#
        )
    }
}

impl Issuer {
    /// An issuer with a new key for ES256.
    ///
    /// # Panics
    /// If the system provides no random numbers.
    #[must_use]
    pub fn p256(id: &str) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let key = key.expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random);
        Self { id: id.into(), key: Key::P256(Box::new(key.expect("a key"))) }
    }

    /// An issuer with a new key for RS256; `None` if openssl is not installed.
    ///
    /// # Panics
    /// If openssl fails.
    #[must_use]
    pub fn rsa(id: &str) -> Option<Self> {
        let mut command = Command::new("openssl");
        command.args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
        let made = command.args(["-outform", "DER"]).output().ok()?;
        // The format depends on the version of openssl.
        let key = RsaKeyPair::from_pkcs8(&made.stdout);
        let key = key.or_else(|_| RsaKeyPair::from_der(&made.stdout)).expect("a key");
        Some(Self { id: id.into(), key: Key::Rsa(Box::new(key)) })
    }

    /// The signature algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        match self.key {
            Key::P256(_) => "ES256",
            Key::Rsa(_) => "RS256",
        }
    }

    /// The public key, in the form of a key set.
    #[must_use]
    pub fn public_key(&self) -> String {
        let (id, algorithm) = (&self.id, self.algorithm());
        let head = format!(r#""use":"sig","kid":"{id}","alg":"{algorithm}""#);
        match &self.key {
            Key::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                let (x, y) = (BASE64.encode(x), BASE64.encode(y));
                format!(r#"{{{head},"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}"#)
            }
            Key::Rsa(key) => {
                let RsaPublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                let (n, e) = (BASE64.encode(n), BASE64.encode(e));
                format!(r#"{{{head},"kty":"RSA","n":"{n}","e":"{e}"}}"#)
            }
        }
    }

    /// Returns a signed token with a matching header.
    #[must_use]
    pub fn token(&self, claims: &Claims) -> String {
        let (id, algorithm) = (&self.id, self.algorithm());
        self.sign(&format!(r#"{{"alg":"{algorithm}","kid":"{id}"}}"#), &claims.json())
    }

    /// The same, with another header.
    #[must_use]
    pub fn token_with(&self, header: &str, claims: &Claims) -> String {
        self.sign(header, &claims.json())
    }

    /// Signs any header and claims.
    ///
    /// # Panics
    /// If the system provides no random numbers.
    #[must_use]
    pub fn sign(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
        let random = SystemRandom::new();
        let signature = match &self.key {
            Key::P256(key) => {
                key.sign(&random, signed.as_bytes()).expect("a signature").as_ref().to_vec()
            }
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature)
                    .expect("a signature");
                signature
            }
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }

    /// A token that is signed with HMAC, with the public key as secret. A verifier must not accept
    /// it.
    #[must_use]
    pub fn signed_with_public_key(&self, claims: &Claims) -> String {
        let header = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, self.id);
        let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims.json()));
        let secret = match &self.key {
            Key::P256(key) => key.public_key().as_ref().to_vec(),
            Key::Rsa(key) => key.public().as_ref().to_vec(),
        };
        let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
        let signature = ring::hmac::sign(&secret, signed.as_bytes());
        format!("{signed}.{}", BASE64.encode(signature))
    }
}

/// A key set with the keys of these issuers.
#[must_use]
pub fn key_set(issuers: &[&Issuer]) -> String {
    let keys: Vec<String> = issuers.iter().map(|issuer| issuer.public_key()).collect();
    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
}
