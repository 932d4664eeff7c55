//! One connection: what was read and is no whole packet yet, and what waits to be written.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use bytes::BytesMut;

use super::aliases::Aliases;
use super::memory::{Held, Memory};
use super::session::Window;
use super::subscribe::Unfinished;
use super::{CONNECTION_BYTES, Refused, SessionId};
use crate::packet::{Notice, Packet};
use crate::property::{Encode, Property};
use crate::reason::Reason;

/// Bytes of answers that may wait to be written before nothing more is read.
const OUTPUT_MAX: usize = 16 << 10;

/// Whether the connections from an address have a limit of their own.
pub(super) const fn is_counted(peer: &IpAddr) -> bool {
    !peer.is_loopback()
}

#[derive(Debug)]
pub(super) enum State {
    /// No CONNECT has come.
    New,
    /// Its CONNECT, and the client id that it was assigned, while somebody finds out who it is.
    Asking(Vec<u8>, Option<Arc<str>>),
    /// It has a session.
    Open(SessionId),
    /// What is left is to write what waits, and to close it.
    Closing,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: Option<IpAddr>,
    /// Why its client is turned away, if it is.
    pub(super) refused: Option<Refused>,
    pub(super) state: State,
    /// What was read and is no whole packet yet, or waits until more may be read.
    pub(super) input: BytesMut,
    /// Bytes of the packet that `input` begins with, if that is known.
    pub(super) needed: usize,
    /// Answers that wait to be written.
    pub(super) output: BytesMut,
    /// Bytes that were given out and may not be written yet.
    pub(super) unwritten: usize,
    /// When something was read last.
    pub(super) heard: Duration,
    /// When its timer rings.
    pub(super) deadline: Option<Duration>,
    /// Whether its client has chosen the method of enhanced authentication.
    pub(super) authenticates: bool,
    /// Bytes of what its client proves anew, while somebody looks at it.
    pub(super) asked: Option<usize>,
    /// When what its client has proved is true no longer.
    pub(super) expires_at: Option<Duration>,
    /// How long nothing may come; `None` for ever.
    pub(super) silence_max: Option<Duration>,
    pub(super) window: Window,
    /// Those that its client has set.
    pub(super) aliases: BTreeMap<u16, Arc<str>>,
    /// Those that it was given.
    pub(super) given: Aliases,
    /// Filters that were sent together and are looked at some at a time.
    pub(super) unfinished: Option<Unfinished>,
    /// Whether there is a wake for it.
    pub(super) is_woken: bool,
    /// Whether it had its turn, and others have theirs.
    pub(super) rests: bool,
    /// Until when what it sends waits for its turn.
    pub(super) trusted_at: Duration,
    /// Whether it waits until the host has taken what it sent.
    pub(super) is_held_up: bool,
    pub(super) held: Held,
}

impl Connection {
    pub(super) fn new(
        now: Duration,
        peer: Option<IpAddr>,
        refused: Option<Refused>,
        memory: &mut Memory,
    ) -> Self {
        let mut held = Held::default();
        held.add(memory, CONNECTION_BYTES);
        Self {
            peer,
            refused,
            state: State::New,
            input: BytesMut::new(),
            needed: 0,
            output: BytesMut::new(),
            unwritten: 0,
            heard: now,
            deadline: None,
            authenticates: false,
            asked: None,
            expires_at: None,
            silence_max: None,
            window: Window { in_flight: usize::from(u16::MAX), packet_bytes: usize::MAX },
            aliases: BTreeMap::new(),
            given: Aliases::default(),
            unfinished: None,
            is_woken: false,
            rests: false,
            trusted_at: now,
            is_held_up: false,
            held,
        }
    }

    pub(super) const fn session(&self) -> Option<SessionId> {
        match self.state {
            State::Open(session) => Some(session),
            State::New | State::Asking(..) | State::Closing => None,
        }
    }

    pub(super) const fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing)
    }

    /// Whether more is to be read from it.
    pub(super) fn wants_input(&self) -> bool {
        let reads = matches!(self.state, State::New | State::Open(_));
        reads
            && self.asked.is_none()
            && !self.is_held_up
            && !self.rests
            && self.output.len() < OUTPUT_MAX
    }

    /// Writes a packet behind what waits already; whether the client takes one as large.
    pub(super) fn answer<P: Encode>(
        &mut self,
        memory: &mut Memory,
        packet: &Packet<'_, P>,
    ) -> bool {
        // None of the broker's own is as large as what MQTT allows, but a client may allow hardly anything.
        let fits = packet.encoded_len().is_ok_and(|len| len <= self.window.packet_bytes);
        if fits {
            let before = self.output.len();
            let _ = packet.encode(&mut self.output);
            self.held.add(memory, self.output.len() - before);
        }
        fits
    }

    /// Says why, and reads nothing more. The properties are left out where the client takes no packet as large.
    pub(super) fn close(
        &mut self,
        memory: &mut Memory,
        reason: Option<Reason>,
        properties: &[Property<'_>],
    ) {
        if self.is_closing() {
            return;
        }
        if let (Some(reason), State::Open(_)) = (reason, &self.state) {
            let _ = self.answer(memory, &Packet::Disconnect(Notice { reason, properties }))
                || self.answer(memory, &Packet::Disconnect(Notice { reason, properties: () }));
        }
        self.set_input(memory, BytesMut::new());
        self.forget_aliases(memory);
        self.given.clear(memory, &mut self.held);
        self.take_unfinished(memory);
        if let State::Asking(connect, _) = core::mem::replace(&mut self.state, State::Closing) {
            self.held.remove(memory, connect.len());
        }
    }

    pub(super) fn set_input(&mut self, memory: &mut Memory, input: BytesMut) {
        self.held.change(memory, self.input.capacity(), input.capacity());
        self.input = input;
    }

    pub(super) fn take_input(&mut self, memory: &mut Memory) -> BytesMut {
        self.held.remove(memory, self.input.capacity());
        core::mem::take(&mut self.input)
    }

    pub(super) fn set_unfinished(&mut self, memory: &mut Memory, unfinished: Unfinished) {
        self.held.add(memory, unfinished.bytes());
        self.unfinished = Some(unfinished);
    }

    pub(super) fn take_unfinished(&mut self, memory: &mut Memory) -> Option<Unfinished> {
        let unfinished = self.unfinished.take()?;
        self.held.remove(memory, unfinished.bytes());
        Some(unfinished)
    }

    pub(super) fn take_output(&mut self, memory: &mut Memory, out: &mut BytesMut) {
        self.held.remove(memory, self.output.len());
        out.extend_from_slice(&self.output);
        self.output.clear();
        // Few connections have much to be told at a time.
        if self.output.capacity() > OUTPUT_MAX {
            self.output = BytesMut::new();
        }
    }

    pub(super) fn set_alias(&mut self, memory: &mut Memory, alias: u16, topic: &str) {
        self.held.add(memory, topic.len() + size_of::<(u16, Arc<str>)>());
        if let Some(old) = self.aliases.insert(alias, topic.into()) {
            self.held.remove(memory, old.len() + size_of::<(u16, Arc<str>)>());
        }
    }

    fn forget_aliases(&mut self, memory: &mut Memory) {
        for old in core::mem::take(&mut self.aliases).into_values() {
            self.held.remove(memory, old.len() + size_of::<(u16, Arc<str>)>());
        }
    }

    /// Gives back all the memory that it has.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        let rest = self.held.bytes();
        self.held.remove(memory, rest);
    }
}
