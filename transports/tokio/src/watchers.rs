//! Who watches what: one watch of the client for each key, however many watch it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use statestore_proto::client::{WatchEvent, WatchId};
use tokio::sync::mpsc;

/// Changes that wait for one watcher; one that takes none for longer loses some and is told a gap.
const UPDATES_MAX: usize = 256;

/// Those who watch one key: each has a queue of its own.
const OBSERVERS_MAX: usize = 1_024;

/// Names one watcher.
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

/// What a watch needs: its name, its changes, and whether some were lost.
pub(crate) struct Started {
    pub(crate) id: WatcherId,
    pub(crate) updates: mpsc::Receiver<WatchEvent>,
    pub(crate) lagged: Arc<AtomicBool>,
}

/// Everybody who watches something.
#[derive(Default)]
pub(crate) struct Watchers {
    watches: BTreeMap<WatchId, Watched>,
    by_key: BTreeMap<Bytes, WatchId>,
    /// Those who lost something and were not told yet.
    lagging: Vec<WatcherId>,
    last: u64,
}

/// One key.
struct Watched {
    key: Bytes,
    watchers: Vec<Watcher>,
    /// The latest change, for those who come later.
    change: Option<WatchEvent>,
    /// `Live` or `Gap`, whichever came last.
    status: Option<WatchEvent>,
}

struct Watcher {
    number: u64,
    updates: mpsc::Sender<WatchEvent>,
    lagged: Arc<AtomicBool>,
}

impl Watchers {
    /// The watch of a key that is watched.
    pub(crate) fn watch_of(&self, key: &[u8]) -> Option<WatchId> {
        self.by_key.get(key).copied()
    }

    /// Another watcher of a key whose watch that is. It is told at once what the others know; `None` when there are too
    /// many.
    pub(crate) fn join(&mut self, watch: WatchId, key: Bytes) -> Option<Started> {
        let watched = self.watches.entry(watch).or_insert_with(|| {
            self.by_key.insert(key.clone(), watch);
            Watched { key, watchers: Vec::new(), change: None, status: None }
        });
        if watched.watchers.len() >= OBSERVERS_MAX {
            return None;
        }
        self.last += 1;
        // One place more than changes may take, so that the end always finds room.
        let (updates, receiver) = mpsc::channel(UPDATES_MAX + 1);
        let watcher = Watcher { number: self.last, updates, lagged: Arc::default() };
        // There was nothing before a newcomer, so that there is nothing now is no change.
        let is_there =
            |change: &&WatchEvent| matches!(change, WatchEvent::Changed { value: Some(_), .. });
        let change = watched.change.as_ref().filter(is_there);
        change.into_iter().chain(&watched.status).for_each(|event| watcher.tell(event));
        let lagged = Arc::clone(&watcher.lagged);
        watched.watchers.push(watcher);
        Some(Started { id: WatcherId { watch, number: self.last }, updates: receiver, lagged })
    }

    /// Forgets a watcher. Whether that was the last one, and the watch is to be ended.
    pub(crate) fn leave(&mut self, id: WatcherId) -> bool {
        let Some(watched) = self.watches.get_mut(&id.watch) else { return false };
        watched.watchers.retain(|watcher| watcher.number != id.number);
        let is_last = watched.watchers.is_empty();
        if is_last {
            self.forget(id.watch);
        }
        is_last
    }

    /// Passes on what a watch tells. Whether nobody is left to hear it, and the watch is to be ended.
    pub(crate) fn update(&mut self, watch: WatchId, event: WatchEvent) -> bool {
        let Some(watched) = self.watches.get_mut(&watch) else { return false };
        watched.watchers.retain(|watcher| !watcher.updates.is_closed());
        let is_end = matches!(event, WatchEvent::Ended(_));
        for watcher in &watched.watchers {
            if is_end || watcher.has_room() {
                watcher.tell(&event);
            } else if !watcher.lagged.swap(true, Ordering::SeqCst) {
                self.lagging.push(WatcherId { watch, number: watcher.number });
            }
        }
        let is_abandoned = watched.watchers.is_empty();
        match event {
            WatchEvent::Changed { .. } => watched.change = Some(event),
            WatchEvent::Live | WatchEvent::Gap => watched.status = Some(event),
            WatchEvent::Ended(_) => {}
        }
        if is_end || is_abandoned {
            self.forget(watch);
        }
        is_abandoned && !is_end
    }

