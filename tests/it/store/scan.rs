//! SCAN, page by page.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use statestore_models::machines::request::StoreRequest;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Condition, Page, RequestKind, Scan, property};
use statestore_proto::store::{Access, StoreConfig};
use statestore_proto::transport::Transmit;
use statestore_testkit::process::memory::live_bytes;

use super::{Rig, del, set, set_if};

const SYNTAX: &[u8] = b"-ERR syntax error\r\n";
const QUOTA: &[u8] = b"-ERR the quota has been exceeded\r\n";
const DENIED: &[u8] = b"-ERR not authorized\r\n";

type Token = Option<Vec<u8>>;

fn small(page_bytes_max: usize, page_work_max: usize) -> StoreLimits {
    StoreLimits { page_bytes_max, page_work_max, ..StoreLimits::default() }
}

impl Rig {
    fn holding<K: AsRef<str>>(limits: StoreLimits, keys: impl IntoIterator<Item = K>) -> Self {
        let mut rig = Self::limited(limits);
        keys.into_iter().for_each(|key| rig.put(key.as_ref()));
        rig
    }

    fn put(&mut self, key: &str) {
        assert_eq!(self.answer("writer", &set(key, "v")), r"+OK\r\n");
    }

    fn scan_request(&mut self, pattern: &[u8], token: &Token) -> StoreRequest {
        self.number += 1;
        StoreRequest::with_payload(
            "c",
            self.number,
            Scan { pattern, token: token.as_deref() }.encode(),
        )
    }

    /// Payload of the reply.
    fn payload(&mut self, request: &StoreRequest) -> Vec<u8> {
        request.submit_to(self.now(), &mut self.store);
        let Some(Transmit::Publish(reply)) = self.store.poll_transmit() else { panic!("no reply") };
        assert!(reply.user_properties().all(|(name, _)| name == property::STATUS));
        assert_eq!(
            reply.correlation_data.map(|data| data.as_bytes().to_vec()),
            request.correlation
        );
        assert!(matches!(self.store.poll_transmit(), Some(Transmit::Acknowledge(_))));
        reply.payload.to_vec()
    }

    fn page(&mut self, pattern: &str, token: &Token) -> (Vec<String>, Token) {
        let request = self.scan_request(pattern.as_bytes(), token);
        let payload = self.payload(&request);
        let page = Page::decode(&payload).expect("a page");
        let keys = page.keys().map(|key| String::from_utf8(key.to_vec()).expect("UTF-8"));
        (keys.collect(), page.token().map(<[u8]>::to_vec))
    }

    /// All matching keys and the number of pages.
    fn listing(&mut self, pattern: &str) -> (Vec<String>, usize) {
        let (mut keys, mut token, mut pages) = (Vec::new(), None, 0);
        loop {
            let (more, next) = self.page(pattern, &token);
            assert!(next.is_none() || next != token, "the scan makes progress");
            (pages, token) = (pages + 1, next);
            keys.extend(more);
            if token.is_none() {
                return (keys, pages);
            }
        }
    }

    fn refused(&mut self, pattern: &[u8], token: &Token) -> Vec<u8> {
        let request = self.scan_request(pattern, token);
        let payload = self.payload(&request);
        assert!(payload.starts_with(b"-ERR "), "{}", payload.escape_ascii());
        payload
    }
}

#[test]
fn scan_returns_matching_keys_in_order() {
    let mut rig = Rig::holding(StoreLimits::default(), ["b/2", "a", "b/10", "b", "c", "b/1"]);
    assert_eq!(rig.listing("*"), (["a", "b", "b/1", "b/10", "b/2", "c"].map(Into::into).into(), 1));
    assert_eq!(rig.listing("b/?").0, ["b/1", "b/2"]);
    assert_eq!(rig.listing("b").0, ["b"]);
    assert_eq!(rig.listing("[!b]*").0, ["a", "c"]);
    for nothing in ["", "d*", "b/3", "B"] {
        assert_eq!(rig.listing(nothing), (vec![], 1), "{nothing:?}");
    }
    let (key, value) = (b"b\xff", b"v");
    rig.answer("writer", &Command::Set { key, value, condition: Condition::Always, expiry: None });
    for pattern in [&b"b\xff*"[..], b"b?", b"*\xff"] {
        let request = rig.scan_request(pattern, &None);
        assert_eq!(rig.payload(&request), b"*1\r\n*1\r\n$2\r\nb\xff\r\n", "{pattern:?}");
    }
}

