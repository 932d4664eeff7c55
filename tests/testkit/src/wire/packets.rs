//! Received MQTT 5 packets as owned values, for both ends of a connection in tests.
//!
//! The codec is that of `statestore-mqtt`. `fuzz::mqtt_packet` compares it with another library.

use std::num::NonZeroU16;

use bytes::{Buf, Bytes, BytesMut};
use statestore_mqtt::Kind;
use statestore_mqtt::packet::{self as codec, Header};
use statestore_mqtt::property::{Encode, Properties, Property};
pub use statestore_mqtt::{Qos, Reason};

/// A received packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// CONNECT, with its will and its user name and password.
    Connect(Connect, Option<Will>, Option<Login>),
    /// CONNACK.
    ConnAck(ConnAck),
    /// PUBLISH.
    Publish(Publish),
    /// PUBACK.
    PubAck(PubAck),
    /// SUBSCRIBE.
    Subscribe(Subscribe),
    /// SUBACK.
    SubAck(SubAck),
    /// UNSUBSCRIBE.
    Unsubscribe(Subscribe),
    /// PINGREQ.
    PingReq,
    /// DISCONNECT.
    Disconnect(Disconnect),
    /// A packet of another type.
    Other(Kind),
}

/// Fields and properties of a CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Clean Start.
    pub clean_start: bool,
    /// Keep Alive in seconds.
    pub keep_alive: u16,
    /// Client id.
    pub client_id: String,
    /// Session Expiry Interval in seconds.
    pub session_expiry: Option<u32>,
    /// Receive Maximum.
    pub receive_maximum: Option<u16>,
    /// Maximum Packet Size in bytes.
    pub maximum_packet_size: Option<u32>,
    /// Topic Alias Maximum.
    pub topic_alias_maximum: Option<u16>,
}

/// The will of a CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// Topic name.
    pub topic: String,
    /// Payload.
    pub payload: Bytes,
}

/// User name and password of a CONNECT; a missing one is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
}

/// Fields and properties of a CONNACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnAck {
    /// Session Present.
    pub session_present: bool,
    /// Reason code.
    pub reason: Reason,
    /// Maximum Packet Size in bytes.
    pub maximum_packet_size: Option<u32>,
}

/// A PUBLISH, received or to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// DUP.
    pub dup: bool,
    /// QoS.
    pub qos: Qos,
    /// RETAIN.
    pub retain: bool,
    /// Topic name, UTF-8.
    pub topic: Bytes,
    /// Packet identifier; 0 at QoS 0.
    pub pkid: u16,
    /// Payload.
    pub payload: Bytes,
    /// Properties; `None` instead of an empty list.
    pub properties: Option<PublishProperties>,
}

/// Properties of a PUBLISH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishProperties {
    /// Payload Format Indicator: true if the payload is text.
    pub payload_format: Option<bool>,
    /// Message Expiry Interval in seconds.
    pub message_expiry_interval: Option<u32>,
    /// Content Type.
    pub content_type: Option<String>,
    /// Response Topic.
    pub response_topic: Option<String>,
    /// Correlation Data.
    pub correlation_data: Option<Bytes>,
    /// Subscription Identifiers, in order.
    pub subscription_identifiers: Vec<u32>,
    /// Topic Alias.
    pub topic_alias: Option<u16>,
    /// User Properties, in order.
    pub user_properties: Vec<(String, String)>,
}

/// Fields of a PUBACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PubAck {
    /// Packet identifier.
    pub pkid: u16,
    /// Reason code.
    pub reason: Reason,
}

/// Fields of a SUBSCRIBE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Packet identifier.
    pub pkid: u16,
    /// Topic filters, in order: one or more.
    pub filters: Vec<String>,
}

/// Fields of a SUBACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAck {
    /// Packet identifier.
    pub pkid: u16,
    /// Reason codes, in the order of the filters: one or more.
    pub reasons: Vec<Reason>,
}

/// Fields of a DISCONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Reason code.
    pub reason: Reason,
}

impl Packet {
    /// Takes the first packet from `unread`. Returns `None` if it is incomplete.
    ///
    /// # Panics
    /// If the packet is malformed.
    pub fn take(unread: &mut BytesMut) -> Option<Self> {
        let header = Header::read(unread, usize::MAX).expect("an MQTT 5 packet")?;
        let bytes = unread.get(..header.len)?;
        let packet = match codec::Packet::decode(bytes) {
            Ok(packet) => Self::from(packet),
            Err(error) => panic!("{:?} is malformed: {error}", header.kind),
        };
        unread.advance(header.len);
        Some(packet)
    }
}

impl From<codec::Packet<'_>> for Packet {
    fn from(packet: codec::Packet<'_>) -> Self {
        match packet {
            codec::Packet::Connect(connect) => connected(&connect),
            codec::Packet::ConnAck(ack) => Self::ConnAck(ConnAck {
                session_present: ack.session_present,
                reason: ack.reason,
                maximum_packet_size: maximum_packet_size(&ack.properties),
            }),
            codec::Packet::Publish(publish) => Self::Publish(Publish::from(publish)),
            codec::Packet::PubAck(ack) => {
                Self::PubAck(PubAck { pkid: ack.id.get(), reason: ack.reason })
            }
            codec::Packet::Subscribe(subscribe) => {
                let filters = subscribe.subscriptions.map(|one| one.filter.to_owned());
                Self::Subscribe(Subscribe { pkid: subscribe.id.get(), filters: filters.collect() })
            }
            codec::Packet::SubAck(ack) => {
                let reasons = ack.reasons.iter().copied().map(Reason).collect();
                Self::SubAck(SubAck { pkid: ack.id.get(), reasons })
            }
            codec::Packet::Unsubscribe(unsubscribe) => {
                let filters = unsubscribe.filters.map(str::to_owned);
                let pkid = unsubscribe.id.get();
                Self::Unsubscribe(Subscribe { pkid, filters: filters.collect() })
            }
            codec::Packet::PingReq => Self::PingReq,
            codec::Packet::Disconnect(notice) => {
                Self::Disconnect(Disconnect { reason: notice.reason })
            }
            other => Self::Other(other.kind()),
        }
    }
}

