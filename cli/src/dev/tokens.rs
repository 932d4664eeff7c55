//! Tokens of service accounts, with the claims of those that a cluster issues.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::json;

use crate::dev::certificates::{missing_half, read_key};
use crate::dev::directory::{Directory, digest_of};
use crate::failure::Failure;

/// Issuer of the tokens: that of most clusters.
pub(super) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Audience of the tokens.
pub(super) const AUDIENCE: &str = "aio-internal";

/// File of the public key, a JSON Web Key Set.
pub(super) const KEY_SET: &str = "jwks.json";

/// File of the private key.
const KEY: &str = "token-signing.key";

/// File of the first account's token.
pub(super) const TOKEN: &str = "token.txt";

/// Directory of all tokens.
const TOKENS: &str = "tokens";

/// Allowed validity of tokens.
const LIFETIME: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(24 * 60 * 60);

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    namespace: String,
    name: String,
}

impl Account {
    /// Parses `NAMESPACE/NAME`.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let is_label = |text: &str| {
            let is_allowed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            let is_inside = !text.starts_with('-') && !text.ends_with('-');
            !text.is_empty() && text.len() <= 63 && is_inside && text.bytes().all(is_allowed)
        };
        match text.split_once('/') {
            Some((namespace, name))
                if is_label(namespace) && name.len() <= 253 && name.split('.').all(is_label) =>
            {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(Failure::bad_input(format_args!(
                "--service-account {text:?}: it is not NAMESPACE/NAME with lowercase letters, \
                 digits and hyphens; use for example azure-iot-operations/default"
            ))),
        }
    }

    fn file(&self) -> String {
        format!("{TOKENS}/{}.{}.txt", self.namespace, self.name)
    }
}

/// Signs tokens.
pub(super) struct TokenSigner {
    key: EcdsaKeyPair,
    key_id: String,
    lifetime: Duration,
    /// When the current tokens were issued, since 1970.
    issued: Duration,
}

impl TokenSigner {
    /// Reads the signing key. Makes one if there is none.
    pub(super) fn open(directory: &mut Directory, lifetime: Duration) -> Result<Self, Failure> {
        if !LIFETIME.contains(&lifetime) {
            return Err(Failure::bad_input("--token-lifetime: it must be from 10s to 24h"));
        }
        let key = match (directory.read(KEY)?, directory.read(KEY_SET)?) {
            (Some(key), Some(_)) => read_key(KEY, &key)?,
            // The first start was interrupted, or the file was deleted.
            (Some(key), None) => {
                let key = read_key(KEY, &key)?;
                directory.write(KEY_SET, &key_set(&key)?)?;
                key
            }
            (None, Some(_)) => return Err(missing_half(directory, KEY_SET, KEY)),
            (None, None) => {
                let key = KeyPair::generate().map_err(failed)?;
                directory.write(KEY, &key.serialize_pem())?;
                directory.write(KEY_SET, &key_set(&key)?)?;
                key
            }
        };
        directory.create_subdirectory(TOKENS)?;
        let key_id = key_id(&key);
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = key.serialized_der();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key, &SystemRandom::new()).map_err(failed)?;
        Ok(Self { key, key_id, lifetime, issued: Duration::ZERO })
    }

    /// Writes new tokens if half of the validity of the current ones is over, or if the clock went
    /// back. Returns whether it wrote tokens.
    pub(super) fn renew(
        &mut self,
        directory: &mut Directory,
        accounts: &[Account],
        now: Duration,
    ) -> Result<bool, Failure> {
        if (self.issued..self.issued.saturating_add(self.lifetime / 2)).contains(&now) {
            return Ok(false);
        }
        for (number, account) in accounts.iter().enumerate() {
            let token = self.sign(account, now)?;
            if number == 0 {
                directory.write(TOKEN, &token)?;
            }
            directory.write(&account.file(), &token)?;
        }
        self.issued = now;
        Ok(true)
    }

    fn sign(&self, account: &Account, now: Duration) -> Result<String, Failure> {
        let Account { namespace, name } = account;
        let (now, lifetime) = (now.as_secs(), self.lifetime.as_secs());
        let claims = json!({
            "aud": [AUDIENCE],
            "exp": now.saturating_add(lifetime),
            "iat": now,
            "iss": ISSUER,
            "jti": unique_id(),
            "kubernetes.io": { "namespace": namespace, "serviceaccount": { "name": name } },
            "nbf": now,
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
        });
        // The compact serialization of RFC 7515.
        let header = json!({ "alg": "ES256", "kid": self.key_id, "typ": "JWT" });
        let [header, claims] = [header, claims].map(|part| BASE64.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).map_err(failed)?;
        Ok(format!("{signed}.{}", BASE64.encode(signature)))
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::bad_input(format_args!("cannot sign tokens: {error}; delete the directory of --dir"))
}

/// Text form of a random UUID.
fn unique_id() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
    let digits = format!("{bits:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// Id of a key: a part of its digest.
fn key_id(key: &KeyPair) -> String {
    let mut id = digest_of(&BASE64.encode(key.public_key_raw()));
    id.truncate(16);
    id
}

/// The public key as a JSON Web Key Set.
fn key_set(key: &KeyPair) -> Result<String, Failure> {
    // An uncompressed point: a byte, and two coordinates of 32 bytes each.
    let point = key.public_key_raw().split_first().map(|(_, point)| point.split_at_checked(32));
    let (x, y) = point.flatten().ok_or_else(|| failed("the public key has another form"))?;
    let key = json!({
        "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": key_id(key),
        "x": BASE64.encode(x), "y": BASE64.encode(y),
    });
    Ok(json!({ "keys": [key] }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_is_a_namespace_and_a_name() {
        let account = Account::parse("azure-iot-operations/default").unwrap();
        assert_eq!(account.file(), "tokens/azure-iot-operations.default.txt");
        assert!(Account::parse("a/b.c").is_ok());
        for text in ["", "a", "a/", "/b", "a/b/c", "A/b", "a.b/c", "../b", "a/..", "a/-b", "a/b\n"]
        {
            let error = Account::parse(text).unwrap_err().to_string();
            assert!(error.contains("NAMESPACE/NAME"), "{text}: {error}");
        }
    }

    #[test]
    fn unique_ids_have_the_form_of_a_random_uuid() {
        let id = unique_id();
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(id.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        assert_ne!(id, unique_id());
    }
}
