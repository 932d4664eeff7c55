//! What goes to a client.

use core::time::Duration;

use bytes::BytesMut;

use super::connection::Connection;
use super::incidents::IncidentKind;
use super::session::{Sent, Way};
use super::{Broker, ConnectionId};
use crate::reason::Reason;

/// Bytes after which what is to be written is written.
const CHUNK: usize = 32 << 10;

/// What to do when the bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Output {
    /// There is more to be written already.
    More,
    /// Wait to be woken, or for bytes to read.
    Idle,
    /// Close the connection.
    Close,
}

impl Broker {
    /// Appends what is to be written to a connection: the next some 32 KiB of it. To be called when what the last call gave is
    /// written, so that what waits because a client does not read is known here.
    pub fn poll_output(&mut self, now: Duration, id: ConnectionId, out: &mut BytesMut) -> Output {
        let Some(connection) = self.connections.get_mut(&id) else { return Output::Close };
        let before = core::mem::take(&mut connection.unwritten);
        connection.held.remove(&mut self.memory, before);
        connection.take_output(&mut self.memory, out);
        self.go_on(now, id);
        self.settle(now);
        let mut output = self.fill(now, id, out);
        let Some(connection) = self.connections.get_mut(&id) else { return Output::Close };
        if connection.is_closing() {
            connection.take_output(&mut self.memory, out);
            output = Output::Close;
        }
        connection.unwritten = out.len();
        connection.held.add(&mut self.memory, out.len());
        output
    }

    fn fill(&mut self, now: Duration, id: ConnectionId, out: &mut BytesMut) -> Output {
        let Some(connection) = self.connections.get_mut(&id) else { return Output::Close };
        connection.take_output(&mut self.memory, out);
        let (window, Some(session)) = (connection.window, connection.session()) else {
            return Output::Idle;
        };
        let output = loop {
            if out.len() >= CHUNK {
                break Output::More;
            }
            let kept = self.sessions.get_mut(&session);
            let Some((kept, connection)) = kept.zip(self.connections.get_mut(&id)) else {
                return Output::Idle;
            };
            let Connection { given, held, .. } = connection;
            let mut way = Way { window, given, held, out };
            match kept.send(now, &mut self.memory, &mut way) {
                Sent::Packet => {}
                Sent::Dropped => self.stats.dropped += 1,
                Sent::Missed => {
                    self.stats.dropped += 1;
                    let reason = Some(Reason::PACKET_TOO_LARGE);
                    self.note(id, IncidentKind::Missed, reason, None);
                    self.end_connection(now, id, reason);
                    return Output::Close;
                }
                Sent::Nothing => {
                    self.wants_replay(session);
                    break Output::Idle;
                }
            }
        };
        self.has_read(session);
        output
    }
}