fn connected(connect: &codec::Connect<'_>) -> Packet {
    let properties = &connect.properties;
    let will = connect.will.as_ref().map(|will| Will {
        topic: will.topic.to_owned(),
        payload: Bytes::copy_from_slice(will.payload),
    });
    let has_login = connect.user_name.is_some() || connect.password.is_some();
    let login = has_login.then(|| Login {
        username: connect.user_name.unwrap_or_default().to_owned(),
        password: String::from_utf8_lossy(connect.password.unwrap_or_default()).into_owned(),
    });
    let connect = Connect {
        clean_start: connect.clean_start,
        keep_alive: connect.keep_alive,
        client_id: connect.client_id.to_owned(),
        session_expiry: properties.find(|property| match property {
            Property::SessionExpiry(seconds) => Some(seconds),
            _ => None,
        }),
        receive_maximum: properties.find(|property| match property {
            Property::ReceiveMaximum(count) => Some(count),
            _ => None,
        }),
        maximum_packet_size: maximum_packet_size(properties),
        topic_alias_maximum: properties.find(|property| match property {
            Property::TopicAliasMaximum(count) => Some(count),
            _ => None,
        }),
    };
    Packet::Connect(connect, will, login)
}

fn maximum_packet_size(properties: &Properties<'_>) -> Option<u32> {
    properties.find(|property| match property {
        Property::MaximumPacketSize(bytes) => Some(bytes),
        _ => None,
    })
}

impl From<codec::Publish<'_>> for Publish {
    fn from(publish: codec::Publish<'_>) -> Self {
        let has_properties = !publish.properties.as_bytes().is_empty();
        Self {
            dup: publish.dup,
            qos: publish.qos,
            retain: publish.retain,
            topic: Bytes::copy_from_slice(publish.topic.as_bytes()),
            pkid: publish.id.map_or(0, NonZeroU16::get),
            payload: Bytes::copy_from_slice(publish.payload),
            properties: has_properties.then(|| PublishProperties::read(&publish.properties)),
        }
    }
}

impl Publish {
    /// A message that is neither retained nor a duplicate, without a packet identifier.
    #[must_use]
    pub fn new(
        topic: impl Into<String>,
        qos: Qos,
        payload: impl Into<Bytes>,
        properties: Option<PublishProperties>,
    ) -> Self {
        Self {
            dup: false,
            qos,
            retain: false,
            topic: Bytes::from(topic.into()),
            pkid: 0,
            payload: payload.into(),
            properties,
        }
    }

    /// The packet as bytes. At QoS 0 the packet identifier is omitted.
    ///
    /// # Panics
    /// If the packet cannot be written, for example without a packet identifier at QoS 1.
    #[must_use]
    pub fn to_bytes(&self) -> BytesMut {
        let properties = self.properties.as_ref().map(PublishProperties::list).unwrap_or_default();
        write(&codec::Packet::Publish(codec::Publish {
            dup: self.dup,
            qos: self.qos,
            retain: self.retain,
            topic: str::from_utf8(&self.topic).expect("UTF-8"),
            id: NonZeroU16::new(self.pkid).filter(|_| self.qos != Qos::AtMostOnce),
            properties: &properties[..],
            payload: &self.payload,
        }))
    }
}

impl PublishProperties {
    pub(super) fn read(properties: &Properties<'_>) -> Self {
        let mut read = Self::default();
        for property in properties {
            match property {
                Property::PayloadFormat(is_text) => read.payload_format = Some(is_text),
                Property::MessageExpiry(seconds) => read.message_expiry_interval = Some(seconds),
                Property::ContentType(text) => read.content_type = Some(text.to_owned()),
                Property::ResponseTopic(topic) => read.response_topic = Some(topic.to_owned()),
                Property::CorrelationData(data) => {
                    read.correlation_data = Some(Bytes::copy_from_slice(data));
                }
                Property::SubscriptionId(id) => read.subscription_identifiers.push(id),
                Property::TopicAlias(alias) => read.topic_alias = Some(alias),
                Property::User(name, value) => {
                    read.user_properties.push((name.to_owned(), value.to_owned()));
                }
                other => panic!("{other:?} in a PUBLISH"),
            }
        }
        read
    }

    /// The properties, in the order in which they are written.
    #[must_use]
    pub fn list(&self) -> Vec<Property<'_>> {
        let once = [
            self.payload_format.map(Property::PayloadFormat),
            self.message_expiry_interval.map(Property::MessageExpiry),
            self.content_type.as_deref().map(Property::ContentType),
            self.response_topic.as_deref().map(Property::ResponseTopic),
            self.correlation_data.as_deref().map(Property::CorrelationData),
            self.topic_alias.map(Property::TopicAlias),
        ];
        let ids = self.subscription_identifiers.iter().copied().map(Property::SubscriptionId);
        let user = self.user_properties.iter().map(|(name, value)| Property::User(name, value));
        once.into_iter().flatten().chain(ids).chain(user).collect()
    }
}

/// The bytes of a packet.
pub(crate) fn write<P: Encode>(packet: &codec::Packet<'_, P>) -> BytesMut {
    let mut bytes = BytesMut::new();
    packet.encode(&mut bytes).expect("a packet that can be written");
    bytes
}
