//! Publishes in flight when a connection ends, and on the next connection.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use super::Session;
use super::event::Lost;
use super::publish::Use;
use super::publish_packet::check_server;
use crate::qos::Qos;
use crate::reason::Reason;

impl Session {
    /// Sends a publish of a former connection again.
    pub(super) fn send_again(&mut self, id: NonZeroU16) {
        let Some(server) = self.server.as_ref() else { return };
        let Some(Use::Publish { publish, is_sent, .. }) = self.ids.get_mut(id) else { return };
        if let Err(error) = check_server(server, &publish.wire(id, true)) {
            let (token, qos) = (publish.token, publish.qos);
            self.publishes.bytes -= publish.size();
            self.lose(Some(token), Lost::Unsendable(error));
            if qos == Qos::ExactlyOnce {
                self.release_unsent(id);
            } else {
                self.ids.remove(id);
            }
            return;
        }
        *is_sent = true;
        self.publishes.in_flight += 1;
        self.put_publish(id, true);
    }

    /// The server may have received this publish at QoS 2. After a PUBREL the packet identifier is
    /// free on both sides.
    fn release_unsent(&mut self, id: NonZeroU16) {
        let order = self.publishes.next_order();
        let reason = Reason::SUCCESS;
        self.ids.replace(id, Use::Release { token: None, reason, order, is_again: true });
        self.publishes.in_flight += 1;
        self.put_pubrel(id, Reason::SUCCESS);
    }

    /// The connection ended: publishes in flight are to be sent again.
    pub(super) fn mark_publishes_unsent(&mut self) {
        self.publishes.resend.clear();
        self.publishes.in_flight = 0;
        for (_, entry) in self.ids.iter_mut() {
            if let Use::Publish { is_sent, .. } = entry {
                *is_sent = false;
            }
        }
    }

    /// The server resumed the session: PUBREL packets are sent again at once, and publishes when
    /// the window allows, each in their original order.
    pub(super) fn resume_publishes(&mut self) {
        let mut order: Vec<_> = self
            .ids
            .iter_mut()
            .filter_map(|(id, entry)| match entry {
                Use::Publish { order, .. } => Some((*order, id, true)),
                Use::Release { order, is_again, .. } => {
                    *is_again = true;
                    Some((*order, id, false))
                }
                Use::Subscribe { .. } | Use::Unsubscribe { .. } => None,
            })
            .collect();
        order.sort_unstable();
        for (_, id, is_publish) in order {
            if is_publish {
                self.publishes.resend.push_back(id);
            } else {
                self.publishes.in_flight += 1;
                self.put_pubrel(id, Reason::SUCCESS);
            }
        }
    }

    /// The server lost the session: publishes in flight are lost. Those that wait are not part of
    /// the session and are sent.
    pub(super) fn lose_publishes(&mut self) {
        let mut lost: Vec<_> = self
            .ids
            .iter_mut()
            .filter_map(|(id, entry)| match entry {
                Use::Publish { order, publish, .. } => {
                    Some((*order, id, Some(publish.token), publish.size()))
                }
                Use::Release { order, token, .. } => Some((*order, id, *token, 0)),
                Use::Subscribe { .. } | Use::Unsubscribe { .. } => None,
            })
            .collect();
        lost.sort_unstable();
        for (_, id, token, size) in lost {
            self.ids.remove(id);
            self.publishes.bytes -= size;
            self.lose(token, Lost::SessionLost);
        }
    }
}
