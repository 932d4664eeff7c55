//! Content of a CONNACK.

use alloc::boxed::Box;

use super::connect::Requested;
use super::properties::PropertyBytes;
use crate::packet::ConnAck;
use crate::property::{Properties, Property};
use crate::qos::Qos;

/// Limits and features of the server that hold for a connection. The session observes all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// Set if the server resumed the session.
    pub session_present: bool,
    /// Client id that the server assigned.
    pub assigned_client_id: Option<Box<str>>,
    /// Publishes at QoS 1 and 2 that may be unacknowledged.
    pub receive_maximum: u16,
    /// The greatest QoS of a publish.
    pub maximum_qos: Qos,
    /// Set if the server retains messages.
    pub retain_available: bool,
    /// Size of the largest packet that the server takes, in bytes.
    pub maximum_packet_size: u32,
    /// Number of topic aliases that the session may set.
    pub topic_alias_maximum: u16,
    /// Keep alive in force, in seconds; 0 for none.
    pub keep_alive: u16,
    /// Session expiry in force, in seconds; `u32::MAX` for no end.
    pub session_expiry: u32,
    /// Set if filters may have wildcards.
    pub wildcard_available: bool,
    /// Set if subscriptions may have identifiers.
    pub subscription_ids_available: bool,
    /// Set if subscriptions may be shared.
    pub shared_available: bool,
    /// All properties of the CONNACK.
    pub properties: PropertyBytes,
}

impl Server {
    pub(super) fn new(requested: &Requested, connack: &ConnAck<Properties<'_>>) -> Self {
        let mut server = Self {
            session_present: connack.session_present,
            assigned_client_id: None,
            receive_maximum: u16::MAX,
            maximum_qos: Qos::ExactlyOnce,
            retain_available: true,
            maximum_packet_size: u32::MAX,
            topic_alias_maximum: 0,
            keep_alive: requested.keep_alive,
            session_expiry: requested.session_expiry,
            wildcard_available: true,
            subscription_ids_available: true,
            shared_available: true,
            properties: PropertyBytes::copy(&connack.properties),
        };
        for property in &connack.properties {
            match property {
                Property::AssignedClientId(id) => server.assigned_client_id = Some(id.into()),
                Property::ReceiveMaximum(maximum) => server.receive_maximum = maximum,
                Property::MaximumQos(qos) => server.maximum_qos = qos,
                Property::RetainAvailable(flag) => server.retain_available = flag,
                Property::MaximumPacketSize(size) => server.maximum_packet_size = size,
                Property::TopicAliasMaximum(maximum) => server.topic_alias_maximum = maximum,
                Property::ServerKeepAlive(seconds) => server.keep_alive = seconds,
                Property::SessionExpiry(seconds) => server.session_expiry = seconds,
                Property::WildcardAvailable(flag) => server.wildcard_available = flag,
                Property::SubscriptionIdsAvailable(flag) => {
                    server.subscription_ids_available = flag;
                }
                Property::SharedAvailable(flag) => server.shared_available = flag,
                _ => {}
            }
        }
        server
    }

    /// Size of the largest packet that the server takes, in bytes.
    pub(super) fn packet_limit(&self) -> usize {
        usize::try_from(self.maximum_packet_size).unwrap_or(usize::MAX)
    }
}
