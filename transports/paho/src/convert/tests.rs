use paho_mqtt::MessageBuilder;
use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::hlc::FencingToken;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{Correlation, Transmit};

use super::*;

fn now() -> Now {
    Now::new(Instant::default(), UnixTime::from_millis(1_696_374_425_000))
}

/// The first request that the machine of a client sends.
fn request(value: Vec<u8>) -> Publish {
    let mut client = Client::new(ClientConfig::new("c1", *b"8 random")).expect("a client id");
    let token = FencingToken::new("1696374425000:1:holder".parse().expect("a clock value"));
    let request = Request::set(b"key", value).fencing_token(token).persist(true);
    client.submit(now(), request).expect("capacity");
    client.handle(now(), Input::Connected { session_present: false });
    let Some(Transmit::Subscribe { token, .. }) = client.poll_transmit() else {
        panic!("no SUBSCRIBE")
    };
    client.handle(now(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
    let Some(Transmit::Publish(publish)) = client.poll_transmit() else { panic!("no PUBLISH") };
    publish
}

fn packed(publish: &Publish) -> Packet {
    packet(publish.clone()).expect("the packet is valid")
}

#[test]
fn request_keeps_every_field() {
    let publish = request(b"value".to_vec());
    let message = Message::new(packed(&publish));
    let incoming = message.as_incoming().expect("the message is valid");
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
fn unshared_payload_is_not_copied() {
    let mut publish = request(Vec::new());
    publish.payload = Bytes::from(vec![b'v'; 5_000]);
    let place = publish.payload.as_ptr();
    let packet = packet(publish).expect("the packet is valid");
    assert_eq!(packet.payload().as_ptr(), place, "sent");
    assert_eq!(Message::new(packet).payload().as_ptr(), place, "received");
}

#[test]
fn store_executes_a_converted_request_and_its_reply_converts() {
    let mut store = Store::new(StoreConfig::new(7));
    store.handle(Now::default(), Input::Connected { session_present: false });
    assert!(matches!(store.poll_transmit(), Some(Transmit::Subscribe { .. })));
    let message = Message::new(packed(&request(b"value".to_vec())));
    let incoming = message.as_incoming().expect("the message is valid");
    store.handle_publish(now(), &incoming);
    let Some(Transmit::Publish(reply)) = store.poll_transmit() else { panic!("no reply") };
    let reply = packed(&reply);
    assert_eq!(reply.topic(), incoming.response_topic.expect("a response topic"));
    let data = reply.properties().get_binary(Code::CorrelationData);
    assert_eq!(data.as_deref(), incoming.correlation_data);
    assert_eq!(
        store.poll_transmit(),
        None,
        "a message without a delivery token is not acknowledged"
    );
    assert_eq!(
        store.get(now(), b"key").map(|stored| stored.value.to_vec()),
        Some(b"value".to_vec())
    );
}

#[test]
fn message_with_an_empty_topic_is_ignored() {
    let packet = |topic: &str| MessageBuilder::new().topic(topic).finalize();
    assert!(Message::new(packet("a/b")).as_incoming().is_some());
    assert!(Message::new(packet("")).as_incoming().is_none());
}

#[test]
fn debug_omits_payload_and_properties() {
    let shown = format!("{:?}", Message::new(packed(&request(b"secret".to_vec()))));
    assert!(!shown.contains("secret") && !shown.contains("holder"), "{shown}");
}

#[test]
fn reason_codes_keep_their_value() {
    for code in [0x80, 0x83, 0x87, 0x8f, 0x90, 0x91, 0x97, 0x99, 0x9e, 0xa1, 0xa2] {
        let error = Error::from_reason_code(code, Properties::new());
        assert_eq!(outcome(&Err(error)), Some(ReasonCode(code)));
    }
    assert_eq!(outcome(&Ok(ServerResponse::new())), Some(ReasonCode::SUCCESS));
    assert_eq!(outcome(&Err(Error::Disconnected)), None);
    assert_eq!(outcome(&Err(Error::BadUtf8String)), Some(ReasonCode::UNSPECIFIED_ERROR));
}

#[test]
fn refusals_are_classified_by_their_code() {
    for code in [0x80, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8c, 0x97, 0x9c, 0x9d, 0x9f] {
        let error = refused(Error::from_reason_code(code, Properties::new()));
        assert_eq!(error, LinkError::refused(ReasonCode(code), ReasonDetails::default()));
        assert!(error.get_ref().is_some());
    }
    assert!(refused(Error::TcpTlsConnectFailure).is_transient());
    assert!(!refused(Error::MissingSslOptions).is_transient());
    assert_eq!(refused(Error::Failure).kind(), LinkErrorKind::Unreachable);
}

#[test]
fn disconnects_are_classified_by_their_code() {
    let mut properties = Properties::new();
    properties.push_string(Code::ReasonString, "why").expect("a text");
    // Not authorized must not end a store: a requester can cause it with its response topic.
    for reason in [Reason::NotAuthorized, Reason::SessionTakenOver, Reason::ServerMoved] {
        let expected = LinkError::disconnected(
            ReasonCode(reason as u8),
            ReasonDetails::new(Some("why"), None),
        );
        assert_eq!(disconnected(reason, &properties), expected);
    }
}

#[test]
fn server_reference_of_a_disconnect_is_followed_only_to_a_configured_address() {
    let options = crate::Options::new("c1", "a", 1).add_address("b", 2).add_address("c", 3);
    let now = tokio::time::Instant::now();
    for (named, next) in [("c:3", "c"), ("evil:1 c:3", "c"), ("evil:1", "b")] {
        let mut addresses = crate::Addresses::new(&options);
        addresses.begin_round(now);
        addresses.report_connection(now);
        let mut properties = Properties::new();
        properties.push_string(Code::ServerReference, named).expect("a text");
        addresses.report_loss(disconnected(Reason::UseAnotherServer, &properties), now);
        assert_eq!(addresses.begin_round(now).host, next, "{named}");
    }
}

#[test]
fn options_are_converted() {
    let options = crate::Options::new("c1", "::1", 1883);
    let at = crate::Address::new("::1", 1883);
    assert!(crate::options::connect(&options).is_ok_and(|connect| connect.clean_start()));
    let store = options.or_store_defaults();
    assert!(crate::options::connect(&store).is_ok_and(|connect| !connect.clean_start()));
    assert!(format!("{:?}", crate::options::create(&store, &at)).contains("mqtt://[::1]:1883"));
}
