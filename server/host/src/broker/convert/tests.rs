use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::hlc::FencingToken;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{self, Correlation, Publish, ReasonCode, Transmit};

use statestore_mqtt::packet::{Publish as Packet, Subscription};
use statestore_mqtt::property::{Encode, Property};
use statestore_mqtt::{Qos, Reason};
use statestore_tokio::adapter::publish_packet;

use super::*;

fn now() -> Now {
    Now::new(Instant::default(), UnixTime::from_millis(1_696_374_425_000))
}

/// Returns the first request of a client, as the state machine emits it.
fn request() -> Publish {
    let mut client = Client::new(ClientConfig::new("c1", *b"8 random")).expect("a client id");
    let token = FencingToken::new("1696374425000:1:holder".parse().expect("a clock value"));
    let request = Request::set(b"key", b"\0value\xff").fencing_token(token).persist(true);
    client.submit(now(), request).expect("capacity");
    client.handle(now(), Input::Connected { session_present: false });
    let Some(Transmit::Subscribe { token, .. }) = client.poll_transmit() else {
        panic!("expected a subscription first")
    };
    client.handle(now(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
    let Some(Transmit::Publish(publish)) = client.poll_transmit() else {
        panic!("expected a publish")
    };
    publish
}

/// Returns a message as the broker delivers it to a client in this process.
fn delivered<P: Encode>(publish: &Packet<'_, P>) -> Message {
    let mut broker = statestore_broker::Broker::new(statestore_broker::Config::default());
    let (from, to) = ("c2", "receiver");
    let to = broker.attach(Duration::ZERO, to).expect("capacity");
    let subscription = Subscription::new("#", Qos::AtLeastOnce);
    assert!(!broker.subscribe_local(to, &subscription).is_error());
    let from = broker.attach(Duration::ZERO, from).expect("capacity");
    assert_eq!(broker.publish_local(Duration::ZERO, from, publish), Ok(Reason::SUCCESS));
    match broker.poll_local(Duration::ZERO, to) {
        Some(statestore_broker::LocalEvent::Message(message, _)) => {
            Message::new(Duration::ZERO, message, None, None)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn conversion_preserves_all_fields() {
    let publish = request();
    let message = delivered(&publish_packet(&publish));
    let incoming = message.as_incoming().expect("a message");
    assert_eq!((incoming.topic, incoming.payload), (&*publish.topic, &publish.payload));
    assert_eq!(incoming.qos, transport::Qos::AtLeastOnce);
    assert_eq!(incoming.response_topic, publish.response_topic.as_deref());
    let correlation = publish.correlation_data.as_ref().map(Correlation::as_bytes);
    assert_eq!(incoming.correlation_data, correlation);
    assert_eq!(incoming.message_expiry, publish.message_expiry);
    assert!(incoming.message_expiry.is_some() && incoming.response_topic.is_some());
    let sent = publish.user_properties().map(|(name, value)| (name, value.to_string()));
    let kept = message.message.properties();
    assert!(kept.user().eq(sent.collect::<Vec<_>>().iter().map(|(name, value)| (*name, &**value))));
    assert_eq!(incoming.properties.source, Some("c1"));
    assert_eq!(incoming.verified_sender, Some("c2"), "the client id that the broker verified");
    assert_eq!(message.sender(), Some("c2"));
}

#[test]
fn absent_and_empty_properties_are_distinguished() {
    let mut packet = Packet {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic: "t",
        id: None,
        properties: None,
        payload: b"",
    };
    let message = delivered(&packet);
    let incoming = message.as_incoming().expect("a message");
    assert_eq!((incoming.qos, incoming.retain), (transport::Qos::AtMostOnce, false));
    assert_eq!(incoming.correlation_data, None);
    assert_eq!((incoming.response_topic, incoming.message_expiry), (None, None));

    packet.properties = Some(Property::CorrelationData(b""));
    packet.qos = Qos::ExactlyOnce;
    let message = delivered(&packet);
    let incoming = message.as_incoming().expect("a message");
    assert_eq!(incoming.correlation_data, Some(&b""[..]), "empty is not absent");
    assert_eq!(incoming.qos, transport::Qos::ExactlyOnce);
}

#[test]
fn debug_output_contains_no_values() {
    let message = delivered(&publish_packet(&request()));
    assert!(!format!("{message:?}").contains("value\\xff"), "{message:?}");
}

#[test]
fn reply_has_status_and_version_of_the_store() {
    let request_message = delivered(&publish_packet(&request()));
    let mut store = Store::new(StoreConfig::new(1));
    store.handle(Now::default(), Input::Connected { session_present: false });
    let mut incoming = request_message.as_incoming().expect("a message");
    incoming.verified_sender = incoming.properties.source;
    store.handle_publish(now(), &incoming);
    let reply = loop {
        if let Transmit::Publish(reply) = store.poll_transmit().expect("a reply") {
            break reply;
        }
    };
    let sent = delivered(&publish_packet(&reply));
    let properties = sent.message.properties();
    let value =
        |wanted| properties.user().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    assert_eq!(sent.payload, &b"+OK\r\n"[..]);
    assert_eq!(value("__stat"), Some("200"));
    assert_eq!(value("__ts"), Some("1696374425000:2:StateStore"), "later than its fencing token");
}
