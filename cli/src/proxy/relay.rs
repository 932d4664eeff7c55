//! One connection: packets go on one after the other, or not.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use statestore_mqtt::Kind;
use statestore_mqtt::packet::{Header, Packet};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Log;
use super::faults::{Direction, Fate, Judge, Seen};

/// Bytes of a packet that goes on.
const PACKET_MAX: usize = 2 << 20;

/// The flags of a PUBLISH that say at which quality of service it is, and the one of a PUBLISH that may have been sent before.
const QOS: u8 = 0x06;
const DUP: u8 = 0x08;

/// Until one side closes the connection, or a fault does.
pub(super) async fn run(
    client: TcpStream,
    server: TcpStream,
    judges: [Judge; 2],
    connection: u64,
    start: Instant,
    log: &Log,
) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let [asks, answers] = judges;
    let cut = Arc::new(Notify::new());
    let way = |direction, from, to, judge| {
        let cut = Arc::clone(&cut);
        Way { direction, from, to, judge, connection, start, log, cut, buffer: BytesMut::new() }
    };
    let mut there = way(Direction::ToBroker, from_client, to_server, asks);
    let mut back = way(Direction::ToClient, from_server, to_client, answers);
    // What is left of either goes with it.
    tokio::select! {
        () = there.go() => {}
        () = back.go() => {}
        () = cut.notified() => {}
    }
}

/// Packets that go one way.
struct Way<'a> {
    direction: Direction,
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    judge: Judge,
    connection: u64,
    start: Instant,
    log: &'a Log,
    cut: Arc<Notify>,
    buffer: BytesMut,
}

impl Way<'_> {
    async fn go(&mut self) {
        while let Some(packet) = self.packet().await {
            if !self.pass(packet).await {
                return;
            }
        }
    }

    /// The next whole packet; `None` at the end, and for what is none.
    async fn packet(&mut self) -> Option<BytesMut> {
        loop {
            match Header::read(&self.buffer, PACKET_MAX) {
                Ok(Some(Header { len, .. })) if self.buffer.len() >= len => {
                    return Some(self.buffer.split_to(len));
                }
                Ok(_) => {}
                Err(error) => {
                    let about = format!("{}: {error}", self.direction.text());
                    self.log.note(self.connection, "no-mqtt", &about).await;
                    return None;
                }
            }
            if self.from.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Whether the connection goes on.
    async fn pass(&mut self, mut packet: BytesMut) -> bool {
        let decoded = Packet::decode(&packet).ok();
        let topic = match &decoded {
            Some(Packet::Publish(publish)) => Some(publish.topic),
            _ => None,
        };
        let kind = Header::read(&packet, PACKET_MAX).ok().flatten().map(|header| header.kind);
        let seen = Seen {
            kind: kind.unwrap_or(Kind::PingReq),
            direction: self.direction,
            topic,
            at: self.start.elapsed(),
        };
        let fate = self.judge.fate_of(&seen);
        if fate == Fate::Pass {
            return self.to.write_all(&packet).await.is_ok();
        }
        let is_kept = seen.kind == Kind::Publish;
        let topic = topic.map(|topic| format!(" {topic}")).unwrap_or_default();
        let about = format!("{} {:?}{topic}", self.direction.text(), seen.kind);
        self.log.note(self.connection, fate.text(), &about).await;
        match fate {
            Fate::Pass => true,
            Fate::Drop(after) => {
                self.cut_after(after);
                true
            }
            Fate::Repeat => {
                let is_sent = self.to.write_all(&packet).await.is_ok();
                // As a sender that has heard of no acknowledgement would; at QoS 0 there is none.
                match packet.first_mut() {
                    Some(first) if is_kept && *first & QOS != 0 => *first |= DUP,
                    _ => {}
                }
                is_sent && self.to.write_all(&packet).await.is_ok()
            }
            Fate::Hold(time) => {
                tokio::time::sleep(time).await;
                self.to.write_all(&packet).await.is_ok()
            }
            Fate::Cut => false,
            Fate::CutInside => {
                let (half, _) = packet.split_at(packet.len() / 2);
                let _ = self.to.write_all(half).await;
                let _ = self.to.flush().await;
                false
            }
        }
    }

    /// One that is dropped is not sent again before the connection is made anew.
    fn cut_after(&self, time: Duration) {
        let cut = Arc::clone(&self.cut);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            cut.notify_one();
        });
    }
}
