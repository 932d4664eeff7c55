//! The watchers of a client: all watchers of one key share one watch of the client machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use statestore_proto::client::{WatchEvent, WatchId};
use statestore_proto::hlc::Version;
use tokio::sync::mpsc;

/// Maximum number of events that wait for one watcher. If the application does not poll it, its
/// queue fills up. It then loses events and receives a gap.
const UPDATES_MAX: usize = 256;

/// Maximum number of watchers of one key. Each has its own queue, and each event is put into all
/// queues.
const WATCHERS_MAX: usize = 1_024;

/// Identifies a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatcherId {
    watch: WatchId,
    number: u64,
}

impl WatcherId {
    pub(crate) const fn watch(self) -> WatchId {
        self.watch
    }
}

/// The receiving end of a watcher.
pub(crate) struct WatchReceiver {
    pub(crate) id: WatcherId,
    pub(crate) updates: mpsc::Receiver<WatchEvent>,
    /// Set while the watcher has lost events and has not received the gap yet.
    pub(crate) lagged: Arc<AtomicBool>,
}

/// All watchers of a client.
#[derive(Default)]
pub(crate) struct Watchers {
    watches: BTreeMap<WatchId, KeyWatchers>,
    by_key: BTreeMap<Bytes, WatchId>,
    /// Watchers that have lost events and have not received the gap yet.
    lagging: Vec<WatcherId>,
    /// Number of the last watcher.
    last: u64,
}

/// The watchers of one key.
struct KeyWatchers {
    key: Bytes,
    watchers: Vec<Watcher>,
    /// The latest change, for watchers that join later.
    change: Option<WatchEvent>,
    /// The latest `Live` or `Gap`.
    status: Option<WatchEvent>,
}

struct Watcher {
    number: u64,
    /// The version that the application has processed. Set until the first change or `Live` of this
    /// watcher.
    since: Option<Version>,
    updates: mpsc::Sender<WatchEvent>,
    lagged: Arc<AtomicBool>,
}

impl Watchers {
    /// Returns the watch of a key, if the key is watched.
    pub(crate) fn watch_for_key(&self, key: &[u8]) -> Option<WatchId> {
        self.by_key.get(key).copied()
    }

    /// Adds a watcher to the watch of a key. It receives the latest value and status at once, but
    /// not the value with the version `since`. Returns `None` if the key has too many watchers.
    pub(crate) fn join(
        &mut self,
        watch: WatchId,
        key: Bytes,
        since: Option<Version>,
    ) -> Option<WatchReceiver> {
        let watched = self.watches.entry(watch).or_insert_with(|| {
            self.by_key.insert(key.clone(), watch);
            KeyWatchers { key, watchers: Vec::new(), change: None, status: None }
        });
        if watched.watchers.len() >= WATCHERS_MAX {
            return None;
        }
        self.last += 1;
        // One more than the capacity for changes, so that the end always fits.
        let (updates, receiver) = mpsc::channel(UPDATES_MAX + 1);
        let mut watcher = Watcher { number: self.last, since, updates, lagged: Arc::default() };
        // For a new watcher, an absent key is not a change.
        let has_value =
            |change: &&WatchEvent| matches!(change, WatchEvent::Changed { value: Some(_), .. });
        let change = watched.change.as_ref().filter(has_value);
        change.into_iter().chain(&watched.status).for_each(|event| watcher.send(event));
        let lagged = Arc::clone(&watcher.lagged);
        watched.watchers.push(watcher);
        Some(WatchReceiver {
            id: WatcherId { watch, number: self.last },
            updates: receiver,
            lagged,
        })
    }

    /// Removes a watcher. Returns whether it was the last one, so that the watch must be ended.
    pub(crate) fn leave(&mut self, id: WatcherId) -> bool {
        let Some(watched) = self.watches.get_mut(&id.watch) else { return false };
        watched.watchers.retain(|watcher| watcher.number != id.number);
        let is_last = watched.watchers.is_empty();
        if is_last {
            self.forget(id.watch);
        }
        is_last
    }

    /// Passes on an event of a watch. Returns whether no watcher is left, so that the watch must be
    /// ended.
    pub(crate) fn update(&mut self, watch: WatchId, event: WatchEvent) -> bool {
        let Some(watched) = self.watches.get_mut(&watch) else { return false };
        watched.watchers.retain(|watcher| !watcher.updates.is_closed());
        let is_end = matches!(event, WatchEvent::Ended(_));
        for watcher in &mut watched.watchers {
            if is_end || watcher.can_receive() {
                watcher.send(&event);
            } else if !watcher.lagged.swap(true, Ordering::SeqCst) {
                self.lagging.push(WatcherId { watch, number: watcher.number });
            }
        }
        let is_abandoned = watched.watchers.is_empty();
        match event {
            WatchEvent::Changed { .. } => watched.change = Some(event),
            WatchEvent::Live | WatchEvent::Gap => watched.status = Some(event),
            _ => {}
        }
        if is_end || is_abandoned {
            self.forget(watch);
        }
        is_abandoned && !is_end
    }

    /// Reports a gap and the current state to watchers that lost events and have received the rest.
    pub(crate) fn catch_up(&mut self) {
        let watches = &mut self.watches;
        self.lagging.retain(|id| {
            let Some(watched) = watches.get_mut(&id.watch) else { return false };
            let mut all = watched.watchers.iter_mut();
            let Some(watcher) = all.find(|watcher| watcher.number == id.number) else {
                return false;
            };
            let has_taken_all = watcher.updates.capacity() == watcher.updates.max_capacity();
            if has_taken_all {
                watcher.lagged.store(false, Ordering::SeqCst);
                watcher.send(&WatchEvent::Gap);
                watched.change.iter().for_each(|change| watcher.send(change));
                let live = watched.status.iter().filter(|event| **event == WatchEvent::Live);
                live.for_each(|live| watcher.send(live));
            }
            !has_taken_all
        });
    }

