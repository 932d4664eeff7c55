//! Normative statements of the MQTT 5 standard about servers that need more than an exchange of
//! packets, or many of them. `exchanges` covers the others. Each test names its statements.

use super::*;
use statestore_mqtt::packet::{Filters, RetainHandling, Unsubscribe};

use Qos::{AtLeastOnce, AtMostOnce, ExactlyOnce};

/// MQTT-3.1.2-2
#[test]
fn other_protocol_versions_are_rejected_in_their_own_format() {
    let mut net = Net::default();
    let old = net.accept().unwrap();
    net.write(old, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a");
    let mut out = BytesMut::new();
    assert_eq!(net.broker.poll_output(net.now, old, &mut out), Output::Close);
    assert_eq!(&out[..], [0x20, 0x02, 0x00, 0x01], "a CONNACK of MQTT 3.1.1");
    let new = net.accept().unwrap();
    net.write(new, b"\x10\x0e\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x01a");
    let expected = Received::ConnAck(false, Reason::UNSUPPORTED_PROTOCOL_VERSION);
    assert_eq!(net.receive(new), [expected]);
}

/// MQTT-3.3.1-5 to 3.3.1-8, 3.3.1-12, 3.3.1-13
#[test]
fn retained_message_is_sent_to_later_subscribers() {
    let mut net = Net::default();
    let from = net.connect("from", CLEAN);
    let retain = |net: &mut Net, payload: &str| {
        let publish = Publish { retain: true, ..publish("kept/t", payload, AtLeastOnce, 1) };
        net.send(from, Packet::Publish(publish));
    };
    let subscribed = |net: &mut Net, filter: &str, options| {
        let id = net.connect(&format!("to {filter} {options:?}"), CLEAN);
        net.subscribe_with(id, filter, options, &[]);
        net.advance(Duration::ZERO);
        (id, net.receive_payloads(id))
    };
    let always = SubscriptionOptions { qos: AtLeastOnce, ..SubscriptionOptions::default() };
    retain(&mut net, "one");
    retain(&mut net, "two");
    for filter in ["kept/t", "kept/+", "kept/#", "#", "+/t", "kept/t/#"] {
        assert_eq!(subscribed(&mut net, filter, always).1, ["two"], "{filter}");
    }
    for filter in ["kept", "kept/t/+", "other/#", "$share/g/kept/t", "kep/#", "kept/tt"] {
        assert_eq!(subscribed(&mut net, filter, always).1, [""; 0], "{filter}");
    }
    let never = SubscriptionOptions { retain_handling: RetainHandling::Never, ..always };
    assert_eq!(subscribed(&mut net, "kept/t", never).1, [""; 0]);
    let new = SubscriptionOptions { retain_handling: RetainHandling::IfNew, ..always };
    let (id, first) = subscribed(&mut net, "kept/t", new);
    net.subscribe_with(id, "kept/t", new, &[]);
    net.advance(Duration::ZERO);
    assert_eq!(
        (first, net.receive_payloads(id)),
        (vec!["two".to_owned()], vec![]),
        "the second SUBSCRIBE gets no retained message"
    );
    let as_published = SubscriptionOptions { retain_as_published: true, ..always };
    let (plain, _) = subscribed(&mut net, "kept/t", always);
    let (published, _) = subscribed(&mut net, "kept/t", as_published);
    retain(&mut net, "three");
    assert!(net.receive_messages(published).iter().all(|message| message.retain));
    assert!(
        net.receive_messages(plain).iter().all(|message| !message.retain),
        "a new message is not marked as retained"
    );
    retain(&mut net, "");
    assert_eq!(subscribed(&mut net, "#", always).1, [""; 0]);
    assert_eq!(net.broker.stats().retained, 0);
}

/// MQTT-4.3.2, 4.3.3, 4.4.0-1, 4.4.0-2, 4.6.0-1
#[test]
fn unacknowledged_messages_are_redelivered_in_order() {
    let mut net = Net::default();
    let from = net.connect("from", CLEAN);
    let to = net.connect("to", PERSISTENT);
    net.subscribe(to, "t", ExactlyOnce);
    net.publish(from, "t", "one", AtLeastOnce, 1);
    net.publish(from, "t", "two", ExactlyOnce, 2);
    net.publish(from, "t", "three", ExactlyOnce, 3);
    let messages = net.receive_messages(to);
    let ids: Vec<u16> = messages.iter().map(|message| message.id).collect();
    let (reason, properties) = (Reason::SUCCESS, &[][..]);
    let rec = Ack { id: packet_id(ids[2]), reason, properties };
    net.send(to, Packet::PubRec(rec));
    assert_eq!(net.receive(to), [Received::PubRel(ids[2], Reason::SUCCESS)]);
    net.close(to);
    net.publish(from, "t", "four", AtLeastOnce, 4);
    let to = net.try_connect("to", PERSISTENT);
    let received = net.receive(to);
    let [
        Received::ConnAck(true, _),
        Received::Publish(one),
        Received::Publish(two),
        three,
        Received::Publish(four),
    ] = &received[..]
    else {
        panic!("{received:?}")
    };
    assert_eq!((one.id, one.dup, two.id, two.dup), (ids[0], true, ids[1], true));
    assert_eq!(*three, Received::PubRel(ids[2], Reason::SUCCESS));
    assert_eq!((&four.payload[..], four.dup), (&b"four"[..], false));
    net.ack(to, one.id);
    net.send(to, Packet::PubComp(rec));
    net.send(to, Packet::PubRec(Ack { id: packet_id(two.id), ..rec }));
    assert_eq!(net.receive(to), [Received::PubRel(two.id, Reason::SUCCESS)]);
    net.send(to, Packet::PubRec(Ack { id: packet_id(9_999), ..rec }));
    assert_eq!(net.receive(to), [Received::PubRel(9_999, Reason::PACKET_IDENTIFIER_NOT_FOUND)]);
}

/// MQTT-3.3.4-7, 3.3.4-9, 4.9.0-2
#[test]
fn receive_maximum_limits_unacknowledged_messages_in_both_directions() {
    let mut net = Net::with_limits(|limits| limits.receive_maximum = 2);
    let from = net.connect("from", CLEAN);
    let window = ConnectOptions { properties: &[Property::ReceiveMaximum(3)], ..CLEAN };
    let to = net.connect("to", window);
    net.subscribe(to, "t", AtLeastOnce);
    for at in 1..=9 {
        net.publish(from, "t", &at.to_string(), AtLeastOnce, at);
    }
    let first = net.receive_messages(to);
    assert_eq!(first.len(), 3);
    net.write(to, &[0xc0, 0x00]);
    assert_eq!(net.receive(to), [Received::PingResp], "other packets are not held back");
    net.ack(to, first[1].id);
    assert_eq!(net.receive_payloads(to), ["4"]);
    net.receive(from);
    for (at, expected) in [
        (1, Received::PubRec(1, Reason::NO_MATCHING_SUBSCRIBERS)),
        (2, Received::PubRec(2, Reason::NO_MATCHING_SUBSCRIBERS)),
        (3, Received::Disconnect(Reason::RECEIVE_MAXIMUM_EXCEEDED)),
    ] {
        net.publish(from, "unmatched", "x", ExactlyOnce, at);
        assert_eq!(net.receive(from), [expected]);
    }
}

/// MQTT-3.1.2-24, 3.1.2-25, 3.2.2-15
#[test]
fn maximum_packet_size_is_enforced_in_both_directions() {
    let mut net = Net::with_limits(|limits| limits.packet_bytes = 1_000);
    let from = net.connect("from", CLEAN);
    let narrow = ConnectOptions { properties: &[Property::MaximumPacketSize(40)], ..CLEAN };
    let to = net.connect("to", narrow);
    net.subscribe(to, "t", AtLeastOnce);
    net.publish(from, "t", &"x".repeat(100), AtLeastOnce, 1);
    net.publish(from, "t", "fits", AtLeastOnce, 2);
    assert_eq!(net.receive_payloads(to), ["fits"], "the large message is dropped");
    net.receive(from);
    net.write(from, &[0x30, 0x80, 0x08]);
    assert_eq!(net.receive(from), [Received::Disconnect(Reason::PACKET_TOO_LARGE)]);
}

/// MQTT-3.3.2-7 to 3.3.2-12
#[test]
fn topic_alias_is_valid_on_its_connection_only() {
    let mut net = Net::with_limits(|limits| limits.topic_aliases = 2);
    let to = net.connect("to", CLEAN);
    net.subscribe(to, "#", AtMostOnce);
    let from = net.connect("from", CLEAN);
    let publish_with_alias = |net: &mut Net, from, topic, alias| {
        let properties = [Property::TopicAlias(alias)];
        let publish = Publish { properties: &properties[..], ..publish(topic, "x", AtMostOnce, 0) };
        net.send(from, Packet::Publish(publish));
        let messages = net.receive_messages(to);
        assert!(
            messages.iter().all(|message| message.properties.is_empty()),
            "aliases are not forwarded"
        );
        messages.into_iter().map(|message| message.topic).collect::<Vec<_>>()
    };
    assert_eq!(publish_with_alias(&mut net, from, "a", 1), ["a"]);
    assert_eq!(publish_with_alias(&mut net, from, "b", 2), ["b"]);
    assert_eq!(publish_with_alias(&mut net, from, "", 1), ["a"]);
    assert_eq!(publish_with_alias(&mut net, from, "c", 1), ["c"]);
    assert_eq!(publish_with_alias(&mut net, from, "", 1), ["c"]);
    let other = net.connect("other", CLEAN);
    assert_eq!(publish_with_alias(&mut net, other, "", 1), [""; 0]);
    assert_eq!(net.receive(other), [Received::Disconnect(Reason::PROTOCOL_ERROR)]);
    assert_eq!(publish_with_alias(&mut net, from, "d", 3), [""; 0]);
    assert_eq!(net.receive(from), [Received::Disconnect(Reason::TOPIC_ALIAS_INVALID)]);
}

/// MQTT-3.3.2-4 to 3.3.2-6, 3.3.2-15, 3.3.2-16, 3.3.2-17, 3.3.2-18, 3.3.2-20
#[test]
fn publish_properties_are_forwarded_unaltered_and_in_order() {
    let mut net = Net::default();
    let to = net.connect("to", PERSISTENT);
    let options = SubscriptionOptions { qos: AtLeastOnce, ..SubscriptionOptions::default() };
    net.subscribe_with(to, "t", options, &[Property::SubscriptionId(9)]);
    net.close(to);
    let from = net.connect("from", CLEAN);
    let sent = [
        Property::User("b", "1"),
        Property::PayloadFormat(true),
        Property::MessageExpiry(30),
        Property::User("a", "2"),
        Property::ContentType("text"),
        Property::User("b", "1"),
        Property::ResponseTopic("responses"),
        Property::CorrelationData(b""),
    ];
    let message = Publish { properties: &sent[..], ..publish("t", "x", AtLeastOnce, 1) };
    net.send(from, Packet::Publish(message));
    net.advance(Duration::from_millis(9_500));
    let to = net.try_connect("to", PERSISTENT);
    let mut expected = sent;
    expected[2] = Property::MessageExpiry(21);
    let mut expected: Vec<String> = expected.iter().map(show_property).collect();
    expected.push(show_property(&Property::SubscriptionId(9)));
    assert_eq!(net.receive_messages(to)[0].properties, expected);
    net.close(to);
    net.send(from, Packet::Publish(message));
    net.advance(seconds(31));
    let to = net.try_connect("to", PERSISTENT);
    assert_eq!(
        net.receive_payloads(to),
        ["x"],
        "a sent message is redelivered, a queued message expired"
    );
    assert_eq!(net.broker.stats().dropped, 1);
}

/// MQTT-3.8.3-3, 3.3.4-2 to 3.3.4-4, 3.8.4-8
#[test]
fn overlapping_subscriptions_deliver_a_message_once() {
    let mut net = Net::default();
    let to = net.connect("to", CLEAN);
    let options =
        |qos, no_local| SubscriptionOptions { qos, no_local, ..SubscriptionOptions::default() };
    net.subscribe_with(to, "a/+", options(AtMostOnce, false), &[Property::SubscriptionId(1)]);
    net.subscribe_with(to, "a/#", options(AtLeastOnce, true), &[Property::SubscriptionId(2)]);
    net.receive(to);
    let from = net.connect("from", CLEAN);
    net.publish(from, "a/b", "x", AtLeastOnce, 1);
    let messages = net.receive_messages(to);
    assert_eq!((messages.len(), messages[0].qos), (1, AtLeastOnce), "the highest QoS");
    assert_eq!(messages[0].properties, ["SubscriptionId(2)", "SubscriptionId(1)"]);
    net.publish(to, "a/b", "own", AtLeastOnce, 1);
    let messages = net.receive_messages(to);
    let expected = (1, AtMostOnce);
    assert_eq!((messages.len(), messages[0].qos), expected, "by the one without No Local");
}

/// MQTT-4.8.2-4 to 4.8.2-6
#[test]
fn shared_subscription_distributes_messages_evenly_to_connected_members() {
    let mut net = Net::default();
    let from = net.connect("from", CLEAN);
    let sharing: Vec<ConnectionId> =
        (0..3).map(|at| net.connect(&format!("s{at}"), PERSISTENT)).collect();
    for id in &sharing {
        net.subscribe(*id, "$share/g/t/+", AtLeastOnce);
    }
    let alone = net.connect("alone", CLEAN);
    net.subscribe(alone, "$share/h/t/#", AtLeastOnce);
    for at in 1..=6 {
        net.publish(from, "t/x", &at.to_string(), AtLeastOnce, at);
    }
    let counts: Vec<usize> = sharing.iter().map(|id| net.receive_messages(*id).len()).collect();
    assert_eq!((counts, net.receive_messages(alone).len()), (vec![2, 2, 2], 6));
    net.close(sharing[0]);
    for at in 1..=4 {
        net.publish(from, "t/x", &at.to_string(), AtLeastOnce, at);
    }
    let counts: Vec<usize> =
        sharing[1..].iter().map(|id| net.receive_messages(*id).len()).collect();
    assert_eq!(counts, [2, 2], "connected members");
}

/// MQTT-4.7.2-1, 3.10.4-1, 3.11.3-1
#[test]
fn filters_match_until_they_are_unsubscribed() {
    let mut net = Net::default();
    let to = net.connect("to", CLEAN);
    let from = net.connect("from", CLEAN);
    for (filter, topic, expected) in [
        ("#", "$SYS/x", 0),
        ("+/x", "$SYS/x", 0),
        ("$SYS/#", "$SYS/x", 1),
        ("a/#", "a", 1),
        ("a/+", "a", 0),
        ("+", "/a", 0),
        ("/+", "/a", 1),
        ("+/+", "/a", 1),
    ] {
        net.subscribe(to, filter, AtMostOnce);
        net.publish(from, topic, "x", AtMostOnce, 0);
        assert_eq!(net.receive_messages(to).len(), expected, "{filter} {topic}");
        let filters = [filter, "never"];
        let filters = Filters::new(&filters);
        let unsubscribe = Unsubscribe { id: packet_id(8), properties: &[][..], filters };
        net.send(to, Packet::Unsubscribe(unsubscribe));
        assert_eq!(net.receive(to), [Received::UnsubAck(vec![0x00, 0x11])]);
        net.publish(from, topic, "x", AtMostOnce, 0);
        assert_eq!(net.receive(to), []);
    }
}

/// MQTT-3.3.4-9, 3.1.2-25, for redelivered messages
#[test]
fn redelivery_respects_the_limits_of_the_new_connection() {
    let mut net = Net::default();
    let from = net.connect("from", CLEAN);
    let to = net.connect("to", PERSISTENT);
    net.subscribe(to, "t", AtLeastOnce);
    net.publish(from, "t", &"x".repeat(200), AtLeastOnce, 1);
    for at in 2..=5 {
        net.publish(from, "t", &at.to_string(), AtLeastOnce, at);
    }
    assert_eq!(net.receive_messages(to).len(), 5);
    net.close(to);
    let properties =
        [Property::SessionExpiry(60), Property::ReceiveMaximum(2), Property::MaximumPacketSize(64)];
    let to = net.try_connect("to", ConnectOptions { properties: &properties, ..PERSISTENT });
    let mut payloads = Vec::new();
    for _ in 0..4 {
        let messages = net.receive_messages(to);
        assert!(messages.len() <= 2, "{messages:?}");
        messages.iter().for_each(|message| net.ack(to, message.id));
        payloads.extend(messages.into_iter().map(|message| message.payload));
    }
    assert_eq!(payloads, [b"2", b"3", b"4", b"5"], "the large message is dropped");
}

/// MQTT-3.8.3-3
#[test]
fn no_local_applies_to_retained_messages() {
    let mut net = Net::default();
    let [own, other] = ["own", "other"].map(|name| net.connect(name, CLEAN));
    let retained = Publish { retain: true, ..publish("t", "x", AtLeastOnce, 1) };
    net.send(own, Packet::Publish(retained));
    let no_local = SubscriptionOptions { no_local: true, ..SubscriptionOptions::default() };
    for (id, expected) in [(own, 0), (other, 1)] {
        net.subscribe_with(id, "t", no_local, &[]);
        net.advance(Duration::ZERO);
        assert_eq!(net.receive_messages(id).len(), expected);
    }
}

/// MQTT-3.1.2-24: the CONNACK would exceed the maximum packet size.
#[test]
fn client_whose_maximum_packet_size_excludes_a_connack_is_closed() {
    let mut net = Net::default();
    let options = ConnectOptions { properties: &[Property::MaximumPacketSize(5)], ..CLEAN };
    let a = net.try_connect("a", options);
    assert_eq!((net.receive(a), net.is_closed(a)), (vec![], true));
    assert!(!net.broker.is_connected("a"));
}

/// MQTT-3.1.2-24, for a CONNACK with an error
#[test]
fn rejecting_connack_respects_the_maximum_packet_size() {
    let mut net = Net::new(Config { requires_login: true, ..Config::default() });
    for (packet_bytes, expected) in
        [(4, vec![]), (5, vec![Received::ConnAck(false, Reason::NOT_AUTHORIZED)])]
    {
        let options =
            ConnectOptions { properties: &[Property::MaximumPacketSize(packet_bytes)], ..CLEAN };
        let a = net.try_connect("a", options);
        net.broker.handle_login(net.now, a, Err(Reason::NOT_AUTHORIZED));
        assert_eq!((net.receive(a), net.is_closed(a)), (expected, true));
    }
}

/// MQTT-3.1.0-2, and section 3.14.2.1: reason codes of DISCONNECT exclude an unsupported version.
#[test]
fn second_connect_with_another_version_is_a_protocol_error() {
    let mut net = Net::default();
    let id = net.connect("a", CLEAN);
    net.write(id, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a");
    assert_eq!(net.receive(id), [Received::Disconnect(Reason::PROTOCOL_ERROR)]);
}
