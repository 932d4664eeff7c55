//! Clock values and topics.

use std::collections::{BTreeMap, BTreeSet};

use statestore_proto::hlc::HlcRef;
use statestore_proto::topic::{
    ParsedNotificationTopic, REQUEST, RESERVED, ResponseTopic, TopicError, check_response,
};

use super::{compare, every_string, strings};

const LETTERS: &[u8] = b"019:-+ .n";
const MAX: usize = 7;

type Parts = (u64, u64, String);

/// Every clock value of up to `MAX` letters after `prefix`, which must be digits.
fn valid(prefix: &str) -> BTreeMap<Vec<u8>, Parts> {
    let node_letters: Vec<u8> = LETTERS.iter().copied().filter(|letter| *letter != b':').collect();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let numbers: Vec<String> = strings(b"019", MAX - 3).into_iter().map(text).collect();
    let nodes: Vec<String> = strings(&node_letters, MAX - 2).into_iter().map(text).collect();
    let mut all = BTreeMap::new();
    for wall in &numbers {
        let Ok(wall_value) = format!("{prefix}{wall}").parse() else { continue };
        for counter in &numbers {
            let Ok(counter_value) = counter.parse() else { continue };
            let used = wall.len() + counter.len() + 2;
            let nodes = nodes.iter().filter(|node| !node.is_empty() && used + node.len() <= MAX);
            for node in nodes {
                let text = format!("{prefix}{wall}:{counter}:{node}");
                all.insert(text.into_bytes(), (wall_value, counter_value, node.clone()));
            }
        }
    }
    all
}

fn parse(text: &[u8]) -> Option<Parts> {
    let hlc = HlcRef::parse(std::str::from_utf8(text).ok()?).ok()?;
    let bare = hlc.encode();
    assert_eq!(HlcRef::parse(&bare), Ok(hlc), "the bare form of {}", text.escape_ascii());
    assert!(bare.len() <= text.len() && hlc.encoded_len() == bare.len());
    Some((hlc.wall().as_millis(), hlc.counter(), hlc.node().as_str().to_owned()))
}

#[test]
fn of_all_short_clock_values_exactly_the_valid_are_accepted() {
    // After 19 digits of the greatest number, another digit may or may not fit in 64 bits.
    for (prefix, accepted) in [("", 11_088), ("1844674407370955161", 27_120)] {
        let valid = valid(prefix);
        assert_eq!(valid.len(), accepted);
        let tried = compare(prefix.as_bytes(), (LETTERS, MAX), &valid, parse);
        assert_eq!(tried, 5_380_840);
    }
}

/// Every sequence of up to `max` of these parts.
fn lists<'a>(parts: &[&'a str], max: usize) -> Vec<Vec<&'a str>> {
    let numbers: Vec<u8> = (0..=u8::MAX).take(parts.len()).collect();
    let mut all = Vec::new();
    every_string(b"", &numbers, max, |list| {
        all.push(list.iter().map(|at| parts[usize::from(*at)]).collect());
    });
    all
}

#[test]
fn of_all_short_notification_topics_exactly_the_valid_are_accepted() {
    const NOTIFY: &str = "/command/notify/";
    let base16 = lists(&["00", "aF", "f"], 4).into_iter().map(|parts| parts.concat());
    let base16: BTreeSet<String> =
        base16.filter(|digits| !digits.is_empty() && digits.len() % 2 == 0).collect();
    let mut accepted = 0;
    let all = lists(&["00", "aF", "f", "g", "/", NOTIFY, "+"], 6);
    let mut seen = BTreeSet::new();
    for parts in &all {
        let topic = format!("{RESERVED}{}", parts.concat());
        let valid = match parts.as_slice() {
            ["/", rest @ ..] => rest.iter().position(|part| *part == NOTIFY).is_some_and(|at| {
                let (client, key) = (rest[..at].concat(), rest[at + 1..].concat());
                base16.contains(&client) && base16.contains(&key)
            }),
            _ => false,
        };
        let received = ParsedNotificationTopic::parse(&topic);
        assert_eq!(received.is_some(), valid, "{topic}");
        let Some(received) = received else { continue };
        accepted += usize::from(seen.insert(topic.clone()));
        let (mut client, mut key) = ([0; 8], [0; 8]);
        let client = received.decode_client_id(&mut client).unwrap();
        let key = received.decode_key(&mut key).unwrap();
        let again = format!("{RESERVED}/{}{NOTIFY}{}", hex::encode(client), hex::encode(key));
        assert!(again.eq_ignore_ascii_case(&topic), "{topic}");
    }
    assert_eq!((all.len(), accepted), (137_257, 105));
}

#[test]
fn of_all_short_response_topics_exactly_the_valid_are_accepted() {
    const TAIL: &str = "/services/statestore/_any_/command/invoke/response";
    let (clients, store) = RESERVED.split_at("clients/".len());
    let invoke = REQUEST.strip_prefix(store).unwrap();
    let all = lists(&[clients, store, invoke, TAIL, "c", "/", "+", "#", "\0"], 5);
    let mut counts = [0; 6];
    for parts in &all {
        let topic = parts.concat();
        let wild = parts.iter().any(|part| ["+", "#", "\0"].contains(part));
        let expected = match parts.as_slice() {
            [] => Err(TopicError::Empty),
            _ if wild => Err(TopicError::Wildcard),
            [first, second] if [*first, *second] == [store, invoke] => {
                Err(TopicError::RequestTopic)
            }
            [first, second, ..] if [*first, *second] == [clients, store] => {
                Err(TopicError::Reserved)
            }
            _ => Ok(()),
        };
        assert_eq!(check_response(&topic), expected, "{topic}");
        let at = match expected {
            Ok(()) => 0,
            Err(TopicError::Empty) => 1,
            Err(TopicError::Wildcard) => 2,
            Err(TopicError::RequestTopic) => 3,
            Err(_) => 4,
        };
        counts[at] += 1;

        let client = match parts.as_slice() {
            [first, client @ .., last] if [*first, *last] == [clients, TAIL] => client.concat(),
            _ => String::new(),
        };
        let valid = expected.is_ok() && !client.is_empty();
        let parsed = ResponseTopic::parse(&topic);
        assert_eq!(
            parsed.map(|parsed| parsed.client_id()),
            valid.then_some(client.as_str()),
            "{topic}"
        );
        counts[5] += usize::from(valid);
    }
    assert_eq!((all.len(), counts), (66_430, [9_070, 1, 57_099, 1, 259, 215]));
}
