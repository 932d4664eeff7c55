use statestore_testkit::credentials::tokens::{AUDIENCE, Claims, ISSUER, Issuer, key_set};

use super::*;
use crate::clock::unix_now;

fn accounts(issuers: &[&Issuer]) -> ServiceAccounts {
    let keys = ServiceAccountKeys::parse(&key_set(issuers)).expect("keys");
    ServiceAccounts::new(keys, ISSUER, [AUDIENCE])
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn token_is_valid_from_nbf_to_exp_with_clock_skew() {
    let issuers = [Some(Issuer::p256("p")), Issuer::rsa("r")];
    let issuers: Vec<&Issuer> = issuers.iter().flatten().collect();
    let accounts = accounts(&issuers);
    let claims = Claims { begins: 1_000, expires: 2_000, ..Claims::of("home", "door.bell") };
    for issuer in issuers {
        let token = issuer.token(&claims);
        let verify = |seconds| accounts.verify(token.as_bytes(), at(seconds));
        let account = verify(1_500).expect("valid token");
        assert_eq!(account.user(), "system:serviceaccount:home:door.bell");
        assert_eq!((&*account.namespace, &*account.name), ("home", "door.bell"));
        assert_eq!(account.expires, at(2_000 + CLOCK_SKEW_MAX));
        for (seconds, expected) in [
            (1_000 - CLOCK_SKEW_MAX, None),
            (1_000 - CLOCK_SKEW_MAX - 1, Some(TokenError::Early)),
            (2_000 + CLOCK_SKEW_MAX - 1, None),
            (2_000 + CLOCK_SKEW_MAX, Some(TokenError::Expired)),
        ] {
            assert_eq!(verify(seconds).err(), expected, "{seconds}");
        }
        // A truncated, changed or extended token is rejected.
        for end in 0..token.len() {
            assert!(accounts.verify(&token.as_bytes()[..end], at(1_500)).is_err(), "{end}");
        }
        let mut changed = token.clone().into_bytes();
        // The last character of a signature has unused bits.
        for place in 0..changed.len() - 1 {
            changed[place] ^= 1;
            assert!(accounts.verify(&changed, at(1_500)).is_err(), "{place}");
            changed[place] ^= 1;
        }
        assert!(accounts.verify(format!("{token}.x").as_bytes(), at(1_500)).is_err());
    }
}

#[test]
fn invalid_tokens_are_rejected_with_their_reason() {
    let (issuer, other) = (Issuer::p256("k"), Issuer::p256("k"));
    let more = Issuer::p256("more");
    let accounts = accounts(&[&issuer, &more]);
    let good = Claims::of("home", "door");
    let now = unix_now();
    let refused = |token: &str| accounts.verify(token.as_bytes(), now).expect_err(token);
    assert!(accounts.verify(issuer.token(&good).as_bytes(), now).is_ok());
    let with = |header| refused(&issuer.token_with(header, &good));
    assert_eq!(with(r#"{"alg":"none","kid":"k"}"#), TokenError::Algorithm);
    assert_eq!(with(r#"{"alg":"None","kid":"k"}"#), TokenError::Algorithm);
    assert_eq!(with(r#"{"alg":"ES384","kid":"k"}"#), TokenError::Algorithm);
    assert_eq!(with(r#"{"alg":"ES256","kid":"k","crit":["x"],"x":1}"#), TokenError::Algorithm);
    assert_eq!(with(r#"{"alg":"RS256","kid":"k"}"#), TokenError::Key);
    assert_eq!(with(r#"{"alg":"ES256","kid":"m"}"#), TokenError::Key);
    assert_eq!(with(r#"{"alg":"ES256"}"#), TokenError::Key, "ambiguous without a key id");
    assert_eq!(with(r#"{"alg":"ES256","kid":"more"}"#), TokenError::Signature);
    assert_eq!(with(r#"{"alg":"ES256","kid":"k","kid":"k"}"#), TokenError::Malformed);
    assert_eq!(with("[]"), TokenError::Malformed);
    assert_eq!(refused(&issuer.signed_with_public_key(&good)), TokenError::Algorithm);
    assert_eq!(refused(&other.token(&good)), TokenError::Signature);
    let unsigned = issuer.token(&good);
    let (unsigned, _) = unsigned.rsplit_once('.').expect("a signature");
    assert_eq!(refused(&format!("{unsigned}.")), TokenError::Signature);
    assert_eq!(refused(&"x".repeat(TOKEN_MAX + 1)), TokenError::Long);
    assert_eq!(refused(""), TokenError::Malformed);
    assert_eq!(refused(".."), TokenError::Malformed);
    for (claims, expected) in [
        (Claims { issuer: "https://elsewhere".into(), ..good.clone() }, TokenError::Issuer),
        (Claims { issuer: String::new(), ..good.clone() }, TokenError::Issuer),
        (Claims { audience: "\"api\"".into(), ..good.clone() }, TokenError::Audience),
        (Claims { audience: "[]".into(), ..good.clone() }, TokenError::Audience),
        (Claims { audience: "null".into(), ..good.clone() }, TokenError::Malformed),
        (Claims { expires: 0, ..good.clone() }, TokenError::Expired),
        (Claims { begins: u64::MAX, ..good.clone() }, TokenError::Early),
    ] {
        assert_eq!(refused(&issuer.token(&claims)), expected, "{claims:?}");
    }
    let one = Claims { audience: format!("\"{AUDIENCE}\""), expires: u64::MAX, ..good };
    assert!(accounts.verify(issuer.token(&one).as_bytes(), now).is_ok());
    for claims in ["{}", "[]", r#"{"iss":"a","sub":"b","aud":"c"}"#, r#"{"exp":"9"}"#] {
        assert_eq!(
            refused(&issuer.sign(r#"{"alg":"ES256","kid":"k"}"#, claims)),
            TokenError::Malformed
        );
    }
}

#[test]
fn subjects_are_parsed_by_kubernetes_naming_rules() {
    let (long_namespace, long_name) = ("n".repeat(64), "n".repeat(254));
    for (subject, expected) in [
        ("system:serviceaccount:home:door", Some(("home", "door"))),
        ("system:serviceaccount:a-1:b.c", Some(("a-1", "b.c"))),
        ("system:serviceaccount:home", None),
        ("system:serviceaccount::door", None),
        ("system:serviceaccount:home:", None),
        ("system:serviceaccount:home:door:x", None),
        ("system:serviceaccount:ho.me:door", None),
        ("system:serviceaccount:home:do/or", None),
        ("system:serviceaccount:home:#", None),
        ("system:serviceaccount:Home:door", None),
        ("system:serviceaccount:home:d\u{e9}", None),
        ("system:node:home", None),
        ("ann", None),
        (&format!("system:serviceaccount:{long_namespace}:door"), None),
        (&format!("system:serviceaccount:home:{long_name}"), None),
    ] {
        assert_eq!(parse_subject(subject), expected, "{subject}");
    }
}

#[test]
fn token_without_key_id_uses_only_key_and_replaced_keys_are_rejected() {
    let (old, new) = (Issuer::p256("old"), Issuer::p256("new"));
    let accounts = accounts(&[&old]);
    let claims = Claims::of("home", "door");
    let now = unix_now();
    let token = old.token_with(r#"{"alg":"ES256"}"#, &claims);
    let account = accounts.verify(token.as_bytes(), now).expect("the only key");
    assert!(accounts.has_key(&account.key));
    accounts.replace_keys(ServiceAccountKeys::parse(&key_set(&[&new])).expect("keys"));
    assert!(!accounts.has_key(&account.key));
    assert_eq!(accounts.verify(old.token(&claims).as_bytes(), now).err(), Some(TokenError::Key));
    assert!(accounts.verify(new.token(&claims).as_bytes(), now).is_ok());
}

#[test]
fn invalid_key_sets_are_rejected() {
    let good = Issuer::p256("a");
    let key = good.public_key();
    let set =
        |keys: &[&str]| ServiceAccountKeys::parse(&format!(r#"{{"keys":[{}]}}"#, keys.join(",")));
    assert_eq!(set(&[&key]).expect("a set").len(), 1);
    assert!(matches!(set(&[]), Err(KeysError::Empty)));
    assert!(matches!(set(&[&key, &key]), Err(KeysError::Twice(2))));
    assert!(matches!(set(&vec![&*key; 65]), Err(KeysError::Many(65))));
    for text in ["", "{}", "[]", "-----BEGIN PUBLIC KEY-----"] {
        assert!(matches!(ServiceAccountKeys::parse(text), Err(KeysError::Json(_))), "{text}");
    }
    let (n, short) = (BASE64_URL_SAFE_NO_PAD.encode([0xff; 128]), "AQAB");
    for bad in [
        r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned(),
        r#"{"kty":"OKP","crv":"Ed25519","x":"AA"}"#.to_owned(),
        format!(r#"{{"kty":"RSA","n":"{n}","e":"{short}"}}"#),
        r#"{"kty":"RSA"}"#.to_owned(),
        key.replace("P-256", "P-384"),
        key.replace("\"sig\"", "\"enc\""),
        key.replace("ES256", "RS256"),
        key.replace("\"x\":\"", "\"x\":\"AAAA"),
    ] {
        let error = set(&[&bad]);
        assert!(matches!(error, Err(KeysError::Key(1))), "{bad} {error:?}");
    }
}
