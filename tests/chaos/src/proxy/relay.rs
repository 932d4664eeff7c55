//! One connection through the proxy. Packets are forwarded in order, except for faults.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use statestore_mqtt::Kind;
use statestore_mqtt::frame::Framed;
use statestore_mqtt::packet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, Notify, watch};

use super::faults::{Action, Direction, FaultInjector, Packet};
use super::requested::Requested;
use super::{Mode, Shared, wait_until_open};

/// Maximum size of a forwarded packet in bytes.
const PACKET_MAX: usize = 2 << 20;

/// QoS bits of the first byte of a PUBLISH.
const QOS: u8 = 0x06;

/// DUP bit of the first byte of a PUBLISH.
const DUP: u8 = 0x08;

/// Size of the reads of a protocol without faults.
const READ_BYTES: usize = 64 << 10;

/// Relays bytes or packets until one side, the proxy, or a fault closes the connection.
pub(super) async fn run(
    client: TcpStream,
    server: TcpStream,
    connection: u64,
    injectors: Option<[FaultInjector; 2]>,
    shared: &Shared,
) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let (to_client, to_server) = (Arc::new(Mutex::new(to_client)), Arc::new(Mutex::new(to_server)));
    let cut = Arc::new(Notify::new());
    let relay = |direction, from, to, injector| Relay {
        direction,
        from,
        to,
        to_client: Arc::clone(&to_client),
        injector,
        connection,
        shared,
        mode: shared.mode.clone(),
        cut: Arc::clone(&cut),
        framed: Framed::new(PACKET_MAX),
    };
    let [to_broker, to_client_faults] = injectors.map_or([None, None], |both| both.map(Some));
    let mut upstream = relay(Direction::ToBroker, from_client, to_server, to_broker);
    let mut downstream =
        relay(Direction::ToClient, from_server, Arc::clone(&to_client), to_client_faults);
    // Packets that are still in one direction are lost with the connection.
    tokio::select! {
        () = upstream.run() => {}
        () = downstream.run() => {}
        () = cut.notified() => {}
    }
}

/// One direction of a connection.
struct Relay<'a> {
    direction: Direction,
    from: OwnedReadHalf,
    to: Arc<Mutex<OwnedWriteHalf>>,
    /// For responses that a client requests.
    to_client: Arc<Mutex<OwnedWriteHalf>>,
    injector: Option<FaultInjector>,
    connection: u64,
    shared: &'a Shared,
    mode: watch::Receiver<Mode>,
    cut: Arc<Notify>,
    framed: Framed,
}

impl Relay<'_> {
    async fn run(&mut self) {
        while let Some(packet) = self.read_packet().await {
            if !self.forward(packet).await {
                return;
            }
        }
    }

    /// Returns the next packet, or all bytes that were read without faults; `None` at the end of the
    /// stream or of the proxy, and after malformed bytes.
    async fn read_packet(&mut self) -> Option<BytesMut> {
        if self.injector.is_none() {
            self.framed.buffer_mut().reserve(READ_BYTES);
            self.read().await?;
            return Some(self.framed.buffer_mut().split());
        }
        loop {
            match self.framed.next_packet() {
                Ok(Some(packet)) => return Some(packet),
                Ok(None) => self.read().await?,
                Err(error) => {
                    let about = format!("{}: {error}", self.direction.text());
                    self.shared.log.fault(self.connection, "no-mqtt", &about);
                    return None;
                }
            }
        }
    }

    /// Reads bytes while the proxy is open.
    async fn read(&mut self) -> Option<()> {
        loop {
            wait_until_open(&mut self.mode).await?;
            let read = tokio::select! {
                read = self.from.read_buf(self.framed.buffer_mut()) => read,
                changed = self.mode.changed() => {
                    changed.ok()?;
                    continue;
                }
            };
            // Bytes that were already read are delayed as well.
            wait_until_open(&mut self.mode).await?;
            return (read.ok()? > 0).then_some(());
        }
    }

    /// Forwards a packet, or applies a fault to it. Returns whether the connection continues.
    async fn forward(&mut self, mut packet: BytesMut) -> bool {
        let (Some(faults), Some(injector)) = (&self.shared.faults, &mut self.injector) else {
            return self.to.lock().await.write_all(&packet).await.is_ok();
        };
        let decoded = packet::Packet::decode(&packet).ok();
        let topic = match &decoded {
            Some(packet::Packet::Publish(publish)) => Some(publish.topic),
            _ => None,
        };
        if self.direction == Direction::ToBroker
            && let Some(fault) = decoded.as_ref().and_then(|packet| faults.requests.fault(packet))
        {
            return self.apply_requested(fault, &packet).await;
        }
        let kind = packet.first().and_then(|first| Kind::of(*first).ok());
        let described = Packet {
            kind: kind.unwrap_or(Kind::PingReq),
            direction: self.direction,
            topic,
            at: faults.start.elapsed(),
        };
        let action = injector.next_action(&described);
        if action == Action::Pass {
            return self.to.lock().await.write_all(&packet).await.is_ok();
        }
        let is_publish = described.kind == Kind::Publish;
        let topic = topic.map(|topic| format!(" {topic}")).unwrap_or_default();
        let about = format!("{} {:?}{topic}", self.direction.text(), described.kind);
        self.shared.log.fault(self.connection, action.text(), &about);
        match action {
            Action::Pass => true,
            Action::Drop(after) => {
                self.cut_after(after);
                true
            }
            Action::Repeat => {
                let is_sent = self.to.lock().await.write_all(&packet).await.is_ok();
                // Like a sender without an acknowledgement. QoS 0 has no acknowledgements.
                match packet.first_mut() {
                    Some(first) if is_publish && *first & QOS != 0 => *first |= DUP,
                    _ => {}
                }
                is_sent && self.to.lock().await.write_all(&packet).await.is_ok()
            }
            Action::Hold(time) => {
                tokio::time::sleep(time).await;
                self.to.lock().await.write_all(&packet).await.is_ok()
            }
            Action::Cut => false,
            Action::CutInside => {
                let (half, _) = packet.split_at(packet.len() / 2);
                let _ = self.to.lock().await.write_all(half).await;
                let _ = self.to.lock().await.flush().await;
                false
            }
        }
    }

    /// Applies a fault that the client requests. Returns whether the connection continues.
    async fn apply_requested(&self, fault: Requested, packet: &[u8]) -> bool {
        self.shared.log.fault(self.connection, fault.text(), self.direction.text());
        match fault {
            Requested::Reject { response, is_last } => {
                let is_sent = self.to_client.lock().await.write_all(&response).await.is_ok();
                is_sent && !is_last
            }
            Requested::Disconnect { packet: disconnect, after: None } => {
                let _ = self.to_client.lock().await.write_all(&disconnect).await;
                false
            }
            Requested::Disconnect { packet: disconnect, after: Some(delay) } => {
                let (to_client, cut) = (Arc::clone(&self.to_client), Arc::clone(&self.cut));
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = to_client.lock().await.write_all(&disconnect).await;
                    cut.notify_one();
                });
                self.to.lock().await.write_all(packet).await.is_ok()
            }
        }
    }

    /// Cuts the connection after a time. The sender of a dropped packet sends it again only over
    /// a new connection.
    fn cut_after(&self, time: Duration) {
        let cut = Arc::clone(&self.cut);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            cut.notify_one();
        });
    }
}
