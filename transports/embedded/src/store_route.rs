//! The route to the store: its lane, the messages that wait behind it, and the notices of clients that have gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mqtt5::QoS;
use mqtt5::broker::router::RoutableMessage;
use mqtt5::broker::storage::{QueueHandle, QueuedMessage};
use mqtt5::packet::publish::PublishPacket;
use tokio::sync::{Notify, mpsc, watch};

/// How long a publisher waits for a store that is not there or takes nothing, before it is refused.
const ADMISSION_MAX: Duration = Duration::from_secs(2);

/// Marks the notice that a client has gone. Flows are for QUIC, which is off, so no message has one.
const GONE: Option<u64> = Some(u64::MAX);

/// News kept for a store that is away. More would be told late: when something is to be delivered to such a client.
const MISSED_MAX: usize = 10_000;

/// Who is connected, and how to reach the store.
#[derive(Debug, Default)]
pub(crate) struct StoreRoute {
    route: watch::Sender<Option<Route>>,
    /// Connections of each client id: for a moment there are two when one takes over.
    connected: Mutex<BTreeMap<Arc<str>, usize>>,
    /// Who has gone while no store could be told.
    missed: Mutex<BTreeSet<Arc<str>>>,
}

/// The route to one session of the store.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) lane: mpsc::Sender<RoutableMessage>,
    pub(crate) queue: QueueHandle,
    /// Told when the queue was emptied.
    pub(crate) emptied: Arc<Notify>,
    /// Whether requests find it.
    pub(crate) is_subscribed: bool,
}

impl StoreRoute {
    /// Leads to a new session of the store, and gives the clients of whose end it has not heard.
    pub(crate) fn open(&self, route: Route) -> BTreeSet<Arc<str>> {
        self.route.send_replace(Some(route));
        std::mem::take(&mut *lock(&self.missed))
    }

    /// Leads nowhere until there is another session: requests wait for that.
    pub(crate) fn close(&self) {
        self.route.send_replace(None);
    }

    pub(crate) fn subscribed(&self) {
        self.route.send_modify(|route| {
            route.iter_mut().for_each(|route| route.is_subscribed = true);
        });
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
        let route = self.route.borrow().clone();
        let Some(Route { lane, queue, .. }) = route else { return self.missed(client_id.into()) };
        let publish = PublishPacket::new(client_id, Bytes::new(), QoS::AtLeastOnce);
        // As the router does it: what is behind the lane stays behind it.
        if queue.behind() && !lane.is_closed() {
            let id = queue.client_id().to_owned();
            let news = QueuedMessage::new(publish, id, QoS::AtLeastOnce, None);
            queue.push(news.with_target_flow(GONE));
            queue.notify();
        } else if lane.send(RoutableMessage { publish, target_flow: GONE }).await.is_err() {
            self.missed(client_id.into());
        }
    }

    /// Keeps the notice for the next session of the store.
    pub(crate) fn missed(&self, client_id: Arc<str>) {
        let mut missed = lock(&self.missed);
        if missed.len() < MISSED_MAX {
            missed.insert(client_id);
        }
    }

    /// Waits for a store, and while requests wait behind the lane, where the router would drop the oldest when there
    /// are too many. Whether one more may come.
    pub(crate) async fn admit(&self) -> bool {
        if self
            .route
            .borrow()
            .as_ref()
            .is_some_and(|route| route.is_open() && !route.queue.behind())
        {
            return true;
        }
        let mut routes = self.route.subscribe();
        let room = async {
            loop {
                let open =
                    routes.wait_for(|route| route.as_ref().is_some_and(Route::is_open)).await;
                let Some(Route { queue, emptied, .. }) = open.ok().and_then(|route| route.clone())
                else {
                    return;
                };
                let told = emptied.notified();
                if !queue.behind() {
                    return;
                }
                told.await;
            }
        };
        tokio::time::timeout(ADMISSION_MAX, room).await.is_ok()
    }
}

impl Route {
    fn is_open(&self) -> bool {
        self.is_subscribed && !self.lane.is_closed()
    }
}

/// The client that has gone, if this is such a notice.
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
        let store_route = StoreRoute::default();
        assert!(!store_route.enter("a"));
        assert!(store_route.enter("a"), "a takeover");
        assert!(!store_route.leave("a"), "the older one");
        assert!(store_route.leave("a"));
        assert!(!store_route.leave("a"), "it was told already");
        assert!(!store_route.enter("a"));
    }
}
