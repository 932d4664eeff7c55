//! Tools of an attack: connections that never block on the store, and counters.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::Pid;
use statestore_mqtt::Qos;
use statestore_mqtt::frame::Framed;
use statestore_mqtt::packet::Packet;

use crate::abuse::clock;
use crate::abuse::packets::{self, ConnectFields};

/// Timeout of an attacker for a connection and for a CONNACK.
const PATIENCE: Duration = Duration::from_secs(1);

/// Receive buffer in the system for an attacker that does not read. The store must buffer the rest.
const RECEIVE_BUFFER: usize = 4 << 10;

/// Maximum size of a packet for an attacker, in bytes.
const PACKET_MAX: usize = 4 << 20;

/// A running attack, which has one thread.
pub(crate) struct Scene {
    address: SocketAddr,
    pub(crate) pid: Option<Pid>,
    ends: Instant,
    pub(crate) sent: Cell<Sent>,
}

/// Packets and bytes that an attack has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) connections: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Connections that the store ended, or refused.
    pub(crate) ended: u64,
}

impl Scene {
    pub(crate) fn new(address: SocketAddr, pid: Option<Pid>, ends: Instant) -> Self {
        Self { address, pid, ends, sent: Cell::default() }
    }

    pub(crate) fn is_over(&self) -> bool {
        clock::now() >= self.ends
    }

    /// Opens a connection without sending anything.
    pub(crate) fn open(&self) -> io::Result<Peer<'_>> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.count(|sent| sent.connections += 1);
        let (unsent, received) = (BytesMut::new(), Framed::new(PACKET_MAX));
        Ok(Peer {
            scene: self,
            stream,
            unsent,
            received,
            is_ended: false,
            id: NonZeroU16::MIN,
            turns: 0,
        })
    }

    /// Opens a connection with a valid CONNECT.
    pub(crate) fn join(&self, client_id: &str, fields: ConnectFields<'_>) -> io::Result<Peer<'_>> {
        let mut peer = self.open()?;
        peer.push(&packets::connect(client_id, fields));
        match peer.packet()?.get(..4) {
            // CONNACK, its length, its flags, and the reason.
            Some([0x20, _, _, 0]) => Ok(peer),
            _ => {
                self.count(|sent| sent.ended += 1);
                Err(ErrorKind::PermissionDenied.into())
            }
        }
    }

    /// Lets `count` clients act in turn until the end, and pauses between rounds. A client whose
    /// connection ended reconnects in its next turn.
    pub(crate) fn run_clients<'a>(
        &'a self,
        count: usize,
        pace: Duration,
        join: impl Fn(usize) -> io::Result<Peer<'a>>,
        mut act: impl FnMut(usize, &mut Peer<'a>),
    ) {
        let mut places: Vec<Option<Peer<'a>>> = (0..count).map(|_| None).collect();
        while !self.is_over() {
            for (at, target) in places.iter_mut().enumerate() {
                if self.is_over() {
                    return;
                }
                if target.as_ref().is_none_or(|peer| peer.is_ended) {
                    *target = join(at).ok();
                }
                if let Some(peer) = target {
                    act(at, peer);
                    peer.turns += 1;
                }
            }
            clock::pause(pace);
        }
    }

    /// Holds a value until the attack is over.
    pub(crate) fn hold<T>(&self, what: T) {
        clock::pause(self.ends.saturating_duration_since(clock::now()));
        drop(what);
    }

    fn count(&self, change: impl FnOnce(&mut Sent)) {
        let mut sent = self.sent.get();
        change(&mut sent);
        self.sent.set(sent);
    }
}

/// A connection of an attacker.
pub(crate) struct Peer<'a> {
    scene: &'a Scene,
    stream: TcpStream,
    unsent: BytesMut,
    received: Framed,
    is_ended: bool,
    id: NonZeroU16,
    /// Number of the client's turns so far.
    pub(crate) turns: u32,
}

impl Peer<'_> {
    /// Sends all bytes, or none: returns `false` if the store does not accept more now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.flush();
        if self.is_ended || !self.unsent.is_empty() {
            return false;
        }
        self.unsent.extend_from_slice(bytes);
        self.scene.count(|sent| sent.packets += 1);
        self.flush();
        true
    }

    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], qos: Qos) -> bool {
        let id = self.next_id();
        self.push(&packets::publish(topic, payload, (qos, id), &[]))
    }

    pub(crate) fn request(&mut self, client_id: &str, words: &[&[u8]]) -> bool {
        let id = self.next_id();
        self.push(&packets::request(client_id, id, words))
    }

    pub(crate) fn next_id(&mut self) -> NonZeroU16 {
        self.id = self.id.checked_add(1).unwrap_or(NonZeroU16::MIN);
        self.id
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() && !self.is_ended {
            match self.stream.write(&self.unsent) {
                Ok(count) => {
                    self.unsent.advance(count);
                    self.scene.count(|sent| sent.bytes += count as u64);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.end(),
            }
        }
    }

    /// Reads the available output and discards it.
    pub(crate) fn drain(&mut self) {
        self.flush();
        // Reads are limited per turn, so that other clients get theirs.
        for _ in 0..8 {
            if !self.read() {
                break;
            }
        }
        self.received.buffer_mut().clear();
    }

    /// Reads nothing, so that the store must buffer. Pings sometimes, to detect the end of the
    /// connection.
    pub(crate) fn ignore(&mut self) {
        if self.turns == 0 {
            // If the system refuses, the attack is only slower.
            let _ = set_socket_recv_buffer_size(&self.stream, RECEIVE_BUFFER);
        }
        if self.turns % 16 == 15 {
            self.push(&packets::PINGREQ);
        }
    }

    /// Reads the available output and acknowledges it.
    pub(crate) fn read_and_acknowledge(&mut self) {
        self.flush();
        self.read();
        while let Some(packet) = self.take() {
            if let Ok(Packet::Publish(publish)) = Packet::decode(&packet)
                && let Some(id) = publish.id
            {
                self.push(&packets::puback(id));
            }
        }
    }

    /// Waits briefly for the next packet.
    pub(crate) fn packet(&mut self) -> io::Result<BytesMut> {
        let begun = clock::now();
        while clock::now() - begun < PATIENCE && !self.is_ended {
            self.flush();
            if let Some(packet) = self.take() {
                return Ok(packet);
            }
            if !self.read() {
                clock::pause(Duration::from_micros(200));
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Waits briefly until the output ends with these bytes, and discards it.
    pub(crate) fn skip_until(&mut self, end: &[u8]) -> io::Result<()> {
        let begun = clock::now();
        while clock::now() - begun < PATIENCE && !self.is_ended {
            if self.received.buffer_mut().ends_with(end) {
                self.received.buffer_mut().clear();
                return Ok(());
            }
            if !self.read() {
                clock::pause(Duration::from_micros(200));
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    fn take(&mut self) -> Option<BytesMut> {
        self.received.next_packet().ok().flatten()
    }

    /// Returns whether bytes were available.
    fn read(&mut self) -> bool {
        let mut space = [0; 16 << 10];
        match self.stream.read(&mut space) {
            Ok(0) => self.end(),
            Ok(count) => {
                self.received.buffer_mut().extend_from_slice(&space[..count]);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.end(),
        }
        false
    }

    fn end(&mut self) {
        if !self.is_ended {
            self.is_ended = true;
            self.scene.count(|sent| sent.ended += 1);
        }
    }

    pub(crate) const fn is_ended(&self) -> bool {
        self.is_ended
    }
}
