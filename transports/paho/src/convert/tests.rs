use bytes::BytesMut;
use paho_mqtt::MessageBuilder;
use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::hlc::FencingToken;
use statestore_proto::message::{Command, Condition};
use statestore_proto::mqtt::{Correlation, Transmit};
use statestore_proto::store::{Principal, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_tests::mqttbytes::QoS as Level;
use statestore_tests::mqttbytes::v5::{Publish as Written, PublishProperties};

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

fn packed(publish: &Publish) -> Packet {
    packet(publish.clone(), usize::MAX).expect("it can be sent")
}

/// What another library writes for the same.
fn written(publish: &Publish) -> BytesMut {
    let properties = PublishProperties {
        response_topic: publish.response_topic.as_deref().map(Into::into),
        correlation_data: publish
            .correlation_data
            .as_ref()
            .map(|data| Bytes::copy_from_slice(data.as_bytes())),
        content_type: publish.content_type.map(Into::into),
        message_expiry_interval: publish.message_expiry,
        user_properties: publish
            .user_properties()
            .map(|(name, value)| (name.into(), value.to_string()))
            .collect(),
        ..PublishProperties::default()
    };
    let (topic, payload) = (&*publish.topic, publish.payload.clone());
    let mut packet = Written::new(topic, Level::AtLeastOnce, payload, Some(properties));
    packet.pkid = 1;
    let mut wire = BytesMut::new();
    packet.write(&mut wire).expect("it can be written");
    wire
}

#[test]
fn a_request_keeps_everything() {
    let publish = request(b"value".to_vec());
    let message = Message::new(packed(&publish));
    let incoming = message.as_incoming().expect("it can be read");
    assert_eq!(incoming.topic, &*publish.topic);
    assert_eq!((incoming.qos, incoming.retain), (Qos::AtLeastOnce, false));
    assert_eq!(incoming.payload, &publish.payload);
    assert_eq!(incoming.response_topic, publish.response_topic.as_deref());
    let correlation = publish.correlation_data.as_ref().map(Correlation::as_bytes);
    assert_eq!(incoming.correlation_data, correlation);
    assert_eq!(incoming.message_expiry, publish.message_expiry);
    assert!(incoming.message_expiry.is_some());
    let sent: Vec<_> = publish
        .user_properties()
        .map(|(name, value)| (name.to_owned(), value.to_string()))
        .collect();
    assert_eq!(message.user_properties, sent);
    assert_eq!(sent.len(), 6);
}

#[test]
fn a_payload_that_nothing_else_holds_is_not_copied() {
    let mut publish = request(Vec::new());
    publish.payload = Bytes::from(vec![b'v'; 5_000]);
    let place = publish.payload.as_ptr();
    let packet = packet(publish, usize::MAX).expect("it can be sent");
    assert_eq!(packet.payload().as_ptr(), place, "on the way out");
    assert_eq!(Message::new(packet).payload().as_ptr(), place, "on the way in");
}

#[test]
fn the_size_is_that_of_the_wire() {
    let around = [0, 100, 16_000, 2_097_000];
    for value in around.into_iter().flat_map(|near| near..near + 400).step_by(7) {
        let publish = request(vec![0; value]);
        let size = written(&publish).len();
        assert!(packet(publish.clone(), size).is_ok(), "{value}: {size} are enough");
        assert_eq!(packet(publish, size - 1).err(), Some(ReasonCode::PACKET_TOO_LARGE), "{value}");
    }
}

#[test]
fn what_mqtt_cannot_express_is_refused() {
    let to = |topic: &str| {
        let mut publish = request(b"value".to_vec());
        publish.topic = topic.into();
        packet(publish, usize::MAX)
    };
    assert!(to("a/b").is_ok() && to("/").is_ok());
    for topic in ["", "a/+", "#", "a\0b", &"x".repeat(65_536)] {
        assert_eq!(to(topic).err(), Some(TOPIC_NAME_INVALID));
    }
    for topic in ["a\0b", &"x".repeat(65_536)] {
        let mut publish = request(b"value".to_vec());
        publish.response_topic = Some(topic.into());
        assert!(packet(publish, usize::MAX).is_err());
    }
}

#[test]
fn filters_are_those_of_mqtt() {
    for filter in ["a", "/", "#", "+", "a/#", "+/b/+", "$SYS/#", "a b/ü"] {
        assert_eq!(refused_filter(filter, usize::MAX), None, "{filter}");
    }
    for filter in ["", "#/a", "a#", "a/b#", "a+/b", "+a", "a\0", "a/##", "a/++/b"] {
        assert_eq!(refused_filter(filter, usize::MAX), Some(TOPIC_FILTER_INVALID), "{filter}");
    }
    // SUBSCRIBE with an id, no properties, one filter of three bytes and its options.
    let bytes = [0x82, 9, 0, 1, 0, 0, 3, b'a', b'/', b'b', 1];
    assert_eq!(refused_filter("a/b", bytes.len()), None);
    assert!(refused_filter("a/b", bytes.len() - 1).is_some());
}

#[test]
fn a_store_understands_what_a_client_sent_and_answers() {
    let mut store = Store::new(StoreConfig::new(7));
    store.handle_connected();
    assert!(matches!(store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    let message = Message::new(packed(&request(b"value".to_vec())));
    let incoming = message.as_incoming().expect("it can be read");
    store.handle_publish(now(), Principal::claimed(&incoming), &incoming);
    let Some(Transmit::Publish(reply)) = store.poll_transmit() else { panic!("a reply") };
    let reply = packed(&reply);
    assert_eq!(reply.topic(), incoming.response_topic.expect("a response topic"));
    let data = reply.properties().get_binary(Code::CorrelationData);
    assert_eq!(data.as_deref(), incoming.correlation_data);
    assert_eq!(store.poll_transmit(), None, "nothing to acknowledge");
    assert_eq!(
        store.get(now(), b"key").map(|stored| stored.value.to_vec()),
        Some(b"value".to_vec())
    );
}

#[test]
fn a_message_without_a_topic_is_none() {
    let packet = |topic: &str| MessageBuilder::new().topic(topic).finalize();
    assert!(Message::new(packet("a/b")).as_incoming().is_some());
    assert!(Message::new(packet("")).as_incoming().is_none());
}

#[test]
fn neither_payload_nor_properties_are_shown() {
    let shown = format!("{:?}", Message::new(packed(&request(b"secret".to_vec()))));
    assert!(!shown.contains("secret") && !shown.contains("holder"), "{shown}");
}

#[test]
fn reasons_are_those_of_mqtt() {
    for code in [0x80, 0x83, 0x87, 0x8f, 0x90, 0x91, 0x97, 0x99, 0x9e, 0xa1, 0xa2] {
        let error = Error::from_reason_code(code, Properties::new());
        assert_eq!(outcome(&Err(error)), Some(ReasonCode(code)));
    }
    assert_eq!(outcome(&Ok(ServerResponse::new())), Some(ReasonCode::SUCCESS));
    assert_eq!(outcome(&Err(Error::Disconnected)), None);
    assert_eq!(outcome(&Err(Error::BadUtf8String)), Some(ReasonCode(0x80)));
}

#[test]
fn what_another_try_does_not_mend_is_final() {
    let is_tried_again =
        |code| refused(&Error::from_reason_code(code, Properties::new())).is_transient();
    for code in [0x84, 0x85, 0x86, 0x87, 0x8a, 0x8c, 0x9d] {
        assert!(!is_tried_again(code), "0x{code:02x}");
    }
    for code in [0x80, 0x88, 0x89, 0x97, 0x9c, 0x9f] {
        assert!(is_tried_again(code), "0x{code:02x}");
    }
    assert!(refused(&Error::TcpTlsConnectFailure).is_transient());
    assert!(!refused(&Error::MissingSslOptions).is_transient());

    let goodbye = |reason, retry| {
        let mut why = Properties::new();
        why.push_string(Code::ReasonString, "why").expect("a text");
        disconnected(reason, &why, retry)
    };
    assert!(!goodbye(Reason::SessionTakenOver, false).is_transient());
    assert!(goodbye(Reason::SessionTakenOver, true).is_transient());
    assert!(goodbye(Reason::ServerShuttingDown, false).is_transient());
    assert!(goodbye(Reason::AdministrativeAction, false).is_transient());
    assert!(goodbye(Reason::PacketTooLarge, false).is_transient());
    assert!(!goodbye(Reason::NotAuthorized, false).is_transient());
    for code in [Reason::UseAnotherServer, Reason::ServerBusy, Reason::ServerShuttingDown] {
        let told = goodbye(code, false);
        assert!(told.is_elsewhere() && told.is_transient(), "{code:?}");
    }
    let moved = Error::from_reason_code(0x9d, Properties::new());
    for told in [refused(&moved), goodbye(Reason::ServerMoved, false)] {
        assert!(told.is_elsewhere() && !told.is_transient(), "{told}");
    }
    assert!(!goodbye(Reason::SessionTakenOver, false).is_elsewhere(), "the same everywhere");
    let text = goodbye(Reason::SessionTakenOver, false).to_string();
    assert_eq!(text, "disconnected by the broker: SessionTakenOver (0x8e) why");
}

#[test]
fn a_goodbye_with_a_server_reference_is_followed_to_what_was_configured() {
    let options = crate::Options::new("c1", "a", 1).or_at("b", 2).or_at("c", 3);
    let now = tokio::time::Instant::now();
    for (named, next) in [("c:3", "c"), ("evil:1 c:3", "c"), ("evil:1", "b")] {
        let mut addresses = crate::Addresses::new(&options);
        addresses.begin(now);
        addresses.connected(now);
        let mut told = Properties::new();
        told.push_string(Code::ServerReference, named).expect("a text");
        addresses.lost(disconnected(Reason::UseAnotherServer, &told, false), now);
        assert_eq!(addresses.begin(now).host, next, "{named}");
    }
}

#[test]
fn options_say_what_they_were_told() {
    let options = crate::Options::new("c1", "::1", 1883);
    let at = crate::Address::new("::1", 1883);
    assert!(crate::options::connect(&options).is_ok_and(|connect| connect.clean_start()));
    let store = options.or_store_defaults();
    assert!(crate::options::connect(&store).is_ok_and(|connect| !connect.clean_start()));
    assert!(format!("{:?}", crate::options::create(&store, &at)).contains("mqtt://[::1]:1883"));
}
