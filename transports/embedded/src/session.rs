//! A session of the router in this process.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use mqtt5::broker::router::{
    DeliveryLanes, LaneReceivers, Release, RoutableMessage, TakeoverNotice,
};
use mqtt5::broker::storage::QueueHandle;
use statestore_tokio::LinkError;
use tokio::sync::{Notify, oneshot, watch};

use crate::access::STORE;
use crate::broker::Running;
use crate::store_route::{self, Route};

/// Messages taken from behind the lane at a time.
const BATCH_MAX: usize = 64;

/// What one client in this process receives.
///
/// The router puts a message into the lane while there is room, and waits a moment when there is none; then it puts that
/// message and all that follow into a queue behind the lane, until the queue was emptied.
pub(crate) struct Session {
    lanes: LaneReceivers,
    queue: QueueHandle,
    emptied: Arc<Notify>,
    /// Taken from the queue; the router waits with the lane until the last of them is handed out.
    batch: VecDeque<RoutableMessage>,
    closed: oneshot::Receiver<LinkError>,
    /// Its end is the end of the session.
    _open: oneshot::Sender<Infallible>,
}

impl Session {
    /// Begins anew; whoever has this client id is disconnected.
    ///
    /// Gives the clients as well that have gone while no session could hear of it.
    pub(crate) async fn open(
        running: &Arc<Running>,
        client_id: &Arc<str>,
    ) -> (Self, BTreeSet<Arc<str>>) {
        let Running { router, store_route, .. } = &**running;
        let queue = router.queue_handle(client_id);
        let (lanes, receivers) = DeliveryLanes::channel(running.queue);
        let lane = lanes.qos1_tx.clone();
        let (taken, notice) = oneshot::channel();
        let id = client_id.to_string();
        let registration = router.register_session(id, lanes, queue.clone(), taken, true).await;
        let ((open, ended), (close, closed)) = (oneshot::channel(), oneshot::channel());
        let keeper = Keeper {
            running: Arc::clone(running),
            client_id: Arc::clone(client_id),
            generation: registration.generation,
            stopped: running.stopped.subscribe(),
        };
        let emptied = Arc::new(Notify::new());
        let (mut takes_over, mut gone) = (false, BTreeSet::new());
        if &**client_id == STORE {
            let (queue, emptied) = (queue.clone(), Arc::clone(&emptied));
            gone = store_route.open(Route { lane, queue, emptied, is_subscribed: false });
        } else {
            takes_over = store_route.enter(client_id);
        }
        tokio::spawn(keeper.run(notice, ended, close));
        if takes_over {
            store_route.tell_gone(client_id).await;
        }
        let batch = VecDeque::new();
        (Self { lanes: receivers, queue, emptied, batch, closed, _open: open }, gone)
    }

    /// Takes nothing more, and gives the clients of whose end nobody has heard.
    pub(crate) async fn close(mut self) -> Vec<Arc<str>> {
        self.lanes.qos1.close();
        self.lanes.qos0.close();
        let mut gone = Vec::new();
        loop {
            while let Some(message) = self.try_next() {
                gone.extend(store_route::gone(&message));
            }
            if self.queue.count() == 0 {
                return gone;
            }
            self.refill().await;
        }
    }

    /// The next message, if `messages` are wanted. May be dropped at any await without losing anything.
    pub(crate) async fn next(&mut self, messages: bool) -> Result<RoutableMessage, LinkError> {
        loop {
            if let Some(message) = messages.then(|| self.try_next()).flatten() {
                return Ok(message);
            }
            if messages && self.queue.count() > 0 {
                self.refill().await;
                continue;
            }
            tokio::select! {
                closed = &mut self.closed => {
                    return Err(closed.unwrap_or_else(|_| LinkError::transient("not connected")));
                }
                Some(message) = self.lanes.qos1.recv(), if messages => return Ok(message),
                Some(message) = self.lanes.qos0.recv(), if messages => return Ok(message),
                () = self.queue.notified(), if messages => {}
            }
        }
    }

    /// Of a queue in memory, so this never waits.
    async fn refill(&mut self) {
        let taken = self.queue.take(BATCH_MAX).await;
        self.batch.extend(taken.into_iter().map(|message| {
            let target_flow = message.target_flow;
            RoutableMessage { publish: message.to_publish_packet(), target_flow }
        }));
    }

    fn try_next(&mut self) -> Option<RoutableMessage> {
        if let Some(message) = self.batch.pop_front() {
            if self.batch.is_empty() {
                self.queue.finish_drain();
                self.emptied.notify_waiters();
            }
            return Some(message);
        }
        // The lane is older than the queue.
        self.lanes.try_recv().ok()
    }
}

/// Ends a session of the router when its owner drops it, and says why when something else ends it.
struct Keeper {
    running: Arc<Running>,
    client_id: Arc<str>,
    generation: u64,
    stopped: watch::Receiver<bool>,
}

impl Keeper {
    async fn run(
        mut self,
        notice: oneshot::Receiver<TakeoverNotice>,
        ended: oneshot::Receiver<Infallible>,
        close: oneshot::Sender<LinkError>,
    ) {
        let reason = tokio::select! {
            notice = notice => match notice {
                Ok(_) => LinkError::fatal("another client has connected with this client id"),
                Err(_) => LinkError::transient("disconnected by the broker"),
            },
            _ = self.stopped.wait_for(|stopped| *stopped) => LinkError::transient("the broker has stopped"),
            _ = ended => LinkError::transient("not connected"),
        };
        let _ = close.send(reason);
        let Running { router, store_route, .. } = &*self.running;
        let released = router.release_client(&self.client_id, self.generation, false).await;
        if released == Release::Owned {
            router.queue_handle(&self.client_id).clear(None);
        }
        if store_route.leave(&self.client_id) {
            store_route.tell_gone(&self.client_id).await;
        }
    }
}
