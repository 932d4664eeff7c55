//! What the standard says of a server, each with the number of its statement.

use super::*;
use statestore_mqtt::packet::{Filters, RetainHandling, Unsubscribe};

use Qos::{AtLeastOnce, AtMostOnce, ExactlyOnce};

/// MQTT-3.1.0-1, MQTT-3.1.0-2
#[test]
fn a_connection_begins_with_one_connect() {
    let mut net = Net::default();
    let early = net.accept().unwrap();
    net.write(early, &[0xc0, 0x00]);
    assert_eq!(net.seen(early), []);
    assert!(net.is_closed(early));
    let twice = net.connect("a", HELLO);
    net.write(twice, b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01a");
    assert_eq!(net.seen(twice), [Seen::Disconnect(Reason::PROTOCOL_ERROR)]);
    assert!(net.is_closed(twice));
}

/// MQTT-3.1.2-2
#[test]
fn other_versions_are_told_that_they_are_not_served() {
    let mut net = Net::default();
    let old = net.accept().unwrap();
    net.write(old, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a");
    let mut out = BytesMut::new();
    assert_eq!(net.broker.poll_output(net.now, old, &mut out), Output::Close);
    assert_eq!(&out[..], [0x20, 0x02, 0x00, 0x01], "in the words of 3.1.1");
    let new = net.accept().unwrap();
    net.write(new, b"\x10\x0e\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x01a");
    let told = Seen::ConnAck(false, Reason::UNSUPPORTED_PROTOCOL_VERSION);
    assert_eq!(net.seen(new), [told]);
}

/// MQTT-3.1.2-4 to 3.1.2-6, 3.2.2-2, 3.2.2-3
#[test]
fn a_session_lives_as_long_as_it_was_asked_for() {
    let mut net = Net::default();
    let first = net.connect("a", KEPT);
    net.subscribe(first, "t", AtLeastOnce);
    net.close(first);
    net.pass(seconds(59));
    let second = net.try_connect("a", KEPT);
    assert_eq!(net.seen(second), [Seen::ConnAck(true, Reason::SUCCESS)]);
    net.close(second);
    net.pass(seconds(61));
    let third = net.try_connect("a", KEPT);
    assert_eq!(net.seen(third), [Seen::ConnAck(false, Reason::SUCCESS)], "it has ended");
    net.subscribe(third, "t", AtLeastOnce);
    let clean = net.try_connect("a", Hello { clean_start: true, ..KEPT });
    assert_eq!(net.seen(clean), [Seen::ConnAck(false, Reason::SUCCESS)]);
    net.publish(clean, "t", "x", AtLeastOnce, 1);
    let nobody = Seen::PubAck(1, Reason::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(net.seen(clean), [nobody], "and its subscriptions with it");
}

/// MQTT-3.1.4-3
#[test]
fn who_is_taken_over_is_told() {
    let mut net = Net::default();
    let old = net.connect("a", HELLO);
    let new = net.connect("a", HELLO);
    assert_eq!(net.seen(old), [Seen::Disconnect(Reason::SESSION_TAKEN_OVER)]);
    assert!(net.is_closed(old));
    net.close(old);
    net.write(new, &[0xc0, 0x00]);
    assert_eq!(net.seen(new), [Seen::PingResp], "the new one stays");
}

/// MQTT-3.1.3-6, 3.1.3-7
#[test]
fn who_has_no_name_gets_one() {
    let mut net = Net::default();
    let one = net.connect("", HELLO);
    let other = net.connect("", HELLO);
    net.write(one, &[0xc0, 0x00]);
    assert_eq!(net.seen(one), [Seen::PingResp]);
    assert_eq!(net.seen(other), []);
}

/// MQTT-3.1.2-22
#[test]
fn who_is_silent_for_one_and_a_half_times_the_keep_alive_is_disconnected() {
    let mut net = Net::default();
    let silent = net.connect("a", Hello { keep_alive: 10, ..HELLO });
    let quiet = net.connect("b", HELLO);
    net.pass(seconds(14));
    assert_eq!(net.seen(silent), []);
    net.write(silent, &[0xc0, 0x00]);
    net.pass(seconds(14));
    assert_eq!(net.seen(silent), [Seen::PingResp]);
    net.pass(seconds(2));
    assert_eq!(net.seen(silent), [Seen::Disconnect(Reason::KEEP_ALIVE_TIMEOUT)]);
    net.pass(seconds(1_000_000));
    assert_eq!(net.seen(quiet), [], "it asked for none");
}

/// MQTT-3.1.2-8, 3.1.2-10, 3.14.4-3, 3.1.3-9
#[test]
fn a_will_is_for_those_who_go_without_a_word() {
    let delayed = [Property::WillDelay(5)];
    let session = [Property::SessionExpiry(60)];
    let mut net = Net::default();
    let heir = net.connect("heir", HELLO);
    net.subscribe(heir, "wills/#", AtLeastOnce);
    let leave = |net: &mut Net, name: &str, properties, end: &dyn Fn(&mut Net, ConnectionId)| {
        let topic = format!("wills/{name}");
        let hello = Hello {
            will: Some(will(&topic, "farewell", properties)),
            properties: &session,
            ..HELLO
        };
        let id = net.connect(name, hello);
        end(net, id);
        let topics = net.heard(heir).into_iter().map(|message| message.topic);
        topics.collect::<Vec<_>>()
    };
    let drop = |net: &mut Net, id| net.close(id);
    let goodbye = |net: &mut Net, id| net.disconnect(id, Reason::SUCCESS, &[]);
    let with_will = |net: &mut Net, id| net.disconnect(id, Reason::DISCONNECT_WITH_WILL, &[]);
    assert_eq!(leave(&mut net, "dropped", &[], &drop), ["wills/dropped"]);
    assert_eq!(leave(&mut net, "polite", &[], &goodbye), [""; 0]);
    assert_eq!(leave(&mut net, "wants", &[], &with_will), ["wills/wants"]);
    assert_eq!(leave(&mut net, "late", &delayed, &drop), [""; 0]);
    net.pass(seconds(4));
    assert_eq!(net.heard(heir), []);
    net.pass(seconds(2));
    assert_eq!(net.heard(heir).len(), 1);
    assert_eq!(leave(&mut net, "back", &delayed, &drop), [""; 0]);
    net.connect("back", KEPT);
    net.pass(seconds(10));
    assert_eq!(net.heard(heir), [], "it was back in time");
    // A session that ends takes its will with it, however long that would have waited.
    assert_eq!(leave(&mut net, "ends", &delayed, &drop), [""; 0]);
    net.connect("ends", HELLO);
    assert_eq!(net.heard(heir).len(), 1);
}

/// MQTT-3.3.1-5 to 3.3.1-8, 3.3.1-12, 3.3.1-13
#[test]
fn what_is_retained_comes_to_those_who_subscribe_later() {
    let mut net = Net::default();
    let from = net.connect("from", HELLO);
    let keep = |net: &mut Net, payload: &str| {
        let publish = Publish { retain: true, ..publish("kept/t", payload, AtLeastOnce, 1) };
        net.send(from, Packet::Publish(publish));
    };
    let subscribed = |net: &mut Net, filter: &str, options| {
        let id = net.connect(&format!("to {filter} {options:?}"), HELLO);
        net.subscribe_with(id, filter, options, &[]);
        net.pass(Duration::ZERO);
        (id, net.payloads(id))
    };
    let always = SubscriptionOptions { qos: AtLeastOnce, ..SubscriptionOptions::default() };
    keep(&mut net, "one");
    keep(&mut net, "two");
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
    net.pass(Duration::ZERO);
    assert_eq!((first, net.payloads(id)), (vec!["two".to_owned()], vec![]), "once");
    let as_published = SubscriptionOptions { retain_as_published: true, ..always };
    let (plain, _) = subscribed(&mut net, "kept/t", always);
    let (published, _) = subscribed(&mut net, "kept/t", as_published);
    keep(&mut net, "three");
    assert!(net.heard(published).iter().all(|message| message.retain));
    assert!(net.heard(plain).iter().all(|message| !message.retain), "it is news");
    keep(&mut net, "");
    assert_eq!(subscribed(&mut net, "#", always).1, [""; 0]);
    assert_eq!(net.broker.stats().retained, 0);
}

/// MQTT-4.3.2, 4.3.3, 4.4.0-1, 4.4.0-2, 4.6.0-1
#[test]
fn what_was_not_acknowledged_comes_again_in_order() {
    let mut net = Net::default();
    let from = net.connect("from", HELLO);
    let to = net.connect("to", KEPT);
    net.subscribe(to, "t", ExactlyOnce);
    net.publish(from, "t", "one", AtLeastOnce, 1);
    net.publish(from, "t", "two", ExactlyOnce, 2);
    net.publish(from, "t", "three", ExactlyOnce, 3);
    let heard = net.heard(to);
    let ids: Vec<u16> = heard.iter().map(|message| message.id).collect();
    let (reason, properties) = (Reason::SUCCESS, &[][..]);
    let rec = Ack { id: number(ids[2]), reason, properties };
    net.send(to, Packet::PubRec(rec));
    assert_eq!(net.seen(to), [Seen::PubRel(ids[2], Reason::SUCCESS)]);
    net.close(to);
    net.publish(from, "t", "four", AtLeastOnce, 4);
    let to = net.try_connect("to", KEPT);
    let seen = net.seen(to);
    let [
        Seen::ConnAck(true, _),
        Seen::Publish(one),
        Seen::Publish(two),
        three,
        Seen::Publish(four),
    ] = &seen[..]
    else {
        panic!("{seen:?}")
    };
    assert_eq!((one.id, one.dup, two.id, two.dup), (ids[0], true, ids[1], true));
    assert_eq!(*three, Seen::PubRel(ids[2], Reason::SUCCESS));
    assert_eq!((&four.payload[..], four.dup), (&b"four"[..], false));
    net.ack(to, one.id);
    net.send(to, Packet::PubComp(rec));
    net.send(to, Packet::PubRec(Ack { id: number(two.id), ..rec }));
    assert_eq!(net.seen(to), [Seen::PubRel(two.id, Reason::SUCCESS)]);
    net.send(to, Packet::PubRec(Ack { id: number(9_999), ..rec }));
    assert_eq!(net.seen(to), [Seen::PubRel(9_999, Reason::PACKET_IDENTIFIER_NOT_FOUND)]);
}

/// MQTT-4.3.3-8 to 4.3.3-13
#[test]
fn a_message_at_qos_2_has_one_effect() {
    let mut net = Net::default();
    let from = net.connect("from", HELLO);
    let to = net.connect("to", HELLO);
    net.subscribe(to, "t", AtMostOnce);
    for _ in 0..3 {
        net.publish(from, "t", "once", ExactlyOnce, 5);
        assert_eq!(net.seen(from), [Seen::PubRec(5, Reason::SUCCESS)]);
    }
    assert_eq!(net.payloads(to), ["once"]);
    let (reason, properties) = (Reason::SUCCESS, &[][..]);
    let rel = Ack { id: number(5), reason, properties };
    net.send(from, Packet::PubRel(rel));
    net.send(from, Packet::PubRel(rel));
    let (done, unknown) = (Reason::SUCCESS, Reason::PACKET_IDENTIFIER_NOT_FOUND);
    assert_eq!(net.seen(from), [Seen::PubComp(5, done), Seen::PubComp(5, unknown)]);
    net.publish(from, "t", "again", ExactlyOnce, 5);
    assert_eq!(net.payloads(to), ["again"], "the identifier is free");
}

/// MQTT-3.3.4-7, 3.3.4-9, 4.9.0-2
#[test]
fn no_more_is_on_its_way_than_was_agreed() {
    let mut net = Net::limited(|limits| limits.receive_maximum = 2);
    let from = net.connect("from", HELLO);
    let window = Hello { properties: &[Property::ReceiveMaximum(3)], ..HELLO };
    let to = net.connect("to", window);
    net.subscribe(to, "t", AtLeastOnce);
    for at in 1..=9 {
        net.publish(from, "t", &at.to_string(), AtLeastOnce, at);
    }
    let first = net.heard(to);
    assert_eq!(first.len(), 3);
    net.write(to, &[0xc0, 0x00]);
    assert_eq!(net.seen(to), [Seen::PingResp], "other packets pass");
    net.ack(to, first[1].id);
    assert_eq!(net.payloads(to), ["4"]);
    net.seen(from);
    for (at, expected) in [
        (1, Seen::PubRec(1, Reason::NO_MATCHING_SUBSCRIBERS)),
        (2, Seen::PubRec(2, Reason::NO_MATCHING_SUBSCRIBERS)),
        (3, Seen::Disconnect(Reason::RECEIVE_MAXIMUM_EXCEEDED)),
    ] {
        net.publish(from, "nobody", "x", ExactlyOnce, at);
        assert_eq!(net.seen(from), [expected]);
    }
}

/// MQTT-3.1.2-24, 3.1.2-25, 3.2.2-15
#[test]
fn no_packet_is_larger_than_was_agreed() {
    let mut net = Net::limited(|limits| limits.packet_bytes = 1_000);
    let from = net.connect("from", HELLO);
    let narrow = Hello { properties: &[Property::MaximumPacketSize(40)], ..HELLO };
    let to = net.connect("to", narrow);
    net.subscribe(to, "t", AtLeastOnce);
    net.publish(from, "t", &"x".repeat(100), AtLeastOnce, 1);
    net.publish(from, "t", "fits", AtLeastOnce, 2);
    assert_eq!(net.payloads(to), ["fits"], "as if it had been acknowledged");
    net.seen(from);
    net.write(from, &[0x30, 0x80, 0x08]);
    assert_eq!(net.seen(from), [Seen::Disconnect(Reason::PACKET_TOO_LARGE)]);
}

/// MQTT-3.3.2-7 to 3.3.2-12
#[test]
fn aliases_stand_for_topics_of_their_connection() {
    let mut net = Net::limited(|limits| limits.topic_aliases = 2);
    let to = net.connect("to", HELLO);
    net.subscribe(to, "#", AtMostOnce);
    let from = net.connect("from", HELLO);
    let say = |net: &mut Net, from, topic, alias| {
        let properties = [Property::TopicAlias(alias)];
        let publish = Publish { properties: &properties[..], ..publish(topic, "x", AtMostOnce, 0) };
        net.send(from, Packet::Publish(publish));
        let heard = net.heard(to);
        assert!(
            heard.iter().all(|message| message.properties.is_empty()),
            "it is the sender's own"
        );
        heard.into_iter().map(|message| message.topic).collect::<Vec<_>>()
    };
    assert_eq!(say(&mut net, from, "a", 1), ["a"]);
    assert_eq!(say(&mut net, from, "b", 2), ["b"]);
    assert_eq!(say(&mut net, from, "", 1), ["a"]);
    assert_eq!(say(&mut net, from, "c", 1), ["c"]);
    assert_eq!(say(&mut net, from, "", 1), ["c"]);
    let other = net.connect("other", HELLO);
    assert_eq!(say(&mut net, other, "", 1), [""; 0]);
    assert_eq!(net.seen(other), [Seen::Disconnect(Reason::PROTOCOL_ERROR)]);
    assert_eq!(say(&mut net, from, "d", 3), [""; 0]);
    assert_eq!(net.seen(from), [Seen::Disconnect(Reason::TOPIC_ALIAS_INVALID)]);
}

/// MQTT-3.3.2-4 to 3.3.2-6, 3.3.2-15, 3.3.2-16, 3.3.2-17, 3.3.2-18, 3.3.2-20
#[test]
fn properties_are_forwarded_as_they_came_and_in_order() {
    let mut net = Net::default();
    let to = net.connect("to", KEPT);
    let options = SubscriptionOptions { qos: AtLeastOnce, ..SubscriptionOptions::default() };
    net.subscribe_with(to, "t", options, &[Property::SubscriptionId(9)]);
    net.close(to);
    let from = net.connect("from", HELLO);
    let sent = [
        Property::User("b", "1"),
        Property::PayloadFormat(true),
        Property::MessageExpiry(30),
        Property::User("a", "2"),
        Property::ContentType("text"),
        Property::User("b", "1"),
        Property::ResponseTopic("answers"),
        Property::CorrelationData(b""),
    ];
    let message = Publish { properties: &sent[..], ..publish("t", "x", AtLeastOnce, 1) };
    net.send(from, Packet::Publish(message));
    net.pass(Duration::from_millis(9_500));
    let to = net.try_connect("to", KEPT);
    let mut expected = sent;
    expected[2] = Property::MessageExpiry(21);
    let mut expected: Vec<String> = expected.iter().map(|one| format!("{one:?}")).collect();
    expected.push(format!("{:?}", Property::SubscriptionId(9)));
    assert_eq!(net.heard(to)[0].properties, expected);
    net.close(to);
    net.send(from, Packet::Publish(message));
    net.pass(seconds(31));
    let to = net.try_connect("to", KEPT);
    assert_eq!(
        net.payloads(to),
        ["x"],
        "what was on its way comes again, what was not is out of date"
    );
    assert_eq!(net.broker.stats().dropped, 1);
}

/// MQTT-3.8.3-3, 3.3.4-2 to 3.3.4-4, 3.8.4-8
#[test]
fn subscriptions_that_overlap_bring_a_message_once() {
    let mut net = Net::default();
    let to = net.connect("to", HELLO);
    let options =
        |qos, no_local| SubscriptionOptions { qos, no_local, ..SubscriptionOptions::default() };
    net.subscribe_with(to, "a/+", options(AtMostOnce, false), &[Property::SubscriptionId(1)]);
    net.subscribe_with(to, "a/#", options(AtLeastOnce, true), &[Property::SubscriptionId(2)]);
    net.seen(to);
    let from = net.connect("from", HELLO);
    net.publish(from, "a/b", "x", AtLeastOnce, 1);
    let heard = net.heard(to);
    assert_eq!((heard.len(), heard[0].qos), (1, AtLeastOnce), "the greatest");
    assert_eq!(heard[0].properties, ["SubscriptionId(2)", "SubscriptionId(1)"]);
    net.publish(to, "a/b", "own", AtLeastOnce, 1);
    let heard = net.heard(to);
    assert_eq!((heard.len(), heard[0].qos), (1, AtMostOnce), "by the one that wants its own");
}

/// MQTT-4.8.2-4 to 4.8.2-6
#[test]
fn those_who_share_have_their_turns() {
    let mut net = Net::default();
    let from = net.connect("from", HELLO);
    let sharing: Vec<ConnectionId> =
        (0..3).map(|at| net.connect(&format!("s{at}"), KEPT)).collect();
    for id in &sharing {
        net.subscribe(*id, "$share/g/t/+", AtLeastOnce);
    }
    let alone = net.connect("alone", HELLO);
    net.subscribe(alone, "$share/h/t/#", AtLeastOnce);
    for at in 1..=6 {
        net.publish(from, "t/x", &at.to_string(), AtLeastOnce, at);
    }
    let heard: Vec<usize> = sharing.iter().map(|id| net.heard(*id).len()).collect();
    assert_eq!((heard, net.heard(alone).len()), (vec![2, 2, 2], 6));
    net.close(sharing[0]);
    for at in 1..=4 {
        net.publish(from, "t/x", &at.to_string(), AtLeastOnce, at);
    }
    let heard: Vec<usize> = sharing[1..].iter().map(|id| net.heard(*id).len()).collect();
    assert_eq!(heard, [2, 2], "those that are there");
}

/// MQTT-4.7.2-1, 3.10.4-1, 3.11.3-1
#[test]
fn filters_match_and_end_as_they_say() {
    let mut net = Net::default();
    let to = net.connect("to", HELLO);
    let from = net.connect("from", HELLO);
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
        assert_eq!(net.heard(to).len(), expected, "{filter} {topic}");
        let filters = [filter, "never"];
        let filters = Filters::new(&filters);
        let unsubscribe = Unsubscribe { id: number(8), properties: &[][..], filters };
        net.send(to, Packet::Unsubscribe(unsubscribe));
        assert_eq!(net.seen(to), [Seen::UnsubAck(vec![0x00, 0x11])]);
        net.publish(from, topic, "x", AtMostOnce, 0);
        assert_eq!(net.seen(to), []);
    }
}

/// MQTT-3.14.2-2
#[test]
fn a_session_that_was_to_end_cannot_be_kept() {
    let mut net = Net::default();
    let id = net.connect("a", HELLO);
    let notice = Notice { reason: Reason::SUCCESS, properties: &[Property::SessionExpiry(5)][..] };
    net.send(id, Packet::Disconnect(notice));
    assert_eq!(net.seen(id), [Seen::Disconnect(Reason::PROTOCOL_ERROR)]);
    let kept = net.connect("b", KEPT);
    net.disconnect(kept, Reason::SUCCESS, &[Property::SessionExpiry(5)]);
    net.pass(seconds(6));
    let back = net.try_connect("b", KEPT);
    assert_eq!(net.seen(back), [Seen::ConnAck(false, Reason::SUCCESS)], "a shorter one can");
}

/// MQTT-3.3.4-9, 3.1.2-25: also of what is sent again.
#[test]
fn what_is_sent_again_keeps_to_what_is_agreed_now() {
    let mut net = Net::default();
    let from = net.connect("from", HELLO);
    let to = net.connect("to", KEPT);
    net.subscribe(to, "t", AtLeastOnce);
    net.publish(from, "t", &"x".repeat(200), AtLeastOnce, 1);
    for at in 2..=5 {
        net.publish(from, "t", &at.to_string(), AtLeastOnce, at);
    }
    assert_eq!(net.heard(to).len(), 5);
    net.close(to);
    let properties =
        [Property::SessionExpiry(60), Property::ReceiveMaximum(2), Property::MaximumPacketSize(64)];
    let to = net.try_connect("to", Hello { properties: &properties, ..KEPT });
    let mut heard = Vec::new();
    for _ in 0..4 {
        let some = net.heard(to);
        assert!(some.len() <= 2, "{some:?}");
        some.iter().for_each(|message| net.ack(to, message.id));
        heard.extend(some.into_iter().map(|message| message.payload));
    }
    assert_eq!(heard, [b"2", b"3", b"4", b"5"], "the large one is dropped, and holds up nobody");
}

/// MQTT-3.8.3-3
#[test]
fn what_a_client_retained_itself_is_its_own_too() {
    let mut net = Net::default();
    let [own, other] = ["own", "other"].map(|name| net.connect(name, HELLO));
    let kept = Publish { retain: true, ..publish("t", "x", AtLeastOnce, 1) };
    net.send(own, Packet::Publish(kept));
    let no_local = SubscriptionOptions { no_local: true, ..SubscriptionOptions::default() };
    for (id, expected) in [(own, 0), (other, 1)] {
        net.subscribe_with(id, "t", no_local, &[]);
        net.pass(Duration::ZERO);
        assert_eq!(net.heard(id).len(), expected);
    }
}

/// MQTT-3.1.2-24: no packet goes to it, and without the first it cannot go on.
#[test]
fn who_takes_no_packet_as_large_as_a_connack_is_not_accepted() {
    let mut net = Net::default();
    let hello = Hello { properties: &[Property::MaximumPacketSize(5)], ..HELLO };
    let a = net.try_connect("a", hello);
    assert_eq!((net.seen(a), net.is_closed(a)), (vec![], true));
    assert!(!net.broker.is_connected("a"));
}

/// MQTT-3.1.2-24, for one that says no
#[test]
fn a_refusal_is_no_larger_than_its_client_takes() {
    let mut net = Net::new(Config { asks_who: true, ..Config::default() });
    for (packet_bytes, expected) in
        [(4, vec![]), (5, vec![Seen::ConnAck(false, Reason::NOT_AUTHORIZED)])]
    {
        let hello = Hello { properties: &[Property::MaximumPacketSize(packet_bytes)], ..HELLO };
        let a = net.try_connect("a", hello);
        net.broker.handle_login(net.now, a, Err(Reason::NOT_AUTHORIZED));
        assert_eq!((net.seen(a), net.is_closed(a)), (expected, true));
    }
}

/// A second CONNECT is a protocol error, of whatever version it is: 3.1.0-2, and 3.14.2.1 for the reasons that there are.
#[test]
fn a_second_connect_of_another_version_is_a_protocol_error() {
    let mut net = Net::default();
    let id = net.connect("a", HELLO);
    net.write(id, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a");
    assert_eq!(net.seen(id), [Seen::Disconnect(Reason::PROTOCOL_ERROR)]);
}
