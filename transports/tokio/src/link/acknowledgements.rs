//! Manual acknowledgements in order of arrival.

use std::collections::VecDeque;

use statestore_proto::transport::Delivery;

use super::connector::PacketId;

/// Messages of one connection that are not acknowledged yet. The Receive Maximum bounds them.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgements {
    /// Oldest first, with whether the machine has released the message.
    waiting: VecDeque<(Delivery, PacketId, bool)>,
}

impl Acknowledgements {
    /// Adds a message that has arrived.
    pub(crate) fn arrived(&mut self, delivery: Delivery, id: PacketId) {
        self.waiting.push_back((delivery, id, false));
    }

    /// Releases a message. A message of an earlier connection is ignored.
    pub(crate) fn release(&mut self, delivery: Delivery) {
        // Deliveries ascend.
        if let Ok(at) = self.waiting.binary_search_by_key(&delivery, |(delivery, ..)| *delivery) {
            self.waiting[at].2 = true;
        }
    }

    /// The next packet to acknowledge: released, as all before it are.
    pub(crate) fn pop(&mut self) -> Option<PacketId> {
        let (.., id, true) = *self.waiting.front()? else { return None };
        self.waiting.pop_front();
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::transport::Qos;

    use super::*;

    #[test]
    fn acknowledgements_are_released_in_order_of_arrival() {
        let mut messages = Acknowledgements::default();
        for number in 1..=3 {
            let id = PacketId { id: number, qos: Qos::AtLeastOnce };
            messages.arrived(Delivery(u64::from(number) + 40), id);
        }
        let mut release = |delivery| {
            messages.release(Delivery(delivery));
            std::iter::from_fn(|| messages.pop()).map(|packet| packet.id).collect::<Vec<_>>()
        };
        assert_eq!(release(43), [0; 0]);
        assert_eq!(release(7), [0; 0], "of an earlier connection");
        assert_eq!(release(41), [1]);
        assert_eq!(release(41), [0; 0], "each once");
        assert_eq!(release(42), [2, 3]);
    }
}
