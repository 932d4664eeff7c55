//! Events of a session.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::error::{Error, SendError};
use super::message::Message;
use super::properties::PropertyBytes;
use super::server::Server;
use crate::reason::Reason;

/// An event of a session. Each token of an accepted request, except a publish at QoS 0, is in
/// exactly one event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is established. [`Lost`](Self::Lost) events follow if the former session is
    /// lost.
    Connected(Box<Server>),
    /// A message.
    Message(Message),
    /// A publish ended: PUBACK, PUBCOMP, or PUBREC with an error.
    Published {
        /// Token of the publish.
        token: u64,
        /// Reason code.
        reason: Reason,
        /// Properties of the acknowledgement.
        properties: PropertyBytes,
    },
    /// SUBACK.
    Subscribed {
        /// Token of the request.
        token: u64,
        /// Reason codes, in the order of the filters.
        reasons: Vec<Reason>,
        /// Properties of the SUBACK.
        properties: PropertyBytes,
    },
    /// UNSUBACK.
    Unsubscribed {
        /// Token of the request.
        token: u64,
        /// Reason codes, in the order of the filters.
        reasons: Vec<Reason>,
        /// Properties of the UNSUBACK.
        properties: PropertyBytes,
    },
    /// A request ended without an acknowledgement.
    Lost {
        /// Token of the request.
        token: u64,
        /// Cause.
        cause: Lost,
    },
    /// AUTH of the server, *continue authentication*: respond with
    /// [`authenticate`](super::Session::authenticate).
    Authenticate(PropertyBytes),
    /// AUTH of the server, *success*: the re-authentication succeeded.
    Authenticated(PropertyBytes),
    /// The connection ended. Write the rest of the output, close the stream, and call
    /// [`handle_disconnected`](super::Session::handle_disconnected). There is exactly one such
    /// event for each [`handle_connected`](super::Session::handle_connected).
    Disconnected(Error),
}

/// Cause of a request that ended without an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The connection ended before the SUBACK or UNSUBACK. The server may have executed it.
    Disconnected,
    /// The server does not have the session in which the publish was sent. It may have processed
    /// the message.
    SessionLost,
    /// The publish waited, or was to be sent again, and exceeds a limit of the server of the new
    /// connection. A publish that was sent before may have been processed.
    Unsendable(SendError),
}

/// Events that wait for the caller.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<Event>,
    bytes: usize,
}

impl Events {
    pub(super) fn push(&mut self, event: Event) {
        self.bytes += size(&event);
        self.queue.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front()?;
        self.bytes -= size(&event);
        Some(event)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of packets and properties in the events.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Bytes that an event retains outside of the queue.
fn size(event: &Event) -> usize {
    match event {
        Event::Connected(server) => server.properties.len(),
        Event::Message(message) => message.len(),
        Event::Published { properties, .. } => properties.len(),
        Event::Subscribed { reasons, properties, .. }
        | Event::Unsubscribed { reasons, properties, .. } => reasons.len() + properties.len(),
        Event::Authenticate(properties) | Event::Authenticated(properties) => properties.len(),
        Event::Disconnected(Error::Refused(notice) | Error::Disconnected(notice)) => {
            notice.properties.len()
        }
        Event::Lost { .. } | Event::Disconnected(_) => 0,
    }
}
