//! Packets as bytes, encoded with the codec of this project.

use std::num::NonZeroU16;

use bytes::BytesMut;
use statestore_mqtt::packet::{
    Ack, Connect, Filters, Packet, Publish, Subscribe, Subscription, Subscriptions, Unsubscribe,
    Will,
};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};
use statestore_proto::topic::REQUEST;
use statestore_testkit::wire::packets::{Publish as Message, PublishProperties};

use crate::abuse::clock;

pub(crate) const PINGREQ: [u8; 2] = [0xc0, 0];
pub(crate) const DISCONNECT: [u8; 2] = [0xe0, 0];

/// Fields of a CONNECT besides the client id.
#[derive(Clone, Copy, Default)]
pub(crate) struct ConnectFields<'a> {
    /// Session expiry in seconds; if set, the previous session is resumed.
    pub(crate) kept: Option<u32>,
    pub(crate) will: Option<Will<'a, &'a [Property<'a>]>>,
    /// User name and password.
    pub(crate) login: Option<(&'a str, &'a str)>,
}

pub(crate) fn connect(client_id: &str, fields: ConnectFields<'_>) -> BytesMut {
    let expiry = fields.kept.map(Property::SessionExpiry);
    encoded(&Packet::Connect(Connect {
        clean_start: fields.kept.is_none(),
        keep_alive: 60,
        properties: expiry.as_slice(),
        client_id,
        will: fields.will,
        user_name: fields.login.map(|(name, _)| name),
        password: fields.login.map(|(_, password)| password.as_bytes()),
    }))
}

/// A PUBLISH, without a packet identifier at QoS 0.
pub(crate) fn publish(
    topic: &str,
    payload: &[u8],
    (qos, id): (Qos, NonZeroU16),
    properties: &[Property<'_>],
) -> BytesMut {
    let id = (qos != Qos::AtMostOnce).then_some(id);
    let publish = Publish { dup: false, qos, retain: false, topic, id, properties, payload };
    encoded(&Packet::Publish(publish))
}

/// A retained PUBLISH at QoS 0.
pub(crate) fn retained(topic: &str, payload: &[u8]) -> BytesMut {
    let publish = Publish {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: true,
        topic,
        id: None,
        properties: &[][..],
        payload,
    };
    encoded(&Packet::Publish(publish))
}

pub(crate) fn subscribe(filters: &[&str], qos: Qos) -> BytesMut {
    let list: Vec<_> = filters.iter().map(|filter| Subscription::new(filter, qos)).collect();
    let subscriptions = Subscriptions::new(&list);
    encoded(&Packet::Subscribe(Subscribe { id: NonZeroU16::MIN, properties: &[], subscriptions }))
}

pub(crate) fn unsubscribe(filters: &[&str]) -> BytesMut {
    let filters = Filters::new(filters);
    encoded(&Packet::Unsubscribe(Unsubscribe { id: NonZeroU16::MIN, properties: &[], filters }))
}

pub(crate) fn puback(id: NonZeroU16) -> BytesMut {
    encoded(&Packet::PubAck(Ack { id, reason: Reason::SUCCESS, properties: &[] }))
}

/// The response topic of a client.
pub(crate) fn response_topic(client_id: &str) -> String {
    format!("clients/{client_id}/services/statestore/response")
}

/// A request as deployed clients send it, with the response topic of the client.
pub(crate) fn request(client_id: &str, id: NonZeroU16, words: &[&[u8]]) -> BytesMut {
    request_to(client_id, &response_topic(client_id), id, words)
}

/// A request with another response topic.
pub(crate) fn request_to(
    client_id: &str,
    response_topic: &str,
    id: NonZeroU16,
    words: &[&[u8]],
) -> BytesMut {
    let request = owned_request_to(client_id, response_topic, words);
    let properties = request.properties.unwrap_or_default();
    let properties: Vec<Property<'_>> = properties.list();
    publish(REQUEST, &request.payload, (Qos::AtLeastOnce, id), &properties)
}

/// The request as a message.
pub(crate) fn owned_request(client_id: &str, words: &[&[u8]]) -> Message {
    owned_request_to(client_id, &response_topic(client_id), words)
}

fn owned_request_to(client_id: &str, response_topic: &str, words: &[&[u8]]) -> Message {
    let mut payload = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        payload.extend(format!("${}\r\n", word.len()).into_bytes());
        payload.extend_from_slice(word);
        payload.extend(b"\r\n");
    }
    let properties = PublishProperties {
        message_expiry_interval: Some(60),
        response_topic: Some(response_topic.to_owned()),
        // Equal requests with equal correlation data would be duplicates.
        correlation_data: Some(fastrand::u128(..).to_be_bytes().to_vec().into()),
        user_properties: vec![(
            "__ts".to_owned(),
            format!("{:015}:00000:{client_id}", clock::unix_ms()),
        )],
        ..PublishProperties::default()
    };
    Message::new(REQUEST, Qos::AtLeastOnce, payload, Some(properties))
}

fn encoded(packet: &Packet<'_, &[Property<'_>]>) -> BytesMut {
    let mut bytes = BytesMut::new();
    packet.encode(&mut bytes).expect("a valid packet");
    bytes
}
