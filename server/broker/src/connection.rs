//! One connection: buffered input, buffered output, and protocol state.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use bytes::BytesMut;

use crate::aliases::Aliases;
use crate::config::Limits;
use crate::filter_batch::FilterBatch;
use crate::ids::SessionId;
use crate::memory::{Memory, MemoryAccount};
use crate::outgoing::{PartialPacket, Window};
use statestore_mqtt::packet::{Header, Notice, Packet};
use statestore_mqtt::property::{Encode, Property};
use statestore_mqtt::{Kind, Malformed, Reason};

/// Bytes of a connection in all tables, without its contents.
const CONNECTION_BYTES: usize = 1_024;

/// Bytes of buffered output at which the broker stops reading from the connection.
const OUTPUT_MAX: usize = 16 << 10;

pub(crate) enum State {
    /// No CONNECT was received.
    New,
    /// The CONNECT packet and the assigned client id, while the embedder decides the login.
    Authenticating(Vec<u8>, Option<Arc<str>>),
    /// The client has a session.
    Open(SessionId),
    /// The connection closes after its output is written.
    Closing,
}

/// Bytes that cannot be the start of a packet.
#[derive(Debug)]
pub(crate) enum FramingError {
    /// The first packet is not a CONNECT.
    NotConnect,
    Malformed(Malformed),
}

pub(crate) struct Connection {
    pub(crate) peer: Option<IpAddr>,
    pub(crate) state: State,
    /// Input that is not yet processed: an incomplete packet, or packets that wait for their turn.
    pub(crate) input: BytesMut,
    /// Bytes of the first packet in `input`; 0 if unknown.
    pub(crate) needed: usize,
    /// Responses that wait to be written.
    pub(crate) output: BytesMut,
    /// A PUBLISH that was only partly returned. All other output waits until it is complete.
    pub(crate) partial: Option<PartialPacket>,
    /// Bytes that the last `poll_output` returned.
    pub(crate) unwritten: usize,
    /// Time at which the connection was opened.
    pub(crate) opened_at: Duration,
    /// Time of the last input.
    pub(crate) last_received_at: Duration,
    /// Time of the connect or keep-alive timer.
    pub(crate) deadline: Option<Duration>,
    /// Set if the client selected the method of enhanced authentication.
    pub(crate) authenticates: bool,
    /// Bytes of the authentication data of an undecided reauthentication.
    pub(crate) pending_auth_bytes: Option<usize>,
    /// Time at which the credentials of the client expire.
    pub(crate) expires_at: Option<Duration>,
    /// Maximum time without input; `None` without a limit.
    pub(crate) keep_alive_timeout: Option<Duration>,
    pub(crate) window: Window,
    /// Aliases that the client set.
    pub(crate) inbound_aliases: BTreeMap<u16, Arc<str>>,
    /// Aliases that the broker set.
    pub(crate) outbound_aliases: Aliases,
    /// SUBSCRIBE or UNSUBSCRIBE that is processed in several turns.
    pub(crate) filter_batch: Option<FilterBatch>,
    /// Set while a wake is queued.
    pub(crate) is_woken: bool,
    /// Set while processing is suspended until its next turn.
    pub(crate) has_yielded: bool,
    /// Time until which its packets wait for a turn.
    pub(crate) throttled_until: Duration,
    /// Set while reading is paused because the host's queue for this client is full.
    pub(crate) is_paused: bool,
    /// Owner that the connection counts for, from its acceptance until it closes.
    pub(crate) owner: Option<Arc<str>>,
    pub(crate) account: MemoryAccount,
}

impl Connection {
    pub(crate) fn new(now: Duration, peer: Option<IpAddr>, memory: &mut Memory) -> Self {
        let mut account = MemoryAccount::default();
        account.add(memory, CONNECTION_BYTES);
        Self {
            peer,
            state: State::New,
            input: BytesMut::new(),
            needed: 0,
            output: BytesMut::new(),
            partial: None,
            unwritten: 0,
            opened_at: now,
            last_received_at: now,
            deadline: None,
            authenticates: false,
            pending_auth_bytes: None,
            expires_at: None,
            keep_alive_timeout: None,
            window: Window { in_flight: usize::from(u16::MAX), packet_bytes: usize::MAX },
            inbound_aliases: BTreeMap::new(),
            outbound_aliases: Aliases::default(),
            filter_batch: None,
            is_woken: false,
            has_yielded: false,
            throttled_until: now,
            is_paused: false,
            owner: None,
            account,
        }
    }

    pub(crate) const fn session(&self) -> Option<SessionId> {
        match self.state {
            State::Open(session) => Some(session),
            State::New | State::Authenticating(..) | State::Closing => None,
        }
    }

