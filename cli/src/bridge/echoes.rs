//! Loop protection of a bridge in both directions: a key that the bridge has set from a topic is
//! not published to the same topic.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::glob::Pattern;
use statestore_proto::hlc::Version;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::template::Template;

/// Time in which the notification of a write is expected. The watch finds a new key within ten
/// seconds. A value that changes again before that is never notified, so it must not be expected
/// without a limit.
const EXPECTED_FOR: Duration = Duration::from_secs(30);

/// Maximum number of keys with writes whose notification has not arrived: more than the 1,000 keys
/// of a watched pattern. A write beyond it is published to its topic once, and ignored there.
const KEYS_MAX: usize = 4_096;

/// Maximum number of writes of one key whose notification has not arrived. Beyond it, the oldest
/// is dropped, so its change is published once.
const WRITES_MAX: usize = 64;

/// The keys that are published, and their topics.
pub(super) struct Route {
    pattern: Bytes,
    topic: Template,
}

impl Route {
    pub(super) fn new(pattern: &str, topic: Template) -> Self {
        Self { pattern: Bytes::copy_from_slice(pattern.as_bytes()), topic }
    }

    /// Returns whether a change of the key is published to this topic.
    fn leads_to(&self, key: &[u8], topic: &str) -> bool {
        let is_published = Pattern::new(&self.pattern).is_ok_and(|pattern| pattern.matches(key));
        is_published && self.topic.fill_bytes(key).is_ok_and(|found| found == topic)
    }
}

/// A write that the store has applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Set(Version),
    Deleted,
}

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A write of this bridge from the topic to which the change would be published.
    Bridge,
    Other,
    /// Unknown until the response to a write in flight.
    Pending,
}

/// Writes of one key from the topic to which it is published.
#[derive(Default)]
struct KeyWrites {
    /// Set between the request and the response of a write.
    is_in_flight: bool,
    /// Writes whose notification is expected, in the order of their notifications, with the times
    /// of their responses.
    writes: VecDeque<(Instant, Write)>,
}

impl KeyWrites {
    /// Removes the writes whose notification is not expected any more. Returns whether the entry is
    /// still needed.
    fn retain_expected(&mut self, now: Instant) -> bool {
        let is_over = |(at, _): &(Instant, Write)| now.duration_since(*at) > EXPECTED_FOR;
        while self.writes.front().is_some_and(is_over) {
            self.writes.pop_front();
        }
        self.is_in_flight || !self.writes.is_empty()
    }
}

/// Writes of keys whose changes are published to the topic that they came from.
pub(super) struct Echoes {
    /// `None` unless both directions are configured.
    route: Option<Route>,
    keys: BTreeMap<Bytes, KeyWrites>,
}

impl Echoes {
    pub(super) const fn new(route: Option<Route>) -> Self {
        Self { route, keys: BTreeMap::new() }
    }

    fn begin(&mut self, now: Instant, key: &Bytes, topic: &str) {
        if !self.route.as_ref().is_some_and(|route| route.leads_to(key, topic)) {
            return;
        }
        if self.keys.len() >= KEYS_MAX {
            self.keys.retain(|_, recorded| recorded.retain_expected(now));
        }
        if self.keys.len() < KEYS_MAX || self.keys.contains_key(key) {
            self.keys.entry(key.clone()).or_default().is_in_flight = true;
        }
    }

    fn end(&mut self, now: Instant, key: &Bytes, write: Option<Write>) {
        let Some(recorded) = self.keys.get_mut(key).filter(|recorded| recorded.is_in_flight) else {
            return;
        };
        recorded.is_in_flight = false;
        recorded.writes.extend(write.map(|write| (now, write)));
        if recorded.writes.len() > WRITES_MAX {
            recorded.writes.pop_front();
        }
        if recorded.writes.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Returns the origin of a change that was notified. `version` is that of a value that was set;
    /// `None` for a deletion.
    fn origin(&mut self, now: Instant, key: &Bytes, version: Option<&Version>) -> Origin {
        let Some(recorded) = self.keys.get_mut(key) else { return Origin::Other };
        recorded.retain_expected(now);
        let own = recorded.writes.iter().position(|(_, write)| match (write, version) {
            (Write::Set(own), Some(version)) => own == version,
            (Write::Deleted, None) => true,
            _ => false,
        });
        let origin = match (own, recorded.is_in_flight) {
            (Some(at), _) => {
                recorded.writes.drain(..=at);
                Origin::Bridge
            }
            (None, true) => return Origin::Pending,
            (None, false) => {
                // The notifications of these writes were not reported, for example after a gap.
                let is_older = |(_, write): &(Instant, Write)| match (write, version) {
                    (Write::Set(own), Some(version)) => own < version,
                    _ => false,
                };
                while recorded.writes.front().is_some_and(is_older) {
                    recorded.writes.pop_front();
                }
                Origin::Other
            }
        };
        if recorded.writes.is_empty() && !recorded.is_in_flight {
            self.keys.remove(key);
        }
        origin
    }
}

/// [`Echoes`] of both directions: one records writes, the other one looks for their echoes.
#[derive(Clone)]
pub(super) struct SharedEchoes(Rc<(RefCell<Echoes>, Notify)>);

impl SharedEchoes {
    pub(super) fn new(echoes: Echoes) -> Self {
        Self(Rc::new((RefCell::new(echoes), Notify::new())))
    }

