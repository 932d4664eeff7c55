//! The life of a connection, from CONNECT to its end.

use alloc::boxed::Box;
use core::time::Duration;

use super::authenticate::Exchange;
use super::connect::Requested;
use super::error::{Error, Violation};
use super::event::Event;
use super::server::Server;
use super::{Phase, Session, timers::Timers};
use crate::kind::Kind;
use crate::packet::{ConnAck, Notice, Packet};
use crate::property::{Encode, Place, Properties, Property};
use crate::reason::Reason;
use crate::wire::Sink as _;

/// The smallest Maximum Packet Size with which every acknowledgement can be sent, in bytes.
const PACKET_SIZE_MIN: usize = 8;

/// Size of a DISCONNECT with a reason code, in bytes.
const DISCONNECT_SIZE: u32 = 4;

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
            Ok(connect) => self.output.put(&connect),
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
        self.output.clear();
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
        if let Some(server) = self.server.as_ref() {
            let limit = server.packet_limit();
            let place = Place::Packet(Kind::Disconnect);
            // Section 3.14.2.2.2: an expiry of 0 in the CONNECT cannot be changed.
            let expiry = self.requested.session_expiry;
            let has_valid_properties = super::encode(&mut self.scratch, &properties, place).is_ok()
                && !new_expiry(&self.scratch).is_some_and(|new| new > 0 && expiry == 0);
            let properties = Properties::from_validated(&self.scratch, 0);
            let packet = Packet::Disconnect(Notice { reason, properties });
            let is_written = has_valid_properties
                && packet.encoded_len().is_ok_and(|size| size <= limit)
                && packet.encode(&mut self.output).is_ok();
            if !is_written {
                self.put_ack(Packet::Disconnect(Notice { reason, properties: () }));
            } else if let (Some(expiry), Some(server)) =
                (new_expiry(&self.scratch), self.server.as_mut())
            {
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
        self.events.push(Event::Connected(Box::new(server.clone())));
        let is_present = server.session_present;
        self.server = Some(server);
        if is_present {
            self.resume_publishes();
        } else {
            self.deliveries.end_session();
            self.lose_publishes();
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
            self.put_ack(Packet::Disconnect(Notice { reason, properties: () }));
        }
        self.end(error);
    }

    /// The connection ends. What is in the output is still to be written.
    pub(super) fn end(&mut self, error: Error) {
        self.phase = Phase::Closing;
        self.events.push(Event::Disconnected(error));
        self.lose_requests();
        self.mark_publishes_unsent();
        self.deliveries.end_connection();
        self.incoming_aliases.clear();
        self.outgoing_aliases.clear();
        self.exchange = Exchange::None;
        if self.server.take().is_some_and(|server| server.session_expiry == 0) {
            self.has_state = false;
            self.clean_start = self.options.clean_start;
        }
    }
}

/// Session Expiry Interval of a DISCONNECT.
fn new_expiry(properties: &[u8]) -> Option<u32> {
    let place = Place::Packet(Kind::Disconnect);
    Properties::from_bytes(properties, place).ok()?.find(|property| match property {
        Property::SessionExpiry(seconds) => Some(seconds),
        _ => None,
    })
}
