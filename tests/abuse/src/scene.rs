//! Tools of an attack: connections that never wait for the store, and a count of sent bytes.

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

use crate::clock;
use crate::packets::{self, Hello};

/// Time-out of an attacker for a CONNACK, and for a connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that the system keeps for an attacker that does not read; the rest is for the store to keep.
const RECEIVE_BUFFER: usize = 4 << 10;

/// The largest packet that an attacker takes, in bytes.
const PACKET_MAX: usize = 4 << 20;

/// One attack while it goes on. It has one thread.
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

    /// A connection on which nothing was said yet.
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

    /// A client that is welcome.
    pub(crate) fn join(&self, client_id: &str, hello: Hello<'_>) -> io::Result<Peer<'_>> {
        let mut peer = self.open()?;
        peer.push(&packets::connect(client_id, hello));
        match peer.packet()?.get(..4) {
            // CONNACK, its length, its flags, and the reason.
            Some([0x20, _, _, 0]) => Ok(peer),
            _ => {
                self.count(|sent| sent.ended += 1);
                Err(ErrorKind::PermissionDenied.into())
            }
        }
    }

    /// Lets so many clients act in turn until it is over, and pauses between rounds. Who is ended joins again in its turn.
    pub(crate) fn crew<'a>(
        &'a self,
        count: usize,
        pace: Duration,
        join: impl Fn(usize) -> io::Result<Peer<'a>>,
        mut act: impl FnMut(usize, &mut Peer<'a>),
    ) {
        let mut places: Vec<Option<Peer<'a>>> = (0..count).map(|_| None).collect();
        while !self.is_over() {
            for (at, place) in places.iter_mut().enumerate() {
                if self.is_over() {
                    return;
                }
                if place.as_ref().is_none_or(|peer| peer.is_ended) {
                    *place = join(at).ok();
                }
                if let Some(peer) = place {
                    act(at, peer);
                    peer.turns += 1;
                }
            }
            clock::pause(pace);
        }
    }

    /// Keeps something until the attack is over.
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
    /// Number of its turns.
    pub(crate) turns: u32,
}

impl Peer<'_> {
    /// Sends bytes, or nothing of them: `false` when the store does not take them now.
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

    /// Reads what there is and forgets it.
    pub(crate) fn drain(&mut self) {
        self.flush();
        // Whoever hears more than that has it wait.
        for _ in 0..8 {
            if !self.read() {
                break;
            }
        }
        self.received.buffer_mut().clear();
    }

    /// Instead of reading: leaves what comes to the store, and notices by and by that the connection has ended.
    pub(crate) fn ignore(&mut self) {
        if self.turns == 0 {
            // Where it is refused the attack is only slower.
            let _ = set_socket_recv_buffer_size(&self.stream, RECEIVE_BUFFER);
        }
        if self.turns % 16 == 15 {
            self.push(&packets::PINGREQ);
        }
    }

    /// Reads what there is, and acknowledges it.
    pub(crate) fn listen(&mut self) {
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

    /// The next packet, if it comes soon.
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

    fn take(&mut self) -> Option<BytesMut> {
        self.received.next_packet().ok().flatten()
    }

    /// Returns whether there was something.
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
