//! Broken stores: this store, with messages changed in both directions.

mod clocks;
mod duplicates;
mod fences;
mod grammar;
mod messages;
mod scan;
mod values;
mod watches;

use std::collections::BTreeMap;

use statestore_proto::hlc::Hlc;
use statestore_proto::topic;
use statestore_sim::{Interceptor, Message};
use statestore_verify::Verdict;

/// A broken store and the case that must detect it.
pub(super) struct Broken {
    pub(super) name: &'static str,
    pub(super) case: &'static str,
    pub(super) verdict: Verdict,
    pub(super) interceptor: Interceptor,
}

/// A store that breaks a rule.
fn fails(name: &'static str, case: &'static str, interceptor: Interceptor) -> Broken {
    Broken { name, case, verdict: Verdict::Fail, interceptor }
}

/// A store that differs where the protocol leaves a choice.
fn differs(name: &'static str, case: &'static str, interceptor: Interceptor) -> Broken {
    Broken { name, case, verdict: Verdict::Differs, interceptor }
}

type Words = Vec<Vec<u8>>;

/// Changes requests; `Words` is empty if a payload is malformed.
fn on_request(mut change: impl FnMut(&mut Message, Words) + Send + 'static) -> Interceptor {
    Box::new(move |message| {
        if *message.topic == *topic::REQUEST {
            let words = words(&message.payload).unwrap_or_default();
            change(message, words);
        }
    })
}

/// Changes the words of requests.
fn on_words(mut change: impl FnMut(&mut Words) + Send + 'static) -> Interceptor {
    on_request(move |message, mut words| {
        let before = words.clone();
        change(&mut words);
        if words != before {
            message.payload = array(&words).into();
        }
    })
}

/// Changes replies.
fn on_reply(mut change: impl FnMut(&mut Message) + Send + 'static) -> Interceptor {
    Box::new(move |message| {
        if *message.topic != *topic::REQUEST && !is_notification(message) {
            change(message);
        }
    })
}

/// Changes notifications.
fn on_notification(mut change: impl FnMut(&mut Message) + Send + 'static) -> Interceptor {
    Box::new(move |message| {
        if is_notification(message) {
            change(message);
        }
    })
}

fn is_notification(message: &Message) -> bool {
    message.topic.starts_with("clients/statestore/")
}

/// Redirects a message to a topic without subscribers.
fn lose(message: &mut Message) {
    message.topic = "nowhere".into();
}

fn words(payload: &[u8]) -> Option<Words> {
    let line = |rest: &mut &[u8], kind: u8| {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let digits = rest[..end].strip_prefix(&[kind])?;
        *rest = &rest[end + 2..];
        std::str::from_utf8(digits).ok()?.parse::<usize>().ok()
    };
    let mut rest = payload;
    let count = line(&mut rest, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let len = line(&mut rest, b'$')?;
        words.push(rest.get(..len)?.to_vec());
        rest = rest.get(len..)?.strip_prefix(b"\r\n")?;
    }
    rest.is_empty().then_some(words)
}

fn array(words: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        payload.extend(format!("${}\r\n", word.len()).into_bytes());
        payload.extend(word);
        payload.extend(b"\r\n");
    }
    payload
}

fn is(words: &Words, verb: &str) -> bool {
    words.first().is_some_and(|first| *first == verb.as_bytes())
}

fn without(words: &mut Words, option: &[u8]) {
    let options = words.iter().enumerate().skip(3);
    if let Some((at, _)) = options.into_iter().find(|(_, word)| *word == option) {
        words.remove(at);
    }
}

fn property(message: &Message, name: &str) -> Option<String> {
    let mut all = message.user_properties.iter();
    all.find(|(other, _)| other == name).map(|(_, value)| value.clone())
}

fn set_property(message: &mut Message, name: &'static str, value: Option<String>) {
    message.user_properties.retain(|(other, _)| other != name);
    message.user_properties.extend(value.map(|value| (name.into(), value)));
}

/// Changes a clock value of requests, if there is one.
fn on_clock_value(
    name: &'static str,
    mut change: impl FnMut(&Words, &str) -> Option<String> + Send + 'static,
) -> Interceptor {
    on_request(move |message, words| {
        if let Some(value) = property(message, name) {
            let value = change(&words, &value);
            set_property(message, name, value);
        }
    })
}

fn wall(text: &str) -> Option<u64> {
    Hlc::parse(text).ok().map(|hlc| hlc.wall().as_millis())
}

/// Wall time as in the requests, which are a few milliseconds old.
fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a store that is broken has a clock too")]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Tokens by key, as tracked by a broken store.
type Tokens = BTreeMap<Vec<u8>, String>;

/// Replaces replies, found by correlation data.
fn replace_reply(
    mut choose: impl FnMut(&mut Message, &Words) -> Option<&'static str> + Send + 'static,
) -> Interceptor {
    let mut instead: BTreeMap<Vec<u8>, &'static str> = BTreeMap::new();
    Box::new(move |message| {
        let name = message.correlation_data.as_ref().map(|data| data.as_bytes().to_vec());
        let Some(name) = name else { return };
        if *message.topic == *topic::REQUEST {
            let words = words(&message.payload).unwrap_or_default();
            if let Some(payload) = choose(message, &words) {
                instead.insert(name, payload);
            }
        } else if let Some(payload) = instead.get(&name) {
            message.payload = payload.as_bytes().into();
        }
    })
}

fn payload(message: &mut Message, from: &'static str, to: &'static str) {
    if message.payload == from {
        message.payload = to.as_bytes().into();
    }
}

/// All broken stores.
pub(super) fn all() -> Vec<Broken> {
    let parts = [
        messages::replies(),
        messages::requests(),
        clocks::versions(),
        clocks::clocks(),
        fences::orders(),
        fences::tokens(),
        fences::fences(),
        grammar::options(),
        grammar::grammar(),
        scan::pages(),
        scan::patterns(),
        values::conditions(),
        values::values(),
        watches::changes(),
        watches::removals(),
        watches::senders(),
        watches::watches(),
        watches::expiry(),
        duplicates::duplicates(),
    ];
    parts.into_iter().flatten().collect()
}

impl Broken {
    /// Expects the case to be skipped for this store.
    fn skipped(mut self) -> Self {
        self.verdict = Verdict::Skipped;
        self
    }
}
