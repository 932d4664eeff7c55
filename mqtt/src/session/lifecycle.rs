//! The life of a connection, from CONNECT to its end, and its timers.

use alloc::boxed::Box;
use core::time::Duration;

use super::aliases::Outgoing;
use super::authenticate::Exchange;
use super::connect::Requested;
use super::error::{Error, Violation};
use super::event::Event;
use super::server::Server;
use super::{Phase, Session};
use crate::kind::Kind;
use crate::packet::{ConnAck, Notice, Packet};
use crate::property::{Encode, Place, Properties, Property};
use crate::reason::Reason;
use crate::wire::Sink as _;

/// The smallest Maximum Packet Size with which every acknowledgement can be sent, in bytes.
const PACKET_SIZE_MIN: usize = 8;

/// Size of a DISCONNECT with a reason code, in bytes.
const DISCONNECT_SIZE: u32 = 4;

/// The shortest timeout, so that time advances from deadline to deadline.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Instants of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    pub(super) connect_deadline: Duration,
    pub(super) last_sent: Duration,
    pub(super) last_received: Duration,
    /// When a PINGREQ without a response was written.
    pub(super) ping: Option<Duration>,
}

impl Timers {
    /// A PINGREQ is due when nothing was sent, or nothing was received, for three quarters of the
    /// keep alive, in seconds. The response is due within `timeout`, or half of the keep alive.
    pub(super) fn keep_alive_deadline(
        self,
        seconds: u16,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        if seconds == 0 {
            return None;
        }
        let keep_alive = Duration::from_secs(seconds.into());
        let Self { last_sent, last_received, ping, .. } = self;
        Some(match ping {
            Some(at) => {
                let timeout = timeout.unwrap_or(keep_alive / 2);
                at.max(last_received).saturating_add(timeout.max(TIMEOUT_MIN))
            }
            None => last_sent.min(last_received).saturating_add(keep_alive / 4 * 3),
        })
    }
}

impl Session {
    /// A byte stream to a server is open. The CONNECT is in the output.
    ///
    /// A former connection that was not reported as closed ends first.
    pub fn handle_connected(&mut self, now: Duration) {
        self.handle_disconnected();
        self.requested = Requested::new(&self.options, self.clean_start);
        self.timers = Timers {
            connect_deadline: now.saturating_add(self.options.connect_timeout),
            last_sent: now,
            last_received: now,
            ping: None,
        };
        self.phase = Phase::Connecting;
        match self.options.connect(self.clean_start, self.client_id()) {
            Ok(connect) => self.out.output.put(&connect),
            Err(error) => return self.end(Error::Options(error)),
        }
        if self.requested.authentication_method.is_some() {
            self.exchange = Exchange::Server;
        }
    }

    /// The byte stream is closed. Output that was not written is discarded.
    pub fn handle_disconnected(&mut self) {
        if self.is_open() {
            self.end(Error::ConnectionLost);
        }
        self.phase = Phase::Disconnected;
        self.out.output.clear();
        self.unread = 0;
    }

    /// Disconnects: DISCONNECT follows the output that waits, and then the stream is to be closed.
    /// Before the CONNACK the connection ends without a DISCONNECT. Publishes without an outcome
    /// remain for the next connection.
    ///
    /// A reason that DISCONNECT cannot have is sent as *unspecified error*. Properties that it
    /// cannot have, or that exceed the server's limit, are omitted.
    pub fn disconnect<P: Encode>(&mut self, reason: Reason, properties: P) {
        let is_valid = Kind::Disconnect.has(reason);
        let reason = if is_valid { reason } else { Reason::UNSPECIFIED_ERROR };
        if let Some(server) = &mut self.server {
            let limit = server.packet_limit();
            let expiry = self.requested.session_expiry;
            let place = Place::Packet(Kind::Disconnect);
            let properties = super::encode(&mut self.scratch, &properties, place).ok();
            let written = properties.filter(|properties| {
                let packet = Packet::Disconnect(Notice { reason, properties: *properties });
                // Section 3.14.2.2.2: an expiry of 0 in the CONNECT cannot be changed.
                (expiry > 0 || new_expiry(properties).is_none_or(|new| new == 0))
                    && packet.encoded_len().is_ok_and(|size| size <= limit)
                    && packet.encode(&mut self.out.output).is_ok()
            });
            if written.is_none() {
                self.out.output.put_ack(Packet::Disconnect(Notice { reason, properties: () }));
            } else if let Some(expiry) = written.and_then(|properties| new_expiry(&properties)) {
                server.session_expiry = expiry;
            }
        }
        if self.is_open() {
            self.end(Error::Requested(reason));
        }
    }

