use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::DisconnectReasonCode as Goodbye;
use rumqttc::v5::mqttbytes::v5::Packet as Any;
use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::hlc::FencingToken;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{Delivery, Transmit};

use super::*;

fn now() -> Now {
    Now::new(Instant::default(), UnixTime::from_millis(1_696_374_425_000))
}

/// The first request of a client, as the machine returns it.
fn request(value: Vec<u8>) -> Publish {
    let mut client = Client::new(ClientConfig::new("c1", *b"8 random")).expect("a client id");
    let token = FencingToken::new("1696374425000:1:holder".parse().expect("a clock value"));
    let request = Request::set(b"key", value).fencing_token(token).persist(true);
    client.submit(now(), request).expect("capacity");
    client.handle(now(), Input::Connected { session_present: false });
    let Some(Transmit::Subscribe { token, .. }) = client.poll_transmit() else { panic!("first") };
    client.handle(now(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
    let Some(Transmit::Publish(publish)) = client.poll_transmit() else { panic!("then") };
    publish
}

/// The packet, encoded and decoded by rumqttc.
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

/// A PUBLISH as rumqttc sends it.
fn packet(publish: &Publish) -> Packet {
    let payload = publish.payload.clone();
    let properties = Some(properties(publish));
    let mut packet = Packet::new(&*publish.topic, QoS::AtLeastOnce, payload, properties);
    packet.pkid = 1;
    packet
}

#[test]
fn request_properties_survive_the_wire() {
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
fn size_is_exact_at_boundaries_of_the_length_field() {
    let around = [100, 16_000, 2_097_000];
    for value in around.into_iter().flat_map(|near| near..near + 400).step_by(7) {
        let publish = request(vec![0; value]);
        over_the_wire(packet(&publish));
    }
}

#[test]
fn store_decodes_a_request_of_a_client_and_responds() {
    let mut store = Store::new(StoreConfig::new(7));
    store.handle(Now::default(), Input::Connected { session_present: false });
    assert!(matches!(store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    let mut received = over_the_wire(packet(&request(b"value".to_vec())));
    received.pkid = 77;
    let message = Message::new(received);
    let mut incoming = message.as_incoming().expect("it can be read");
    incoming.delivery = Some(Delivery(3));
    assert_eq!(incoming.qos, Qos::AtLeastOnce);
    store.handle_publish(now(), &incoming);
    let Some(Transmit::Publish(reply)) = store.poll_transmit() else { panic!("a reply") };
    let reply = over_the_wire(packet(&reply));
    assert_eq!(reply.topic, incoming.response_topic.expect("a response topic"));
    let properties = reply.properties.expect("properties");
    assert_eq!(properties.correlation_data.as_deref(), incoming.correlation_data);
    assert_eq!(store.poll_transmit(), Some(Transmit::Acknowledge(Delivery(3))));
    assert_eq!(
        store.get(now(), b"key").map(|stored| stored.value.to_vec()),
        Some(b"value".to_vec())
    );
}

#[test]
fn message_without_a_valid_topic_is_unreadable() {
    for (topic, readable) in [(&b"a/b"[..], true), (b"", false), (b"a/\xff", false)] {
        let packet = Packet { topic: Bytes::from_static(topic), ..Packet::default() };
        assert_eq!(Message::new(packet).as_incoming().is_some(), readable, "{topic:?}");
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
        let message = Message::new(over_the_wire(packet));
        let incoming = message.as_incoming().expect("it can be read");
        assert_eq!(incoming.correlation_data, data.as_deref());
    }
}

#[test]
fn puback_and_suback_codes_are_those_of_mqtt() {
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
fn connack_codes_are_those_of_mqtt() {
    use rumqttc::v5::mqttbytes::v5::ConnAck;
    let codes = [
        0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8c, 0x90, 0x95, 0x97,
        0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9f,
    ];
    for code in codes {
        let mut wire = BytesMut::from(&[0x20, 3, 0, code, 0][..]);
        let Ok(Any::ConnAck(ConnAck { code: refusal, .. })) = Any::read(&mut wire, None) else {
            panic!("CONNACK 0x{code:02x}")
        };
        let error = error(ConnectionError::ConnectionRefused(refusal), true);
        assert_eq!(error, LinkError::refused(ReasonCode(code), ReasonDetails::default()));
    }
}

#[test]
fn disconnect_codes_are_those_of_mqtt() {
    for reason_code in [Goodbye::NotAuthorized, Goodbye::SessionTakenOver, Goodbye::ServerMoved] {
        let reason_string = Some("why".to_owned());
        let code = ReasonCode(reason_code as u8);
        let disconnect = StateError::ServerDisconnect { reason_code, reason_string };
        let error = error(ConnectionError::MqttState(disconnect), false);
        assert_eq!(error, LinkError::disconnected(code, ReasonDetails::new(Some("why"), None)));
    }
}

#[test]
fn lost_connection_is_reported_as_lost_with_its_source() {
    let reset = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    for lost in [StateError::Deserialization(PacketError::Io(reset())), StateError::Io(reset())] {
        let error = error(ConnectionError::MqttState(lost), false);
        assert!(error.is_transient());
        assert_eq!(error.kind(), LinkErrorKind::Lost);
        assert_eq!(error.to_string(), "the connection was lost: connection reset");
        assert!(error.get_ref().is_some());
    }
}

#[test]
fn refused_tcp_connection_is_unreachable() {
    let io = std::io::Error::from_raw_os_error(111);
    let error = error(ConnectionError::Io(io), true);
    assert!(error.is_transient());
    assert_eq!(error.kind(), LinkErrorKind::Unreachable);
    assert_eq!(error.to_string(), "connection refused");
}