    fn forget(&mut self, watch: WatchId) {
        if let Some(watched) = self.watches.remove(&watch) {
            self.by_key.remove(&watched.key);
        }
    }
}

impl Watcher {
    /// Returns whether the watcher receives changes now: it has lost none, and its queue has
    /// capacity besides that for the end.
    fn can_receive(&self) -> bool {
        !self.lagged.load(Ordering::SeqCst) && self.updates.capacity() > 1
    }

    /// Queues an event. Omits the value that the application has processed. Before `Live`, queues a
    /// deletion if that value was removed.
    fn send(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Changed { value, version } => {
                let since = self.since.take();
                if value.is_some() && since.is_some() && *version == since {
                    return;
                }
            }
            WatchEvent::Live if self.since.take().is_some() => {
                self.push(WatchEvent::Changed { value: None, version: None });
            }
            _ => {}
        }
        self.push(event.clone());
    }

    fn push(&self, event: WatchEvent) {
        // The caller has checked the capacity. The next update removes a closed watcher.
        let _ = self.updates.try_send(event);
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::client::{Client, ClientConfig, WatchEnd};
    use statestore_proto::time::Now;

    use super::*;

    const KEY: Bytes = Bytes::from_static(b"k");

    fn client() -> Client {
        Client::new(ClientConfig::new("c", [0; 8])).expect("a client id")
    }

    #[test]
    fn end_of_a_watch_fits_into_a_full_queue() {
        let mut watchers = Watchers::default();
        let watch = client().watch(Now::default(), KEY).expect("capacity");
        let mut started = watchers.join(watch, KEY, None).expect("capacity");
        for _ in 0..2 * UPDATES_MAX {
            assert!(!watchers.update(watch, WatchEvent::Changed { value: None, version: None }));
        }
        assert!(started.lagged.load(Ordering::SeqCst));
        watchers.catch_up();
        assert!(!watchers.update(watch, WatchEvent::Ended(WatchEnd::Stopped)));
        assert_eq!(watchers.watch_for_key(&KEY), None, "the key can be watched again");
        let received: Vec<_> = std::iter::from_fn(|| started.updates.try_recv().ok()).collect();
        assert_eq!(received.len(), UPDATES_MAX + 1);
        assert_eq!(received.last(), Some(&WatchEvent::Ended(WatchEnd::Stopped)));
        assert_eq!(started.updates.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    }

    #[test]
    fn processed_value_is_not_reported_again() {
        let version = |text: &str| text.parse::<Version>().expect("a version");
        let changed = |value: Option<&'static str>, at: Option<&str>| WatchEvent::Changed {
            value: value.map(Bytes::from),
            version: at.map(version),
        };
        let (old, new) = ("5:0:s", "6:0:s");
        let gone = changed(None, None);
        for (events, since, expected) in [
            (vec![changed(Some("v"), Some(old)), WatchEvent::Live], old, vec![WatchEvent::Live]),
            (
                vec![changed(Some("v"), Some(new)), WatchEvent::Live],
                old,
                vec![changed(Some("v"), Some(new)), WatchEvent::Live],
            ),
            (vec![WatchEvent::Live], old, vec![gone.clone(), WatchEvent::Live]),
            (
                vec![WatchEvent::Gap, WatchEvent::Live, changed(None, Some(old))],
                old,
                vec![WatchEvent::Gap, gone, WatchEvent::Live, changed(None, Some(old))],
            ),
            (
                vec![changed(None, Some(old)), WatchEvent::Live],
                old,
                vec![changed(None, Some(old)), WatchEvent::Live],
            ),
        ] {
            let (mut client, mut watchers) = (client(), Watchers::default());
            let watch = client.watch(Now::default(), KEY).expect("capacity");
            let mut first = watchers.join(watch, KEY, Some(version(since))).expect("capacity");
            let plain = watchers.join(watch, KEY, None).expect("capacity");
            events.iter().for_each(|event| _ = watchers.update(watch, event.clone()));
            // One that joins later gets the present state only.
            let mut late = watchers.join(watch, KEY, Some(version(since))).expect("capacity");
            let all = |started: &mut WatchReceiver| {
                std::iter::from_fn(|| started.updates.try_recv().ok()).collect::<Vec<_>>()
            };
            assert_eq!(all(&mut first), expected);
            assert_eq!(all(&mut { plain }), events);
            assert!(all(&mut late).len() <= 2);
        }
    }

    #[test]
    fn watch_without_watchers_must_be_ended() {
        let (mut client, mut watchers) = (client(), Watchers::default());
        let watch = client.watch(Now::default(), KEY).expect("capacity");
        drop(watchers.join(watch, KEY, None));
        assert!(watchers.update(watch, WatchEvent::Gap), "no watcher is left");
        client.unwatch(Now::default(), watch);

        let watch = client.watch(Now::default(), KEY).expect("capacity");
        let all: Vec<_> =
            (0..WATCHERS_MAX).map_while(|_| watchers.join(watch, KEY, None)).collect();
        assert!(all.len() == WATCHERS_MAX && watchers.join(watch, KEY, None).is_none());
        let was_last: Vec<_> = all.iter().map(|started| watchers.leave(started.id)).collect();
        assert_eq!(was_last.iter().position(|is_last| *is_last), Some(WATCHERS_MAX - 1));
        assert!(!watchers.leave(all[0].id), "the watcher has already left");
    }
}