    /// Returns whether there is a connection that is not over.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Connected)
    }

    /// The CONNACK accepted the connection.
    pub(super) fn establish(&mut self, connack: &ConnAck<Properties<'_>>) -> Result<(), Error> {
        let server = Server::new(&self.requested, connack);
        let is_unknown = !self.has_state && !self.options.unknown_session;
        if server.session_present && (self.requested.clean_start || is_unknown) {
            // The next connection starts a new session, or this error would repeat.
            self.clean_start = true;
            return Err(Error::Protocol(Violation::SessionPresent));
        }
        if server.packet_limit() < PACKET_SIZE_MIN {
            let size = server.maximum_packet_size;
            return Err(Error::Protocol(Violation::MaximumPacketSize(size)));
        }
        if let Some(id) = &server.assigned_client_id {
            self.assigned_client_id = Some(id.clone());
        }
        self.phase = Phase::Connected;
        self.clean_start = false;
        self.has_state = true;
        self.out.events.push(Event::Connected(Box::new(server.clone())));
        let aliases = server.topic_alias_maximum.min(self.options.topic_aliases);
        self.requests.aliases = Outgoing::new(aliases);
        let is_present = server.session_present;
        self.server = Some(server);
        if is_present {
            self.requests.resume(&mut self.out.output);
        } else {
            self.deliveries.end_session();
            self.requests.lose_publishes(&mut self.out.events);
        }
        Ok(())
    }

    /// The connection ends because of a packet of the server.
    pub(super) fn fail(&mut self, error: Error) {
        // No DISCONNECT that exceeds the Maximum Packet Size of the server is sent.
        let is_too_small = |size| size < DISCONNECT_SIZE;
        let is_unsendable = matches!(
            error,
            Error::Protocol(Violation::MaximumPacketSize(size)) if is_too_small(size)
        );
        if let Some(reason) = error.reason().filter(|_| !is_unsendable) {
            self.out.output.put_ack(Packet::Disconnect(Notice { reason, properties: () }));
        }
        self.end(error);
    }

    /// The connection ends. What is in the output is still to be written.
    pub(super) fn end(&mut self, error: Error) {
        self.phase = Phase::Closing;
        self.out.events.push(Event::Disconnected(error));
        self.requests.end_connection(&mut self.out.events);
        self.deliveries.end_connection();
        self.incoming_aliases.clear();
        self.exchange = Exchange::None;
        if self.server.take().is_some_and(|server| server.session_expiry == 0) {
            self.has_state = false;
            self.clean_start = self.options.clean_start;
        }
    }

    /// The next instant at which [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        match (self.phase, &self.server) {
            (Phase::Connecting, _) => Some(self.timers.connect_deadline),
            (Phase::Connected, Some(server)) => {
                self.timers.keep_alive_deadline(server.keep_alive, self.options.ping_timeout)
            }
            _ => None,
        }
    }

    /// Handles the deadline that is due, if one is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.phase {
            Phase::Connecting => self.end(Error::ConnectTimeout),
            Phase::Connected if self.timers.ping.is_some() => self.end(Error::KeepAliveTimeout),
            Phase::Connected => {
                self.timers.ping = Some(now);
                self.timers.last_sent = now;
                self.out.output.put_ack(Packet::PingReq);
            }
            Phase::Disconnected | Phase::Closing => {}
        }
    }
}

/// Session Expiry Interval of a DISCONNECT.
fn new_expiry(properties: &Properties<'_>) -> Option<u32> {
    properties.find(|property| match property {
        Property::SessionExpiry(seconds) => Some(seconds),
        _ => None,
    })
}
