//! Replay of retained messages to new subscriptions.

use alloc::sync::Arc;
use core::time::Duration;

use super::Broker;
use crate::message::Message;
use crate::outgoing::QueuedMessage;
use crate::retained::Replay;
use crate::sessions::REPLAYED_MAX;
use crate::subscription_index::SubscriptionEntry;

/// Maximum number of retained topics that one turn visits.
const SLICE: usize = 256;

impl Broker {
    /// Continues the replay of retained messages for one session.
    pub(super) fn continue_replay(&mut self, now: Duration) {
        let Some(id) = self.sessions.next_replay() else { return };
        let Some(session) = self.sessions.get_mut(id) else { return };
        let mut steps = SLICE;
        let mut replays = core::mem::take(&mut session.replays);
        while let Some(mut entry) = replays.first_entry() {
            if steps == 0 || session.queued_len() >= REPLAYED_MAX {
                break;
            }
            let filter = entry.key().clone();
            let replay = entry.get_mut();
            let SubscriptionEntry { qos, no_local, id, .. } = replay.subscription;
            let (found, is_unfinished) =
                self.retained.step(now, &mut self.memory, &filter, replay, &mut steps);
            let (client_id, acl) = (&session.client_id, &session.acl);
            let is_wanted = |message: &Arc<Message>| {
                let is_own = message.sender().is_some_and(|sender| sender == client_id);
                !(is_own && no_local) && acl.may_receive(client_id, message.topic())
            };
            if let Some(message) = found.filter(is_wanted) {
                let queued = QueuedMessage {
                    qos: qos.min(message.qos()),
                    message,
                    retain: true,
                    subscription_ids: id.into_iter().collect(),
                };
                session.push(&mut self.memory, queued);
            }
            if !is_unfinished {
                session.account.remove(&mut self.memory, Replay::bytes(&filter));
                entry.remove();
            }
        }
        session.replays = replays;
        self.sessions.schedule_replay(id);
        self.wake_session(id);
        self.check_session_memory(now, id);
    }
}
