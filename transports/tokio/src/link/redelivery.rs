//! Finds a message that may be the reason why one connection after the other is lost.
//!
//! A broker may close the connection of a store because of a response that it does not accept, and
//! the requester chooses the response topic. The request is unacknowledged then, so the broker
//! redelivers it first on the next connection, and the same would happen for ever.

/// The first message of this connection and of the previous one.
#[derive(Debug, Default)]
pub(crate) struct Redelivery {
    /// Packet id of the first message of the previous connection, if it was a redelivery.
    last: Option<u16>,
    /// The same for this connection, once a message has arrived.
    first: Option<Option<u16>>,
}

impl Redelivery {
    /// A new connection begins.
    pub(crate) fn connected(&mut self) {
        self.last = self.first.take().flatten();
    }

    /// Returns whether to acknowledge a message before it is answered: it was redelivered as the
    /// first message of this connection and of the previous one.
    pub(crate) fn is_suspect(&mut self, id: u16, dup: bool) -> bool {
        let id = dup.then_some(id);
        let is_first = self.first.is_none();
        self.first.get_or_insert(id);
        is_first && id.is_some() && id == self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_redelivered_first_on_two_connections_in_a_row_is_suspect() {
        let mut redelivery = Redelivery::default();
        let mut connection = |packets: &[(u16, bool)]| {
            redelivery.connected();
            let suspect = |&(id, dup)| redelivery.is_suspect(id, dup);
            packets.iter().map(suspect).collect::<Vec<_>>()
        };
        assert_eq!(connection(&[(1, false), (2, true)]), [false, false]);
        assert_eq!(connection(&[(1, true), (2, true)]), [false, false]);
        assert_eq!(connection(&[(2, true), (1, true)]), [false, false], "another came first");
        assert_eq!(connection(&[(2, true), (2, true)]), [true, false]);
        assert_eq!(connection(&[(2, false), (2, true)]), [false, false], "another of that id");
        assert_eq!(connection(&[]), [false; 0]);
        assert_eq!(connection(&[(2, true)]), [false]);
    }
}