#[test]
fn page_holds_page_bytes_max_and_a_longer_key_gets_its_own_page() {
    let keys = ["aaaa", "bbbb", "cccccccccccccccccccccccccccc", "dddd", "eeee", "ffff"];
    // `$4` and `aaaa` with their line ends take ten bytes.
    let mut rig = Rig::holding(small(20, 100_000), keys);
    let mut pages = Vec::new();
    let mut token = None;
    loop {
        let (keys, next) = rig.page("*", &token);
        pages.push(keys);
        token = next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(pages, [&keys[..2], &keys[2..3], &keys[3..5], &keys[5..]]);
}

#[test]
fn scan_terminates_under_any_page_limits() {
    for (bytes, work, pages_max) in [(0, 0, 4), (0, usize::MAX, 4), (usize::MAX, 0, 4), (1, 1, 4)] {
        let mut rig = Rig::holding(small(bytes, work), ["a", "b", "c"]);
        let (keys, pages) = rig.listing("*");
        assert_eq!(keys, ["a", "b", "c"], "{bytes} bytes, {work} work");
        assert!(pages <= pages_max, "{pages} pages");
        assert_eq!(rig.listing("*[x]*[y]").0, Vec::<String>::new());
    }
}

#[test]
fn scan_omits_expired_keys() {
    let mut rig = Rig::holding(StoreLimits::default(), ["a"]);
    rig.answer("writer", &set_if("b", "v", Condition::Always, 100));
    rig.millis = 99;
    assert_eq!(rig.listing("*").0, ["a", "b"]);
    rig.millis = 100;
    assert_eq!(
        (rig.listing("*").0, rig.store.len()),
        (vec!["a".into()], 2),
        "the timer has not removed it"
    );
}

#[test]
fn redelivered_scan_is_executed_again() {
    let mut rig = Rig::holding(StoreLimits::default(), ["a"]);
    let request = rig.scan_request(b"*", &None);
    let first = rig.payload(&request);
    rig.put("b");
    assert_ne!(rig.payload(&request), first);
    let counters = *rig.store.counters();
    let scans = counters.of(RequestKind::Scan);
    assert_eq!((scans.applied, scans.duplicates), (2, 0));
}

#[test]
fn scan_refuses_invalid_patterns_foreign_tokens_and_spoofed_senders() {
    let limits = StoreLimits { key_bytes_max: 8, ..small(20, 100_000) };
    let mut rig = Rig::holding(limits, ["aaaa", "bbbb", "cccc"]);
    for pattern in [b"[".as_slice(), b"a***", b"[]", b"a**"] {
        assert_eq!(rig.refused(pattern, &None), SYNTAX, "{}", pattern.escape_ascii());
    }
    assert_eq!(rig.listing("????????"), (vec![], 1));
    assert_eq!(rig.refused(b"?????????", &None), QUOTA);
    let token = rig.page("*", &None).1;
    for wrong in [vec![], vec![0; 15], vec![0; 16], vec![0; 24], b"1;1;".to_vec()] {
        assert_eq!(rig.refused(b"*", &Some(wrong)), SYNTAX);
    }
    assert_eq!(rig.refused(b"?*", &token), SYNTAX, "the token of another pattern");
    let mut damaged = token.clone().unwrap();
    for at in 0..damaged.len() {
        damaged[at] ^= 1;
        assert_eq!(rig.refused(b"*", &Some(damaged.clone())), SYNTAX, "at {at}");
        damaged[at] ^= 1;
    }
    damaged.pop();
    assert_eq!(rig.refused(b"*", &Some(damaged)), SYNTAX);
    assert_eq!(rig.page("*", &token).0, ["cccc"], "the token is still valid");
    let mut request = rig.scan_request(b"*", &None);
    request.source = Some("another client".into());
    assert_eq!(rig.payload(&request), DENIED);
}

#[test]
fn scan_token_is_reusable_and_valid_at_any_store_with_the_same_secret() {
    let config = |secret| StoreConfig::new(7).limits(small(20, 100_000)).scan_secret(secret);
    let mut first = Rig::with(config([7; 16]));
    ["aaaa", "bbbb", "cccc", "dddd", "eeee"].into_iter().for_each(|key| first.put(key));
    let token = first.page("*", &None).1;
    let next = first.page("*", &token);
    assert_eq!(next.0, ["cccc", "dddd"]);
    assert_eq!(first.refused(b"[", &token), SYNTAX);
    assert_eq!(first.refused(b"a*", &token), SYNTAX);
    assert_eq!(first.page("*", &token), next, "after errors too");
    assert_eq!(first.page("*", &None).1, token, "equal positions have equal tokens");
    let mut restarted = Rig::with(config([7; 16]));
    ["cccc", "dddd"].into_iter().for_each(|key| restarted.put(key));
    assert_eq!(restarted.page("*", &token), (next.0, None));
    let mut other = Rig::with(config([8; 16]));
    assert_eq!(other.refused(b"*", &token), SYNTAX);
}

/// Denies reads of keys that contain an `x`.
fn guarded(hash_seed: u64) -> StoreConfig {
    let allows = |access, key: &[u8]| access == Access::Write || !key.contains(&b'x');
    StoreConfig::new(hash_seed)
        .limits(small(1_000, 64))
        .authorizer(move |_, access, key| allows(access, key))
}

#[test]
fn scan_lists_only_readable_keys_and_its_tokens_do_not_reveal_others() {
    let mut rig = Rig::with(guarded(7));
    for key in ["a", "a-x-marks-the-spot", "b", "b-x", "c"] {
        rig.put(key);
    }
    let (mut listed, mut tokens, mut token) = (Vec::new(), Vec::new(), None);
    loop {
        let (keys, next) = rig.page("*", &token);
        listed.extend(keys);
        token = next;
        tokens.extend(token.clone());
        if token.is_none() {
            break;
        }
    }
    assert_eq!((listed.join(" "), tokens.len()), ("a b c".into(), 4));
    // No token contains nine bytes of the secret key name, in plain text or XORed with any one
    // byte.
    for token in &tokens {
        for part in token.windows(9) {
            let by = part[0] ^ b'm';
            assert!(!part.iter().zip(b"marks-the").all(|(byte, char)| byte ^ by == *char));
        }
    }
    // The default secret is the hash seed, which differs between two runs.
    let first = Some(tokens[0].clone());
    assert_eq!(Rig::with(guarded(8)).refused(b"*", &first), SYNTAX);
    assert_eq!(Rig::with(guarded(7)).page("*", &first), (vec![], None));
}

/// Otherwise a client could find the key by patterns, letter by letter.
#[test]
fn pages_and_tokens_do_not_depend_on_the_names_of_keys_that_are_not_readable() {
    let sizes = |key: &str, pattern: &str| {
        let mut rig = Rig::with(guarded(7));
        rig.put(key);
        rig.put("z");
        let (mut sizes, mut token) = (Vec::new(), None);
        while sizes.len() < 10 {
            let (keys, next) = rig.page(pattern, &token);
            sizes.push((keys.len(), next.as_ref().map(|next| next.len())));
            token = next;
            if token.is_none() {
                break;
            }
        }
        sizes
    };
    let slow = format!("secret-x*[{}]!", "!".repeat(500));
    let expected = sizes("x", "*");
    for key in ["secret-x", "secret-x-with-a-longer-name"] {
        assert_eq!(sizes(key, "*"), expected, "{key}");
        assert_eq!(sizes(key, &slow), sizes("secret-", &slow), "{key}");
    }
}

#[test]
fn pattern_without_matches_is_split_into_pages_of_limited_work() {
    let limits = small(8_192, 6_400);
    let mut rig = Rig::holding(limits, (0..1_000).map(|n| format!("key-{n}")));
    // Each key costs 64 plus the bytes examined: about ninety keys a page.
    let (keys, pages) = rig.listing("*z");
    assert_eq!(keys.len(), 0);
    assert!((10..=20).contains(&pages), "{pages} pages");
    assert_eq!(rig.listing("z*").1, 1, "no key has this prefix");
    assert_eq!(rig.listing("key-99[0-5]z*").1, 1, "eleven keys have this prefix");
    assert_eq!(rig.listing("key-99[0-5]*").0.len(), 6);
    assert_eq!(rig.listing("key-1"), (vec!["key-1".into()], 1), "no other key is examined");
}

#[test]
fn every_kind_of_pattern_is_bound_by_the_work_of_a_page() {
    let limits = small(8_192, 6_400);
    let keys: Vec<String> = (0..20).map(|n| format!("{n:0>1000}")).collect();
    let mut rig = Rig::holding(limits, &keys);
    for (pattern, pages_min) in [
        // Each examines 3,000 bytes of pattern or a thousand bytes of key for every key.
        ("**/".repeat(1_000) + "b", 6),
        ("*a".repeat(1_500), 3),
        (format!("*[{}]b", "b".repeat(300)), 800),
        ("?".repeat(999) + "b", 3),
        ("*".to_owned() + "/", 3),
    ] {
        let (keys, pages) = rig.listing(&pattern);
        assert_eq!(keys.len(), 0);
        assert!(pages >= pages_min, "{}: {pages} pages", &pattern[..9.min(pattern.len())]);
    }
}

#[test]
fn long_keys_cost_more_work_even_if_the_first_byte_decides() {
    let [short, long] = [8, 1_024].map(|len| {
        let keys = (0..100).map(|n| format!("{n:a>len$}"));
        let (keys, pages) = Rig::holding(small(8_192, 1_000), keys).listing("[b]*");
        assert_eq!(keys.len(), 0);
        pages
    });
    // Each key costs 64, and as much again for a thousand bytes.
    assert!(long * 2 > short * 3, "{short} and {long} pages");
}

#[test]
fn long_match_resumes_on_the_next_page() {
    let limits = StoreLimits { key_bytes_max: 2_000, ..small(8_192, 10_000) };
    let key = "a".repeat(2_000);
    let mut rig = Rig::holding(limits, ["a", &key, "b"]);
    let half = "a".repeat(990);
    // About a million steps.
    let (keys, pages) = rig.listing(&format!("*{half}z*"));
    assert_eq!(keys.len(), 0);
    assert!((90..=120).contains(&pages), "{pages} pages");
    let (keys, pages) = rig.listing(&format!("*{half}?*"));
    assert_eq!((keys.as_slice(), pages), ([key].as_slice(), 1));
}

#[test]
fn key_order_is_preserved_under_any_history() {
    for (name, next) in [
        ("upwards", (|n, _| n) as fn(u64, u64) -> u64),
        ("downwards", |n, _| 9_999 - n),
        ("anyhow", |_, random| random % 10_000),
    ] {
        let mut random = 7_u64;
        let mut rig = Rig::new();
        let mut model = BTreeSet::new();
        for n in 0..4_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = format!("{:04}", next(n, random >> 33));
            rig.put(&key);
            model.insert(key);
        }
        let same = |rig: &mut Rig, model: &BTreeSet<String>, when| {
            let keys = rig.listing("*").0;
            assert!(keys.iter().eq(model), "{name}, {when}: {} of {}", keys.len(), model.len());
        };
        same(&mut rig, &model, "full");
        for (part, keep) in [("most", 7_u64), ("nearly all", 90), ("all", u64::MAX)] {
            let kept = |key: &String| key.parse::<u64>().is_ok_and(|n| n % keep == 3 % keep);
            let gone: Vec<String> = model.iter().filter(|key| !kept(key)).cloned().collect();
            for key in gone {
                rig.answer("writer", &del(&key));
                model.remove(&key);
            }
            same(&mut rig, &model, part);
            for n in 0..40 {
                let key = format!("{:04}-{n}", n * 251);
                rig.put(&key);
                model.insert(key);
            }
            same(&mut rig, &model, part);
        }
    }
}

