use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::hlc::FencingToken;
use statestore_proto::message::{Command, Condition};
use statestore_proto::mqtt::{Correlation, ReasonCode, Transmit};
use statestore_proto::store::{Principal, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::*;

fn now() -> Now {
    Now::new(Instant::default(), UnixTime::from_millis(1_696_374_425_000))
}

/// The first request of a client, as it comes from the machine.
fn request() -> Publish {
    let mut client = Client::new(ClientConfig::new("c1", *b"8 random").expect("a client id"));
    let command = Command::Set {
        key: Bytes::from_static(b"key"),
        value: Bytes::from_static(b"\0value\xff"),
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

#[test]
fn a_packet_keeps_everything() {
    let publish = request();
    let message = Message::new(packet(&publish));
    let Packet { qos, retain, dup, .. } = message.packet;
    assert_eq!((qos, retain, dup), (QoS::AtLeastOnce, false, false));
    let incoming = message.as_incoming().expect("a message");
    assert_eq!((incoming.topic, incoming.payload), (&*publish.topic, &publish.payload));
    assert_eq!(incoming.qos, Qos::AtLeastOnce);
    assert_eq!(incoming.response_topic, publish.response_topic.as_deref());
    let correlation = publish.correlation_data.as_ref().map(Correlation::as_bytes);
    assert_eq!(incoming.correlation_data, correlation);
    assert_eq!(incoming.message_expiry, publish.message_expiry);
    assert!(incoming.message_expiry.is_some() && incoming.response_topic.is_some());
    let sent: Vec<_> = publish
        .user_properties()
        .map(|(name, value)| PropertyValue::Utf8StringPair(name.into(), value.to_string()))
        .collect();
    let kept = message.packet.properties.get_all(PropertyId::UserProperty);
    assert_eq!(kept, Some(&sent[..]), "in order");
    assert_eq!(incoming.claimed_source(), Some("c1"));
}

#[test]
fn flags_and_absences_are_kept_apart() {
    let mut packet = Packet::new("t", Bytes::new(), QoS::AtMostOnce);
    packet.retain = true;
    let message = Message::new(packet.clone());
    let incoming = message.as_incoming().expect("a message");
    assert_eq!((incoming.qos, incoming.retain), (Qos::AtMostOnce, true));
    assert_eq!(incoming.correlation_data, None);
    assert_eq!(incoming.response_topic, None);
    assert_eq!((incoming.message_expiry, incoming.verified_sender), (None, None));

    packet.properties.set_correlation_data(Bytes::new());
    packet.qos = QoS::ExactlyOnce;
    let message = Message::new(packet);
    let incoming = message.as_incoming().expect("a message");
    assert_eq!(incoming.correlation_data, Some(&b""[..]), "empty is not absent");
    assert_eq!(incoming.qos, Qos::ExactlyOnce);
}

#[test]
fn the_sender_is_whom_the_broker_names() {
    let mut packet = packet(&request());
    packet.properties.add_user_property(SENDER.to_owned(), "forged".to_owned());
    stamp(&mut packet, "c2");
    let message = Message::new(packet);
    assert_eq!(message.sender(), Some("c2"));
    assert_eq!(message.as_incoming().expect("a message").verified_sender, Some("c2"));
}

#[test]
fn values_stay_out_of_logs() {
    let message = Message::new(packet(&request()));
    assert!(!format!("{message:?}").contains("value\\xff"), "{message:?}");
}

#[test]
fn a_reply_carries_what_the_store_says() {
    let asked = Message::new(packet(&request()));
    let mut store = Store::new(StoreConfig::new(1));
    store.handle_connected();
    let incoming = asked.as_incoming().expect("a message");
    store.handle_publish(now(), Principal::verified("c1"), &incoming);
    let reply = loop {
        if let Transmit::Publish(reply) = store.poll_transmit().expect("a reply") {
            break reply;
        }
    };
    let packet = packet(&reply);
    assert_eq!(packet.payload, &b"+OK\r\n"[..]);
    assert_eq!(packet.properties.get_user_property_value("__stat"), Some("200"));
    let version = packet.properties.get_user_property_value("__ts");
    assert_eq!(version, Some("1696374425000:2:StateStore"), "after its token");
}
