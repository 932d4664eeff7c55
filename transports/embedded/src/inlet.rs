//! The way to the store: its lane, what waits behind that, and the news of clients that have gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mqtt5::QoS;
use mqtt5::broker::router::RoutableMessage;
use mqtt5::broker::storage::{QueueHandle, QueuedMessage};
use mqtt5::packet::publish::PublishPacket;
use tokio::sync::{Notify, mpsc};

/// How long a publisher waits for a store that takes nothing before it is refused.
const ADMISSION_MAX: Duration = Duration::from_secs(5);

/// Marks the news that a client has gone. Flows are for QUIC, which is off, so no message has one.
const GONE: Option<u64> = Some(u64::MAX);

/// Who is connected, and how to reach the store.
#[derive(Default)]
pub(crate) struct Inlet {
    way: Mutex<Option<Way>>,
    /// Connections of each client id: for a moment there are two when one takes over.
    connected: Mutex<BTreeMap<Arc<str>, usize>>,
}

/// The way to one session of the store.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) lane: mpsc::Sender<RoutableMessage>,
    pub(crate) queue: QueueHandle,
    /// Told when the queue was emptied.
    pub(crate) emptied: Arc<Notify>,
}

impl Inlet {
    pub(crate) fn open(&self, way: Way) {
        *lock(&self.way) = Some(way);
    }

    /// Notes a connection; whether another one of this client is still there.
    pub(crate) fn enter(&self, client_id: &str) -> bool {
        let mut connected = lock(&self.connected);
        let count = connected.entry(client_id.into()).or_insert(0);
        *count += 1;
        *count > 1
    }

    /// Notes the end of a connection; whether it was the last one of this client.
    pub(crate) fn leave(&self, client_id: &str) -> bool {
        let mut connected = lock(&self.connected);
        match connected.get_mut(client_id) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => connected.remove(client_id).is_some(),
        }
    }

    /// Tells the store that a client has gone, after everything that it has sent and before what it sends next.
    pub(crate) async fn tell_gone(&self, client_id: &str) {
        let Some(Way { lane, queue, .. }) = self.way() else { return };
        let publish = PublishPacket::new(client_id, Bytes::new(), QoS::AtLeastOnce);
        // As the router does it: what is behind the lane stays behind it.
        if queue.behind() {
            let id = queue.client_id().to_owned();
            let news = QueuedMessage::new(publish, id, QoS::AtLeastOnce, None);
            queue.push(news.with_target_flow(GONE));
            queue.notify();
        } else {
            let _ = lane.send(RoutableMessage { publish, target_flow: GONE }).await;
        }
    }

    /// Waits while requests wait behind the lane, where the router would drop the oldest when there are too many. Whether
    /// one more may come.
    pub(crate) async fn admit(&self) -> bool {
        let Some(Way { queue, emptied, .. }) = self.way() else { return true };
        if !queue.behind() {
            return true;
        }
        let room = async {
            loop {
                let told = emptied.notified();
                if !queue.behind() {
                    return;
                }
                told.await;
            }
        };
        tokio::time::timeout(ADMISSION_MAX, room).await.is_ok()
    }

    fn way(&self) -> Option<Way> {
        lock(&self.way).clone()
    }
}

/// The client that has gone, if this is the news of that.
pub(crate) fn gone(message: &RoutableMessage) -> Option<Arc<str>> {
    (message.target_flow == GONE).then(|| message.publish.topic_name.as_str().into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_gone_with_its_last_connection() {
        let inlet = Inlet::default();
        assert!(!inlet.enter("a"));
        assert!(inlet.enter("a"), "a takeover");
        assert!(!inlet.leave("a"), "the older one");
        assert!(inlet.leave("a"));
        assert!(!inlet.leave("a"), "it was told already");
        assert!(!inlet.enter("a"));
    }
}