    /// Reports a gap and the current state to watchers that lost events and have taken all the rest.
    pub(crate) fn catch_up(&mut self) {
        let watches = &self.watches;
        self.lagging.retain(|id| {
            let Some(watched) = watches.get(&id.watch) else { return false };
            let mut all = watched.watchers.iter();
            let Some(watcher) = all.find(|watcher| watcher.number == id.number) else {
                return false;
            };
            let has_taken_all = watcher.updates.capacity() == watcher.updates.max_capacity();
            if has_taken_all {
                watcher.lagged.store(false, Ordering::SeqCst);
                watcher.tell(&WatchEvent::Gap);
                watched.change.iter().for_each(|change| watcher.tell(change));
                let live = watched.status.iter().filter(|event| **event == WatchEvent::Live);
                live.for_each(|live| watcher.tell(live));
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
    /// Whether it hears of changes now: it has lost none, and there is room beside that of the end.
    fn has_room(&self) -> bool {
        !self.lagged.load(Ordering::SeqCst) && self.updates.capacity() > 1
    }

    fn tell(&self, event: &WatchEvent) {
        // One that is gone is noticed at the next update; room was seen to.
        let _ = self.updates.try_send(event.clone());
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::client::{Client, ClientConfig, WatchEnd};
    use statestore_proto::time::Now;

    use super::*;

    const KEY: Bytes = Bytes::from_static(b"k");

    fn client() -> Client {
        Client::new(ClientConfig::new("c", [0; 8]).expect("a client id"))
    }

    #[test]
    fn the_end_has_room_in_a_full_queue() {
        let mut watchers = Watchers::default();
        let watch = client().watch(Now::default(), KEY).expect("room");
        let mut started = watchers.join(watch, KEY).expect("room");
        for _ in 0..2 * UPDATES_MAX {
            assert!(!watchers.update(watch, WatchEvent::Changed { value: None, version: None }));
        }
        assert!(started.lagged.load(Ordering::SeqCst));
        watchers.catch_up();
        assert!(!watchers.update(watch, WatchEvent::Ended(WatchEnd::Stopped)));
        assert_eq!(watchers.watch_of(&KEY), None, "it can be watched anew");
        let told: Vec<_> = std::iter::from_fn(|| started.updates.try_recv().ok()).collect();
        assert_eq!(told.len(), UPDATES_MAX + 1);
        assert_eq!(told.last(), Some(&WatchEvent::Ended(WatchEnd::Stopped)));
        assert_eq!(started.updates.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    }

    #[test]
    fn a_watch_without_watchers_is_to_be_ended() {
        let (mut client, mut watchers) = (client(), Watchers::default());
        let watch = client.watch(Now::default(), KEY).expect("room");
        drop(watchers.join(watch, KEY));
        assert!(watchers.update(watch, WatchEvent::Gap), "nobody is left");
        client.unwatch(Now::default(), watch);

        let watch = client.watch(Now::default(), KEY).expect("room");
        let all: Vec<_> = (0..OBSERVERS_MAX).map_while(|_| watchers.join(watch, KEY)).collect();
        assert!(all.len() == OBSERVERS_MAX && watchers.join(watch, KEY).is_none());
        let lasts: Vec<_> = all.iter().map(|started| watchers.leave(started.id)).collect();
        assert_eq!(lasts.iter().position(|is_last| *is_last), Some(OBSERVERS_MAX - 1));
        assert!(!watchers.leave(all[0].id), "twice is once");
    }
}
