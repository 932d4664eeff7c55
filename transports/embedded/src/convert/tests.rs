use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::hlc::FencingToken;
use statestore_proto::message::{Command, Condition};
use statestore_proto::mqtt::{Correlation, ReasonCode, Transmit};
use statestore_proto::store::{Principal, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};

use statestore_mqtt::Reason;

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

/// A message as the broker passes it on to somebody in this process.
fn passed_on<P: Encode>(publish: &Packet<'_, P>) -> Message {
    let mut machine = broker::Broker::new(broker::Config::default());
    let (from, to) = ("c2", "receiver");
    let to = machine.attach(Duration::ZERO, to).expect("room");
    let subscription = subscription("#");
    assert!(!machine.subscribe_local(to, &subscription).is_error());
    let from = machine.attach(Duration::ZERO, from).expect("room");
    assert_eq!(machine.publish_local(Duration::ZERO, from, publish), Ok(Reason::SUCCESS));
    match machine.poll_local(Duration::ZERO, to) {
        Some(broker::LocalEvent::Message(message)) => Message::new(Duration::ZERO, message, None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_packet_keeps_everything() {
    let publish = request();
    let message = passed_on(&packet(&publish));
    let incoming = message.as_incoming().expect("a message");
    assert_eq!((incoming.topic, incoming.payload), (&*publish.topic, &publish.payload));
    assert_eq!(incoming.qos, mqtt::Qos::AtLeastOnce);
    assert_eq!(incoming.response_topic, publish.response_topic.as_deref());
    let correlation = publish.correlation_data.as_ref().map(Correlation::as_bytes);
    assert_eq!(incoming.correlation_data, correlation);
    assert_eq!(incoming.message_expiry, publish.message_expiry);
    assert!(incoming.message_expiry.is_some() && incoming.response_topic.is_some());
    let sent = publish.user_properties().map(|(name, value)| (name, value.to_string()));
    let kept = message.message.properties();
    assert!(kept.user().eq(sent.collect::<Vec<_>>().iter().map(|(name, value)| (*name, &**value))));
    assert_eq!(incoming.claimed_source(), Some("c1"));
    assert_eq!(incoming.verified_sender, Some("c2"), "whom the broker names");
    assert_eq!(message.sender(), Some("c2"));
}

#[test]
fn flags_and_absences_are_kept_apart() {
    let mut packet = Packet {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic: "t",
        id: None,
        properties: None,
        payload: b"",
    };
    let message = passed_on(&packet);
    let incoming = message.as_incoming().expect("a message");
    assert_eq!((incoming.qos, incoming.retain), (mqtt::Qos::AtMostOnce, false));
    assert_eq!(incoming.correlation_data, None);
    assert_eq!((incoming.response_topic, incoming.message_expiry), (None, None));

    packet.properties = Some(Property::CorrelationData(b""));
    packet.qos = Qos::ExactlyOnce;
    let message = passed_on(&packet);
    let incoming = message.as_incoming().expect("a message");
    assert_eq!(incoming.correlation_data, Some(&b""[..]), "empty is not absent");
    assert_eq!(incoming.qos, mqtt::Qos::ExactlyOnce);
}

#[test]
fn values_stay_out_of_logs() {
    let message = passed_on(&packet(&request()));
    assert!(!format!("{message:?}").contains("value\\xff"), "{message:?}");
}

#[test]
fn a_reply_carries_what_the_store_says() {
    let asked = passed_on(&packet(&request()));
    let mut store = Store::new(StoreConfig::new(1));
    store.handle_connected();
    let incoming = asked.as_incoming().expect("a message");
    store.handle_publish(now(), Principal::verified("c1"), &incoming);
    let reply = loop {
        if let Transmit::Publish(reply) = store.poll_transmit().expect("a reply") {
            break reply;
        }
    };
    let sent = passed_on(&packet(&reply));
    let properties = sent.message.properties();
    let value =
        |wanted| properties.user().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    assert_eq!(sent.payload, &b"+OK\r\n"[..]);
    assert_eq!(value("__stat"), Some("200"));
    assert_eq!(value("__ts"), Some("1696374425000:2:StateStore"), "after its token");
}
