//! Which message may be what ends one connection after the other.
//!
//! A broker may close the connection of a store for an answer that it will not have, and a requester chooses where the
//! answer goes. The request was not acknowledged then, so it comes again, first of all, and would do so for ever.

use rumqttc::v5::mqttbytes::v5::Publish;

/// The messages that came again as the first of their connection.
#[derive(Debug, Default)]
pub(crate) struct Redelivery {
    /// Packet id of that of the last connection, if there was one.
    last: Option<u16>,
    /// The same of this connection, once there was any message.
    first: Option<Option<u16>>,
}

impl Redelivery {
    /// Starts with the next connection.
    pub(crate) fn connected(&mut self) {
        self.last = self.first.take().flatten();
    }

    /// Whether a message is to be acknowledged before it is answered: it came again first here and on the last
    /// connection.
    pub(crate) fn is_suspect(&mut self, packet: &Publish) -> bool {
        let id = packet.dup.then_some(packet.pkid);
        let is_first = self.first.is_none();
        self.first.get_or_insert(id);
        is_first && id.is_some() && id == self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_again_first_twice_in_a_row_is_suspect() {
        let mut again = Redelivery::default();
        let mut connection = |packets: &[(u16, bool)]| {
            again.connected();
            let packet = |&(pkid, dup)| Publish { pkid, dup, ..Publish::default() };
            packets.iter().map(|of| again.is_suspect(&packet(of))).collect::<Vec<_>>()
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
