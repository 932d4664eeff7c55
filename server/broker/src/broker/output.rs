//! Output for connections.

use core::time::Duration;

use bytes::BytesMut;

use super::Broker;
use crate::connection::Connection;
use crate::ids::ConnectionId;
use crate::incidents::{IncidentKind, IncidentRef};
use crate::outgoing::{PART_BYTES, PacketSink};
use crate::session::SendOutcome;

/// Messages that one call drops, since they are expired or too large for the client: a session can
/// have tens of thousands of them, and other clients wait for the broker meanwhile.
const DROPPED_MAX: u64 = 512;

/// Next step of the driver after it has written the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Output {
    /// Call `poll_output` again: more output is ready, or messages that the client will not get were
    /// dropped. Without bytes to write, let other connections have a turn before.
    More,
    /// Wait for a wake, or for bytes to read.
    Idle,
    /// Close the connection.
    Close,
}

impl Broker {
    /// Appends the next output of a connection, usually less than 64 KiB. Call it only after the
    /// previous output is written: the bytes in `out` count as memory of the client until the next
    /// call. Further output waits in the broker. An unknown connection returns [`Output::Close`].
    ///
    /// A PUBLISH of more than 32 KiB is returned in parts by several calls. A connection that ends
    /// between two parts gets neither the other parts nor a DISCONNECT.
    pub fn poll_output(&mut self, now: Duration, id: ConnectionId, out: &mut BytesMut) -> Output {
        let Some(connection) = self.connections.get_mut(id) else { return Output::Close };
        let before = core::mem::take(&mut connection.unwritten);
        connection.account.remove(&mut self.memory, before);
        connection.continue_packet(&mut self.memory, out);
        connection.take_output(&mut self.memory, out);
        self.resume_input(now, id);
        self.settle(now);
        let mut output = self.fill(now, id, out);
        let Some(connection) = self.connections.get_mut(id) else { return Output::Close };
        if connection.is_closing() {
            connection.take_output(&mut self.memory, out);
            output = Output::Close;
        }
        connection.unwritten = out.len();
        connection.account.add(&mut self.memory, out.len());
        output
    }

    fn fill(&mut self, now: Duration, id: ConnectionId, out: &mut BytesMut) -> Output {
        let Some(connection) = self.connections.get_mut(id) else { return Output::Close };
        connection.take_output(&mut self.memory, out);
        let (window, Some(session_id)) = (connection.window, connection.session()) else {
            return Output::Idle;
        };
        let dropped_max = self.stats.dropped.saturating_add(DROPPED_MAX);
        let output = loop {
            if out.len() >= PART_BYTES || self.stats.dropped >= dropped_max {
                break Output::More;
            }
            let session = self.sessions.get_mut(session_id);
            let Some((session, connection)) = session.zip(self.connections.get_mut(id)) else {
                return Output::Idle;
            };
            let Connection { outbound_aliases, partial, account, .. } = connection;
            let mut sink = PacketSink { window, outbound_aliases, partial, account, out };
            match session.send(now, &mut self.memory, &mut sink) {
                SendOutcome::Packet => {}
                SendOutcome::Expired => self.stats.dropped += 1,
                // MQTT-3.1.2-25: discard the message and behave as if it had been sent.
                SendOutcome::TooLarge(topic) => {
                    self.stats.dropped += 1;
                    let (kind, client_id) = (IncidentKind::TooLarge, &session.client_id);
                    self.incidents.push(IncidentRef::about(kind, client_id, &topic, None));
                }
                SendOutcome::Nothing => {
                    self.sessions.schedule_replay(session_id);
                    break Output::Idle;
                }
            }
        };
        self.unpark_if_read(session_id);
        output
    }
}