/// An event between two pages.
#[derive(Clone, Debug)]
enum Between {
    Set(u8),
    Delete(u8),
    Again,
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        any::<u8>().prop_map(Between::Set),
        any::<u8>().prop_map(Between::Delete),
        Just(Between::Again),
    ]
}

proptest! {
    /// Law: a key that exists from the first page to the last is listed exactly once; no key is
    /// listed twice; no absent key is listed.
    #[test]
    fn key_that_exists_throughout_a_scan_is_listed_exactly_once(
        keys in prop::collection::btree_set(any::<u8>(), 0..80),
        pattern in prop::sample::select(vec!["*", "k-*", "*1*", "k-1[0-9]*", "*[0-4]", "**", "?-?*"]),
        (page_bytes, page_work) in (8_usize..60, 60_usize..2_000),
        between in prop::collection::vec(prop::collection::vec(between(), 0..6), 0..40),
    ) {
        let name = |key: &u8| format!("k-{key}");
        let mut rig = Rig::holding(small(page_bytes, page_work), keys.iter().map(name));
        let other = glob::Pattern::new(pattern).unwrap();
        let (mut there, mut throughout) = (keys.clone(), keys);
        let mut listed: BTreeMap<String, usize> = BTreeMap::new();
        let (mut token, mut between) = (None, between.into_iter());
        loop {
            let (page, next) = rig.page(pattern, &token);
            let len: usize = page.iter().map(|key| format!("${}\r\n{key}\r\n", key.len()).len()).sum();
            prop_assert!(len <= page_bytes || page.len() == 1);
            for key in page {
                let number = key[2..].parse().unwrap();
                prop_assert!(there.contains(&number) && other.matches(&key));
                *listed.entry(key).or_default() += 1;
            }
            for happens in between.next().unwrap_or_default() {
                match happens {
                    Between::Set(key) => {
                        rig.put(&name(&key));
                        there.insert(key);
                    }
                    Between::Delete(key) => {
                        rig.answer("writer", &del(&name(&key)));
                        there.remove(&key);
                        throughout.remove(&key);
                    }
                    Between::Again => {
                        let again = rig.page(pattern, &token).0;
                        prop_assert!(again.iter().all(|key| other.matches(key)));
                    }
                }
            }
            token = next;
            if token.is_none() {
                break;
            }
        }
        prop_assert!(listed.values().all(|times| *times == 1), "{listed:?}");
        for key in throughout.iter().map(name).filter(|key| other.matches(key)) {
            prop_assert!(listed.contains_key(&key), "{key} is missing: {listed:?}");
        }
    }

    /// Law: any pattern and token bytes yield a page or an error.
    #[test]
    fn any_pattern_and_token_get_a_reply(pattern: Vec<u8>, token: Option<Vec<u8>>) {
        let mut rig = Rig::holding(small(20, 100), ["a", "b", "**", "\u{1f980}"]);
        let request = rig.scan_request(&pattern, &token);
        let payload = rig.payload(&request);
        prop_assert!(Page::decode(&payload).is_ok() || payload == SYNTAX);
    }
}

#[test]
fn order_of_keys_releases_memory_when_keys_are_deleted() {
    let mut rig = Rig::new();
    let [_, (full, empty)] = [1, 2].map(|round| {
        (0..20_000).for_each(|n| rig.put(&format!("{n:05}")));
        let full = live_bytes();
        for n in 0..20_000 {
            assert_eq!(rig.answer("writer", &del(&format!("{n:05}"))), r":1\r\n", "{round}");
        }
        (full, live_bytes())
    });
    // Each value has one byte; a key and its slot take 28 in the ordered map.
    assert!(full - empty >= 20_000 * (1 + 28), "{full} bytes, then {empty}");
}