    pub(crate) const fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing)
    }

    /// Returns whether the broker reads more from this connection.
    pub(crate) fn wants_input(&self) -> bool {
        let reads = matches!(self.state, State::New | State::Open(_));
        reads
            && self.pending_auth_bytes.is_none()
            && !self.is_paused
            && !self.has_yielded
            && self.output.len() < OUTPUT_MAX
    }

    /// Returns the time at which the keep-alive expires.
    pub(crate) fn keep_alive_deadline(&self) -> Option<Duration> {
        self.keep_alive_timeout
            .map(|keep_alive_timeout| self.last_received_at.saturating_add(keep_alive_timeout))
    }

    /// Returns the first packet of the input, or `None` if it is incomplete.
    pub(crate) fn split_packet<'a>(
        &mut self,
        limits: &Limits,
        input: &'a [u8],
    ) -> Result<Option<&'a [u8]>, FramingError> {
        let is_new = matches!(self.state, State::New);
        let max = if is_new { limits.connect_bytes } else { limits.packet_bytes };
        self.needed = 0;
        let header = Header::read(input, max).map_err(FramingError::Malformed)?;
        let Some(header) = header else { return Ok(None) };
        if is_new && header.kind != Kind::Connect {
            return Err(FramingError::NotConnect);
        }
        let packet = input.get(..header.len);
        if packet.is_none() {
            self.needed = header.len;
        }
        Ok(packet)
    }

    /// Appends a packet to the output. Returns whether it fits the client's Maximum Packet Size.
    pub(crate) fn send_packet<P: Encode>(
        &mut self,
        memory: &mut Memory,
        packet: &Packet<'_, P>,
    ) -> bool {
        // The broker's own packets never reach the limit of MQTT, but the limit of a client may be
        // tiny.
        let fits = packet.encoded_len().is_ok_and(|len| len <= self.window.packet_bytes);
        if fits {
            let before = self.output.len();
            let _ = packet.encode(&mut self.output);
            self.account.add(memory, self.output.len() - before);
        }
        fits
    }

    /// Sends a DISCONNECT with the reason and stops reading. The properties are omitted if they do
    /// not fit the client's Maximum Packet Size. After an incomplete packet, nothing more is sent.
    pub(crate) fn close(
        &mut self,
        memory: &mut Memory,
        reason: Option<Reason>,
        properties: &[Property<'_>],
    ) {
        if self.is_closing() {
            return;
        }
        if self.take_partial(memory).is_some() {
            self.take_output(memory, &mut BytesMut::new());
        } else if let (Some(reason), State::Open(_)) = (reason, &self.state) {
            let _ = self.send_packet(memory, &Packet::Disconnect(Notice { reason, properties }))
                || self.send_packet(memory, &Packet::Disconnect(Notice { reason, properties: () }));
        }
        self.set_input(memory, BytesMut::new());
        self.clear_inbound_aliases(memory);
        self.outbound_aliases.clear(memory, &mut self.account);
        self.take_filter_batch(memory);
        if let State::Authenticating(connect, _) =
            core::mem::replace(&mut self.state, State::Closing)
        {
            self.account.remove(memory, connect.len());
        }
    }

    pub(crate) fn set_input(&mut self, memory: &mut Memory, input: BytesMut) {
        self.account.change(memory, self.input.capacity(), input.capacity());
        self.input = input;
    }

    pub(crate) fn take_input(&mut self, memory: &mut Memory) -> BytesMut {
        self.account.remove(memory, self.input.capacity());
        core::mem::take(&mut self.input)
    }

    pub(crate) fn set_filter_batch(&mut self, memory: &mut Memory, filter_batch: FilterBatch) {
        self.account.add(memory, filter_batch.bytes());
        self.filter_batch = Some(filter_batch);
    }

    pub(crate) fn take_filter_batch(&mut self, memory: &mut Memory) -> Option<FilterBatch> {
        let filter_batch = self.filter_batch.take()?;
        self.account.remove(memory, filter_batch.bytes());
        Some(filter_batch)
    }

    fn take_partial(&mut self, memory: &mut Memory) -> Option<PartialPacket> {
        let partial = self.partial.take()?;
        self.account.release(memory, partial.message(), partial.overhead());
        Some(partial)
    }

    /// Writes the next part of the incomplete packet, if there is one.
    pub(crate) fn continue_packet(&mut self, memory: &mut Memory, out: &mut BytesMut) {
        if self.partial.as_mut().is_some_and(|partial| partial.write_part(out)) {
            self.take_partial(memory);
        }
    }

    /// Writes the responses, unless a packet is incomplete.
    pub(crate) fn take_output(&mut self, memory: &mut Memory, out: &mut BytesMut) {
        if self.partial.is_some() {
            return;
        }
        self.account.remove(memory, self.output.len());
        out.extend_from_slice(&self.output);
        self.output.clear();
        // Large output is rare, so its buffer is freed.
        if self.output.capacity() > OUTPUT_MAX {
            self.output = BytesMut::new();
        }
    }

    pub(crate) fn set_alias(&mut self, memory: &mut Memory, alias: u16, topic: &str) {
        self.account.add(memory, topic.len() + size_of::<(u16, Arc<str>)>());
        if let Some(old) = self.inbound_aliases.insert(alias, topic.into()) {
            self.account.remove(memory, old.len() + size_of::<(u16, Arc<str>)>());
        }
    }

    fn clear_inbound_aliases(&mut self, memory: &mut Memory) {
        for old in core::mem::take(&mut self.inbound_aliases).into_values() {
            self.account.remove(memory, old.len() + size_of::<(u16, Arc<str>)>());
        }
    }

    /// Frees all memory of a closed connection.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        let rest = self.account.bytes();
        let undecided = self.pending_auth_bytes.unwrap_or_default();
        let expected = CONNECTION_BYTES + self.output.len() + self.unwritten + undecided;
        debug_assert_eq!(rest, expected, "the account of a connection has drifted");
        self.account.remove(memory, rest);
    }
}