    /// Records that a write of a key from this topic begins. The next write of the key begins after
    /// the end of this one.
    pub(super) fn begin(&self, key: &Bytes, topic: &str) {
        self.0.0.borrow_mut().begin(Instant::now(), key, topic);
    }

    /// Records the end of a write. `write` is `None` if it has changed nothing.
    pub(super) fn end(&self, key: &Bytes, write: Option<Write>) {
        self.0.0.borrow_mut().end(Instant::now(), key, write);
        self.0.1.notify_one();
    }

    pub(super) fn origin(&self, key: &Bytes, version: Option<&Version>) -> Origin {
        self.0.0.borrow_mut().origin(Instant::now(), key, version)
    }

    /// Waits for the end of a write. Cancel safe.
    pub(super) async fn wait_ended(&self) {
        self.0.1.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_echoes() -> Echoes {
        let topic = Template::of_topic("s/{2}").expect("a template");
        Echoes::new(Some(Route::new("state/*", topic)))
    }

    fn version(number: u64) -> Version {
        format!("{number}:0:s").parse().expect("a version")
    }

    #[test]
    fn own_write_from_the_same_topic_is_an_echo_once() {
        let (mut echoes, key) = (new_echoes(), Bytes::from_static(b"state/1"));
        echoes.begin(Instant::now(), &key, "s/1");
        assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(5))), Origin::Pending);
        echoes.end(Instant::now(), &key, Some(Write::Set(version(5))));
        assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(4))), Origin::Other);
        assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(5))), Origin::Bridge);
        assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(6))), Origin::Other);
        assert!(echoes.keys.is_empty());
    }

    #[test]
    fn several_writes_are_recognized_in_order() {
        let (mut echoes, key) = (new_echoes(), Bytes::from_static(b"state/1"));
        for write in [Write::Set(version(1)), Write::Deleted, Write::Set(version(3))] {
            echoes.begin(Instant::now(), &key, "s/1");
            echoes.end(Instant::now(), &key, Some(write));
        }
        assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(1))), Origin::Bridge);
        assert_eq!(echoes.origin(Instant::now(), &key, None), Origin::Bridge);
        assert_eq!(
            echoes.origin(Instant::now(), &key, None),
            Origin::Other,
            "another client deleted it"
        );
        assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(3))), Origin::Bridge);
        assert!(echoes.keys.is_empty());
        // Their notifications were not reported.
        for number in 4..7 {
            echoes.begin(Instant::now(), &key, "s/1");
            echoes.end(Instant::now(), &key, Some(Write::Set(version(number))));
        }
        assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(9))), Origin::Other);
        assert!(echoes.keys.is_empty());
    }

    #[test]
    fn other_keys_and_topics_are_not_recorded() {
        let mut echoes = new_echoes();
        for (key, topic) in [("state/1", "s/2"), ("state/1", "x/1"), ("other/1", "s/1"), ("k", "k")]
        {
            let key = Bytes::from(key);
            echoes.begin(Instant::now(), &key, topic);
            assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(1))), Origin::Other);
            echoes.end(Instant::now(), &key, Some(Write::Set(version(1))));
            assert_eq!(echoes.origin(Instant::now(), &key, Some(&version(1))), Origin::Other);
        }
        let mut alone = Echoes::new(None);
        alone.begin(Instant::now(), &Bytes::from_static(b"state/1"), "s/1");
        assert!(alone.keys.is_empty() && echoes.keys.is_empty());
    }

    #[test]
    fn recorded_writes_are_limited() {
        let mut echoes = new_echoes();
        for number in 0..KEYS_MAX + 10 {
            let key = Bytes::from(format!("state/{number}"));
            echoes.begin(Instant::now(), &key, &format!("s/{number}"));
            echoes.end(Instant::now(), &key, Some(Write::Deleted));
        }
        let key = Bytes::from_static(b"state/1");
        for number in 0..2 * WRITES_MAX {
            echoes.begin(Instant::now(), &key, "s/1");
            echoes.end(Instant::now(), &key, Some(Write::Set(version(number as u64))));
        }
        assert_eq!((echoes.keys.len(), echoes.keys[&key].writes.len()), (KEYS_MAX, WRITES_MAX));
        // A write without an effect leaves nothing.
        let mut empty = new_echoes();
        empty.begin(Instant::now(), &key, "s/1");
        empty.end(Instant::now(), &key, None);
        assert!(empty.keys.is_empty());
    }

    #[test]
    fn write_without_notification_is_forgotten_after_some_time() {
        let (mut echoes, key, start) =
            (new_echoes(), Bytes::from_static(b"state/1"), Instant::now());
        for write in [Write::Set(version(1)), Write::Deleted] {
            echoes.begin(start, &key, "s/1");
            echoes.end(start, &key, Some(write));
        }
        let late = start + EXPECTED_FOR + Duration::from_millis(1);
        assert_eq!(echoes.origin(late, &key, Some(&version(2))), Origin::Other);
        assert_eq!(echoes.origin(late, &key, None), Origin::Other, "another client deleted it");
        assert!(echoes.keys.is_empty());
        for number in 0..KEYS_MAX {
            let key = Bytes::from(format!("state/x{number}"));
            echoes.begin(start, &key, &format!("s/x{number}"));
            echoes.end(start, &key, Some(Write::Deleted));
        }
        echoes.begin(late, &key, "s/1");
        assert_eq!(echoes.keys.len(), 1, "a full table forgets such writes");
    }
}
