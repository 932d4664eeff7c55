use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::Packet as Any;
use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::hlc::FencingToken;
use statestore_proto::message::{Command, Condition};
use statestore_proto::mqtt::Transmit;
use statestore_proto::store::{Principal, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::*;

fn now() -> Now {
    Now::new(Instant::default(), UnixTime::from_millis(1_696_374_425_000))
}

/// The first request of a client, as it comes from the machine.
fn request(value: Vec<u8>) -> Publish {
    let mut client = Client::new(ClientConfig::new("c1", *b"8 random").expect("a client id"));
    let command = Command::Set {
        key: Bytes::from_static(b"key"),
        value: value.into(),
        condition: Condition::Always,
        expiry: None,
    };
    let token = FencingToken::new("1696374425000:1:holder".parse().expect("a clock value"));
    let request = Request::new(command).fencing_token(token).persist(true);
    client.submit(now(), request).expect("room");
    client.handle_connected(now(), false);
    let Some(Transmit::Subscribe { token, .. }) = client.poll_transmit() else { panic!("first") };
    client.handle_subscribed(now(), token, ReasonCode::GRANTED_QOS_1);
    let Some(Transmit::Publish(publish)) = client.poll_transmit() else { panic!("then") };
    publish
}

/// The same packet after a trip over the wire.
fn over_the_wire(packet: Packet) -> Packet {
    let mut wire = BytesMut::new();
    let size = packet.size();
    Any::Publish(packet).write(&mut wire, None).expect("it can be written");
    assert_eq!(wire.len(), size, "the size is exact");
    match Any::read(&mut wire, None).expect("it can be read") {
        Any::Publish(packet) => packet,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_knows_when_it_arrived() {
    let message = Message::new(Packet::default(), 1, true);
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    let waited = message.received().map(|at| at.elapsed());
    assert_eq!(waited, Some(std::time::Duration::from_secs(5)));
}

#[test]
fn a_request_keeps_everything() {
    let publish = request(b"value".to_vec());
    let packet = over_the_wire(packet(&publish));
    assert_eq!(packet.topic, publish.topic.as_bytes());
    assert_eq!((packet.qos, packet.retain, packet.dup), (QoS::AtLeastOnce, false, false));
    assert_eq!(packet.payload, publish.payload);
    let properties = packet.properties.expect("properties");
    assert_eq!(properties.response_topic.as_deref(), publish.response_topic.as_deref());
    let correlation = publish.correlation_data.as_ref().map(Correlation::as_bytes);
    assert_eq!(properties.correlation_data.as_deref(), correlation);
    assert_eq!(properties.content_type.as_deref(), publish.content_type);
    assert_eq!(properties.message_expiry_interval, publish.message_expiry);
    assert!(properties.message_expiry_interval.is_some());
    let sent: Vec<_> = properties.user_properties.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        sent,
        ["__ts", "__srcId", "__protVer", "statestore-incarnation", "__ft", "aio-persistence"]
    );
    for ((name, value), (sent_name, sent_value)) in
        publish.user_properties().zip(&properties.user_properties)
    {
        assert_eq!((name, value.to_string()), (sent_name.as_str(), sent_value.clone()));
    }
    assert_eq!((properties.topic_alias, properties.payload_format_indicator), (None, None));
}

#[test]
fn the_size_is_exact_where_the_length_field_grows() {
    let around = [100, 16_000, 2_097_000];
    for value in around.into_iter().flat_map(|near| near..near + 400).step_by(7) {
        let publish = request(vec![0; value]);
        over_the_wire(packet(&publish));
    }
}

#[test]
fn a_store_understands_what_a_client_sent_and_answers() {
    let mut store = Store::new(StoreConfig::new(7));
    store.handle_connected();
    assert!(matches!(store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    let mut received = over_the_wire(packet(&request(b"value".to_vec())));
    received.pkid = 77;
    let message = Message::new(received, 3, true);
    let incoming = message.as_incoming().expect("it can be read");
    assert_eq!(incoming.delivery, message.delivery());
    assert_eq!(incoming.qos, Qos::AtLeastOnce);
    store.handle_publish(now(), Principal::claimed(&incoming), &incoming);
    let Some(Transmit::Publish(reply)) = store.poll_transmit() else { panic!("a reply") };
    let reply = over_the_wire(packet(&reply));
    assert_eq!(reply.topic, incoming.response_topic.expect("a response topic"));
    let properties = reply.properties.expect("properties");
    assert_eq!(properties.correlation_data.as_deref(), incoming.correlation_data);
    assert_eq!(store.poll_transmit(), message.delivery().map(Transmit::Acknowledge));
    assert_eq!(
        store.get(now(), b"key").map(|stored| stored.value.to_vec()),
        Some(b"value".to_vec())
    );
}

#[test]
fn messages_that_name_no_topic_are_none() {
    for (topic, readable) in [(&b"a/b"[..], true), (b"", false), (b"a/\xff", false)] {
        let packet = Packet { topic: Bytes::from_static(topic), ..Packet::default() };
        assert_eq!(Message::new(packet, 1, true).as_incoming().is_some(), readable, "{topic:?}");
    }
}

#[test]
fn absent_and_empty_correlation_data_differ() {
    for data in [None, Some(Bytes::new()), Some(Bytes::from_static(&[0, 255]))] {
        let properties = PublishProperties {
            correlation_data: data.clone(),
            content_type: Some("x".into()),
            ..PublishProperties::default()
        };
        let topic = Bytes::from_static(b"t");
        let packet = Packet { topic, properties: Some(properties), ..Packet::default() };
        let message = Message::new(over_the_wire(packet), 1, false);
        let incoming = message.as_incoming().expect("it can be read");
        assert_eq!(incoming.correlation_data, data.as_deref());
    }
}

#[test]
fn delivery_tokens_name_packet_and_connection() {
    for (qos, pkid, generation) in [
        (QoS::AtLeastOnce, 1, 1),
        (QoS::ExactlyOnce, 65_535, 1),
        (QoS::AtLeastOnce, 65_535, 1 << 40),
    ] {
        let packet = Packet { qos, pkid, ..Packet::default() };
        let token = Message::new(packet.clone(), generation, true).delivery().expect("a token");
        assert_eq!(acknowledged(token, generation), Some(packet.clone()));
        assert_eq!(acknowledged(token, generation + 1), None);
        assert_eq!(Message::new(packet, generation, false).delivery(), None);
    }
    assert_eq!(Message::new(Packet::default(), 1, true).delivery(), None, "QoS 0 has none");
}

#[test]
fn reasons_are_those_of_mqtt() {
    use rumqttc::v5::mqttbytes::v5::{PubAck, SubAck};
    for code in [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99] {
        let mut wire = BytesMut::from(&[0x40, 4, 0, 1, code, 0][..]);
        let Ok(Any::PubAck(PubAck { reason, .. })) = Any::read(&mut wire, None) else {
            panic!("PUBACK 0x{code:02x}")
        };
        assert_eq!(publish_reason(reason), ReasonCode(code));
    }
    for code in [0, 1, 2, 0x80, 0x83, 0x87, 0x8f, 0x91, 0x97, 0x9e, 0xa1, 0xa2] {
        let mut wire = BytesMut::from(&[0x90, 4, 0, 1, 0, code][..]);
        let Ok(Any::SubAck(SubAck { return_codes, .. })) = Any::read(&mut wire, None) else {
            panic!("SUBACK 0x{code:02x}")
        };
        assert_eq!(subscribe_reason(return_codes[0]), ReasonCode(code));
    }
}

#[test]
fn what_another_try_does_not_mend_is_final() {
    let refused = |code| error(&ConnectionError::ConnectionRefused(code), false).is_transient();
    for code in [Refusal::BadUserNamePassword, Refusal::NotAuthorized, Refusal::Banned] {
        assert!(!refused(code), "{code:?}");
    }
    assert!(!refused(Refusal::ClientIdentifierNotValid));
    for code in [Refusal::ServerBusy, Refusal::ServerUnavailable, Refusal::UseAnotherServer] {
        assert!(refused(code), "{code:?}");
    }
    let goodbye = |reason_code, retry| {
        let reason_string = Some("why".to_owned());
        let disconnect = StateError::ServerDisconnect { reason_code, reason_string };
        error(&ConnectionError::MqttState(disconnect), retry)
    };
    assert!(!goodbye(Goodbye::SessionTakenOver, false).is_transient());
    assert!(goodbye(Goodbye::SessionTakenOver, true).is_transient());
    assert!(goodbye(Goodbye::ServerShuttingDown, false).is_transient());
    assert!(goodbye(Goodbye::AdministrativeAction, false).is_transient());
    assert!(goodbye(Goodbye::PacketTooLarge, false).is_transient());
    // An answer to a topic that a requester chose must not end a store.
    assert!(goodbye(Goodbye::NotAuthorized, false).is_transient());
    for code in [Goodbye::UseAnotherServer, Goodbye::ServerBusy, Goodbye::ServerShuttingDown] {
        let told = goodbye(code, false);
        assert!(told.is_elsewhere() && told.is_transient(), "{code:?}");
    }
    let moved = ConnectionError::ConnectionRefused(Refusal::ServerMoved);
    for told in [error(&moved, false), goodbye(Goodbye::ServerMoved, false)] {
        assert!(told.is_elsewhere() && !told.is_transient(), "{told}");
    }
    assert!(!goodbye(Goodbye::SessionTakenOver, false).is_elsewhere(), "the same everywhere");
    let text = goodbye(Goodbye::SessionTakenOver, false).to_string();
    assert_eq!(text, "disconnected by the broker: SessionTakenOver (0x8e) why");
    let io = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    assert!(error(&ConnectionError::Io(io), false).is_transient());
}

#[test]
fn a_lost_connection_is_called_so() {
    let reset = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    for lost in [StateError::Deserialization(PacketError::Io(reset())), StateError::Io(reset())] {
        let error = error(&ConnectionError::MqttState(lost), false);
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "the connection was lost: connection reset");
    }
}
