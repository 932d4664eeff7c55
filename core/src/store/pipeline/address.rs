//! Stage 1: response topic, expiry, chunks, correlation data and QoS.

use alloc::sync::Arc;
use core::num::NonZeroU64;

use bytes::Bytes;

use crate::hlc::Hlc;
use crate::message::{Dialect, Incarnation};
use crate::store::dedup::Response;
use crate::store::{DropReason, Refused, StoreConfig};
use crate::time::Now;
use crate::topic;
use crate::transport::{Correlation, Incoming, Publish, Purpose, Qos};

/// The address of a response, and what the requester accepts.
pub(super) struct Address {
    pub(super) topic: Arc<str>,
    /// `None` for a request without correlation data, which is refused.
    pub(super) correlation: Option<Correlation>,
    pub(super) dialect: Dialect,
    /// The incarnation of the store, if the requester asked for it.
    pub(super) incarnation: Option<Incarnation>,
    /// The remaining message expiry interval of the request, in seconds.
    message_expiry: Option<u32>,
    /// Bytes of the largest packet that the requester accepts, if known.
    pub(super) packet_bytes_max: Option<usize>,
    /// The number of the message.
    number: u64,
}

impl Address {
    /// Creates the address of the response to a request.
    ///
    /// # Errors
    /// The reason to drop a message that is not a request, or cannot get a response.
    pub(super) fn new(
        config: &StoreConfig,
        now: Now,
        incoming: &Incoming<'_>,
        number: u64,
    ) -> Result<Self, DropReason> {
        if incoming.topic != topic::REQUEST || incoming.retain {
            return Err(DropReason::NotARequest);
        }
        let response_topic = incoming.response_topic.ok_or(DropReason::NoResponseTopic)?;
        topic::check_response(response_topic).map_err(DropReason::ForbiddenResponseTopic)?;
        if incoming.is_expired(now.instant) {
            return Err(DropReason::Expired);
        }
        let properties = &incoming.properties;
        Ok(Self {
            topic: response_topic.into(),
            correlation: incoming.correlation_data.map(Correlation::new),
            dialect: config.dialect.of_request(properties.has_protocol_version),
            incarnation: config.incarnation.filter(|_| properties.incarnation.is_some()),
            // The requester stops waiting when its request expires, so the response expires then
            // too.
            message_expiry: incoming.expiry_left(now.instant),
            packet_bytes_max: incoming.packet_bytes_max,
            number,
        })
    }

    /// The PUBLISH of a response. `reason` is the text for the requester why it was refused.
    pub(super) fn publish(&self, response: Response, reason: Option<Arc<str>>) -> Publish {
        Publish {
            topic: Arc::clone(&self.topic),
            payload: response.payload,
            response_topic: None,
            correlation_data: self.correlation.clone(),
            content_type: None,
            message_expiry: self.message_expiry,
            token: None,
            purpose: Purpose::Reply { incarnation: self.incarnation, reason },
            timestamp: response.version,
            answers: NonZeroU64::new(self.number),
        }
    }

    /// Bytes of the largest payload that the requester can receive with this version; `usize::MAX`
    /// if its limit is not known.
    pub(super) fn payload_max(&self, version: Option<&Hlc>) -> usize {
        let Some(max) = self.packet_bytes_max else { return usize::MAX };
        let empty = Response { payload: Bytes::new(), version: version.cloned() };
        max.saturating_sub(self.publish(empty, None).packet_len_max())
    }
}

/// Checks what a request needs besides a response topic: correlation data, QoS 1, and that it is not
/// a chunk, whose payload could be a request by chance.
///
/// # Errors
/// [`Refused`]; the requester gets an error.
pub(super) fn check_delivery(incoming: &Incoming<'_>) -> Result<(), Refused> {
    if incoming.correlation_data.is_none() {
        return Err(Refused::NoCorrelationData);
    }
    if incoming.qos != Qos::AtLeastOnce {
        return Err(Refused::NotQos1);
    }
    if incoming.properties.chunk.is_some() {
        return Err(Refused::Chunked);
    }
    Ok(())
}
