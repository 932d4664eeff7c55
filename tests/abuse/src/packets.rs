//! Packets as bytes, made with the codec of the project.

use std::num::NonZeroU16;

use bytes::BytesMut;
use statestore_mqtt::packet::{
    Ack, Connect, Filters, Packet, Publish, Subscribe, Subscription, Subscriptions, Unsubscribe,
    Will,
};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};
use statestore_proto::topic::REQUEST;

use crate::clock;

pub(crate) const PINGREQ: [u8; 2] = [0xc0, 0];
pub(crate) const DISCONNECT: [u8; 2] = [0xe0, 0];

/// What a CONNECT says beside the client id.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hello<'a> {
    /// Seconds that the session outlives its connection; the session from before is taken up then.
    pub(crate) kept: Option<u32>,
    pub(crate) will: Option<Will<'a, &'a [Property<'a>]>>,
    /// User name and password.
    pub(crate) login: Option<(&'a str, &'a str)>,
}

pub(crate) fn connect(client_id: &str, hello: Hello<'_>) -> BytesMut {
    let expiry = hello.kept.map(Property::SessionExpiry);
    encoded(&Packet::Connect(Connect {
        clean_start: hello.kept.is_none(),
        keep_alive: 60,
        properties: expiry.as_slice(),
        client_id,
        will: hello.will,
        user_name: hello.login.map(|(name, _)| name),
        password: hello.login.map(|(_, password)| password.as_bytes()),
    }))
}

/// A PUBLISH; the packet identifier is left out at QoS 0.
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

/// The same, to be retained, at QoS 0.
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

/// Where a client has its answers.
pub(crate) fn response_topic(client_id: &str) -> String {
    format!("clients/{client_id}/services/statestore/response")
}

/// A request as deployed clients send it, answered where the client has its answers.
pub(crate) fn request(client_id: &str, id: NonZeroU16, words: &[&[u8]]) -> BytesMut {
    request_to(client_id, &response_topic(client_id), id, words)
}

/// The same, answered elsewhere.
pub(crate) fn request_to(
    client_id: &str,
    response_topic: &str,
    id: NonZeroU16,
    words: &[&[u8]],
) -> BytesMut {
    let mut payload = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        payload.extend(format!("${}\r\n", word.len()).into_bytes());
        payload.extend_from_slice(word);
        payload.extend(b"\r\n");
    }
    let stamp = format!("{:015}:00000:{client_id}", clock::unix_ms());
    // No two requests are alike, or the store would take the second for the first.
    let correlation = fastrand::u128(..).to_be_bytes();
    let properties = [
        Property::MessageExpiry(60),
        Property::ResponseTopic(response_topic),
        Property::CorrelationData(&correlation),
        Property::User("__ts", &stamp),
    ];
    publish(REQUEST, &payload, (Qos::AtLeastOnce, id), &properties)
}

fn encoded(packet: &Packet<'_, &[Property<'_>]>) -> BytesMut {
    let mut bytes = BytesMut::new();
    packet.encode(&mut bytes).expect("what is written here can be written");
    bytes
}
