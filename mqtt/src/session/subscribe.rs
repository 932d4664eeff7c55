//! SUBSCRIBE and UNSUBSCRIBE, and their acknowledgements.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use super::error::{Error, SendError, Violation};
use super::event::{Event, Lost};
use super::properties::PropertyBytes;
use super::publish::Use;
use super::{Phase, Session};
use crate::kind::Kind;
use crate::packet::{Acks, Filters, Packet, Subscribe, Subscription, Subscriptions, Unsubscribe};
use crate::property::{Encode, Place, Properties, bit, id};
use crate::reason::Reason;
use crate::topic::Filter;

fn parse_filter(filter: &str) -> Result<Filter<'_>, SendError> {
    match Filter::parse(filter) {
        Some(parsed) if !filter.contains('\0') => Ok(parsed),
        _ => Err(SendError::InvalidFilter),
    }
}

impl Session {
    /// Subscribes. [`Subscribed`](Event::Subscribed) or [`Lost`](Event::Lost) follows: a SUBSCRIBE
    /// is not sent again on a later connection.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then.
    pub fn subscribe<P: Encode>(
        &mut self,
        subscriptions: &[Subscription<'_>],
        properties: P,
        token: u64,
    ) -> Result<(), SendError> {
        self.check_request(subscriptions.len())?;
        let seen = self.encode_properties(&properties, Place::Packet(Kind::Subscribe))?;
        let server = self.server.as_ref().ok_or(SendError::NotConnected)?;
        if seen & bit(id::SUBSCRIPTION) != 0 && !server.subscription_ids_available {
            return Err(SendError::SubscriptionIdsUnsupported);
        }
        for Subscription { filter, options } in subscriptions {
            let parsed = parse_filter(filter)?;
            if options.no_local && parsed.share.is_some() {
                return Err(SendError::InvalidFilter);
            }
            if parsed.share.is_some() && !server.shared_available {
                return Err(SendError::SharedUnsupported);
            }
            if parsed.filter.contains(['+', '#']) && !server.wildcard_available {
                return Err(SendError::WildcardUnsupported);
            }
        }
        let filters = subscriptions.len();
        let subscriptions = Subscriptions::new(subscriptions);
        self.put_request(Use::Subscribe { token, filters }, |id, properties| {
            Packet::Subscribe(Subscribe { id, properties, subscriptions })
        })
    }

    /// Unsubscribes. [`Unsubscribed`](Event::Unsubscribed) or [`Lost`](Event::Lost) follows.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then.
    pub fn unsubscribe<P: Encode>(
        &mut self,
        filters: &[&str],
        properties: P,
        token: u64,
    ) -> Result<(), SendError> {
        self.check_request(filters.len())?;
        self.encode_properties(&properties, Place::Packet(Kind::Unsubscribe))?;
        filters.iter().try_for_each(|filter| parse_filter(filter).map(drop))?;
        let entry = Use::Unsubscribe { token, filters: filters.len() };
        self.put_request(entry, |id, properties| {
            let filters = Filters::new(filters);
            Packet::Unsubscribe(Unsubscribe { id, properties, filters })
        })
    }

    fn check_request(&self, filters: usize) -> Result<(), SendError> {
        if self.phase != Phase::Connected {
            return Err(SendError::NotConnected);
        }
        if filters == 0 {
            return Err(SendError::InvalidFilter);
        }
        let is_full = self.requests >= usize::from(self.options.requests)
            || self.ids.len() >= usize::from(u16::MAX)
            || self.output.len() >= self.options.output_bytes;
        if is_full { Err(SendError::Full) } else { Ok(()) }
    }

    /// Writes a SUBSCRIBE or UNSUBSCRIBE with the encoded properties, if the server takes it.
    fn put_request<'a>(
        &'a mut self,
        entry: Use,
        packet: impl Fn(NonZeroU16, Properties<'a>) -> Packet<'a>,
    ) -> Result<(), SendError> {
        // The properties were checked.
        let properties = Properties::from_validated(&self.scratch, 0);
        let size = packet(NonZeroU16::MIN, properties).encoded_len();
        let size = size.map_err(SendError::Unwritable)?;
        let limit = self.server.as_ref().map_or(0, super::Server::packet_limit);
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        let id = self.ids.insert(entry).ok_or(SendError::Full)?;
        self.requests += 1;
        packet(id, properties).encode(&mut self.output).map_err(SendError::Unwritable).map(drop)
    }

    pub(super) fn handle_suback(&mut self, kind: Kind, acks: &Acks<'_>) -> Result<(), Error> {
        let (token, filters) = match self.ids.get(acks.id) {
            Some(Use::Subscribe { token, filters }) if kind == Kind::SubAck => (*token, *filters),
            Some(Use::Unsubscribe { token, filters }) if kind == Kind::UnsubAck => {
                (*token, *filters)
            }
            _ => return Err(Error::Protocol(Violation::PacketId(kind, acks.id))),
        };
        if acks.reasons.len() != filters {
            return Err(Error::Protocol(Violation::ReasonCount));
        }
        self.ids.remove(acks.id);
        self.requests -= 1;
        let reasons: Vec<_> = acks.reasons.iter().copied().map(Reason).collect();
        let properties = PropertyBytes::copy(&acks.properties);
        self.events.push(match kind {
            Kind::SubAck => Event::Subscribed { token, reasons, properties },
            _ => Event::Unsubscribed { token, reasons, properties },
        });
        Ok(())
    }

    /// The connection ended: requests without an acknowledgement are lost.
    pub(super) fn lose_requests(&mut self) {
        if self.requests == 0 {
            return;
        }
        let requests: Vec<_> = self
            .ids
            .iter_mut()
            .filter_map(|(id, entry)| match entry {
                Use::Subscribe { token, .. } | Use::Unsubscribe { token, .. } => Some((id, *token)),
                Use::Publish { .. } | Use::Release { .. } => None,
            })
            .collect();
        for (id, token) in requests {
            self.ids.remove(id);
            self.requests -= 1;
            self.events.push(Event::Lost { token, cause: Lost::Disconnected });
        }
    }
}
