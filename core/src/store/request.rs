//! Stages 1 to 3: a message becomes a request, and its sender is authorized.

use alloc::sync::Arc;
use core::num::NonZeroU64;

use bytes::Bytes;

use super::dedup::Response;
use super::outbox::DependsOn;
use super::registrations::NewRegistration;
use super::usage::Owner;
use super::{Access, DropReason, Principal, Refused, StoreConfig};
use crate::hlc::Hlc;
use crate::message::{Dialect, Incarnation, RequestKind, RequestPayload};
use crate::rules::RequestTimestamps;
use crate::slab::Slot;
use crate::time::Now;
use crate::topic;
use crate::transport::{Answers, Correlation, Incoming, Publish, Purpose, Qos};

/// A request on its way through the [stages](super::Store::process).
pub(super) struct Request<'r, 'a> {
    pub(super) now: Now,
    pub(super) sender: Principal<'a>,
    pub(super) incoming: &'r Incoming<'a>,
    pub(super) address: &'r Address,
    pub(super) content: RequestPayload<&'a [u8]>,
    /// The number of this request, or of the first one if this is a duplicate. Requests are numbered
    /// in the order of their first arrival.
    pub(super) request_number: u64,
    /// The timestamps, once they are verified.
    pub(super) timestamps: RequestTimestamps<'a>,
    /// The slot of its key, once it is found.
    pub(super) slot: Option<Slot>,
    /// The owner of the value or registration that it adds, once it is known; `None` for an
    /// unverified sender.
    pub(super) owner: Option<Owner>,
}

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
    message_number: u64,
}

impl Address {
    /// The address of the response to a message.
    ///
    /// # Errors
    /// The reason to drop a message that is not a request, or cannot get a response.
    pub(super) fn new(
        config: &StoreConfig,
        now: Now,
        incoming: &Incoming<'_>,
        message_number: u64,
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
            message_number,
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
            answers: Answers(NonZeroU64::new(self.message_number)),
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

/// Decodes the payload of a request with a response topic.
///
/// # Errors
/// [`Refused`]: correlation data is missing, the QoS is not 1, the message is a chunk, whose payload
/// could be a request by chance, or the payload is not a request.
#[inline]
pub(super) fn decode<'a>(
    config: &StoreConfig,
    incoming: &Incoming<'a>,
) -> Result<RequestPayload<&'a [u8]>, Refused> {
    if incoming.correlation_data.is_none() {
        return Err(Refused::NoCorrelationData);
    }
    if incoming.qos != Qos::AtLeastOnce {
        return Err(Refused::NotQos1);
    }
    if incoming.properties.chunk.is_some() {
        return Err(Refused::Chunked);
    }
    let payload: &'a [u8] = incoming.payload;
    Ok(RequestPayload::decode_with(payload, config.word_case)?)
}

impl<'a> Request<'_, 'a> {
    #[inline]
    pub(super) const fn kind(&self) -> RequestKind {
        self.content.kind()
    }

    /// The key of a command; empty for a SCAN.
    #[inline]
    pub(super) fn key(&self) -> &'a [u8] {
        self.content.key().copied().unwrap_or_default()
    }

    #[inline]
    pub(super) fn client_id(&self) -> &'a str {
        self.sender.client_id().unwrap_or_default()
    }

    /// What a KEYNOTIFY registers.
    pub(super) fn registration(&self) -> NewRegistration<'a> {
        NewRegistration {
            client_id: self.client_id(),
            owner: self.owner,
            key: self.key(),
            dialect: self.address.dialect,
            incarnation: self.address.incarnation,
            request_number: self.request_number,
        }
    }

    /// What its response depends on. A page of SCAN depends on any number of keys.
    #[inline]
    pub(super) fn depends_on(&self) -> DependsOn<'a> {
        self.content.key().map_or(DependsOn::Everything, |key| DependsOn::Key(key))
    }

    /// Checks whether the sender may execute the request. The policy decides about each key that a
    /// SCAN lists.
    #[inline]
    pub(super) fn authorize(&self, config: &StoreConfig) -> Result<(), Refused> {
        if let Some(key) = self.content.key() {
            let is_write = self.kind().is_write();
            let access = if is_write { Access::Write } else { Access::Read };
            let is_fenced = is_write && self.incoming.properties.fencing_token.is_some();
            for access in [Some(access), is_fenced.then_some(Access::Fence)].into_iter().flatten() {
                if !is_allowed(config, self.sender, access, key) {
                    return Err(Refused::AccessDenied(access));
                }
            }
        }
        let is_watch = matches!(self.kind(), RequestKind::Watch | RequestKind::Unwatch);
        if is_watch && self.client_id().is_empty() {
            return Err(Refused::UnknownClientId);
        }
        // A verified sender must not claim another client id.
        let source = self.incoming.properties.source;
        if self.sender.is_verified() && source.is_some() && source != self.sender.client_id() {
            return Err(Refused::SourceMismatch);
        }
        Ok(())
    }
}

/// Returns whether the response to a request is cached. GET and SCAN only read.
#[inline]
pub(super) const fn is_cached(kind: RequestKind) -> bool {
    !matches!(kind, RequestKind::Get | RequestKind::Scan)
}

/// Returns whether the policy allows this access.
pub(super) fn is_allowed(
    config: &StoreConfig,
    sender: Principal<'_>,
    access: Access,
    key: &[u8],
) -> bool {
    config.authorizer.as_ref().is_none_or(|allows| allows(&sender, access, key))
}
